"""Fits `LearnedBroker` to traces: whom to seat for a question, everybody at once, by what the question is about."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.traces.rounds import Rounds
from nsed_torch.tuning.log_odds import OUT, fit_log_odds, left_out

LEVELS = 7
"""Quantiles of the log-odds that are tried as thresholds of a role, beside everybody and nobody."""


class Policy(NamedTuple):
    """Seat whoever's log-odds exceed its role's threshold plus the price of its share of the full team's cost."""

    price: float  # log-odds that the full team's cost is worth
    thresholds: tuple[float, ...]  # of each role
    cost: float  # on average, on the tasks it was tried on
    accuracy: float  # there


class SeatingFit:
    """Teams by question, learned on some tasks: of simple policies, the best that a mean budget pays for.

    A `Policy` seats agent a in role r where `u_ar = z_ar(x) - threshold_r - price cost_ar` is above 0, with z the
    log-odds that a is right (judges: puts a right above a wrong answer); at least `FEWEST` in any case. Thresholds and
    prices come from a grid; each policy is tried on the tasks given, with log-odds from regressions that did not see
    them, and the cell's vote of its teams. As u is linear in x, it is a head of a `LearnedBroker`. Ours.

    The encoder is the identity of what embedded the tasks; prices are in log-odds per cost of a full team.
    """

    def __init__(
        self,
        cell: ConsensusCell,
        rounds: Rounds,
        encoder: Mapping[str, Any],
        *,
        ridges: Sequence[float],
        prices: Sequence[float],
    ) -> None:
        logits, self.ridges = left_out(rounds, ridges)
        self.log_odds, self.agents, self.encoder = fit_log_odds(rounds, self.ridges), rounds.agents, encoder
        self.whole = float(rounds.cost(rounds.there).mean())
        self.share = rounds.mean_costs() / self.whole
        self.policies = [policy for price in prices for policy in self._tried(cell, rounds, logits, price)]

    def _tried(self, cell: ConsensusCell, rounds: Rounds, logits: Tensor, price: float) -> list[Policy]:
        worth = logits - price * self.share
        levels = torch.linspace(0.1, 0.9, LEVELS, dtype=worth.dtype)
        grids = [
            sorted({OUT, -OUT, *worth[..., role][rounds.there[..., role]].quantile(levels).tolist()})
            if rounds.there[..., role].any()
            else [OUT]
            for role in range(worth.shape[2])
        ]
        tried = list(itertools.product(*grids))
        teams = [rounds.seated(worth - worth.new_tensor(thresholds)) for thresholds in tried]
        means = [[float(values.mean()) for values in (rounds.cost(t), rounds.right(cell, t))] for t in teams]
        return [Policy(price, thresholds, *mean) for thresholds, mean in zip(tried, means, strict=True)]

    def policy(self, budget: float) -> Policy:
        """The most accurate policy that a mean budget pays for, the cheapest of equals; else the cheapest of all."""
        paid = [policy for policy in self.policies if policy.cost <= budget]
        if not paid:
            return min(self.policies, key=lambda policy: policy.cost)
        return max(paid, key=lambda policy: (policy.accuracy, -policy.cost))

    @torch.no_grad()
    def within(self, budget: float) -> LearnedBroker:
        """That policy as a broker of one round, which seats the same agents."""
        policy = self.policy(budget)
        return self._seats(self.log_odds.bias.new_tensor(policy.thresholds) + policy.price * self.share)

    @torch.no_grad()
    def router(self) -> LearnedBroker:
        """A broker of one role that asks whoever is likeliest right by the question, once, whatever it costs.

        What learns from the same labels as a team and needs one call: a usual router of the literature, by logistic
        regression. `next_one` asks; nobody judges.
        """
        return self._seats(torch.zeros_like(self.share), roles=1)

    def _seats(self, shift: Float[Tensor, "agent role"], roles: int = 2) -> LearnedBroker:
        """Utilities are the log-odds of the first roles, less the shift."""
        dim = self.log_odds.weight.shape[2]
        broker = LearnedBroker(self.agents, rounds=1, roles=roles, dim=dim, encoder=self.encoder)
        broker.bias[0] = (self.log_odds.bias - shift)[:, :roles]
        broker.weight[0, ..., :dim] = self.log_odds.weight[:, :roles]
        return broker
