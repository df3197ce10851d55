"""One number with its interval, the intervals, and tests of no difference on questions that two methods answered."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

LEVEL = 0.95
"""Of every interval."""

Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
"""The normal distribution's quantile for it."""

DIGITS = 9
"""Kept behind the point in files, so that equal runs write equal bytes on any machine."""

DRAWS = 20_000
"""Of signs, where there are more to try; a p of 0.05 then has a standard error of 0.0015."""

_BATCH = 1000  # of them at once, for they are all in memory


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval; None for what the data do not give."""

    n: int  # observations: questions, mostly
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    interval: str | None = None  # whose: Clopper-Pearson, Student, Tango or Wilson


def shown(estimate: Estimate, sign: str = "", digits: int = 3) -> str:
    """An estimate as `0.873 [0.842, 0.901]`; `sign="+"` for differences."""
    if estimate.mean is None:
        return "no score"
    form = f"{sign}.{digits}f"
    text = f"{estimate.mean:{form}}"
    return text if estimate.low is None else f"{text} [{estimate.low:{form}}, {estimate.high:{form}}]"


def plain(value: Any) -> Any:
    """A tree of dataclasses and tuples as JSON data: floats with 9 decimals, None where one is not finite."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        # Plus 0, for there is no -0 in a report.
        return round(value, DIGITS) + 0.0 if math.isfinite(value) else None
    return value


