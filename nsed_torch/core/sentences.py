"""Sentences of a text, and which of a note's sentences stand in what was read."""

import re

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
