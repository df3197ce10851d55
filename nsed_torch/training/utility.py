"""Learn from recorded rounds whom a question is worth asking: a learned broker for a mean budget of tokens."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nsed_torch.data.splits import place
from nsed_torch.nn import ConsensusCell, LearnedBroker
from nsed_torch.training.seats import RecordedSeats, mean_costs

FOLDS = 5
OUT = 100.0
"""Log-odds that nobody has: a threshold this high keeps a role empty, one this low fills it."""

LEVELS = 7
"""Quantiles of the log-odds that are tried as thresholds of a role, beside everybody and nobody."""


class LogOdds(NamedTuple):
    """What an agent in a role is worth by question: `log(q / (1 - q)) = bias + weight . x`.

    Args:
        bias: per agent and role.
        weight: of the task embedding x.
        ridges: of each role, chosen on tasks that were left out.
    """

    bias: Float[Tensor, "agent role"]
    weight: Float[Tensor, "agent role dim"]
    ridges: tuple[float, ...]

    def __call__(self, task: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch agent role"]:
        """Log-odds for tasks."""
        return self.bias + torch.einsum("bd,ard->bar", task, self.weight)


class Policy(NamedTuple):
    """Seat whoever's log-odds exceed its role's threshold plus the price of its share of the full team's tokens.

    Args:
        price: log-odds that the full team's tokens are worth.
        thresholds: of each role.
        cost: mean tokens on the tasks it was tried on.
        accuracy: there.
    """

    price: float
    thresholds: tuple[float, ...]
    cost: float
    accuracy: float


def fit_log_odds(
    task: Float[Tensor, "batch dim"], worth: Tensor, known: Tensor, ridges: Sequence[float]
) -> tuple[Float[Tensor, "agent role"], Float[Tensor, "agent role dim"]]:
    """Logistic regressions of worth on the task embedding, all agents and roles at once.

    Each minimises `sum_b CE(worth_b, sigmoid(bias + w . x_b)) + ridge |w|^2 / 2 + bias^2 / 20` over the tasks where its
    worth is known, by L-BFGS, with x centred on the tasks given. The last term makes few observations a coin. An agent
    that was never seen in a role gets `-10 OUT` there. Ours.

    Args:
        task: embeddings.
        worth: in [0, 1], [batch agent role].
        known: where it counts, [batch agent role].
        ridges: of each role.

    Returns:
        Bias and weight, for embeddings as they are.
    """
    centre = task.mean(0)
    rows, ridge = task - centre, task.new_tensor(ridges)
    bias = task.new_zeros(worth.shape[1:], requires_grad=True)
    weight = task.new_zeros(*worth.shape[1:], task.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [bias, weight], max_iter=300, tolerance_grad=1e-4, history_size=10, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = bias + torch.einsum("bd,ard->bar", rows, weight)
        misfit = nn.functional.binary_cross_entropy_with_logits(
            logits, worth.to(logits), known.to(logits), reduction="sum"
        )
        total = misfit + (ridge * weight.square().sum(-1)).sum() / 2 + bias.square().sum() / 20
        total.backward()
        return total

    optimizer.step(loss)
    bias, weight = bias.detach(), weight.detach()
    return torch.where(known.any(0), bias - weight @ centre, -10 * OUT), weight


def left_out(
    seats: RecordedSeats, ridges: Sequence[float]
) -> tuple[Float[Tensor, "batch agent role"], tuple[float, ...]]:
    """Log-odds of every task from regressions on others, and each role's ridge of least cross-entropy so.

    Tasks are dealt into `FOLDS` parts by a hash of their ids; each is predicted by the regressions on the others.

    Args:
        seats: tasks to train and to choose on.
        ridges: to choose from; ties go to the first.

    Raises:
        ValueError: if there are fewer tasks than folds.
    """
    if len(seats) < FOLDS:
        raise ValueError(f"utility: expected at least {FOLDS} tasks to choose on, got {len(seats)}: collect more")
    spots = torch.tensor([place(name, seed=1) for name in seats.episodes.ids], dtype=torch.float64)
    fold = spots.argsort().argsort() % FOLDS
    task, worth, known = seats.episodes.task, seats.worth, seats.known
    found, losses = [], []
    for ridge in ridges:
        logits = torch.zeros_like(worth)
        for part in range(FOLDS):
            inside = fold != part
            bias, weight = fit_log_odds(task[inside], worth[inside], known[inside], [ridge] * worth.shape[2])
            logits[~inside] = bias + torch.einsum("bd,ard->bar", task[~inside], weight)
        misfit = nn.functional.binary_cross_entropy_with_logits(logits, worth, known.to(worth), reduction="none")
        found.append(logits)
        losses.append(misfit.sum((0, 1)))
    best = torch.stack(losses).argmin(0)
    roles = range(worth.shape[2])
    chosen = torch.stack([found[int(best[role])][..., role] for role in roles], -1)
    return chosen, tuple(float(ridges[int(best[role])]) for role in roles)


class LearnedTeams:
    """Teams by question, learned on some tasks: of simple policies, the best that a mean budget pays for.

    A policy seats agent a in role r where `u_ar = z_ar(x) - threshold_r - price cost_ar` is above 0, with z the
    log-odds that a is right (judges: puts a right above a wrong answer) and cost_ar its mean share of the full team's
    tokens; at least `seats.LEAST` in any case. Thresholds, one a role, and the price come from a grid; each policy is
    tried on the tasks given, with log-odds from regressions that did not see them (`left_out`), and the cell's vote of
    its teams. As u is linear in x, it is a head of a `LearnedBroker`, and live the same agents are seated. Ours.

    Args:
        cell: elects winners.
        seats: tasks to learn from.
        ridges: to choose from.
        prices: to choose from, in log-odds a full team's tokens.
    """

    def __init__(
        self, cell: ConsensusCell, seats: RecordedSeats, *, ridges: Sequence[float], prices: Sequence[float]
    ) -> None:
        logits, chosen = left_out(seats, ridges)
        self.log_odds = LogOdds(*fit_log_odds(seats.episodes.task, seats.worth, seats.known, chosen), chosen)
        self.whole = float(seats.cost(seats.there).mean())
        self.share = mean_costs(seats) / self.whole
        self.agents = seats.episodes.agents
        self.policies = [policy for price in prices for policy in self._tried(cell, seats, logits, price)]

    def _tried(self, cell: ConsensusCell, seats: RecordedSeats, logits: Tensor, price: float) -> list[Policy]:
        worth = logits - price * self.share
        levels = torch.linspace(0.1, 0.9, LEVELS, dtype=worth.dtype)
        grids = [
            sorted({OUT, -OUT, *worth[..., role][seats.there[..., role]].quantile(levels).tolist()})
            if seats.there[..., role].any()
            else [OUT]
            for role in range(worth.shape[2])
        ]
        tried = list(itertools.product(*grids))
        teams = torch.stack([seats.seated(worth - worth.new_tensor(thresholds)) for thresholds in tried])
        accuracy = _accuracies(cell, seats, teams)
        costs = [float(seats.cost(team).mean()) for team in teams]
        return [Policy(price, *rest) for rest in zip(tried, costs, accuracy.tolist(), strict=True)]

    def within(self, budget: float) -> Policy:
        """The most accurate policy that a mean budget pays for, the cheapest of equals; else the cheapest of all.

        Args:
            budget: tokens of a task, on average.
        """
        paid = [policy for policy in self.policies if policy.cost <= budget]
        if not paid:
            return min(self.policies, key=lambda policy: policy.cost)
        return max(paid, key=lambda policy: (policy.accuracy, -policy.cost))

    @torch.no_grad()
    def broker(self, policy: Policy, encoder: Mapping[str, Any]) -> LearnedBroker:
        """The policy as a broker of one round, which seats the same agents.

        Args:
            policy: of `within`.
            encoder: identity of what embedded the tasks.
        """
        _, roles, dim = self.log_odds.weight.shape
        broker = LearnedBroker(self.agents, rounds=1, roles=roles, dim=dim, encoder=encoder)
        shift = self.log_odds.bias.new_tensor(policy.thresholds) + policy.price * self.share
        broker.bias[0] = self.log_odds.bias - shift
        broker.weight[0, ..., :dim] = self.log_odds.weight
        return broker


def _accuracies(
    cell: ConsensusCell, seats: RecordedSeats, teams: Bool[Tensor, "policy batch agent role"]
) -> Float[Tensor, "policy"]:
    """Mean accuracy of each policy; a team that several of them give a task votes once."""
    task = torch.arange(len(seats)).expand(len(teams), -1)
    rows = torch.cat([task[..., None], teams.flatten(2)], -1).flatten(0, 1)
    different, where = rows.unique(dim=0, return_inverse=True)
    right = [
        seats.select(part[:, 0]).right(cell, part[:, 1:].view(len(part), *teams.shape[2:]).bool())
        for part in different.split(len(seats))
    ]
    return torch.cat(right).double()[where].view(len(teams), -1).mean(1)
