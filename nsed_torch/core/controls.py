"""What may be made worthless, to see what it is worth: the ratings, or the memory. Ours.

"ratings": each judge's change places by chance. "memory": agents are shown what the memory of the batch's next task
holds; of a task alone, nothing.
"""

from collections.abc import Sequence

from nsed_torch.core.ratings_received import Hearing
from nsed_torch.core.state import DeliberationState, SlotText


def shown_slots(control: str | None, state: DeliberationState, row: int) -> tuple[Sequence[SlotText], Sequence[float]]:
    """The slots that a task's agents may be shown, in words, and the retention of each."""
    tasks = len(state.slots)
    if control == "memory" and tasks == 1:
        return (), ()
    row = (row + 1) % tasks if control == "memory" else row
    return state.slots[row], state.memory.retention[row].tolist()


def counted_ratings(control: str | None, hearing: Hearing, seeds: Sequence[int]) -> Hearing:
    """What judges said, as far as it counts; a seed a judge."""
    return hearing.dealt_anew(seeds) if control == "ratings" else hearing
