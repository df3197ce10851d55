"""What a learned broker has to beat on recorded rounds: fixed teams chosen on other tasks, random ones, mixtures."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.data.rounds import Rounds, all_teams
from nsed_torch.nn import ConsensusCell

EXHAUSTIVE = 8
"""Seats (an agent in a role) up to which every fixed team is tried."""

Points = tuple[Float[Tensor, "budget question"], Float[Tensor, "budget question"]]
"""Cost and accuracy, question by question, at each budget."""

Vote = Callable[[Rounds], tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]]
"""From rounds to what a team took and whether it was right, task by task."""


class RivalTeam(NamedTuple):
    """A fixed team, how it votes, and its mean cost and accuracy on the tasks that choose."""

    team: Tensor
    vote: Vote
    cost: float
    accuracy: float

    @classmethod
    def on(cls, fit: Rounds, team: Tensor, vote: Vote) -> "RivalTeam":
        """Measure a team."""
        return cls(team, vote, *(float(values.mean()) for values in vote(fit)))


def best_asked(
    cell: ConsensusCell, fit: Rounds, test: Rounds, teams: Bool[Tensor, "team agent"], budgets: Float[Tensor, "budget"]
) -> Points:
    """The best of some teams that answer and judge one another, see `on_the_hull`.

    Each team votes by the cell or by plurality, whichever is better on the tasks that choose.
    """

    def vote(rounds: Rounds, team: Tensor, by_plurality: bool) -> tuple[Tensor, Tensor]:
        asked = team.expand(len(rounds), -1)
        right = rounds.plurality_right(asked) if by_plurality else rounds.heard(cell, asked)[1]
        return torch.where(asked, rounds.answer_cost, 0).sum(1), right.double()

    candidates = []
    for team in teams:
        rules = [partial(vote, team=team, by_plurality=rule) for rule in (False, True)]
        candidates.append(max((RivalTeam.on(fit, team, rule) for rule in rules), key=attrgetter("accuracy")))
    return on_the_hull(candidates, test, budgets)


def best_seated(cell: ConsensusCell, fit: Rounds, test: Rounds, budgets: Float[Tensor, "budget"]) -> Points:
    """The best fixed teams of proposers and judges, see `on_the_hull`.

    The hull is one of all teams with a proposer, where there are at most `EXHAUSTIVE` seats. Else it is one of those
    that a greedy search meets: from the best single proposer on, the seat is added that gains most accuracy.
    """
    where = fit.there.any(0)

    def vote(rounds: Rounds, team: Tensor) -> tuple[Tensor, Tensor]:
        return rounds.cost(team), rounds.right(cell, team).double()

    def measured(teams: Sequence[Tensor]) -> list[RivalTeam]:
        return [RivalTeam.on(fit, team, partial(vote, team=team)) for team in teams if team[:, 0].any()]

    if (seats := int(where.sum())) <= EXHAUSTIVE:
        every = where.new_zeros(2**seats, *where.shape)
        every[:, where] = all_teams(seats)
        return on_the_hull(measured(list(every)), test, budgets)
    steps = measured(_additions(torch.zeros_like(where), where))
    candidates = list(steps)
    while steps:
        steps = measured(_additions(max(steps, key=attrgetter("accuracy")).team, where))
        candidates += steps
    return on_the_hull(candidates, test, budgets)


def on_the_hull(candidates: Sequence[RivalTeam], test: Rounds, budgets: Float[Tensor, "budget"]) -> Points:
    """The best that fixed teams can do at mean budgets.

    On the upper concave hull of mean cost and accuracy, from asking nobody on, a budget is met exactly by a coin
    between two neighbouring teams. What is returned is the coin's expectation on other tasks.
    """
    cost = torch.tensor([0.0, *(candidate.cost for candidate in candidates)], dtype=torch.float64)
    accuracy = torch.tensor([0.0, *(candidate.accuracy for candidate in candidates)], dtype=torch.float64)
    weights = hull_weights(cost, accuracy, budgets)[:, 1:]
    used = weights.any(0).nonzero()[:, 0]
    votes = [candidates[i].vote(test) for i in used.tolist()]
    spent, right = (torch.stack(values) for values in zip(*votes, strict=True))
    return weights[:, used] @ spent, weights[:, used] @ right


def hull_weights(
    cost: Float[Tensor, "team"], accuracy: Float[Tensor, "team"], budgets: Float[Tensor, "budget"]
) -> Float[Tensor, "budget team"]:
    """How often to use each team so that accuracy is largest at a mean cost: neighbours on the upper concave hull.

    The cheapest team must be within every budget; above the most accurate team's cost, it is that team alone.
    """

    def slope(i: int, j: int) -> float:
        return float((accuracy[j] - accuracy[i]) / (cost[j] - cost[i]))

    hull: list[int] = []
    for i in sorted(range(len(cost)), key=lambda i: (float(cost[i]), -float(accuracy[i]))):
        if hull and accuracy[i] <= accuracy[hull[-1]]:
            continue
        while len(hull) > 1 and slope(hull[-1], i) >= slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(i)
    weights = cost.new_zeros(len(budgets), len(cost))
    weights[:, hull] = coins(cost[hull], budgets)
    return weights


def coins(cost: Float[Tensor, "team"], budgets: Float[Tensor, "budget"]) -> Float[Tensor, "budget team"]:
    """How often to use each of two neighbours so that their mean cost is the budget; teams in the order of their cost.

    Below the first cost it is the first team alone, above the last one the last.
    """
    return torch.stack([torch.tensor(numpy.interp(budgets, cost, team)) for team in numpy.eye(len(cost))], dim=1)


def random_asked(rounds: Rounds, budgets: Float[Tensor, "budget"], *, draws: int = 20, seed: int = 0) -> Points:
    """K agents drawn anew for each task, by plurality, mixing k and k + 1 to meet mean budgets; over several draws."""
    draw, agents = torch.Generator().manual_seed(seed), len(rounds.agents)
    cost, right = torch.zeros(2, agents + 1, len(rounds), dtype=torch.float64)
    for _ in range(draws):
        rank = torch.rand(len(rounds), agents, generator=draw).argsort(1).argsort(1)
        for k in range(1, agents + 1):
            asked = rank < k
            cost[k] += torch.where(asked, rounds.answer_cost, 0).sum(1) / draws
            right[k] += rounds.plurality_right(asked).double() / draws
    # Sizes in the order of their cost, not a hull: a random team is not chosen.
    weights = coins(cost.mean(1), budgets)
    return weights @ cost, weights @ right


def random_seated(
    cell: ConsensusCell, fit: Rounds, test: Rounds, budgets: Float[Tensor, "budget"], *, draws: int = 10, seed: int = 0
) -> Points:
    """Teams of proposers and judges drawn anew for each task, as large as mean budgets pay for; over several draws.

    A proposer first, then seats in a random order, each taken where what seats cost on average on other tasks stays
    within the budget.
    """
    draw, price = torch.Generator().manual_seed(seed), fit.mean_costs().flatten()
    cost, right = torch.zeros(2, len(budgets), len(test), dtype=torch.float64)
    rows = torch.arange(len(test))
    free = test.there.flatten(1)
    for _ in range(draws):
        key = torch.rand(free.shape, generator=draw).masked_fill(~free, 2.0)
        proposer = key.unflatten(1, test.there.shape[1:])[..., 0].argmin(1)
        key[rows, proposer * test.there.shape[2]] = -1.0
        for point, budget in enumerate(budgets.tolist()):
            team, spent = torch.zeros_like(free), torch.zeros(len(test), dtype=torch.float64)
            for turn, seat in enumerate(key.argsort(1).unbind(1)):
                taken = free[rows, seat] & ((spent + price[seat] <= budget) | (turn == 0))
                team[rows, seat] = taken
                spent += torch.where(taken, price[seat], 0)
            chosen = team.view_as(test.there)
            cost[point] += test.cost(chosen) / draws
            right[point] += test.right(cell, chosen).double() / draws
    return cost, right


def shortlist(rounds: Rounds, fit: Int[Tensor, "train"], budgets: Float[Tensor, "budget"], size: int) -> Rounds:
    """The agents a broker may choose from, at most `size`, in their order, which is by accuracy.

    In turns for every mean budget, the first agent that it pays for on average and that is not yet taken.
    """
    mean = rounds.answer_cost[fit].mean(0)
    taken: list[int] = []
    while len(taken) < size:
        before = len(taken)
        for budget in budgets.sort().values:
            free = [i for i in range(len(mean)) if i not in taken and mean[i] <= budget]
            taken += free[:1]
        if len(taken) == before:
            break
    return rounds.select(agents=sorted(taken[:size]))


def _additions(team: Tensor, where: Tensor) -> list[Bool[Tensor, "agent role"]]:
    """The team with each free seat taken, one at a time."""
    teams = []
    for agent, role in (where & ~team).nonzero().tolist():
        larger = team.clone()
        larger[agent, role] = True
        teams.append(larger)
    return teams
