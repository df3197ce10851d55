"""Means with intervals, over tasks that several runs were tested on."""

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Estimate(NamedTuple):
    """A mean with its interval.

    Args:
        mean: over tasks.
        low: lower end.
        high: upper end.
        standard_error: of the mean.
        n: tasks.
    """

    mean: float
    low: float
    high: float
    standard_error: float
    n: int


def estimate(scores: Float[Tensor, "seed task"], *, level: float = 0.95) -> Estimate:
    """Mean over tasks and seeds, with Student's interval over tasks.

    A task's score is its mean over the seeds that tested it, so that several tests of one task count as one
    observation and differences between seeds are part of the spread. Standard practice (clustered by task).

    Args:
        scores: NaN where a seed did not test a task.
        level: of the interval, in (0, 1).

    Returns:
        The mean with its interval; the interval has no width where all tasks score alike.

    Raises:
        ValueError: if fewer than two tasks were tested, or the level is none.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - heavy, and wanted only here

    if not 0 < level < 1:
        raise ValueError(f"expected a level in (0, 1), got {level}")
    tested = ~scores.isnan()
    means = scores.double().nan_to_num(0.0).sum(0)[tested.any(0)] / tested.sum(0)[tested.any(0)]
    n = len(means)
    if n < 2:
        raise ValueError(f"expected at least 2 tested tasks, got {n}: add tasks or enlarge the test part")
    mean, error = means.mean().item(), means.std().item() / math.sqrt(n)
    reach = error * float(stdtrit(n - 1, (1 + level) / 2))
    return Estimate(mean, mean - reach, mean + reach, error, n)


def paired(one: Float[Tensor, "seed task"], other: Float[Tensor, "seed task"], *, level: float = 0.95) -> Estimate:
    """`estimate` of the difference task by task and seed by seed, where both were tested."""
    return estimate(one - other, level=level)
