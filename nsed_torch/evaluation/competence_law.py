"""The efficiency-fatigue law read off accuracies by round: its three numbers, how sure they are, where to stop."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nsed_torch import functional

ROUNDS_NEEDED = 4
"""Three numbers are fitted; fewer points than this leave nothing that could contradict them."""

Numbers = Sequence[int | float]
Real = NDArray[np.float64]


class ProfileInterval(NamedTuple):
    """From low to high; an infinite end is one that the data do not bound."""

    low: float
    high: float


@dataclass(frozen=True)
class FatigueLaw:
    """`U(t) = 1 - (1 - p_g) exp(-k t) - beta t^2` as a curve of accuracies shows it."""

    p_g: float  # accuracy before deliberation
    k: float  # gain per round, the paper's Lambda (p_v - p_g); at or below 0, deliberation cannot help
    beta: float  # fatigue per round squared
    t_opt: float  # where U peaks, in rounds; 0 where k <= 0, inf without fatigue
    # Of values that the curve does not contradict at confidence `level`.
    p_g_interval: ProfileInterval
    k_interval: ProfileInterval
    beta_interval: ProfileInterval
    t_opt_interval: ProfileInterval
    # Share of the variance between rounds that the law explains, rounds weighed by their counts; nan without variance.
    r_squared: float
    level: float

    @property
    def helps(self) -> bool:
        """Whether deliberation gains anything, by the fitted k."""
        return self.k > 0

    @property
    def beta_identified(self) -> bool:
        """Whether the curve tells fatigue from none."""
        return self.beta_interval.low > 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers cannot bear, a line each."""
        flags = (
            (not self.helps, f"k = {self.k:.3g}: deliberation cannot help; t_opt is 0"),
            (self.helps and self.k_interval.low <= 0, "k may be 0 or below: no gain by deliberation is shown"),
            (math.isinf(self.k_interval.high), "k has no upper end: add the accuracy before deliberation as round 0"),
            (not self.beta_identified, "beta may be 0: no fatigue is shown; record more rounds to bound t_opt"),
        )
        return tuple(text for raised, text in flags if raised)


def fit_fatigue_law(
    accuracy: Numbers, counts: Numbers, *, rounds: Numbers | None = None, level: float = 0.95
) -> FatigueLaw:
    """Fit (p_g, k, beta) to accuracies by round.

    Minimises the binomial deviance `D = 2 sum_r n_r KL(a_r || U(r))` over 0 <= p_g <= 1, beta >= 0 and any k. An
    interval is the set of values that some law holds with `D - min D <= chi2_1(level)`: a profile likelihood,
    which needs no symmetry and ends at the range's edge where data do not bound it. The law is published by the
    paper; the fit is ours. Of the paper's Lambda and p_v a curve shows only their product k.

    Coverage at 95%, over 500 simulations of eight rounds of the paper's reported curve with 1000 fresh answers
    a round: p_g 94.6%, k 93.8%, beta 94.4%, t_opt 93.8%, each +-1%. It takes answers as
    independent; of rounds that all ask the same questions intervals are wider than need be (latent correlation
    0.8: all four held the truth in 60 of 60 simulations).

    Args:
        accuracy: share of right answers after each round, in [0, 1].
        counts: answers behind each share, above 0.
        rounds: which round each is, at least 0 and all different; 1, 2, ... if None. Round 0 is before deliberation.
        level: of the intervals, in (0, 1).

    Raises:
        ValueError: for fewer than four rounds, lengths that differ, or a value out of range.
    """
    from scipy.special import chdtri  # noqa: PLC0415 - heavy, and wanted only where a law is fitted

    t, a, n = _checked(accuracy, counts, range(1, len(accuracy) + 1) if rounds is None else rounds, level)
    curve = _Curve(t / t.max(), a, n)
    best = curve.best()
    quantile = float(chdtri(1, 1 - level))
    p_g, k, beta = (curve.span(i, best, quantile) for i in range(3))
    peak = curve.peak_span(best, quantile)
    t_max = float(t.max())
    residual, spread = n @ (a - 1 + curve.failure(best)[0]) ** 2, n @ (a - n @ a / n.sum()) ** 2
    return FatigueLaw(
        p_g=float(best[0]),
        k=float(best[1]) / t_max,
        beta=float(best[2]) / t_max**2,
        t_opt=_peak(best) * t_max,
        p_g_interval=p_g,
        k_interval=ProfileInterval(k.low / t_max, k.high / t_max),
        beta_interval=ProfileInterval(beta.low / t_max**2, beta.high / t_max**2),
        t_opt_interval=ProfileInterval(peak.low * t_max, peak.high * t_max),
        r_squared=float(1 - residual / spread) if spread > 0 else math.nan,
        level=level,
    )


