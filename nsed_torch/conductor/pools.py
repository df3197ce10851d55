"""Which workers a Conductor may ask about a task, and by which numbers it knows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nsed_torch.core.engine import call_seed
from nsed_torch.records.transcript import Task

KINDS = ("fixed", "permuted", "random")


@dataclass(frozen=True)
class Pools:
    """A pool per task: `pools(workers, task, seed)` names its workers, whose places are their numbers.

    "fixed" are all workers in their order. "permuted" are all, shuffled by seed and task id, so that a number carries
    no identity. "random" are the first `size` of those, or as many as seed and task id draw from `size` to `up_to`, all
    equally likely. Workers in `without` are left out. Published: a random k-subset per question, for training; the
    shuffling and the drawn sizes are ours. Workers are ranked by a hash of seed, task id and name: a pool does not
    depend on the order of the workers, a larger one begins with the smaller one, and one who is left out changes
    nothing about the others.

    Raises:
        ValueError: for another kind, or a size that does not go with it.
    """

    kind: str = "fixed"
    size: int | None = None  # of random pools alone
    without: tuple[str, ...] = ()
    up_to: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"expected pools of kind {', '.join(KINDS)}, got {self.kind!r}: choose one of them")
        if (self.kind == "random") != (self.size is not None) or (self.size is not None and self.size < 1):
            expected = "a size of at least 1" if self.kind == "random" else "no size"
            raise ValueError(f"expected {expected} for {self.kind} pools, got {self.size}: correct size or kind")
        if self.up_to is not None and not 0 < (self.size or 0) <= self.up_to:
            raise ValueError(
                f"expected up_to beside a smaller size, got {self.up_to} and {self.size}: correct or omit it"
            )
        given: Any = self.without  # configs bring lists; a text would be its letters
        if isinstance(given, str):
            raise ValueError(f"expected a list of names to leave out, got {given!r}: put it in brackets")
        object.__setattr__(self, "without", tuple(given))

    def __call__(self, workers: Sequence[str], task: Task, seed: int = 0) -> tuple[str, ...]:
        """The names of a task's pool, out of all workers.

        Raises:
            ValueError: if a name to leave out is unknown, or too few workers are left.
        """
        unknown = [name for name in self.without if name not in workers]
        if unknown:
            raise ValueError(
                f"expected to leave out workers out of {', '.join(workers)}, got {unknown[0]!r}: correct the name"
            )
        left = [name for name in workers if name not in self.without]
        size = self.size or len(left)
        most = self.up_to or size
        if not 0 < most <= len(left):
            raise ValueError(f"expected at least {max(most, 1)} workers for a pool, got {len(left)}: leave fewer out")
        if self.kind == "fixed":
            return tuple(left)
        drawn = size + call_seed(seed, task.id, "pool size") % (most - size + 1)
        return tuple(sorted(left, key=lambda name: call_seed(seed, task.id, name, "pool"))[:drawn])
