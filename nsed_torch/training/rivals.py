"""What learned teams have to beat on recorded rounds: one fixed team for all tasks, and random ones."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nsed_torch.nn import ConsensusCell
from nsed_torch.training.seats import RecordedSeats, mean_costs
from nsed_torch.training.static import hull_weights

EXHAUSTIVE = 8
"""Seats (an agent in a role) up to which every fixed team is tried."""

Tried = tuple[Bool[Tensor, "agent role"], float]
"""A team and its accuracy on training tasks."""


def fixed_teams(
    cell: ConsensusCell, fit: RecordedSeats, test: RecordedSeats, budgets: Float[Tensor, "budget"]
) -> tuple[Float[Tensor, "budget question"], Float[Tensor, "budget question"]]:
    """Cost and accuracy on test tasks of the best fixed teams on training tasks, at mean budgets.

    As `static.best_teams`: a budget is met by a coin between two neighbours on the upper concave hull. The hull is one
    of all teams with a proposer, where there are at most `EXHAUSTIVE` seats. Else it is one of those that a greedy
    search meets: from the best single proposer on, the seat is added that gains most accuracy on training tasks.

    Args:
        cell: elects winners.
        fit: tasks that choose.
        test: tasks that are reported.
        budgets: mean tokens of a task.
    """
    exhaustive = int(fit.there.any(0).sum()) <= EXHAUSTIVE
    tried = _accuracies(cell, fit, _all_teams(fit)) if exhaustive else _greedy(cell, fit)
    cost = torch.stack([torch.zeros((), dtype=torch.float64), *(fit.cost(team).mean() for team, _ in tried)])
    weights = hull_weights(cost, cost.new_tensor([0.0, *(accuracy for _, accuracy in tried)]), budgets)[:, 1:]
    used = weights.any(0).nonzero()[:, 0]
    teams = [tried[i][0] for i in used.tolist()]
    spent = torch.stack([test.cost(team) for team in teams])
    hits = torch.stack([test.right(cell, team).double() for team in teams])
    return weights[:, used] @ spent, weights[:, used] @ hits


def _all_teams(seats: RecordedSeats) -> list[Bool[Tensor, "agent role"]]:
    where = seats.there.any(0)
    teams = []
    for number in range(1, 2 ** int(where.sum())):
        team = torch.zeros_like(where)
        team[where] = torch.tensor([bool(number >> bit & 1) for bit in range(int(where.sum()))])
        if team[:, 0].any():
            teams.append(team)
    return teams


def _greedy(cell: ConsensusCell, seats: RecordedSeats) -> list[Tried]:
    where = seats.there.any(0)
    steps = _accuracies(cell, seats, [team for team in _additions(torch.zeros_like(where), where) if team[:, 0].any()])
    tried = list(steps)
    while steps:
        best, _ = max(steps, key=lambda step: step[1])
        steps = _accuracies(cell, seats, _additions(best, where))
        tried += steps
    return tried


def _accuracies(cell: ConsensusCell, seats: RecordedSeats, teams: Sequence[Tensor]) -> list[Tried]:
    return [(team, float(seats.right(cell, team).double().mean())) for team in teams]


def _additions(team: Tensor, where: Tensor) -> list[Bool[Tensor, "agent role"]]:
    """The team with each free seat taken, one at a time."""
    teams = []
    for agent, role in (where & ~team).nonzero().tolist():
        larger = team.clone()
        larger[agent, role] = True
        teams.append(larger)
    return teams


def random_teams(
    cell: ConsensusCell,
    fit: RecordedSeats,
    test: RecordedSeats,
    budgets: Float[Tensor, "budget"],
    *,
    draws: int = 10,
    seed: int = 0,
) -> tuple[Float[Tensor, "budget question"], Float[Tensor, "budget question"]]:
    """Cost and accuracy on test tasks of teams drawn anew for each task, as large as mean budgets pay for.

    A proposer first, then seats in a random order, each taken where what seats cost on average on training tasks stays
    within the budget.

    Args:
        cell: elects winners.
        fit: tasks that tell what seats cost.
        test: tasks that are reported.
        budgets: mean tokens of a task.
        draws: teams a task and budget, averaged.
        seed: of the draws.
    """
    draw, price = torch.Generator().manual_seed(seed), mean_costs(fit).flatten()
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
