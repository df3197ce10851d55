"""What a learned broker has to beat on recorded rounds: fixed teams chosen on other tasks, random ones, mixtures."""

from collections.abc import Sequence

import numpy
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.traces.rounds import Rounds, all_teams

EXHAUSTIVE = 8
"""Seats (an agent in a role) up to which every fixed team is tried."""

Points = tuple[Float[Tensor, "budget question"], Float[Tensor, "budget question"]]
"""Cost and accuracy, question by question, at each budget."""


def best_teams(
    cell: ConsensusCell,
    fit: Rounds,
    test: Rounds,
    teams: Sequence[Bool[Tensor, "agent role"]],
    budgets: Float[Tensor, "budget"],
    *,
    plurality: bool = False,
) -> Points:
    """The best that fixed teams can do at mean budgets; where allowed, by plurality if that is better.

    On the upper concave hull of mean cost and accuracy, from asking nobody on, a budget is met exactly by a coin
    between two neighbouring teams. What is returned is the coin's expectation on other tasks.
    """

    def votes(rounds: Rounds, seats: Tensor, *, commonest: bool) -> tuple[Tensor, Tensor]:
        """What a team takes and whether it is right, task by task; by the cell or by the commonest answer."""
        asked = seats[:, 0].expand(len(rounds), -1)
        return rounds.cost(seats), rounds.plurality_right(asked) if commonest else rounds.right(cell, seats)

    candidates = [(seats, rule) for seats in teams for rule in ((False, True) if plurality else (False,))]
    means = [[float(v.mean()) for v in votes(fit, seats, commonest=rule)] for seats, rule in candidates]
    cost, accuracy = torch.tensor([[0.0, 0.0], *means], dtype=torch.float64).T
    weights = hull_weights(cost, accuracy, budgets)[:, 1:]
    used = weights.any(0).nonzero()[:, 0]
    tested = [votes(test, candidates[i][0], commonest=candidates[i][1]) for i in used.tolist()]
    spent, right = (torch.stack(values) for values in zip(*tested, strict=True))
    return weights[:, used] @ spent, weights[:, used] @ right


def teams_to_try(cell: ConsensusCell, fit: Rounds) -> list[Bool[Tensor, "agent role"]]:
    """All teams with a proposer, where there are at most `EXHAUSTIVE` seats; else those that a greedy search meets.

    From the best single proposer on, it adds the seat that gains most accuracy.
    """
    where = fit.there.any(0)
    if (seats := int(where.sum())) <= EXHAUSTIVE:
        every = where.new_zeros(2**seats, *where.shape)
        every[:, where] = all_teams(seats)
        return [team for team in every if team[:, 0].any()]
    met: list[Tensor] = []
    team = torch.zeros_like(where)
    while steps := [larger for larger in _additions(team, where) if larger[:, 0].any()]:
        team = max(steps, key=lambda larger: float(fit.right(cell, larger).mean()))
        met += steps
    return met


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
            right[point] += test.right(cell, chosen) / draws
    return cost, right


def _additions(team: Tensor, where: Tensor) -> list[Bool[Tensor, "agent role"]]:
    """The team with each free seat taken, one at a time."""
    teams = []
    for agent, role in (where & ~team).nonzero().tolist():
        larger = team.clone()
        larger[agent, role] = True
        teams.append(larger)
    return teams
