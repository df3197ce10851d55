"""Which tasks train, which choose, which test."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor


class Split(NamedTuple):
    """Indices of tasks, ascending; every task is in exactly one part."""

    train: Int[Tensor, "batch"]
    validation: Int[Tensor, "batch"]
    test: Int[Tensor, "batch"]


def kept_together(by: str, ids: Sequence[str], categories: Sequence[str], setting: str = "folds_by") -> tuple[str, ...]:
    """What no two parts share: a name for each task, its own for `question`, its category's for `category`."""
    if by not in ("question", "category"):
        raise ValueError(f"{setting}: expected question or category, got {by!r}")
    if by == "category" and not categories:
        raise ValueError(f"{setting}: expected categories of all tasks to divide by, got none: set {setting}=question")
    return tuple(categories if by == "category" else ids)


def place(name: str, seed: int = 0) -> float:
    """Where a hash puts an id on [0, 1): the first 48 bits of SHA-256(seed, id) over 2^48."""
    return int.from_bytes(hashlib.sha256(f"{seed}\x1f{name}".encode()).digest()[:6], "big") / 2**48


def split(ids: Sequence[str], fractions: Sequence[float] = (0.6, 0.2, 0.2), *, turn: float = 0.0) -> Split:
    """Divide tasks by a hash of their id.

    `u(id)`, its `place` plus the turn, modulo 1, is uniform on [0, 1); train takes `u` below the first fraction,
    validation the next stretch, test the rest. A task's part depends on its id and these numbers, not on which other
    tasks there are or who answered them. Parts have the asked sizes in expectation. Turns of 0, f, 2 f, ... with f the
    fraction of test are the folds of a cross-validation: no task is tested twice before the turns sum to 1.
    """
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-9:
        raise ValueError(f"expected three fractions of at least 0 that sum to 1, got {tuple(fractions)}")
    bounds = (fractions[0], fractions[0] + fractions[1])
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for index, name in enumerate(ids):
        u = (place(name) + turn) % 1
        parts[sum(u >= bound for bound in bounds)].append(index)
    for part, fraction, field in zip(parts, fractions, Split._fields, strict=True):
        if fraction > 0 and not part:
            raise ValueError(f"expected tasks for every part, got none of {len(ids)} for {field}: change fractions")
    return Split(*(torch.tensor(part, dtype=torch.long) for part in parts))


def divisions(ids: Sequence[str], fractions: Sequence[float], count: int) -> list[Split]:
    """Divisions that test other tasks each, until all have been tested: the ring turned on by the size of the test."""
    return [split(ids, fractions, turn=number * fractions[2]) for number in range(count)]
