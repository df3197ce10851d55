"""The efficiency-fatigue law read off accuracies by round: its three numbers, how sure they are, where to stop."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nsed_torch.evaluation.horizon import ProfileInterval
from nsed_torch.evaluation.statistics import Z
from nsed_torch.parts import fatigue_law
from nsed_torch.parts.halting_rules import FatigueHalting
from nsed_torch.records.files import read_json

ROUNDS_NEEDED = 4
"""Three numbers are fitted; fewer points than this leave nothing that could contradict them."""

Real = NDArray[np.float64]
Numbers = NDArray[np.inexact[Any]]
"""Complex where derivatives are wanted."""

Bounds = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class FatigueLaw:
    """`U(t) = 1 - (1 - p_g) exp(-k t) - beta t^2` as a curve of accuracies shows it."""

    p_g: float  # accuracy before deliberation
    k: float  # gain per round, the paper's Lambda (p_v - p_g); at or below 0, deliberation cannot help
    beta: float  # fatigue per round squared
    t_opt: float  # where U peaks, in rounds; 0 where k <= 0, inf without fatigue
    # Of values that the curve does not contradict at 95% confidence.
    p_g_interval: ProfileInterval
    k_interval: ProfileInterval
    beta_interval: ProfileInterval
    t_opt_interval: ProfileInterval
    r_squared: float  # share of the variance between rounds that the law explains; nan without variance

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers cannot bear, a line each."""
        flags = (
            (self.k <= 0, f"k = {self.k:.3g}: deliberation cannot help; t_opt is 0"),
            (self.k > 0 >= self.k_interval.low, "k may be 0 or below: no gain by deliberation is shown"),
            (math.isinf(self.k_interval.high), "k has no upper end: any gain may be over by round 1"),
            (self.beta_interval.low <= 0, "beta may be 0: no fatigue is shown; record more rounds to bound t_opt"),
        )
        return tuple(text for raised, text in flags if raised)


def fit_fatigue_law(accuracy: Sequence[float], tasks: int) -> FatigueLaw:
    """Fit (p_g, k, beta) to the shares of right answers after four rounds or more, each out of so many tasks.

    Minimises the binomial deviance `D = 2 n sum_r KL(a_r || U(r))` over 0 <= p_g <= 1, beta >= 0 and any k. An
    interval is the set of values that some law holds with `D - min D <= chi2_1(95%)`: a profile likelihood,
    which needs no symmetry and ends at the range's edge where data do not bound it. The law is published by the
    paper; the fit is ours. Of the paper's Lambda and p_v a curve shows only their product k.

    Coverage at 95%, over 500 simulations of eight rounds of the paper's reported curve with 1000 fresh answers
    a round: p_g 94.6%, k 93.8%, beta 94.4%, t_opt 93.8%, each +-1%. It takes answers as
    independent; of rounds that all ask the same questions intervals are wider than need be (latent correlation
    0.8: all four held the truth in 60 of 60 simulations).
    """
    rounds, a = len(accuracy), np.asarray(accuracy, dtype=np.float64)
    curve = _Curve(a, tasks)
    p_g, k, beta = (curve.span(i) for i in range(3))
    residual, spread = ((a - 1 + curve.failure(curve.best)) ** 2).sum(), ((a - a.mean()) ** 2).sum()
    return FatigueLaw(
        p_g=float(curve.best[0]),
        k=float(curve.best[1]) / rounds,
        beta=float(curve.best[2]) / rounds**2,
        t_opt=_peak(curve.best) * rounds,
        p_g_interval=p_g,
        k_interval=ProfileInterval(*(end / rounds for end in k)),
        beta_interval=ProfileInterval(*(end / rounds**2 for end in beta)),
        t_opt_interval=ProfileInterval(*(end * rounds for end in curve.peak_span())),
        r_squared=float(1 - residual / spread) if spread > 0 else math.nan,
    )


def law_of_rounds(insight: Mapping[str, Any]) -> tuple[FatigueLaw | None, tuple[str, ...]]:
    """The law of the rounds in `results.json` and what it cannot bear, or None and why."""
    accuracy = [row["accuracy"]["mean"] or 0.0 for row in insight["course"]["rounds"]]
    if len(accuracy) < ROUNDS_NEEDED:
        return None, (f"a law needs at least {ROUNDS_NEEDED} rounds, got {len(accuracy)}: record more",)
    if len(set(accuracy)) == 1:
        return None, ("accuracy is the same after every round: there is no curve to fit",)
    law = fit_fatigue_law(accuracy, insight["tasks"])
    return law, law.notes


def fitted_halting(results: str, rounds: int = 8) -> FatigueHalting:
    """Stop where the law peaks that an earlier run's rounds show; `results` is the `results.json` of `nsed evaluate`.

    Raises:
        ValueError: if the file is none, or has no law.
    """
    try:
        law, notes = law_of_rounds(read_json(Path(results).expanduser())["insight"])
    except (ValueError, LookupError, TypeError) as error:
        expected = "expected results.json of nsed evaluate with a deliberation"
        raise ValueError(f"halting: {expected}, got {results!r} ({error!r})") from error
    if law is None:
        raise ValueError(f"halting: expected rounds that show a law in {results!r}, got none: {'; '.join(notes)}")
    return FatigueHalting(rounds, p_g=law.p_g, k=law.k, beta=law.beta)


Lift = Callable[[Numbers], Numbers]
"""From the numbers that stay free to (p_g, k, beta)."""


def _held(i: int, value: float) -> Lift:
    """One of the three is given."""
    return lambda free: np.insert(free, i, value)


