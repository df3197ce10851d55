"""Rules that a tuned vote is shown beside on the same recorded answers; installed packages bring others."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_torch.core.functional.floats import largest
from nsed_torch.parts.ties import Ties
from nsed_torch.records.extras import offered
from nsed_torch.traces.episodes import Episodes

GROUP = "nsed_torch.rules"
"""The entry points by which an installed package adds rules, each a mapping from names to rules."""


Rule = Callable[[Episodes, Episodes], Float[Tensor, "batch agent"]]
"""Learns from graded training tasks, if it learns, and scores answers to test tasks of the same pool; higher wins.

It never reads the grades of test tasks. Equal answers have equal scores, -inf where an agent gave none; a rule that
asks one agent only gives -inf to all where that one is silent.
"""


def best_single(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """1 for the answer of the agent most accurate on training tasks, 0 for others; nothing where it is silent."""
    return answer_of(test, in_rank(accuracy(train))[0].expand(len(test)))


def fallback(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """`best_single`, and where it is silent the next best, and so on: what filling gaps is worth without any vote."""
    ranked, answered = in_rank(accuracy(train)), test.by_agent().answered
    return answer_of(test, first_best(answered.double(), ranked))


def plurality(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """Size of each answer's class; learns nothing."""
    return weighted(test, torch.ones(len(train.agents), dtype=torch.float64))


RULES: dict[str, Rule] = {"best_single": best_single, "fallback": fallback, "plurality": plurality}


def known_rules() -> dict[str, Rule]:
    """Ours, then those of installed packages."""
    return offered(GROUP, RULES)


def decide(rule: Rule, train: Episodes, test: Episodes, ties: Ties = Ties.ACCURACY) -> Float[Tensor, "batch"]:
    """The chance that the answer to which a rule gives the highest score is right; 0 where nothing is scored.

    It is 0 or 1, unless a lot decides ties. With ACCURACY ties go to the answer of the agent most accurate on training
    tasks, then to the first by name; the order of the pool changes nothing, but with FIRST.
    """
    if ties is not Ties.FIRST:
        train, test = _by_name(train), _by_name(test)
    scores, said = rule(train, test).double(), test.by_agent()
    chances = ties.chances(largest(scores, scores.isfinite()), said.classes, accuracy(train))
    return torch.where(said.right, chances, 0).sum(1)


def _by_name(episodes: Episodes) -> Episodes:
    """The same with the agents of the pool in the order of their names."""
    names = tuple(sorted(episodes.agents))
    place = torch.tensor([names.index(name) for name in episodes.agents], device=episodes.task.device)
    seats = {name: getattr(episodes, name) for name in ("voters", "authors")}
    moved: dict[str, Any] = {
        name: torch.where(agent >= 0, place[agent.clamp(min=0)], -1) for name, agent in seats.items()
    }
    return dataclasses.replace(episodes, agents=names, **moved)


def accuracy(train: Episodes) -> Float[Tensor, "agent"]:
    """Share of all tasks that each agent answers right; silence is wrong. The order in which ties are decided."""
    return train.by_agent().right.double().mean(0)


def summed(classes: Int[Tensor, "batch agent"], value: Float[Tensor, "batch agent"]) -> Float[Tensor, "batch agent"]:
    """Sum of agents' values over each answer's class, the same number for equal answers; -inf where there is none."""
    answered, index = classes >= 0, classes.clamp(min=0)
    totals = value.new_zeros(len(classes), int(index.max()) + 1 if index.numel() else 1)
    totals = totals.scatter_add(1, index, torch.where(answered, value, 0))
    return totals.gather(1, index).masked_fill(~answered, -torch.inf)


def weighted(test: Episodes, weight: Float[Tensor, "agent"]) -> Float[Tensor, "batch agent"]:
    """Sum of the weights of those who gave an answer."""
    classes = test.by_agent().classes
    return summed(classes, weight.to(classes.device).expand(classes.shape))


def in_rank(accuracy: Float[Tensor, "agent"]) -> Int[Tensor, "agent"]:
    """Agents by falling accuracy, the first of equals in front."""
    return accuracy.argsort(descending=True, stable=True)


def first_best(score: Tensor, ranked: Int[Tensor, "agent"]) -> Int[Tensor, "batch"]:
    """The agent of the highest score in each row, the earliest in rank of several."""
    return ranked[score[:, ranked].argmax(1)]


def answer_of(test: Episodes, chosen: Int[Tensor, "batch"]) -> Float[Tensor, "batch agent"]:
    """1 for answers equal to the chosen agent's, 0 for others; -inf for all where it is silent: no other is asked."""
    classes = test.by_agent().classes
    answer = classes.gather(1, chosen[:, None])
    return (classes == answer).double().masked_fill((classes < 0) | (answer < 0), -torch.inf)
