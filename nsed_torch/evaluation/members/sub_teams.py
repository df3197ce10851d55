"""Teams of every size out of one, what weaker members add, and whether p_g and p_v foretell the gain of a team."""

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.data import Episodes, split
from nsed_torch.data.rounds import Rounds
from nsed_torch.evaluation.insight.values import Real
from nsed_torch.evaluation.statistics import Estimate, mean_difference, mean_score
from nsed_torch.nn import VOTES, ConsensusCell

COMMONEST = "commonest answer"
"""The rule that asks no judge: plurality of equal answers."""

TUNED = "tuned"
"""The vote of a cell that was loaded."""

MOST = 60
"""Teams of one size that are tried; where there are more, so many are drawn."""

HALVES = (0.5, 0.0, 0.5)
ALL = "all tasks"
DRAWS = 500
"""Resamples of tasks behind an interval."""

Team = tuple[int, ...]
Rule = Callable[[Rounds, Sequence[int]], Float[Tensor, "batch"]]
"""From rounds and the indices of a team to the chance that the team's answer is right, per task."""

Scores = Mapping[str, Float[Tensor, "team batch"]]
"""By rule, the chance that each team is right on each task."""


class Chosen(NamedTuple):
    """A team chosen on one half of the tasks, and its accuracy on the other."""

    agents: tuple[str, ...]
    accuracy: Estimate


class TeamSize(NamedTuple):
    """Teams of one size under one rule."""

    vote: str
    size: int
    teams: int  # that were tried
    accuracy: Estimate  # of a task's mean over the teams
    held_out: Estimate  # the same over the second half of the tasks
    best: Chosen  # of equal ones the first
    worst: Chosen


class Addition(NamedTuple):
    """A team of the best agents by the first half of the tasks, measured on the other."""

    vote: str
    size: int
    added: str  # the weakest member, who came last; "" for the core
    alone: Estimate  # accuracy of that member; of the core, the mean over its members
    accuracy: Estimate
    difference: Estimate  # to the core, task by task


class Gain(NamedTuple):
    """A team in a stratum: the accuracy of its consensus minus p_g, beside what should foretell it.

    p_g is the share of right proposals, which is the mean accuracy of single members too; none is a wrong one. p_v is
    the chance that a member rates another's right proposal above another's wrong one, equal ratings counting one half;
    None where there is no such pair.
    """

    vote: str
    stratum: str  # `ALL` for all tasks
    agents: tuple[str, ...]
    tasks: int
    p_g: float
    p_v: float | None
    pairs: int
    gain: float


class RankCorrelation(NamedTuple):
    """Spearman's, of p_v with the gain; n are rows, which share members and so are no independent ones."""

    vote: str
    over: str  # "teams" of all tasks, or "teams and strata"
    rho: Estimate


def polled(episodes: Episodes, number: int = 1) -> Rounds:
    """A round of the tasks that held it.

    Raises:
        ValueError: for fewer than two agents, or fewer than two tasks in which somebody gave an answer that round.
    """
    rounds = Rounds.of(episodes, number)
    if len(rounds.agents) < 2:
        raise ValueError(f"expected at least 2 agents, got {len(rounds.agents)}: collect with more")
    if (answers := int((rounds.classes >= 0).any(1).sum())) < 2:
        raise ValueError(f"expected answers to at least 2 tasks in round {number}, got {answers}: collect more")
    return rounds


def elected(cell: ConsensusCell, rounds: Rounds, team: Sequence[int]) -> Float[Tensor, "batch"]:
    """Whether the consensus of a team is right, when it holds this round alone, without memory.

    Answers of equal largest support share the task: the right ones among them over all of them. So no agent gains
    by its place in the list, as it does in a deliberation, where the first of them wins; 0 where nobody of the team
    gave an answer. The cell knows at least as many agents as the rounds, in their order. Ours.
    """
    with torch.no_grad():
        election = rounds.elect(cell, _members(rounds, team)[:, None])
    answers = election.answer_mask
    support = torch.where(answers, election.answer_support, -torch.inf)
    largest = support.amax(1, keepdim=True)
    # Float noise, as where a cell looks for its winner.
    tied = answers & (support >= largest - 1e-9 * largest.abs().clamp(min=1))
    return _share(tied & rounds.correct, tied)


