"""How long a computation may be: steps that held, whether it ended in time, and the number at which half are right."""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_expit

from nsed_torch.evaluation.statistics import Z, share
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import Transcript

CRITICAL = Z**2 / 2
"""Half of chi2_1's quantile: how far below its maximum the log-likelihood lies at the ends of a 95% interval."""

STEEPEST = 50.0
"""Slope at most: tasks that are all right up to a length and all wrong beyond it have no steepest curve."""

VOTE = "the vote"
"""Stands beside agents in tables of errors."""

RANGE = 1e6
"""How far beyond the longest and below the shortest task an end is looked for."""


def ended_in_time(transcripts: Sequence[Transcript], chains: Sequence[Sequence[str]], within: int = 2) -> list[bool]:
    """Whether each team elected that nothing is left to do at most so many steps before or after the chain's end."""
    return [
        t.stop_reason == "finished" and abs(len(t.rounds) - len(chain)) <= within
        for t, chain in zip(transcripts, chains, strict=True)
    ]


class ProfileInterval(NamedTuple):
    """From low to high; an infinite end is one that the data do not bound."""

    low: float
    high: float


@dataclass(frozen=True)
class Horizon:
    """Steps at which half of all tasks are right; inf or 0 where all or none are, or no length tells them apart."""

    steps: float
    interval: ProfileInterval  # of 95%; an infinite or zero end is one that the data do not bound


def horizon(steps: Sequence[int], right: Sequence[bool]) -> Horizon:
    """Fit `P(right) = 1 / (1 + (s / h)^b)`, b in [0, 50], to tasks of s steps; h is the horizon.

    A logistic curve in the logarithm of the steps, by maximum likelihood; the interval is that of the profile
    likelihood, for b is fitted at every h. Where all tasks are right, or none, the interval is bounded on one side.

    Examples:
        >>> found = horizon([10] * 20 + [40] * 20 + [160] * 20, [True] * 20 + [True, False] * 10 + [False] * 20)
        >>> round(found.steps), [round(end) for end in found.interval]
        (40, [32, 50])
    """
    if not steps or len(steps) != len(right) or min(steps) < 1:
        raise ValueError(f"expected tasks of at least one step, got {len(steps)} lengths and {len(right)} verdicts")
    logs, outcome = np.log(np.asarray(steps, float)), np.where(right, 1.0, -1.0)

    def likelihood(center: float, slope: float) -> float:
        return float(log_expit(outcome * slope * (center - logs)).sum())

    def profile(center: float) -> float:
        best = minimize_scalar(lambda slope: -likelihood(center, slope), bounds=(0, STEEPEST), method="bounded")
        return max(-float(best.fun), likelihood(center, 0.0), likelihood(center, STEEPEST))

    low, high = float(logs.min()) - math.log(RANGE), float(logs.max()) + math.log(RANGE)
    grid = np.linspace(low, high, 2001)
    heights = np.array([profile(center) for center in grid])
    top = int(heights.argmax())
    around = grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]
    best = minimize_scalar(lambda center: -profile(center), bounds=around, method="bounded")
    most = max(-float(best.fun), float(heights[top]))
    center = float(best.x) if -float(best.fun) >= heights[top] else float(grid[top])
    inside = np.flatnonzero(heights >= most - CRITICAL)
    ends = []
    for edge, beyond, bound in ((int(inside.min()), -1, 0.0), (int(inside.max()), 1, math.inf)):
        if not 0 <= edge + beyond < len(grid):
            ends.append(bound)
            continue
        between = sorted((grid[edge], grid[edge + beyond]))
        ends.append(math.exp(brentq(lambda c: profile(c) - most + CRITICAL, *between)))
    whole = {len(right): math.inf, 0: 0.0}.get(sum(right), {0: 0.0, len(grid) - 1: math.inf}.get(top))
    return Horizon(math.exp(center) if whole is None else whole, ProfileInterval(*ends))


def horizons(outcomes: Sequence[Outcome], lengths: Mapping[str, int]) -> dict[str, Horizon]:
    """The horizon of every method, from what became of tasks whose steps are `lengths`, by the id of the question."""
    rows = defaultdict[str, list[tuple[int, bool]]](list)
    for outcome in outcomes:
        rows[outcome.method].append((lengths[outcome.group], outcome.verdict is Verdict.RIGHT))
    return {name: horizon(*map(list, zip(*found, strict=True))) for name, found in rows.items()}


