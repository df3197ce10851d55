"""Fits `LearnedBroker` to recorded answers: one agent joins a round, each answer is seen once its agent was asked.

Regressions say who is worth asking then. `within(budget)` is the broker that a mean cost of a task pays for.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.parts.learned_broker import Heard, LearnedBroker, with_confidence
from nsed_torch.parts.ties import chances
from nsed_torch.traces.rounds import Rounds, all_teams
from nsed_torch.tuning.broker_rivals import Points, coins
from nsed_torch.tuning.losses import consensus_loss, distance_from_start

CHUNK = 1 << 14
"""Sub-teams that vote at once."""

PRICES = (0.01, 0.03, 0.1, 0.3)
"""Accuracy that a full team's mean cost is worth, where ridges of `fit_asking` are compared."""


def without_questions(rounds: Rounds) -> Rounds:
    """The same with nothing by which a cell could tell the questions apart."""
    return replace(rounds, task=torch.zeros_like(rounds.task))


@torch.no_grad()
def heard_of(
    rounds: Rounds, cell: ConsensusCell, asked: Bool[Tensor, "batch agent"]
) -> tuple[Heard, Float[Tensor, "batch"]]:
    """What a broker knows once these agents have answered and judged, and whether the leading answer is right."""
    election = rounds.elect(cell, asked[..., None])
    some, first = election.winner >= 0, election.winner.clamp(min=0)[:, None]
    same = rounds.classes == rounds.classes.gather(1, first)
    agree = same & asked & (rounds.classes >= 0) & some[:, None]
    lead = torch.where(agree, election.consensus, 0).sum(1)
    second = torch.where(agree, 0, election.consensus).amax(1)
    chance = chances(election, rounds.ties, rounds.accuracy)
    heard = Heard(asked, rounds.classes >= 0, agree, rounds.length, lead, second)
    return heard, torch.where(rounds.correct, chance, 0).sum(1)