def commonest(rounds: Rounds, team: Sequence[int]) -> Float[Tensor, "batch"]:
    """As `elected`, for the answer that most of a team gave; classes of equal size share the task. Nobody rates."""
    answered = rounds.answered & (rounds.classes >= 0) & _members(rounds, team)
    same = (rounds.classes[:, :, None] == rounds.classes[:, None]) & answered[:, :, None] & answered[:, None]
    size = same.sum(-1)
    top = answered & (size == size.amax(1, keepdim=True))
    return _share(top & rounds.correct, top)


def rules(dim: int, seats: int, votes: Sequence[str], tuned: ConsensusCell | None = None) -> Mapping[str, Rule]:
    """What is compared, by name: fresh cells with these votes, the commonest answer, and a tuned cell if there is one.

    All cells have room for as many agents as there are seats.
    """
    if not votes or (unknown := [name for name in votes if name not in VOTES]):
        got = ", ".join(unknown) if votes else "none"
        raise ValueError(f"votes: expected names out of {', '.join(VOTES)}, got {got}")
    chosen: dict[str, Rule] = {
        name: partial(elected, ConsensusCell(dim, seats, vote=VOTES[name]()).double()) for name in votes
    }
    chosen[COMMONEST] = commonest
    return chosen if tuned is None else {**chosen, TUNED: partial(elected, tuned.double())}


def sub_teams(agents: int, *, most: int = MOST, seed: int = 0) -> list[Team]:
    """Teams of 1 to all agents, by size: all of a size if at most `most`, else as many different ones drawn."""
    if most < 1:
        raise ValueError(f"most_teams: expected at least 1, got {most}")
    draw = random.Random(seed)  # noqa: S311 - no secret
    teams: list[Team] = []
    for size in range(1, agents + 1):
        if math.comb(agents, size) <= most:
            teams += itertools.combinations(range(agents), size)
            continue
        drawn: set[Team] = set()
        while len(drawn) < most:
            drawn.add(tuple(sorted(draw.sample(range(agents), size))))
        teams += sorted(drawn)
    return teams


def team_sizes(rounds: Rounds, teams: Sequence[Team], scores: Scores) -> list[TeamSize]:
    """Accuracy by size: of the mean team, and of those that a half of the tasks calls best and worst.

    Halves are by hash of the ids.
    """
    parts = split(rounds.ids, HALVES)

    def chosen(team: int, right: Tensor) -> Chosen:
        return Chosen(tuple(rounds.agents[i] for i in teams[team]), accuracy(right[parts.test]))

    rows = []
    for vote, table in scores.items():
        for size in sorted({len(team) for team in teams}):
            same = [i for i, team in enumerate(teams) if len(team) == size]
            known = table[same][:, parts.train].mean(1)
            best, worst = same[int(known.argmax())], same[int(known.argmin())]
            mean = table[same].mean(0)
            means = accuracy(mean), accuracy(mean[parts.test])
            ends = chosen(best, table[best]), chosen(worst, table[worst])
            rows.append(TeamSize(vote, size, len(same), *means, *ends))
    return rows


def additions(rounds: Rounds, rules: Mapping[str, Rule], *, core: int = 2) -> list[Addition]:
    """Start from the best agents and add the weaker ones, the better first.

    Agents are ranked by their accuracy on the first half of the tasks, ties by their order; all that is reported is
    measured on the other half.
    """
    if not 1 <= core <= len(rounds.agents):
        raise ValueError(f"core: expected 1 to {len(rounds.agents)} agents, got {core}")
    parts = split(rounds.ids, HALVES)
    single = rounds.correct.double()
    order = single[parts.train].mean(0).argsort(descending=True, stable=True).tolist()
    rows = []
    for vote, rule in rules.items():
        start = rule(rounds, order[:core])[parts.test]
        for size in range(core, len(order) + 1):
            now = rule(rounds, order[:size])[parts.test]
            last = order[:core] if size == core else order[size - 1 : size]
            alone = accuracy(single[parts.test][:, last].mean(1))
            added = "" if size == core else rounds.agents[last[0]]
            rows.append(Addition(vote, size, added, alone, accuracy(now), difference(now, start)))
    return rows