def _peaking(log_t: float) -> Lift:
    """U'(t) = 0 is given: p_g and k are free, beta follows as `(1 - p_g) k exp(-k t) / (2 t)`."""
    t = math.exp(log_t)
    return lambda free: np.append(free, (1 - free[0]) * free[1] * np.exp(-free[1] * t) / (2 * t))


def _peak(theta: Real) -> float:
    p_g, k, beta = theta.tolist()
    if beta == 0 and k > 0 and p_g < 1:
        return math.inf
    return fatigue_law.optimal_round(torch.tensor(k, dtype=torch.float64), p_g, max(beta, 1e-300)).item()


def _log(x: Numbers) -> Numbers:
    """The logarithm, prolonged as a straight line below 1e-9, so that a search may step out of the range."""
    held = np.where(x.real < 1e-9, 1e-9, x)
    prolonged: Numbers = np.log(held) + (x - held) / held
    return prolonged


class _Curve:
    """Deviance of laws theta = (p_g, k, beta) from a curve, whose last round is at t = 1, so that all are near 1."""

    def __init__(self, accuracy: Real, tasks: int) -> None:
        from scipy.special import xlogy  # noqa: PLC0415 - heavy, and wanted only where a law is fitted

        rounds, self.accuracy, self.tasks = len(accuracy), accuracy, tasks
        self.t = np.arange(1, rounds + 1) / rounds
        self.exact = (xlogy(accuracy, accuracy) + xlogy(1 - accuracy, 1 - accuracy)).sum()
        # Beyond exp(-20) at the first round, or exp(20) at the last, k changes nothing that could be seen.
        self.bounds = [(0.0, 1.0), (-20.0, 20.0 * rounds), (0.0, 1.0)]
        self.least, self.best = self.minimum(lambda theta: theta, self._starts(), self.bounds)

    def failure(self, theta: Numbers) -> Numbers:
        """1 - U in every round."""
        p_g, k, beta = theta
        failure: Numbers = (1 - p_g) * np.exp(-k * self.t) + beta * self.t**2
        return failure

    def deviance(self, theta: Numbers) -> complex:
        """D; U counts as 0 where it is negative."""
        failure, a = self.failure(theta), self.accuracy
        right, wrong = _log(1 - failure), _log(np.where(failure.real < 1, failure, 1))
        return complex(2 * self.tasks * (self.exact - (a * right + (1 - a) * wrong).sum()))

    def _starts(self) -> list[Real]:
        """For a given k the law is linear, so least squares over a grid of k come near the best."""
        from scipy.optimize import nnls  # noqa: PLC0415

        starts = []
        for k in np.concatenate([-np.geomspace(0.03, 20, 16), np.geomspace(0.03, self.bounds[1][1], 48)]):
            design = np.stack([np.exp(-k * self.t), self.t**2], 1)
            (left, beta), residual = nnls(design, 1 - self.accuracy)
            starts.append((residual, [max(0.0, 1 - left), k, min(beta, 1.0)]))
        return [np.array(start) for _, start in sorted(starts)[:3]]

    def minimum(self, lift: Lift, starts: Sequence[Real], bounds: Bounds) -> tuple[float, Real]:
        """Least deviance over the numbers that stay free, and where it is."""
        from scipy.optimize import minimize  # noqa: PLC0415

        def lifted(free: Real) -> tuple[float, Real]:
            # The imaginary part of a step this small is the derivative, to the last digit.
            steps = [self.deviance(lift(free + 1e-30j * axis)) for axis in np.eye(len(free))]
            return steps[0].real, np.array([step.imag for step in steps]) / 1e-30

        rest = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {"ftol": 1e-11, "gtol": 1e-6}}
        best = min((minimize(lifted, x, **rest) for x in starts), key=lambda result: float(result.fun))
        return float(best.fun), best.x

    def span(self, i: int) -> ProfileInterval:
        """Values that one of the three takes among laws within the quantile of the best; inf where k has no end."""
        bounds = [bound for j, bound in enumerate(self.bounds) if j != i]
        excess = partial(self._excess, partial(_held, i), np.delete(self.best, i), bounds)
        beyond = (-math.inf, math.inf) if i == 1 else self.bounds[i]
        ends = zip(self.bounds[i], beyond, strict=True)
        return ProfileInterval(*(_crossing(excess, float(self.best[i]), *end) for end in ends))

    def peak_span(self) -> ProfileInterval:
        """Peaks of the same laws, in last rounds: 0 where one of them has k <= 0, inf where one never falls."""
        start = np.array([self.best[0], max(self.best[1], 1e-3)])
        excess = partial(self._excess, _peaking, start, [self.bounds[0], (1e-9, self.bounds[1][1])])
        # Peaks this early or late are seen as no rise or no fall.
        low, high = math.log(1e-3), math.log(1e3)
        inside = min(max(math.log(max(_peak(self.best), 1e-300)), low), high)
        if excess(inside) > 0:  # the best law only falls, and so does every other
            return ProfileInterval(0.0, 0.0)
        ends = (_crossing(excess, inside, *edge) for edge in ((low, -math.inf), (high, math.inf)))
        return ProfileInterval(*map(math.exp, ends))

    def _excess(self, lift: Callable[[float], Lift], start: Real, bounds: Bounds, value: float) -> float:
        """Above 0 where the profile at a value is worse than Z^2, chi2_1's quantile; roots are nearly straight."""
        return math.sqrt(max(self.minimum(lift(value), [start], bounds)[0] - self.least, 0)) - Z


def _crossing(excess: Callable[[float], float], inside: float, edge: float, beyond: float) -> float:
    """Where the excess turns positive between a value inside and the edge; `beyond` if it does not."""
    from scipy.optimize import brentq  # noqa: PLC0415

    return float(brentq(excess, inside, edge, xtol=1e-6, rtol=1e-3)) if excess(edge) > 0 else beyond
