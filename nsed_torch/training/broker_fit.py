"""Fits the round-by-round broker to recorded answers, by backward induction over partial teams."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from nsed_torch.nn import ConsensusCell
from nsed_torch.nn.learned_broker import LearnedBroker, with_confidence
from nsed_torch.training.partial import Pool, all_teams, all_verdicts, replay

PRICES = (0.01, 0.03, 0.1, 0.3)
"""Accuracy that a full team's mean cost is worth, where ridges are compared."""


def fit_broker(
    cell: ConsensusCell,
    pool: Pool,
    train: Int[Tensor, "train"],
    validation: Int[Tensor, "validation"],
    *,
    ridges: Sequence[float],
) -> "BrokerFit":
    """Fit with each ridge on training tasks, choose one on validation tasks, fit it on both.

    Worth is accuracy minus priced cost, averaged over `PRICES`. The largest ridge is taken that is worth, task by
    task, at most one standard error less than the best: common practice (the one-standard-error rule), for a large
    ridge stays near a fixed order of agents.

    Args:
        cell: tuned.
        pool: agents as the broker will know them; at most 10.
        train: tasks to fit.
        validation: tasks to choose by.
        ridges: to choose from.
    """
    both = torch.cat([train, validation])
    if len(ridges) == 1:
        return BrokerFit(cell, pool, both, ridge=ridges[0])
    heard = pool.select(validation)

    def worth(ridge: float) -> Tensor:
        fit = BrokerFit(cell, pool, train, ridge=ridge)
        prices = [price / float(fit.costs.sum()) for price in PRICES]
        outcomes = [(price, replay(fit.at(price)[0], cell, heard)) for price in prices]
        return torch.stack([o.right.double() - price * o.cost for price, o in outcomes]).mean(0)

    worths = {ridge: worth(ridge) for ridge in sorted(ridges)}
    best = max(worths.values(), key=lambda value: float(value.mean()))
    good = [ridge for ridge, value in worths.items() if _close(best - value)]
    return BrokerFit(cell, pool, both, ridge=max(good))


def _close(lost: Tensor) -> bool:
    """Whether a loss of worth, a number a task, is at most its standard error."""
    return bool(lost.mean() <= lost.std() / math.sqrt(len(lost)))


class BrokerFit:
    """Fits brokers that ask one agent a round to recorded answers, by Longstaff and Schwartz's regressions.

    Every subset of the pool on every task is a state one can be in, and recorded answers say what each would lead to.
    From full teams down to nobody, round by round: regress the value of asking a and then going on by the rules of
    later rounds, minus that of stopping now, on what can be known in the state; the rule of this round follows from
    the regressions, and with it the realized value of each state. The regressions are the published method for
    stopping times (Longstaff and Schwartz, 2001); several agents to choose from, and their heads, are ours. Heads are
    ridge regressions towards a value linear in the agent's track record: accuracy, and share of missing answers.

    Trained end to end instead, by gradients through a smoothed choice, the same heads were no better (README's log).

    Args:
        cell: tuned.
        pool: agents as the broker will know them; at most 10.
        tasks: to fit.
        ridge: weight of the squared heads against one task.

    Raises:
        ValueError: if the pool is too large to list all its teams.
    """

    def __init__(self, cell: ConsensusCell, pool: Pool, tasks: Int[Tensor, "train"], *, ridge: float = 3.0) -> None:
        self.ridge, agents = ridge, len(pool.agents)
        if agents > 10:
            raise ValueError(f"broker: expected a pool of at most 10 agents, got {agents}: shortlist them first")
        self.cell, self.pool, self.teams = cell, pool.select(tasks), all_teams(agents)
        answered = self.pool.classes >= 0
        right = self.pool.correct.double().sum(0) / answered.sum(0).clamp(min=1)
        self.record = torch.stack([right, 1 - answered.double().mean(0)], -1)
        self.habits = _habits(self.pool)
        self.costs = self.pool.cost.mean(0)
        found = all_verdicts(cell, self.pool, self.teams)
        self.right = found.right.double()
        shown = found.heard(self.pool, self.teams).evidence(self.habits)
        sizes = self.teams.sum(1)
        self._found: dict[float, tuple[LearnedBroker, float]] = {}
        self.levels = [
            _Level(shown, self.right, self.teams, (sizes == k).nonzero()[:, 0], ridge) for k in range(agents)
        ]

    @torch.no_grad()
    def at(self, price: float) -> tuple[LearnedBroker, float]:
        """The broker of a price, and what a task costs it on average on the tasks it was fitted to."""
        if price in self._found:
            return self._found[price]
        broker = LearnedBroker(self.pool.agents, rounds=len(self.levels))
        broker.habits.copy_(self.habits)
        value, spent = self.right.clone(), torch.zeros_like(self.right)
        bits = 2 ** torch.arange(len(self.costs))
        for k in reversed(range(len(self.levels))):
            level = self.levels[k]
            after = level.members[:, None] + torch.where(level.free, bits, 0)
            now = self.right[:, level.members]
            heads = level.solve(value[:, after] - now[:, :, None], self.record)
            heads[:, 0] -= price * self.costs
            broker.confidence[k] = level.confidence
            broker.bias[k, :, 0], broker.weight[k, :, 0] = heads[:, 0], heads[:, 1:]
            best, agent = (level.rows @ heads.T).masked_fill(~level.free, -math.inf).max(-1)
            asks = best > (0 if k else -math.inf)  # somebody must answer
            chosen = after.expand(len(now), -1, -1).gather(2, agent[:, :, None])[:, :, 0]
            paid = self.pool.cost.gather(1, agent)
            value[:, level.members] = torch.where(asks, value.gather(1, chosen) - price * paid, now)
            spent[:, level.members] = torch.where(asks, spent.gather(1, chosen) + paid, 0)
        self._found[price] = broker, float(spent[:, 0].mean())
        return self._found[price]

    def within(self, budget: float) -> LearnedBroker:
        """The broker of the least price found whose mean cost on the fitted tasks is within the budget.

        That price is the budget's shadow price: the mean cost falls as the price rises. Where the budget does not
        even pay for the cheapest broker, that one is returned.

        Args:
            budget: mean cost of a task, in the unit of the pool's costs.
        """
        if self.at(0.0)[1] <= budget:
            return self.at(0.0)[0]
        low, high = -15.0, 10.0  # powers of two, in accuracy a full team's cost: 3e-5 to 1e3
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if self._priced(middle)[1] > budget else (low, middle)
        return self._priced(high)[0]

    def _priced(self, power: float) -> tuple[LearnedBroker, float]:
        return self.at(2**power / float(self.costs.sum()))


