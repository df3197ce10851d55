"""What a round gives agents to read besides the question, the x_t of the recurrence in words, and its sentences."""

import re
from collections.abc import Sequence

from nsed_torch.records.transcript import Task


def pieces(task: Task, index: int, names: Sequence[str]) -> dict[str, str]:
    """Agent -> what round `index`, from 1, gives it to read; `names` are the ensemble's, in its order.

    Raises:
        ValueError: if a piece is for somebody who is not there, or for the same agent twice.
    """
    if not task.reads(index):
        return {}
    piece = task.inputs[index - 1]
    if isinstance(piece, str):
        return dict.fromkeys(names, piece)
    known = {str(place): name for place, name in enumerate(names)} | {name: name for name in names}
    given = {known.get(key, ""): text for key, text in piece.items()}
    if "" in given or len(given) < len(piece):
        wanted = f"each agent once, by its name or its place from 0 to {len(names) - 1}"
        got = ", ".join(map(repr, piece))[:60]
        raise ValueError(f"task {task.id!r}, piece {index}: expected {wanted}, got {got}: correct the inputs")
    return given


def check_inputs(task: Task, names: Sequence[str]) -> None:
    """Refuse inputs that are for others than these agents, before anybody is asked."""
    for index in range(1, len(task.inputs) + 1):
        pieces(task, index, names)


_ENDS = re.compile(r"(?<=[.!?])\s+|\n+")


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order: what ends in a full stop, a question or exclamation mark, or with its line."""
    return [part for part in _ENDS.split(text) if part and not part.isspace()]


def verbatim(note: str, piece: str) -> str:
    """Those sentences of a note that a piece says word for word; "" where there are none.

    Blanks, case and a missing full stop make no difference. Sentences are compared whole, for a part of one may say
    something else.

    Examples:
        >>> verbatim("Bo has the ring. Cy has the ring.", "Ada sleeps.  Bo has the ring.")
        'Bo has the ring.'
        >>> verbatim("Bo has the ring.", "Nobody knows that Bo has the ring.")
        ''
    """
    known = {_plain(sentence) for sentence in sentences(piece)}
    kept = [sentence.strip() for sentence in sentences(note) if _plain(sentence) in known]
    # Without its mark a sentence ends with its line alone.
    return "".join(sentence + (" " if sentence[-1] in ".!?" else "\n") for sentence in kept).strip()


def _plain(sentence: str) -> str:
    return " ".join(sentence.split()).rstrip(".").casefold()