def _checked(accuracy: Numbers, counts: Numbers, rounds: Numbers, level: float) -> tuple[Real, Real, Real]:
    t, a, n = (np.asarray(list(x), dtype=np.float64) for x in (rounds, accuracy, counts))
    if not len(t) == len(a) == len(n):
        raise ValueError(f"law: expected a count and a round for every accuracy, got {len(a)}, {len(n)} and {len(t)}")
    if len(t) < ROUNDS_NEEDED:
        got = f"got {len(t)}: three numbers are fitted, record more rounds"
        raise ValueError(f"law: expected accuracies of at least {ROUNDS_NEEDED} rounds, {got}")
    for name, valid, expected, value in (
        ("accuracy", ((a >= 0) & (a <= 1)).all(), "values in [0, 1]", accuracy),
        ("counts", ((n > 0) & np.isfinite(n)).all(), "values above 0", counts),
        ("rounds", np.isfinite(t).all() and t.min() >= 0 and len(set(t)) == len(t), "different ones from 0 on", rounds),
        ("level", 0 < level < 1, "a value in (0, 1)", level),
    ):
        if not valid:
            raise ValueError(f"law {name}: expected {expected}, got {value}")
    return t, a, n


Lift = Callable[[Real], tuple[Real, Real]]
"""From the numbers that stay free to (p_g, k, beta), and the derivative, one row a free number."""


def _held(i: int, value: float) -> Lift:
    """One of the three is given."""
    rest, fixed = np.delete(np.eye(3), i, axis=0), value * np.eye(3)[i]
    return lambda free: (free @ rest + fixed, rest)


def _peaking(t: float) -> Lift:
    """U'(t) = 0 is given: p_g and k are free, beta follows as `(1 - p_g) k exp(-k t) / (2 t)`."""

    def lift(free: Real) -> tuple[Real, Real]:
        p_g, k = free
        share = math.exp(-k * t) / (2 * t)
        theta = np.array([p_g, k, (1 - p_g) * k * share])
        return theta, np.array([[1, 0, -k * share], [0, 1, (1 - p_g) * (1 - k * t) * share]])

    return lift


def _peak(theta: Real) -> float:
    p_g, k, beta = theta.tolist()
    if beta == 0 and k > 0 and p_g < 1:
        return math.inf
    return functional.optimal_round(torch.tensor(k, dtype=torch.float64), p_g, max(beta, 1e-300)).item()


def _log(x: Real) -> tuple[Real, Real]:
    """Logarithm and slope, prolonged as a straight line below 1e-9, so that a search may step out of the range."""
    held = np.maximum(x, 1e-9)
    return np.log(held) + (x - held) / held, 1 / held


