"""Numbers with intervals over questions, whatever is counted: shares by Wilson, everything else by resampling."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsed_torch.evaluation.statistics import Estimate

Real = NDArray[np.float64]
Column = NDArray[Any]
Tree = dict[str, Any]
"""Names to numbers, estimates and further trees."""
Formula = Callable[[Real], Real]
"""From sums, over the last axis, to a number."""

DRAWS = 1000
_Z = 1.959964  # the normal distribution's quantile for 95%


class Questions:
    """What varies independently: everything said about a question, in all its tasks and rounds, is drawn together.

    Resamples are drawn once and serve every number. They follow the questions' ids, not their order; columns `question`
    count these names.
    """

    def __init__(self, names: Sequence[str], seed: int = 0) -> None:
        self._count = len(names)
        drawn = np.random.default_rng(seed).multinomial(self._count, np.full(self._count, 1 / self._count), size=DRAWS)
        rank = np.argsort(np.argsort(np.array(names)))
        self._draws = drawn[:, rank].astype(np.float64)

    def share(self, question: Column, hits: Column, total: Column | None = None) -> Estimate:
        """Hits over totals.

        The interval is Wilson's for as many independent observations as would vary as much from question to question:
        `p (1 - p) / v`, with v the linearised variance of the ratio, at most all there are; where nothing varies, one
        a question. With one observation a question it is Wilson's own. Published parts (Wilson; Korn and Graubard's
        effective sample size), our combination. Hits of a row go from 0 to its total, which is 1 if None.
        """
        sums = self._sums(question, hits, np.ones(len(hits)) if total is None else total)
        right, n = sums.sum(0).tolist()
        if n == 0:
            return Estimate(0)
        p = right / n
        variance = float(((sums[:, 0] - p * sums[:, 1]) ** 2).sum()) / n**2
        # Below this it is rounding: the least real one, n^-4, is above.
        varies = variance > 1e-26 and 0 < p < 1
        effective = min(p * (1 - p) / variance, n) if varies else float((sums[:, 1] > 0).sum())
        return Estimate(round(n), p, *_wilson(p, effective), "Wilson")

    def mean(self, question: Column, values: Column) -> Estimate:
        """Mean over all rows."""
        return self.value(question, lambda sums: sums[..., 0] / sums[..., 1], (values, np.ones(len(values))))

    def correlation(self, question: Column, x: Column, y: Column) -> Estimate:
        """Pearson's correlation; None where either does not vary."""
        x, y = _scaled(x), _scaled(y)
        return self.value(question, _correlation, (np.ones(len(x)), x, y, x * x, y * y, x * y))

    def value(self, question: Column, formula: Formula, columns: Sequence[Column]) -> Estimate:
        """Any formula of sums of columns, with the interval between the 2.5% and the 97.5% quantile of resamples.

        Resamples that leave the formula undefined are passed over; where they are more than half, and where one
        question has all rows, there is no interval.
        """
        sums = self._sums(question, *columns)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, drawn = float(formula(sums.sum(0))), formula(self._draws @ sums)
        if not math.isfinite(mean):
            return Estimate(len(question))
        drawn = drawn[np.isfinite(drawn)]
        if len(np.unique(question)) < 2 or len(drawn) < DRAWS / 2:
            return Estimate(len(question), mean)
        low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
        return Estimate(len(question), mean, low, high, "resampling")

    def _sums(self, question: Column, *columns: Column) -> Real:
        """Sums of columns by question [question column]."""
        return np.stack([np.bincount(question, column, minlength=self._count) for column in columns], -1)


def within(table: NDArray[np.void], *columns: str) -> list[Real]:
    """Columns minus the mean of their ballot; what is but rounding is 0."""
    _, number, size = np.unique(table["ballot"], return_inverse=True, return_counts=True)
    return [np.round(table[c] - (np.bincount(number, table[c]) / size)[number], 12) for c in columns]


def _wilson(p: float, n: float) -> tuple[float, float]:
    middle, half = p + _Z**2 / (2 * n), _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    whole = 1 + _Z**2 / n
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def _correlation(sums: Real) -> Real:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.stack([xx - x * x / n, yy - y * y / n])
    # Scaled columns have a spread near n; below this it is rounding.
    product = np.where((spread > 1e-9).all(0), spread.prod(0), np.nan)
    return np.asarray(((xy - x * y / n) / np.sqrt(product)).clip(-1, 1))


def _scaled(values: Column) -> Real:
    if not len(values):
        return values.astype(np.float64)
    centred = np.round(values - values.mean(), 12)
    deviation = centred.std()
    return np.asarray(centred / deviation if deviation > 0 else centred)
