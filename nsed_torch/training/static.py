"""What a broker has to beat: fixed teams chosen on training tasks, random teams, and mixtures of them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_torch.data import plurality
from nsed_torch.nn import ConsensusCell
from nsed_torch.training.partial import Pool, verdict


def best_teams(
    cell: ConsensusCell, pool: Pool, teams: Tensor, fit: Tensor, test: Tensor, budgets: Float[Tensor, "budget"]
) -> tuple[Float[Tensor, "budget question"], Float[Tensor, "budget question"]]:
    """Cost and accuracy on test tasks of the best fixed teams on training tasks, at mean budgets.

    Each team votes by the cell or by plurality, whichever is better on training tasks. On the upper concave hull of
    mean cost and accuracy there, from asking nobody on, a budget is met exactly by a coin between two neighbouring
    teams: the best that fixed teams can do at that price on training tasks. What is returned is the coin's expectation.

    Args:
        cell: tuned, for the pool.
        pool: the most accurate agent first.
        teams: [team agent], which agents may be asked together.
        fit: tasks that choose the teams.
        test: tasks that are reported.
        budgets: mean costs of a task, in the unit of the pool's costs.
    """
    costs, rights = [], []
    for team in teams:
        asked = team.expand(len(pool), -1)
        by_cell = verdict(cell, pool, asked).right.double()
        by_plurality = _plurality_right(pool, asked)
        better = by_plurality[fit].mean() > by_cell[fit].mean()
        costs.append(torch.where(asked, pool.cost, 0).sum(1))
        rights.append(by_plurality if better else by_cell)
    zero = torch.zeros(1, len(pool), dtype=torch.float64)
    cost, right = torch.cat([zero, torch.stack(costs)]), torch.cat([zero, torch.stack(rights)])
    weights = hull_weights(cost[:, fit].mean(1), right[:, fit].mean(1), budgets)
    return weights @ cost[:, test], weights @ right[:, test]


def hull_weights(
    cost: Float[Tensor, "team"], accuracy: Float[Tensor, "team"], budgets: Float[Tensor, "budget"]
) -> Float[Tensor, "budget team"]:
    """How often to use each team so that accuracy is largest at a mean cost: neighbours on the upper concave hull.

    Args:
        cost: of each team; the cheapest must be within every budget.
        accuracy: of each team.
        budgets: mean costs. Above the most accurate team's, that team alone.
    """
    hull: list[int] = []
    for i in sorted(range(len(cost)), key=lambda i: (float(cost[i]), -float(accuracy[i]))):
        if hull and accuracy[i] <= accuracy[hull[-1]]:
            continue
        while len(hull) > 1 and _slope(cost, accuracy, hull[-1], i) >= _slope(cost, accuracy, hull[-2], hull[-1]):
            hull.pop()
        hull.append(i)
    weights = cost.new_zeros(len(budgets), len(cost))
    for row, budget in enumerate(budgets.tolist()):
        below = [i for i in hull if cost[i] <= budget]
        left = below[-1]
        if len(below) == len(hull):
            weights[row, left] = 1
        else:
            right = hull[len(below)]
            share = (budget - float(cost[left])) / float(cost[right] - cost[left])
            weights[row, left], weights[row, right] = 1 - share, share
    return weights


def random_teams(
    pool: Pool, test: Tensor, budgets: Float[Tensor, "budget"], *, draws: int = 20, seed: int = 0
) -> tuple[Float[Tensor, "budget question"], Float[Tensor, "budget question"]]:
    """Cost and accuracy of k agents drawn anew for each task, by plurality, mixing k and k + 1 to meet mean budgets.

    Args:
        pool: agents to draw from.
        test: tasks that are reported.
        budgets: mean costs, in the unit of the pool's costs.
        draws: teams a task and k, averaged.
        seed: of the draws.
    """
    draw = torch.Generator().manual_seed(seed)
    pool = pool.select(test)
    agents = len(pool.agents)
    cost, right = torch.zeros(2, agents + 1, len(pool), dtype=torch.float64)
    for _ in range(draws):
        rank = torch.rand(len(pool), agents, generator=draw).argsort(1).argsort(1)
        for k in range(1, agents + 1):
            asked = rank < k
            cost[k] += torch.where(asked, pool.cost, 0).sum(1) / draws
            right[k] += _plurality_right(pool, asked) / draws
    # Sizes in the order of their cost, not a hull: a random team is not chosen.
    mean = cost.mean(1)
    weights = torch.zeros(len(budgets), agents + 1, dtype=torch.float64)
    for row, budget in enumerate(budgets.tolist()):
        k = min(int((mean <= budget).sum()) - 1, agents - 1)
        share = min((budget - float(mean[k])) / float(mean[k + 1] - mean[k]), 1.0)
        weights[row, k], weights[row, k + 1] = 1 - share, share
    return weights @ cost, weights @ right


def shortlist(pool: Pool, fit: Int[Tensor, "train"], budgets: Float[Tensor, "budget"], size: int) -> Pool:
    """The agents a broker may choose from, at most `size`, the most accurate first.

    In turns for every budget, the most accurate agent on training tasks that it pays for and that is not yet taken.

    Args:
        pool: the most accurate agent first.
        fit: training tasks.
        budgets: mean costs, in the unit of the pool's costs.
        size: most agents.
    """
    mean = pool.cost[fit].mean(0)
    taken: list[int] = []
    while len(taken) < size:
        before = len(taken)
        for budget in budgets.sort().values:
            free = [i for i in range(len(mean)) if i not in taken and mean[i] <= budget]
            taken += free[:1]
        if len(taken) == before:
            break
    return pool.select(agents=sorted(taken[:size]))


def _slope(cost: Tensor, accuracy: Tensor, i: int, j: int) -> float:
    return float((accuracy[j] - accuracy[i]) / (cost[j] - cost[i]))


def _plurality_right(pool: Pool, asked: Tensor) -> Tensor:
    winner = plurality(torch.where(asked, pool.classes, -1))
    return (pool.correct.gather(1, winner.clamp(min=0)[:, None])[:, 0] & (winner >= 0)).double()