class _Curve:
    """Deviance of laws theta = (p_g, k, beta) from a curve, whose last round is at t = 1, so that all are near 1."""

    def __init__(self, t: Real, accuracy: Real, counts: Real) -> None:
        from scipy.special import xlogy  # noqa: PLC0415 - heavy, and wanted only where a law is fitted

        self.t, self.accuracy, self.counts = t, accuracy, counts
        self.exact = counts @ (xlogy(accuracy, accuracy) + xlogy(1 - accuracy, 1 - accuracy))
        # Beyond exp(-20) at the first round, or exp(20) at the last, k changes nothing that could be seen.
        self.bounds = [(0.0, 1.0), (-20.0, 20 / t[t > 0].min()), (0.0, 1.0)]

    def failure(self, theta: Real) -> tuple[Real, Real]:
        """1 - U in every round, and its derivative [3 round]."""
        p_g, k, beta = theta
        decay = np.exp(-k * self.t)
        square = self.t**2
        return (1 - p_g) * decay + beta * square, np.stack([-decay, -(1 - p_g) * self.t * decay, square])

    def deviance(self, theta: Real) -> tuple[float, Real]:
        """D and its gradient; U counts as 0 where it is negative."""
        failure, slope = self.failure(theta)
        right, d_right = _log(1 - failure)
        wrong, d_wrong = _log(np.minimum(failure, 1))
        a, n = self.accuracy, self.counts
        value = 2 * (self.exact - n @ (a * right + (1 - a) * wrong))
        return value, 2 * slope @ (n * (a * d_right - (1 - a) * d_wrong * (failure < 1)))

    def best(self) -> Real:
        """The law of least deviance. For a given k it is linear, so least squares over a grid of k find the start."""
        from scipy.optimize import nnls  # noqa: PLC0415

        starts = []
        for k in np.concatenate([-np.geomspace(0.03, 20, 16), np.geomspace(0.03, self.bounds[1][1], 48)]):
            design = np.stack([np.exp(-k * self.t), self.t**2], 1)
            weight = np.sqrt(self.counts)
            (left, beta), residual = nnls(design * weight[:, None], (1 - self.accuracy) * weight)
            starts.append((residual, [max(0.0, 1 - left), k, min(beta, 1.0)]))
        free = [np.array(start) for _, start in sorted(starts)[:3]]
        return self.least(lambda theta: (theta, np.eye(3)), free, self.bounds)[1]

    def least(self, lift: Lift, starts: Sequence[Real], bounds: Sequence[tuple[float, float]]) -> tuple[float, Real]:
        """Least deviance over the free numbers, and where it is."""
        from scipy.optimize import minimize  # noqa: PLC0415

        def lifted(free: Real) -> tuple[float, Real]:
            theta, slope = lift(free)
            value, gradient = self.deviance(theta)
            return value, slope @ gradient

        rest = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {"ftol": 1e-11, "gtol": 1e-6}}
        best = min((minimize(lifted, x, **rest) for x in starts), key=lambda result: float(result.fun))
        return float(best.fun), best.x

    def span(self, i: int, best: Real, quantile: float) -> ProfileInterval:
        """Values that one of the three takes among laws within the quantile of the best; inf where k has no end."""
        bounds = [bound for j, bound in enumerate(self.bounds) if j != i]
        excess = self._excess(best, quantile, lambda value: _held(i, value), np.delete(best, i), bounds)
        low, high = self.bounds[i]
        beyond = (-math.inf, math.inf) if i == 1 else (low, high)
        return ProfileInterval(
            *(_crossing(excess, float(best[i]), *ends) for ends in ((low, beyond[0]), (high, beyond[1])))
        )

    def peak_span(self, best: Real, quantile: float) -> ProfileInterval:
        """Peaks of the same laws, in last rounds: 0 where one of them has k <= 0, inf where one never falls."""
        start, bounds = np.array([best[0], max(best[1], 1e-3)]), [self.bounds[0], (1e-9, self.bounds[1][1])]
        excess = self._excess(best, quantile, lambda log: _peaking(math.exp(log)), start, bounds)
        # Peaks this early or late are seen as no rise or no fall.
        low, high = math.log(1e-3), math.log(1e3)
        inside = min(max(math.log(max(_peak(best), 1e-300)), low), high)
        if excess(inside) > 0:  # the best law only falls, and so does every other
            return ProfileInterval(0.0, 0.0)
        ends = (_crossing(excess, inside, *edge) for edge in ((low, -math.inf), (high, math.inf)))
        return ProfileInterval(*map(math.exp, ends))

    def _excess(
        self,
        best: Real,
        quantile: float,
        lift: Callable[[float], Lift],
        start: Real,
        bounds: Sequence[tuple[float, float]],
    ) -> Callable[[float], float]:
        """Above 0 where the profile at a value is worse than the quantile; roots, for those are nearly straight."""
        least = self.deviance(best)[0]

        return lambda value: (
            math.sqrt(max(self.least(lift(value), [start], bounds)[0] - least, 0)) - math.sqrt(quantile)
        )


def _crossing(excess: Callable[[float], float], inside: float, edge: float, beyond: float) -> float:
    """Where the excess turns positive between a value inside and the edge; `beyond` if it does not."""
    from scipy.optimize import brentq  # noqa: PLC0415

    return float(brentq(excess, inside, edge, xtol=1e-6, rtol=1e-3)) if excess(edge) > 0 else beyond