def gains(
    rounds: Rounds, teams: Sequence[Team], scores: Scores, strata: Mapping[str, str] | None = None, *, seed: int = 0
) -> tuple[list[Gain], list[RankCorrelation]]:
    """Every team of two or more in every stratum, and how p_v goes with the gain: the paper's condition, tested.

    Strata are names by task id; what stands before an id's first dash if None. One stratum alone is all tasks.
    """
    if strata is None:
        strata = {name: name.partition("-")[0] for name in rounds.ids if "-" in name}
    named = [strata.get(name, "") for name in rounds.ids]
    masks = {name: torch.tensor([other == name for other in named]) for name in sorted(set(named) - {""})}
    masks = {ALL: torch.ones(len(rounds), dtype=torch.bool), **(masks if len(masks) > 1 else {})}
    several = [i for i, team in enumerate(teams) if len(team) > 1]
    ahead, pairs = (
        torch.stack([of[:, s][:, :, s][..., s].sum((1, 2, 3)) for s in map(list, (teams[i] for i in several))])
        for of in (x.double() for x in rounds.pairs())
    )
    single = torch.stack([rounds.correct[:, list(teams[i])].double().mean(1) for i in several])
    drawn = np.random.default_rng(seed).multinomial(len(rounds), np.full(len(rounds), 1 / len(rounds)), size=DRAWS)
    counts = torch.cat([torch.ones(1, len(rounds)), torch.from_numpy(drawn)]).double()
    rows, correlations = [], []
    for vote, table in scores.items():
        columns = torch.stack([single, ahead, pairs, table[several] - single], -1)
        measured = {name: _measures(columns, mask, counts) for name, mask in masks.items()}
        for name, mask in masks.items():
            for i, team in enumerate(several):
                p_g, p_v, gain = measured[name][0, i].tolist()
                names, n = tuple(rounds.agents[a] for a in teams[team]), int(pairs[i, mask].sum())
                rows.append(Gain(vote, name, names, int(mask.sum()), p_g, p_v if n else None, n, gain))
        for over, chosen in (("teams", [ALL]), ("teams and strata", [name for name in masks if name != ALL])):
            if chosen:
                together = torch.cat([measured[name] for name in chosen], 1).numpy()
                correlations.append(RankCorrelation(vote, over, _correlation(together)))
    return rows, correlations


def _measures(
    columns: Float[Tensor, "team batch column"], mask: Tensor, counts: Float[Tensor, "draw batch"]
) -> Float[Tensor, "draw team measure"]:
    """p_g, p_v and gain of every resample, the first of which is the tasks as they are; NaN for what is undefined."""
    counts = counts * mask
    single, ahead, pairs, gain = torch.einsum("db,tbc->cdt", counts, columns)
    tasks = counts.sum(1, keepdim=True)
    return torch.stack([single / tasks, ahead / pairs, gain / tasks], -1)


def _correlation(measured: Real) -> Estimate:
    """Of p_v and gain in the first draw, with the interval of the others."""
    rho, *drawn = (spearman(draw[:, 1], draw[:, 2]) for draw in measured)
    known = [value for value in drawn if value is not None]
    n = int(np.isfinite(measured[0, :, 1]).sum())
    # Where most resamples leave it undefined, there is no interval.
    if rho is None or len(known) < DRAWS / 2:
        return Estimate(n, rho)
    low, high = np.quantile(known, [0.025, 0.975]).tolist()
    return Estimate(n, rho, low, high, "resampling")


def spearman(x: Real, y: Real) -> float | None:
    """Spearman's rank correlation of the pairs without NaN; None for fewer than three or where either is constant."""
    from scipy.stats import spearmanr  # noqa: PLC0415 - heavy, and wanted only here

    defined = np.isfinite(x) & np.isfinite(y)
    # Rounded, for equal shares may differ in their last digit.
    x, y = np.round(x[defined], 12), np.round(y[defined], 12)
    if len(x) < 3 or 0 in (np.ptp(x), np.ptp(y)):
        return None
    return float(spearmanr(x, y).statistic)


def accuracy(right: Float[Tensor, "batch"]) -> Estimate:
    """Mean over tasks."""
    return mean_score(right[:, None].tolist())


def difference(one: Float[Tensor, "batch"], other: Float[Tensor, "batch"]) -> Estimate:
    """Mean paired difference over tasks."""
    return mean_difference((one - other)[:, None].tolist())


def _members(rounds: Rounds, team: Sequence[int]) -> Tensor:
    mask = torch.zeros(len(rounds.agents), dtype=torch.bool)
    mask[list(team)] = True
    return mask


def _share(hits: Tensor, of: Tensor) -> Float[Tensor, "batch"]:
    return hits.sum(1).double() / of.sum(1).clamp(min=1)