def student(
    values: Sequence[float] | Float[Tensor, "question"], least: float = -math.inf, most: float = math.inf
) -> Estimate:
    """Mean of one value per question with Student's interval, which has no width where all are alike.

    Values lie between `least` and `most`: so does the interval, as of shares within [0, 1].
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - heavy, and wanted only here

    values = torch.as_tensor(values, dtype=torch.float64)
    n = len(values)
    if n < 2:
        raise ValueError(f"expected at least 2 tested tasks, got {n}: add tasks or enlarge the test part")
    mean, error = values.mean().item(), values.std().item() / math.sqrt(n)
    reach = error * float(stdtrit(n - 1, (1 + LEVEL) / 2))
    return Estimate(n, mean, max(least, mean - reach), min(most, mean + reach), "Student")


def mean_score(questions: Sequence[Sequence[float]]) -> Estimate:
    """Mean over questions of a question's mean score, with the interval that suits the data.

    One score of 0 or 1 per question: `clopper_pearson`. Otherwise Student's over questions, clipped to [0, 1]. Where
    every question scores 0, or every one 1, Student's sees no spread; there Clopper and Pearson's still holds, for n
    independent scores in [0, 1] of mean m are all 1 with a chance of at most m^n (our reading). Fewer than two
    questions, or none that differ, otherwise give no interval. `questions` holds the scores in [0, 1] of each one's
    epochs, at least one; independent between questions.
    """
    means = [math.fsum(scores) / len(scores) for scores in questions]
    single = all(len(scores) == 1 for scores in questions)
    if means and (set(means) <= {0.0, 1.0} if single else set(means) in ({0.0}, {1.0})):
        return share(round(sum(means)), len(means))
    return _clipped(means, 0.0, 1.0)


def mean_difference(questions: Sequence[Sequence[float]]) -> Estimate:
    """Mean over questions of the mean difference between two methods, with the interval that suits the data.

    One difference of -1, 0 or 1 per question: `tango`. Otherwise Student's over questions, clipped to [-1, 1]; none
    for fewer than two questions or where all differ alike. `questions` holds the differences in [-1, 1] of each one's
    epochs, at least one; independent between questions.
    """
    means = [math.fsum(differences) / len(differences) for differences in questions]
    if means and all(len(differences) == 1 for differences in questions) and set(means) <= {-1.0, 0.0, 1.0}:
        n, wins, losses = len(means), means.count(1.0), means.count(-1.0)
        return Estimate(n, (wins - losses) / n, *tango(wins, losses, n), "Tango")
    return _clipped(means, -1.0, 1.0)


def share(right: int, n: int) -> Estimate:
    """Successes over trials, with `clopper_pearson`."""
    return Estimate(n, right / n, *clopper_pearson(right, n), "Clopper-Pearson")


def clustered_share(question: Sequence[int], hits: Sequence[float], total: Sequence[float] | None = None) -> Estimate:
    """Hits over totals, of observations that hang together where they are of one question.

    The interval is Wilson's for as many independent observations as would vary as much from question to question:
    `p (1 - p) / v`, at most all there are; where nothing varies, one a question. v is the linearised variance of the
    ratio. Few questions with hits, or with misses, tell it badly: with h of the fewer kind it counts h times, beside
    twice the variance of answers that are all alike within a question. With one observation a question it is Wilson's
    own. Published parts (Wilson; Korn and Graubard's effective sample size), our combination; the study `coverage` of
    the laboratory says how often it holds the truth. Hits of a row go from 0 to its total, which is 1 if None.
    """
    number = np.array(question, dtype=int)
    right, of = (np.bincount(number, np.ones(len(number)) if row is None else row) for row in (hits, total))
    n = of.sum()
    if n == 0:
        return Estimate(0)
    p = float(right.sum() / n)
    variance = float(((right - p * of) ** 2).sum()) / n**2
    known = min(int((right > 0).sum()), int((right < of).sum()))
    alike = max(variance, p * (1 - p) / int((of > 0).sum()))
    variance = (known * variance + 2 * alike) / (known + 2)
    # Below this it is rounding: the least real one, n^-4, is above.
    varies = variance > 1e-26 and 0 < p < 1
    m = min(p * (1 - p) / variance, n) if varies else float((of > 0).sum())
    middle, half, whole = p + Z**2 / (2 * m), Z * math.sqrt(p * (1 - p) / m + Z**2 / (4 * m**2)), 1 + Z**2 / m
    return Estimate(round(n), p, max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole), "Wilson")


def clopper_pearson(right: int, n: int) -> tuple[float, float]:
    """The exact interval of a share: all shares that a binomial test on either side does not refuse.

    Covers the true share at least as often as claimed, for every n. Published (Clopper and Pearson 1934).
    """
    # The same as scipy.stats.binomtest(right, n).proportion_ci(), without its search and its second of import.
    from scipy.special import betaincinv  # noqa: PLC0415 - heavy, and wanted only here

    tail = (1 - LEVEL) / 2
    low = float(betaincinv(right, n - right + 1, tail)) if right > 0 else 0.0
    high = float(betaincinv(right + 1, n - right, 1 - tail)) if right < n else 1.0
    return low, high


def tango(wins: int, losses: int, n: int) -> tuple[float, float]:
    """The score interval of a difference of two shares that were measured on the same questions.

    All differences d that the score test does not refuse: (b - c - n d)^2 <= z^2 n (2 q + d (1 - d)) with b wins, c
    losses and q the likeliest chance of a loss given d, the positive root of
    2n q^2 + ((2n - b + c) d - b - c) q - c d (1 - d) = 0. Published (Tango 1998); unlike Wald's it stays within
    [-1, 1], has width where nothing differs, and covers nearly as claimed for few questions. It is not the inverse of
    the exact test: where it ends close to 0, an exact p may still be above 0.05. Of n questions the one method alone
    gets `wins` right, the other alone `losses`.
    """
    return -_tango_end(losses, wins, n), _tango_end(wins, losses, n)


def _tango_end(b: int, c: int, n: int) -> float:
    """The upper end, by bisection between the difference itself and 1: the test refuses the more the farther out."""
    inside, outside = (b - c) / n, 1.0
    for _ in range(60):
        d = (inside + outside) / 2
        slope = (2 * n - b + c) * d - b - c
        root = math.sqrt(max(0.0, slope**2 + 8 * n * c * d * (1 - d)))
        q = (root - slope) / (4 * n)
        if (b - c - n * d) ** 2 <= Z**2 * n * (2 * q + d * (1 - d)):
            inside = d
        else:
            outside = d
    return outside


def _clipped(means: Sequence[float], least: float, most: float) -> Estimate:
    if not means:
        return Estimate(0)
    mean = math.fsum(means) / len(means)
    # Equal shares may differ in their last digit; an interval made of that would claim certainty.
    if max(means) - min(means) < 1e-12:
        return Estimate(len(means), mean)
    return replace(student(means, least, most), mean=mean)


def mcnemar(wins: int, losses: int) -> tuple[str, float]:
    """McNemar's test in its exact form: were wins and losses tosses of a fair coin?

    `p = min(1, 2 P(X <= min(wins, losses)))` with X binomial over wins + losses tosses; 1 where there are none.
    Published (McNemar 1947, binomial form).

    Returns:
        The test's name and the two-sided p.
    """
    from scipy.special import bdtr  # noqa: PLC0415 - heavy, and wanted only here

    return "McNemar, exact", min(1.0, 2 * float(bdtr(min(wins, losses), wins + losses, 0.5)))


def sign_flip(differences: Sequence[float], *, seed: int = 0) -> tuple[str, float]:
    """Fisher's randomisation test: had the two methods changed names at random, question by question?

    p is the share of all signs whose sum is at least as far from 0 as the one observed: counted over all of them where
    there are at most `DRAWS`, and else (1 + hits) / (1 + DRAWS) over drawn ones, which is never below the truth on
    average. Published (Fisher 1935; Phipson and Smyth 2010 for the drawn form).

    Returns:
        The test's name and the two-sided p.
    """
    from scipy.stats import permutation_test  # noqa: PLC0415 - heavy, and wanted only here

    values = [d for d in differences if d != 0.0]
    if len(values) < 2:
        return "sign flips, exact", 1.0
    exact = 2 ** len(values) <= DRAWS
    # Sums that are equal but for rounding count as equal.
    test = permutation_test(
        (values,), lambda flipped, axis: abs(flipped.sum(axis)).round(9), permutation_type="samples",
        n_resamples=DRAWS, batch=_BATCH, vectorized=True, alternative="greater", rng=seed,
    )  # fmt: skip
    return "sign flips, exact" if exact else f"sign flips, {DRAWS:,} draws", float(test.pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's p values: each may be held against the level as if it were the only one.

    With m of them in rising order, `p'_k = min(1, max_{l <= k} (m - l + 1) p_l)`: the chance that any true "no
    difference" of the family is refused stays below the level, however the tests hang together. Published (Holm 1979).

    Returns:
        The adjusted ones, in the order given.
    """
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted
