"""What a round gives agents to read besides the question: the x_t of the recurrence, in words."""

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