def step_errors(traces: Sequence[Trace]) -> dict[str, Any]:
    """How often members err in a step, how often two do together, and how often the vote does; and what that foretells.

    Steps whose works were right count alone: those up to the first that was elected wrong. `alike` are pairs that are
    wrong with the same text. `alone` are the works that a member, who makes the same calls alone as long as it is
    right, does without an error, of those of which that is known: all that somebody who was asked each time slipped in,
    or the team finished. The horizon that an error e of every step foretells
    is `ln 0.5 / ln(1 - e)`.

    Args:
        traces: of deliberations whose rounds were steps, graded step by step.

    Returns:
        Shares, with `statistics.share`'s intervals, by agent or pair; `foretold` in steps, inf where nobody erred.
    """
    wrong, both, alike, alone = (defaultdict[str, list[bool]](list) for _ in range(4))
    for trace in traces:
        slips: dict[str, list[bool]] = defaultdict(list)
        for record, grades in zip(trace.transcript.rounds, trace.grades, strict=True):
            for proposal, right in zip(record.proposals, grades, strict=True):
                wrong[proposal.agent].append(not right)
                slips[proposal.agent].append(not right)
            for (p, right), (q, so) in itertools.combinations(zip(record.proposals, grades, strict=True), 2):
                both[f"{p.agent}, {q.agent}"].append(not right and not so)
                alike[f"{p.agent}, {q.agent}"].append(not right and p.text.split() == q.text.split())
            lost = record.winner is None or not grades[record.winner]
            wrong[VOTE].append(lost)
            if lost:
                break
        held = not lost and trace.transcript.stop_reason == "finished"
        most = max(map(len, slips.values()), default=0)
        for name, flags in slips.items():
            if len(flags) == most and (any(flags) or held):  # otherwise nobody knows
                alone[name].append(not any(flags))
    tables = {"wrong": wrong, "both_wrong": both, "alike": alike, "alone": alone}
    shares = {what: {name: share(sum(f), len(f)) for name, f in flags.items()} for what, flags in tables.items()}
    foretold = {name: foretold_horizon(sum(flags) / len(flags)) for name, flags in wrong.items()}
    return {**shares, "foretold": foretold}


def foretold_horizon(error: float) -> float:
    """Steps after which half of all works are still right where each step fails alike; inf where none does.

    Examples:
        >>> round(foretold_horizon(0.01))
        69
    """
    return math.inf if error <= 0 else 0.0 if error >= 1 else math.log(0.5) / math.log1p(-error)


def step_insight(graded: GradedTasks, traces: Sequence[Trace], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Who errs how often in a step, what that foretells, how far methods get, how often a team ends in time."""
    if not graded.chains or not traces or traces[0].transcript.unit != "step":
        return {}
    chains = [graded.chain(trace.transcript.task) for trace in traces]
    in_time = ended_in_time([trace.transcript for trace in traces], chains)
    lengths = {graded.group(task): len(graded.chain(task)) for task in graded.tasks}
    families: dict[str, list[Trace]] = {}
    for trace in traces:
        families.setdefault(graded.strata.get(graded.group(trace.transcript.task), "all"), []).append(trace)
    steps = {
        **step_errors(traces),
        "families": {name: step_errors(those) for name, those in families.items()} if len(families) > 1 else {},
        # One length says nothing about others.
        "horizon": horizons(outcomes, lengths) if len({*lengths.values()}) > 1 else {},
        "in_time": share(sum(in_time), len(in_time)),
    }
    return {"steps": steps}


def step_lines(found: Mapping[str, Any]) -> list[str]:
    """How often who erred, and how far methods get, a line each."""
    if not (steps := found.get("steps")):
        return []
    lines = []
    for family, errors in [*((f" of {name}", those) for name, those in steps["families"].items()), ("", steps)]:
        wrong = ", ".join(f"{name} {error.mean:.4f}" for name, error in errors["wrong"].items())
        lines.append(f"wrong steps{family}, of those whose work was right: {wrong}")
    alone_right = ", ".join(f"{name} {right.mean:.2f} of {right.n}" for name, right in steps["alone"].items())
    lines.append(f"without an error from start to end, alone: {alone_right}")
    lines.append(f"voted to finish within 2 steps of the end: {steps['in_time'].mean:.2f} of {steps['in_time'].n}")
    for name, half in steps["horizon"].items():
        low, high = half.interval
        lines.append(f"horizon of {name}: {half.steps:.0f} steps [{low:.0f}, {high:.0f}]")
    return lines