def heard_by_all(
    rounds: Rounds, cell: ConsensusCell, teams: Bool[Tensor, "team agent"]
) -> tuple[Heard, Float[Tensor, "batch team"]]:
    """`heard_of` every team on every task: with an axis `team` behind `batch`."""
    size, step = len(teams), max(1, CHUNK // len(teams))
    parts = []
    for rows in torch.arange(len(rounds)).split(step):
        heard, right = heard_of(rounds.select(rows.repeat_interleave(size)), cell, teams.repeat(len(rows), 1))
        varying = (heard.agree, heard.lead, heard.second, right)
        parts.append([field.unflatten(0, (len(rows), size)) for field in varying])
    agree, lead, second, right = (torch.cat(fields) for fields in zip(*parts, strict=True))
    return Heard(teams, (rounds.classes >= 0)[:, None], agree, rounds.length[:, None], lead, second), right


class Replayed(NamedTuple):
    """How rounds of a broker ended: who was asked, what all answers cost, whether the leading one is right."""

    right: Float[Tensor, "batch"]
    cost: Float[Tensor, "batch"]
    asked: Bool[Tensor, "batch agent"]


@torch.no_grad()
def replay(broker: LearnedBroker, cell: ConsensusCell, rounds: Rounds) -> Replayed:
    """Rounds of a broker that asks one agent at a time, on recorded answers in the order of its agents."""
    asked = torch.zeros_like(rounds.correct)
    active = torch.arange(len(rounds))
    for turn in range(broker.rounds):
        heard, _ = heard_of(rounds.select(active), cell, asked[active])
        new = broker.next_one(turn, heard)
        asked[active] |= new
        active = active[new.any(1)]
        if not len(active):
            break
    _, right = heard_of(rounds, cell, asked)
    return Replayed(right, torch.where(asked, rounds.answer_cost, 0).sum(1), asked)


def fit_on_partial_teams(
    rounds: Rounds,
    train: Int[Tensor, "train"],
    validation: Int[Tensor, "validation"],
    *,
    steps: int = 250,
    seed: int = 0,
) -> ConsensusCell:
    """Fit a cell's trust, beta and backing to partial teams of all sizes; it cannot tell the questions apart.

    Minimises `consensus_loss` plus 1e-3 times the squared distance of the parameters from the published protocol's,
    with Adam. Each step draws a new team per task, everybody for a fifth of them. The step of least loss on validation
    tasks, with everybody, is kept. Ours. `CellTrainer` has no such draws: it fits whole teams, to convergence.
    The rounds come without questions, the most accurate agent first.
    """
    draw = torch.Generator().manual_seed(seed)
    agents = len(rounds.agents)
    cell = ConsensusCell(rounds.task.shape[1], agents).double()
    start = copy.deepcopy(cell.state_dict())
    optimizer = torch.optim.Adam(cell.parameters(), lr=0.05)
    least, best = math.inf, cell.state_dict()

    def loss(part: Rounds, asked: Tensor) -> Tensor:
        election = part.elect(cell, asked[..., None])
        return consensus_loss(election.answer_support, part.correct, election.answer_mask, cell.beta)

    learned, chooses = rounds.select(train), rounds.select(validation)
    for step in range(steps):
        size = torch.rand(len(train), 1, generator=draw)
        asked = torch.rand(len(train), agents, generator=draw) < size
        asked |= torch.rand(len(train), 1, generator=draw) < 0.2
        optimizer.zero_grad()
        (loss(learned, asked) + 1e-3 * distance_from_start(cell, start)).backward()
        optimizer.step()
        if step % 10 == 9:
            with torch.no_grad():
                value = float(loss(chooses, torch.ones(len(validation), agents, dtype=torch.bool)))
            if value < least:
                least, best = value, copy.deepcopy(cell.state_dict())
    cell.load_state_dict(best)
    return cell


def fit_asking(
    cell: ConsensusCell,
    rounds: Rounds,
    train: Int[Tensor, "train"],
    validation: Int[Tensor, "validation"],
    *,
    ridges: Sequence[float],
) -> "AskingFit":
    """Fit with each ridge on training tasks, choose one on validation tasks, fit it on both.

    Worth is accuracy minus priced cost, averaged over `PRICES`. The largest ridge is taken that is worth, task by
    task, at most one standard error less than the best: common practice (the one-standard-error rule), for a large
    ridge stays near a fixed order of agents.
    """
    both = rounds.select(torch.cat([train, validation]))
    if len(ridges) == 1:
        return AskingFit(cell, both, ridge=ridges[0])
    learned, chooses = rounds.select(train), rounds.select(validation)

    def worth(ridge: float) -> Tensor:
        fit = AskingFit(cell, learned, ridge=ridge)
        prices = [price / float(fit.costs.sum()) for price in PRICES]
        ends = [(price, replay(fit.at(price)[0], cell, chooses)) for price in prices]
        return torch.stack([end.right - price * end.cost for price, end in ends]).mean(0)

    worths = {ridge: worth(ridge) for ridge in sorted(ridges)}
    best = max(worths.values(), key=lambda value: float(value.mean()))
    lost = {ridge: best - value for ridge, value in worths.items()}
    good = [ridge for ridge, loss in lost.items() if loss.mean() <= loss.std() / math.sqrt(len(loss))]
    return AskingFit(cell, both, ridge=max(good))


class AskingFit:
    """Fits brokers that ask one agent a round to recorded answers, by Longstaff and Schwartz's regressions.

    Every subset of the agents on every task is a state one can be in, and recorded answers say what each would lead to.
    From full teams down to nobody, round by round: regress the value of asking a and then going on by the rules of
    later rounds, minus that of stopping now, on what can be known in the state; the rule of this round follows from
    the regressions, and with it the realized value of each state. The regressions are the published method for
    stopping times (Longstaff and Schwartz, 2001); several agents to choose from, and their heads, are ours. Heads are
    ridge regressions towards a value linear in the agent's track record: accuracy, and share of missing answers.

    Trained end to end instead, by gradients through a smoothed choice, the same heads were no better. The cell was
    fitted to partial teams; the ridge is the weight of the squared heads against one task.
    """

    def __init__(self, cell: ConsensusCell, rounds: Rounds, *, ridge: float = 3.0) -> None:
        agents = len(rounds.agents)
        self.ridge, self.rounds, teams = ridge, rounds, all_teams(agents)
        answered = rounds.classes >= 0
        accuracy = rounds.correct.double().sum(0) / answered.sum(0).clamp(min=1)
        self.record = torch.stack([accuracy, 1 - answered.double().mean(0)], -1)
        self.habits = _habits(rounds)
        self.costs = rounds.answer_cost.mean(0)
        heard, right = heard_by_all(rounds, cell, teams)
        self.right, shown = right, heard.evidence(self.habits)
        self._known: dict[float, tuple[LearnedBroker, float]] = {}
        sizes = teams.sum(1)
        self.levels = [_Level(shown, self.right, teams, (sizes == k).nonzero()[:, 0], ridge) for k in range(agents)]

    @torch.no_grad()
    def at(self, price: float) -> tuple[LearnedBroker, float]:
        """The broker of a price, and what a task costs it on average on the tasks it was fitted to."""
        if price in self._known:
            return self._known[price]
        broker = LearnedBroker(self.rounds.agents, rounds=len(self.levels))
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
            paid = self.rounds.answer_cost.gather(1, agent)
            value[:, level.members] = torch.where(asks, value.gather(1, chosen) - price * paid, now)
            spent[:, level.members] = torch.where(asks, spent.gather(1, chosen) + paid, 0)
        self._known[price] = broker, float(spent[:, 0].mean())
        return self._known[price]

    def within(self, budget: float) -> LearnedBroker:
        """The broker of the least price found whose mean cost on the fitted tasks is within the budget.

        That price is the budget's shadow price: the mean cost falls as the price rises. Where the budget does not
        even pay for the cheapest broker, that one is returned.
        """

        def priced(power: float) -> tuple[LearnedBroker, float]:
            return self.at(2**power / float(self.costs.sum()))

        if self.at(0.0)[1] <= budget:
            return self.at(0.0)[0]
        low, high = -15.0, 10.0  # powers of two, in accuracy a full team's cost: 3e-5 to 1e3
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if priced(middle)[1] > budget else (low, middle)
        return priced(high)[0]


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


def _habits(rounds: Rounds) -> Float[Tensor, "2 agent"]:
    """Mean and deviation of the logarithm of each agent's answer length, where it answered."""
    answered = rounds.classes >= 0
    count = answered.sum(0).clamp(min=1)
    mean = torch.where(answered, rounds.length, 0).sum(0) / count
    spread = torch.where(answered, (rounds.length - mean) ** 2, 0).sum(0) / count
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


def random_asked(rounds: Rounds, budgets: Float[Tensor, "budget"], *, draws: int = 20, seed: int = 0) -> Points:
    """K agents drawn anew for each task, by plurality, mixing k and k + 1 to meet mean budgets; over several draws."""
    draw, agents = torch.Generator().manual_seed(seed), len(rounds.agents)
    cost, right = torch.zeros(2, agents + 1, len(rounds), dtype=torch.float64)
    for _ in range(draws):
        rank = torch.rand(len(rounds), agents, generator=draw).argsort(1).argsort(1)
        for k in range(1, agents + 1):
            asked = rank < k
            cost[k] += torch.where(asked, rounds.answer_cost, 0).sum(1) / draws
            right[k] += rounds.plurality_right(asked) / draws
    # Sizes in the order of their cost, not a hull: a random team is not chosen.
    weights = coins(cost.mean(1), budgets)
    return weights @ cost, weights @ right


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