class _Level:
    """States with k agents heard: what is known in them, and the regressions on it."""

    def __init__(self, shown: Tensor, right: Tensor, teams: Tensor, members: Tensor, ridge: float) -> None:
        self.members, self.free = members, ~teams[members]
        shown, right = shown[:, members], right[:, members]
        penalty = ridge * len(members)
        ones = torch.ones_like(right)[..., None]
        self.confidence = _logistic(torch.cat([ones, shown], -1).flatten(0, 1), right.flatten(), penalty)
        logit = shown @ self.confidence[1:] + self.confidence[0]
        self.rows = torch.cat([ones, with_confidence(shown, logit)], -1)
        # Of every team, then of all teams that lack the agent.
        grams = torch.einsum("tmi,tmj->mij", self.rows, self.rows)
        grams = torch.einsum("ma,mij->aij", self.free.double(), grams)
        eye = torch.eye(self.rows.shape[-1], dtype=torch.float64)
        penalties = (ridge * self.free.sum(0))[:, None, None] * eye
        self.factors = torch.linalg.cholesky(grams + penalties)

    def solve(self, gain: Tensor, record: Tensor) -> Tensor:
        """Heads [agent, 1 + width] for the gain [batch, team, agent] of asking, given the agents' track record."""
        gain = torch.where(self.free, gain, 0)
        mean = gain.sum((0, 1)) / (len(gain) * self.free.sum(0))
        centred = record - record.mean(0)
        eye = torch.eye(centred.shape[1], dtype=torch.float64)
        track = torch.linalg.solve(centred.T @ centred + eye, centred.T @ (mean - mean.mean()))
        level = mean.mean() + centred @ track
        rest = torch.where(self.free, gain - level, 0)
        sums = torch.einsum("tmi,tma->ai", self.rows, rest)
        heads = torch.cholesky_solve(sums[:, :, None], self.factors)[:, :, 0]
        heads[:, 0] += level
        return heads


def _habits(pool: Pool) -> Tensor:
    """Mean and deviation of the logarithm of each agent's answer length, where it answered."""
    answered = pool.classes >= 0
    count = answered.sum(0).clamp(min=1)
    mean = torch.where(answered, pool.length, 0).sum(0) / count
    spread = torch.where(answered, (pool.length - mean) ** 2, 0).sum(0) / count
    return torch.stack([mean, spread.sqrt().clamp(min=1e-3)])


def _logistic(rows: Tensor, target: Tensor, penalty: float, steps: int = 15) -> Tensor:
    """Ridge logistic regression by Newton's method; the first column is the intercept, free of the penalty."""
    weight = rows.new_zeros(rows.shape[1])
    ridge = torch.full_like(weight, penalty)
    ridge[0] = 1e-6
    for _ in range(steps):
        chance = (rows @ weight).sigmoid()
        slope = rows.T @ (chance - target) + ridge * weight
        curvature = (rows * (chance * (1 - chance))[:, None]).T @ rows + ridge.diag()
        weight = weight - torch.linalg.solve(curvature, slope)
    return weight
