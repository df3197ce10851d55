"""How well agents propose and judge: the paper's p_g and p_v, and what its condition promises."""

from dataclasses import dataclass

import numpy as np

from nsed_torch.evaluation.insight.tables import Table, Tables
from nsed_torch.evaluation.insight.values import Questions, Real
from nsed_torch.evaluation.statistics import Estimate


@dataclass(frozen=True)
class Generation:
    """Share of right proposals in round 1, before anybody has heard anybody: the paper's p_g.

    Args:
        pooled: over all agents.
        agents: by agent.
    """

    pooled: Estimate
    agents: dict[str, Estimate]


@dataclass(frozen=True)
class Discernment:
    """How ratings tell right from wrong.

    Args:
        auc: chance that a right proposal is rated above a wrong one of the same task and round by the same judge,
            equal ratings counting one half; n are pairs.
        sign: share of ratings above 0 for a right, below 0 for a wrong proposal, 0 counting one half.
    """

    auc: Estimate
    sign: Estimate


@dataclass(frozen=True)
class Verification:
    """What judges know: the paper's p_v, measured from their ratings of others' proposals.

    The paper leaves open how p_v is measured; both readings are ours.

    Args:
        pooled: over all judges.
        judges: by judge.
    """

    pooled: Discernment
    judges: dict[str, Discernment]


@dataclass(frozen=True)
class Condition:
    """The paper's condition for deliberation to help, p_v > p_g, with `auc` for p_v.

    Args:
        margin: p_v minus p_g; n are judges' ballots with a right and a wrong proposal, and proposals.
        holds: whether the margin is above 0; None where nothing was rated.
    """

    margin: Estimate
    holds: bool | None


def generation(tables: Tables, questions: Questions) -> Generation:
    """Count right proposals of round 1; an empty one is wrong."""
    first = tables.proposals[tables.proposals["round"] == 1]
    agents = {
        name: questions.share(own["question"], own["right"])
        for i, name in enumerate(tables.agents)
        if len(own := first[first["agent"] == i])
    }
    return Generation(questions.share(first["question"], first["right"]), agents)


def verification(tables: Tables, questions: Questions) -> Verification:
    """Measure every judge that rated somebody else."""
    ratings = tables.ratings[~tables.ratings["own"]]
    judges = {
        name: _discernment(own, questions)
        for i, name in enumerate(tables.agents)
        if len(own := ratings[ratings["voter"] == i])
    }
    return Verification(_discernment(ratings, questions), judges)


def condition(tables: Tables, questions: Questions) -> Condition:
    """Compare judges with proposers on resamples of the same questions."""
    ratings = tables.ratings[~tables.ratings["own"]]
    question, wins, pairs = _pairs(ratings)
    question, wins, pairs = (column[pairs > 0] for column in (question, wins, pairs))
    first = tables.proposals[tables.proposals["round"] == 1]
    margin = questions.contrast(
        np.concatenate([question, first["question"]]),
        np.concatenate([wins, first["right"]]),
        np.arange(len(wins) + len(first)) < len(wins),
        np.concatenate([pairs, np.ones(len(first))]),
    )
    return Condition(margin, None if margin.mean is None else margin.mean > 0)


def _discernment(ratings: Table, questions: Questions) -> Discernment:
    side = np.sign(ratings["rating"]) * np.where(ratings["right"], 1, -1)
    return Discernment(questions.share(*_pairs(ratings)), questions.share(ratings["question"], (1 + side) / 2))


def _pairs(ratings: Table) -> tuple[Real, Real, Real]:
    """Of each ballot: its question, pairs of a right and a wrong proposal in the right order, and all pairs."""
    starts = np.flatnonzero(np.diff(ratings["ballot"], prepend=-1))
    wins, pairs = [], []
    for ballot in np.split(ratings, starts)[1:]:
        right, wrong = (ballot["rating"][ballot["right"] == which] for which in (True, False))
        ahead = np.sign(right[:, None] - wrong)
        wins.append((ahead.sum() + ahead.size) / 2)
        pairs.append(ahead.size)
    return ratings["question"][starts], np.array(wins, dtype=np.float64), np.array(pairs, dtype=np.float64)
