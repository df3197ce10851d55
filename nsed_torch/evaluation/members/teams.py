"""Teams of every size out of one team, and what weaker members add to the best ones."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.data import split
from nsed_torch.evaluation.members.poll import Poll, Rule
from nsed_torch.evaluation.statistics import Estimate, mean_difference, mean_score

MOST = 60
"""Teams of one size that are tried; where there are more, so many are drawn."""

Team = tuple[int, ...]
Scores = Mapping[str, Float[Tensor, "team batch"]]
"""Chance of being right, by rule: a row a team, a column a task."""


@dataclass(frozen=True)
class Chosen:
    """A team chosen on one half of the tasks and measured on the other.

    Args:
        agents: their names.
        accuracy: on the other half.
    """

    agents: tuple[str, ...]
    accuracy: Estimate


@dataclass(frozen=True)
class TeamSize:
    """Teams of one size under one rule.

    Args:
        vote: name of the rule.
        size: members.
        teams: how many were tried.
        accuracy: over all tasks, of a task's mean over the teams.
        held_out: the same over the second half of the tasks: what the best and the worst are held against.
        best: team on the first half of the tasks, measured on the second; of equal ones the first.
        worst: likewise.
    """

    vote: str
    size: int
    teams: int
    accuracy: Estimate
    held_out: Estimate
    best: Chosen
    worst: Chosen


@dataclass(frozen=True)
class Addition:
    """A team of the best agents by the first half of the tasks, measured on the other.

    Args:
        vote: name of the rule.
        size: members.
        added: the weakest of them, who came last; "" for the core.
        alone: accuracy of the one added; of the core, the mean over its members.
        accuracy: of the team.
        difference: to the core, task by task.
    """

    vote: str
    size: int
    added: str
    alone: Estimate
    accuracy: Estimate
    difference: Estimate


def sub_teams(agents: int, *, most: int = MOST, seed: int = 0) -> list[Team]:
    """Teams of 1 to all agents, by size: all of a size if these are at most `most`, else as many different ones drawn.

    Args:
        agents: their number.
        most: at least 1.
        seed: of the draws.

    Raises:
        ValueError: if most is below 1.
    """
    if most < 1:
        raise ValueError(f"most_teams: expected at least 1, got {most}")
    draw = random.Random(seed)  # noqa: S311 - no secret
    found: list[Team] = []
    for size in range(1, agents + 1):
        if math.comb(agents, size) <= most:
            found += itertools.combinations(range(agents), size)
            continue
        drawn: set[Team] = set()
        while len(drawn) < most:
            drawn.add(tuple(sorted(draw.sample(range(agents), size))))
        found += sorted(drawn)
    return found


def scores(poll: Poll, rules: Mapping[str, Rule], teams: Sequence[Team]) -> Scores:
    """Let every team vote by every rule."""
    return {name: torch.stack([rule(poll, team) for team in teams]) for name, rule in rules.items()}


def team_sizes(poll: Poll, teams: Sequence[Team], scores: Scores) -> list[TeamSize]:
    """Accuracy by size: of the mean team, and of those that a half of the tasks calls best and worst.

    Halves are by hash of the ids, as in `benchmarks.split`.

    Args:
        poll: the round.
        teams: as `sub_teams` gives them.
        scores: theirs.

    Raises:
        ValueError: if a half has no task.
    """
    parts = split(poll.ids, (0.5, 0.0, 0.5))

    def chosen(team: int, right: Tensor) -> Chosen:
        return Chosen(tuple(poll.agents[i] for i in teams[team]), accuracy(right[parts.test]))

    rows = []
    for vote, table in scores.items():
        for size in sorted({len(team) for team in teams}):
            own = [i for i, team in enumerate(teams) if len(team) == size]
            known = table[own][:, parts.train].mean(1)
            best, worst = own[int(known.argmax())], own[int(known.argmin())]
            mean = table[own].mean(0)
            means = accuracy(mean), accuracy(mean[parts.test])
            rows.append(TeamSize(vote, size, len(own), *means, chosen(best, table[best]), chosen(worst, table[worst])))
    return rows


def additions(poll: Poll, rules: Mapping[str, Rule], *, core: int = 2) -> list[Addition]:
    """Start from the best agents and add the weaker ones, the better first.

    Agents are ranked by their accuracy on the first half of the tasks, ties by their order; all that is reported is
    measured on the other half.

    Args:
        poll: the round.
        rules: by name.
        core: how many agents there are at the start.

    Raises:
        ValueError: for a core of none or of more than all agents; if a half has no task.
    """
    if not 1 <= core <= len(poll.agents):
        raise ValueError(f"core: expected 1 to {len(poll.agents)} agents, got {core}")
    parts = split(poll.ids, (0.5, 0.0, 0.5))
    single = poll.correct.double()
    order = single[parts.train].mean(0).argsort(descending=True, stable=True).tolist()
    rows = []
    for vote, rule in rules.items():
        start = rule(poll, order[:core])[parts.test]
        for size in range(core, len(order) + 1):
            now = rule(poll, order[:size])[parts.test]
            last = order[:core] if size == core else order[size - 1 : size]
            alone = accuracy(single[parts.test][:, last].mean(1))
            added = "" if size == core else poll.agents[last[0]]
            rows.append(Addition(vote, size, added, alone, accuracy(now), difference(now, start)))
    return rows


def accuracy(right: Float[Tensor, "batch"]) -> Estimate:
    """Mean over tasks with a 95% interval, see `statistics.mean_score`."""
    return mean_score(right[:, None].tolist())


def difference(one: Float[Tensor, "batch"], other: Float[Tensor, "batch"]) -> Estimate:
    """Mean over tasks of the paired difference with a 95% interval, see `statistics.mean_difference`."""
    return mean_difference((one - other)[:, None].tolist())
