"""Fits the round-by-round broker to recorded answers, by backward induction over partial teams."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from nsed_torch.nn import ConsensusCell, Telemetry
from nsed_torch.training.broker import RoundBroker, evidence, with_confidence
from nsed_torch.training.partial import Pool, all_teams, all_verdicts

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
        outcomes = [(price, fit.at(price)[0](heard)) for price in prices]
        return torch.stack([o.right.double() - price * o.cost for price, o in outcomes]).mean(0)

    worths = {ridge: worth(ridge) for ridge in sorted(ridges)}
    best = max(worths.values(), key=lambda value: float(value.mean()))
    good = [ridge for ridge, value in worths.items() if _close(best - value)]
    return BrokerFit(cell, pool, both, ridge=max(good))


def _close(lost: Tensor) -> bool:
    """Whether a loss of worth, a number a task, is at most its standard error."""
    return bool(lost.mean() <= lost.std() / math.sqrt(len(lost)))


class BrokerFit:
    """Fits `RoundBroker`s of any price to recorded answers, by Longstaff and Schwartz's regressions.

    Every subset of the pool on every task is a state one can be in, and recorded answers say what each would lead to.
    From full teams down to nobody, round by round: regress the value of asking a and then going on by the rules of
    later rounds, minus that of stopping now, on what can be known in the state; the rule of this round follows from
    the regressions, and with it the realized value of each state. The regressions are the published method for
    stopping times (Longstaff and Schwartz, 2001); several agents to choose from, and their heads, are ours. Heads are
    ridge regressions towards a value linear in the agent's telemetry.

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
        self.telemetry = _telemetry(self.pool)
        self.habits = torch.stack([self.pool.length.mean(0), self.pool.length.std(0).clamp(min=1e-3)])
        self.costs = self.pool.cost.mean(0)
        found = all_verdicts(cell, self.pool, self.teams)
        self.right = found.right.double()
        teams = self.teams.expand(len(self.pool), -1, -1)
        shown = evidence(found, self.pool, teams, self.habits)
        sizes = self.teams.sum(1)
        self._found: dict[float, tuple[RoundBroker, float]] = {}
        self.levels = [
            _Level(shown, self.right, self.teams, (sizes == k).nonzero()[:, 0], ridge) for k in range(agents)
        ]

    def at(self, price: float) -> tuple[RoundBroker, float]:
        """The broker of a price, and what a task costs it on average on the tasks it was fitted to."""
        if price in self._found:
            return self._found[price]
        broker = RoundBroker(self.cell, self.telemetry, self.costs, self.habits, price=price)
        features = self.telemetry.features()
        value, spent = self.right.clone(), torch.zeros_like(self.right)
        bits = 2 ** torch.arange(len(self.costs))
        for k in reversed(range(len(self.levels))):
            level = self.levels[k]
            after = level.members[:, None] + torch.where(level.free, bits, 0)
            now = self.right[:, level.members]
            heads, track = level.solve(value[:, after] - now[:, :, None], features)
            level.write(broker, k, heads, track)
            worth = (level.rows @ heads.T + features @ track - price * self.costs).masked_fill(~level.free, -math.inf)
            best, agent = worth.max(-1)
            chosen = after.expand(len(now), -1, -1).gather(2, agent[:, :, None])[:, :, 0]
            paid = self.pool.cost.gather(1, agent)
            value[:, level.members] = torch.where(best > 0, value.gather(1, chosen) - price * paid, now)
            spent[:, level.members] = torch.where(best > 0, spent.gather(1, chosen) + paid, 0)
        self._found[price] = broker, float(spent[:, 0].mean())
        return self._found[price]

    def within(self, budget: float) -> list[tuple[float, RoundBroker]]:
        """Brokers and the share of tasks each takes, so that the mean cost on the fitted tasks is within the budget.

        The price is the budget's shadow price: the mean cost falls as the price rises, and where it jumps past the
        budget, the two neighbouring prices share the tasks so that the budget is met. One broker where all of the
        budget cannot be spent usefully.

        Args:
            budget: mean cost of a task, in the unit of the pool's costs.
        """
        low, high = -120, 80  # eighths of a power of two, in accuracy a full team's cost: 3e-5 to 1e3
        cheap, dear = self.at(0.0), self._priced(high)
        if cheap[1] <= budget:
            return [(1.0, cheap[0])]
        while high - low > 1:
            middle = (low + high) // 2
            found = self._priced(middle)
            if found[1] > budget:
                low, cheap = middle, found
            else:
                high, dear = middle, found
        share = (budget - dear[1]) / (cheap[1] - dear[1])
        return [(share, cheap[0]), (1 - share, dear[0])]

    def _priced(self, eighths: int) -> tuple[RoundBroker, float]:
        return self.at(2 ** (eighths / 8) / float(self.costs.sum()))


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

    def solve(self, gain: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """Heads [agent, 1 + width] and the weight of telemetry, for the gain [batch, team, agent] of asking."""
        gain = torch.where(self.free, gain, 0)
        mean = gain.sum((0, 1)) / (len(gain) * self.free.sum(0))
        centred = features - features.mean(0)
        eye = torch.eye(centred.shape[1], dtype=torch.float64)
        track = torch.linalg.solve(centred.T @ centred + eye, centred.T @ (mean - mean.mean()))
        level = mean.mean() - features.mean(0) @ track
        rest = torch.where(self.free, gain - level - features @ track, 0)
        sums = torch.einsum("tmi,tma->ai", self.rows, rest)
        heads = torch.cholesky_solve(sums[:, :, None], self.factors)[:, :, 0]
        heads[:, 0] += level
        return heads, track

    def write(self, broker: RoundBroker, round_: int, heads: Tensor, track: Tensor) -> None:
        """Put the regressions into the broker's modules."""
        linear, utility = broker.heads(round_)
        with torch.no_grad():
            linear.weight.copy_(self.confidence[None, 1:])
            linear.bias.fill_(self.confidence[0])
            utility.bias.copy_(heads[:, :1] - 1)
            utility.weight[:, 0, heads.shape[1] - 1 :] = heads[:, 1:]
            utility.telemetry_weight.copy_(track[None])


def _telemetry(pool: Pool) -> Telemetry:
    """What the fitted tasks tell of each agent; a missing answer is a failed call. Recordings keep no seconds."""
    telemetry = Telemetry(pool.agents, decay=1.0)
    columns = zip(pool.agents, pool.correct.T.tolist(), (pool.classes >= 0).T.tolist(), strict=True)
    for name, correct, answered in columns:
        for right, there in zip(correct, answered, strict=True):
            if there:
                telemetry.success(name, 0.0, correct=right)
            else:
                telemetry.failure(name)
    telemetry.strikes.zero_()
    telemetry.benched_until.zero_()
    return telemetry


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
