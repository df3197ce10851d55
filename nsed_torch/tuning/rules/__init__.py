"""The field's own rules for combining recorded answers, to be shown beside a tuned vote on the same tasks."""

import dataclasses
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.core.functional.floats import largest
from nsed_torch.parts.ties import Ties
from nsed_torch.traces.episodes import Episodes
from nsed_torch.tuning.rules.crowd import Crowd
from nsed_torch.tuning.rules.learned_votes import (
    boosted_reading,
    boosted_votes,
    logistic_vote,
    mutual_information,
)
from nsed_torch.tuning.rules.routers import best_by_category, best_single, fallback, knn_router, logistic_router
from nsed_torch.tuning.rules.weighted_votes import (
    accuracy,
    log_odds,
    optimal_weight,
    optimal_weight_pseudo,
    plurality,
    surprising_popularity,
)

__all__ = ["RULES", "decide"]


class Rule(Protocol):
    """Learns from graded training tasks, if it learns, and scores answers to test tasks of the same pool; higher wins.

    It never reads the grades of test tasks. Equal answers have equal scores, -inf where an agent gave none; a rule that
    asks one agent only gives -inf to all where that one is silent.
    """

    def __call__(self, train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]: ...


RULES: dict[str, Rule] = {
    "best_single": best_single,
    "fallback": fallback,
    "best_by_category": best_by_category,
    "knn_router": knn_router,
    "logistic_router": logistic_router,
    "plurality": plurality,
    "log_odds": log_odds,
    "optimal_weight": optimal_weight,
    "optimal_weight_pseudo": optimal_weight_pseudo,
    "surprising_popularity": surprising_popularity,
    "dawid_skene": Crowd("DawidSkene"),
    "dawid_skene_graded": Crowd("DawidSkene", graded=True),
    "one_coin_dawid_skene": Crowd("OneCoinDawidSkene"),
    "wawa": Crowd("Wawa", skills=True),
    "zero_based_skill": Crowd("ZeroBasedSkill", skills=True),
    "mace": Crowd("MACE", options={"n_restarts": 1}),
    "logistic_vote": logistic_vote,
    "mutual_information": mutual_information,
    "boosted_votes": boosted_votes,
    "boosted_reading": boosted_reading,
}
"""By name, routers first, then votes, models of crowds and learners."""


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
