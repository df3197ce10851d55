"""A broker that is asked anew every round whether anybody else is worth the price."""

import math
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nsed_torch.nn import ConsensusCell, DynamicBroker, Telemetry, Utility
from nsed_torch.training.partial import Pool, Verdict, verdict


class Outcome(NamedTuple):
    """How rounds on recorded answers ended.

    Args:
        right: whether the leading answer is right; False where nobody was asked.
        cost: of all answers asked for.
        asked: who was asked.
    """

    right: Bool[Tensor, "batch"]
    cost: Float[Tensor, "batch"]
    asked: Bool[Tensor, "batch agent"]


class RoundBroker(nn.Module):
    """Each round, asks the agent whose gain in accuracy is worth most above its price, or ends the task.

    In round k, with k agents heard, agent a's utility is `u_a = 1 + b_a + w_a . h + v . f_a` (`nn.Utility`), the
    accuracy to be gained by asking a now and going on as this broker does. It is asked if `u_a - price cost_a` is
    the largest of all and above 0, cost_a being what its answers cost on average. So tasks on which the first answers
    agree end cheaply, and contested ones get more agents. h says who was asked, who of them gave the leading answer,
    the consensus's two largest probabilities, how long answers were against each agent's own habit, how many are
    missing, how large the support is, and the calibrated chance that the leading answer is right. Ours.

    Untrained, every utility is one and everybody is asked.

    Args:
        cell: makes the consensus of those heard so far.
        telemetry: of the agents, in the order of the pool.
        costs: of an answer, on average.
        habits: mean and deviation of the logarithm of each agent's answer length.
        price: accuracy that one unit of cost is worth.
        cap: most a task may cost, in the unit of costs; needs `allowance` if finite.
        allowance: the most that one answer of each agent can cost: what its answer allowance bounds.

    Raises:
        ValueError: if the price is negative, or there is a cap without allowances.
    """

    costs: Tensor
    habits: Tensor
    allowance: Tensor

    def __init__(
        self,
        cell: ConsensusCell,
        telemetry: Telemetry,
        costs: Float[Tensor, "agent"],
        habits: Float[Tensor, "2 agent"],
        *,
        price: float = 0.0,
        cap: float = math.inf,
        allowance: Float[Tensor, "agent"] | None = None,
    ) -> None:
        super().__init__()
        if not price >= 0:
            raise ValueError(f"broker price: expected at least 0, got {price}")
        if cap < math.inf and allowance is None:
            raise ValueError(f"broker cap: expected the agents' allowances with a cap, got cap={cap} alone")
        agents = len(telemetry.agents)
        self.cell, self.telemetry, self.price, self.cap = cell, telemetry, price, cap
        self.knapsack = DynamicBroker("cost", levels=200)
        self.confidence = nn.ModuleList(nn.Linear(2 * agents + 5, 1).double() for _ in range(agents))
        self.utility = nn.ModuleList(Utility(agents, 1, 2 * agents + 7).double() for _ in range(agents))
        self.register_buffer("costs", costs.double())
        self.register_buffer("habits", habits.double())
        self.register_buffer("allowance", costs.double() if allowance is None else allowance.double())

    def heads(self, round_: int) -> tuple[nn.Linear, Utility]:
        """The confidence and the utilities of a round, from 0."""
        return cast(nn.Linear, self.confidence[round_]), cast(Utility, self.utility[round_])

    def hidden(
        self, found: Verdict, pool: Pool, asked: Bool[Tensor, "batch agent"], round_: int
    ) -> Float[Tensor, "batch width"]:
        """What the utilities read; of the pool, only answers of those asked."""
        shown = evidence(found, pool, asked, self.habits)
        linear, _ = self.heads(round_)
        return with_confidence(shown, linear(shown)[:, 0])

    def ask(
        self, hidden: Float[Tensor, "batch width"], asked: Bool[Tensor, "batch agent"], left: Tensor, round_: int
    ) -> Bool[Tensor, "batch agent"]:
        """Who is asked next: at most one agent a task, none that could exceed what is left.

        Args:
            hidden: of `hidden`.
            asked: who has been.
            left: of each task's cap, in the unit of costs.
            round_: from 0.
        """
        _, head = self.heads(round_)
        utility = head(torch.zeros_like(hidden), self.telemetry.features(), hidden)
        worth = utility - (self.price * self.costs)[:, None]
        chosen: Tensor = self.knapsack(
            worth,
            self.allowance.expand(len(asked), -1)[:, :, None, None],
            left[:, None],
            minimum=torch.tensor([0]),
            maximum=torch.tensor([1]),
            available=~asked & self.telemetry.available(),
        )
        useful: Tensor = worth[:, :, 0] > 0
        return chosen[:, :, 0] & useful

    @torch.no_grad()
    def forward(self, pool: Pool) -> Outcome:
        """Rounds on recorded answers: an answer and its cost are seen once its agent has been asked."""
        asked = torch.zeros_like(pool.correct)
        active = torch.arange(len(pool))
        for round_ in range(len(pool.agents)):
            if not len(active):
                break
            rows, before = pool.select(active), asked[active]
            hidden = self.hidden(verdict(self.cell, rows, before), rows, before, round_)
            left = self.cap - torch.where(before, rows.cost, 0).sum(1)
            new = self.ask(hidden, before, left, round_)
            asked[active] = before | new
            active = active[new.any(1)]
        right = verdict(self.cell, pool, asked).right
        return Outcome(right, torch.where(asked, pool.cost, 0).sum(1), asked)


def evidence(
    found: Verdict, pool: Pool, asked: Bool[Tensor, "*batch agent"], habits: Float[Tensor, "2 agent"]
) -> Float[Tensor, "*batch width"]:
    """The verdict in numbers: 2 for each agent, then lead, second, lengths, missing answers and share of support.

    Args:
        found: of those asked.
        pool: its tasks in rows that broadcast with the verdict's.
        asked: who was.
        habits: mean and deviation of the logarithm of each agent's answer length.
    """
    lengths, classes = pool.length, pool.classes
    if asked.ndim == 3:
        lengths, classes = lengths[:, None], classes[:, None]
    count = asked.sum(-1).clamp(min=1)
    unusual = torch.where(asked, ((lengths - habits[0]) / habits[1]).clamp(-3, 3), 0).sum(-1) / count
    missing = (asked & (classes < 0)).sum(-1)
    scalars = [found.lead, found.second, unusual, missing, found.agree.sum(-1) / count]
    return torch.cat([asked.double(), found.agree.double(), torch.stack([x.double() for x in scalars], -1)], -1)


def with_confidence(shown: Float[Tensor, "*batch width"], logit: Float[Tensor, "*batch"]) -> Tensor:
    """Evidence, the calibrated chance q that the leading answer is right, and q (1 - q)."""
    chance = logit.sigmoid()
    return torch.cat([shown, torch.stack([chance, chance * (1 - chance)], -1)], -1)
