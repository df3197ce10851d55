"""Learn when to stop, from what recorded rounds would have cost and won."""

import copy
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nsed_torch.data import Episodes
from nsed_torch.nn import ConsensusCell, LearnedHalting
from nsed_torch.training.decisions import unroll
from nsed_torch.training.trainer import MakeOptimizer


class Course(NamedTuple):
    """What a halting rule sees of recorded rounds, and what it is paid for.

    Args:
        convictions: of each round's winner.
        hidden: the state after each round.
        right: 1 where the winner is right.
        cost: of all rounds up to and with this one, as a share of what all rounds cost on average.
        held: which rounds a task held.
    """

    convictions: Float[Tensor, "batch round"]
    hidden: Float[Tensor, "batch round dim"]
    right: Float[Tensor, "batch round"]
    cost: Float[Tensor, "batch round"]
    held: Bool[Tensor, "batch round"]


class Halted(NamedTuple):
    """How tasks ended.

    Args:
        right: whether the winner of the last round held is right.
        cost: share of what all rounds cost on average.
        rounds: that were held.
    """

    right: Bool[Tensor, "batch"]
    cost: Float[Tensor, "batch"]
    rounds: Float[Tensor, "batch"]


@torch.no_grad()
def course(cell: ConsensusCell, episodes: Episodes) -> Course:
    """Unroll a cell over recorded rounds; where costs are unknown every round costs the same."""
    output = unroll(cell, episodes)
    right = episodes.correct.gather(2, output.winner.clamp(min=0)[..., None])[..., 0] & (output.winner >= 0)
    held, dtype = episodes.round_mask, output.hidden.dtype
    spent = torch.where(held, episodes.cost.to(dtype), 0)
    if not spent.isfinite().all() or spent.sum() <= 0:
        spent = held.to(dtype)
    return Course(output.conviction, output.hidden, right.to(dtype), spent.cumsum(1) / spent.sum(1).mean(), held)


def fit_halting(
    cell: ConsensusCell,
    train: Episodes,
    validation: Episodes,
    *,
    price: float,
    optimizer: MakeOptimizer,
    epochs: int = 300,
    pull: float = 1e-3,
) -> LearnedHalting:
    """Train a `LearnedHalting` on a tuned cell's decisions: maximise expected accuracy minus priced cost. Ours.

    Args:
        cell: tuned; it stays as it is.
        train: tasks to learn from.
        validation: tasks to choose the epoch by.
        price: accuracy that the cost of all rounds is worth.
        optimizer: from parameters to a torch optimizer.
        epochs: steps, all tasks at once.
        pull: weight of the squared distance from the untrained rule, which never stops early.

    Raises:
        ValueError: for fewer than two rounds, or a negative price.
    """
    rounds = train.round_mask.shape[1]
    if rounds < 2:
        raise ValueError(f"expected at least 2 recorded rounds to learn when to stop, got {rounds}: raise rounds")
    if not price >= 0:
        raise ValueError(f"expected a halting price of at least 0, got {price}")
    seen, chosen_by = course(cell, train), course(cell, validation)
    rule = LearnedHalting(cell.dim, rounds).to(seen.hidden.dtype)
    start = copy.deepcopy(rule.state_dict())
    descent = optimizer(rule.parameters())
    best, least = start, _loss(rule, chosen_by, price).item()

    def closure() -> float:
        distance = torch.stack([(p - start[name]).square().sum() for name, p in rule.named_parameters()]).sum()
        descent.zero_grad()
        loss = _loss(rule, seen, price) + pull * distance
        loss.backward()
        return loss.item()

    for _ in range(epochs):
        descent.step(closure)
        loss = _loss(rule, chosen_by, price).item()
        if loss < least:
            least, best = loss, copy.deepcopy(rule.state_dict())
    rule.load_state_dict(best)
    return rule


@torch.no_grad()
def halted(rule: LearnedHalting, cell: ConsensusCell, episodes: Episodes) -> Halted:
    """Stop each recorded task in the first round in which the rule says so, else after its last."""
    seen = course(cell, episodes)
    stop = (rule.logits(seen.convictions, seen.hidden, seen.held) > 0) & seen.held
    last = episodes.last
    first = torch.where(stop.any(1), stop.int().argmax(1), last)
    rows = torch.arange(len(episodes), device=first.device)
    return Halted(seen.right[rows, first] > 0, seen.cost[rows, first], (first + 1).to(seen.cost.dtype))


def _loss(rule: LearnedHalting, seen: Course, price: float) -> Float[Tensor, ""]:
    return rule.loss(seen.convictions, seen.hidden, seen.right, seen.cost, price=price, round_mask=seen.held)
