"""Who is right alone, how well judges tell right from wrong, and what ratings follow besides the truth."""

from dataclasses import dataclass

import numpy as np

from nsed_torch.evaluation.insight.trace_tables import Table, Tables
from nsed_torch.evaluation.insight.values import Questions, Real, ranks, within
from nsed_torch.evaluation.statistics import Estimate

BINS = 10


@dataclass(frozen=True)
class ProposerSkill:
    """Share of right proposals in round 1, before anybody has heard anybody: the paper's p_g."""

    pooled: Estimate
    agents: dict[str, Estimate]


@dataclass(frozen=True)
class Discernment:
    """How ratings tell right from wrong."""

    # Chance that a right proposal is rated above a wrong one of the same task and round by the same judge, equal
    # ratings counting one half; n are pairs.
    auc: Estimate
    sign: Estimate  # share of ratings above 0 for a right, below 0 for a wrong proposal, 0 counting one half


@dataclass(frozen=True)
class Verification:
    """What judges know: the paper's p_v, measured from their ratings of others' proposals.

    The paper leaves open how p_v is measured; both readings are ours.
    """

    pooled: Discernment
    judges: dict[str, Discernment]


@dataclass(frozen=True)
class Condition:
    """The paper's condition for deliberation to help, p_v > p_g, with `auc` for p_v."""

    margin: Estimate  # p_v minus p_g; n are judges' ballots with a right and a wrong proposal, and proposals
    holds: bool | None  # whether the margin is above 0; None where nothing was rated


@dataclass(frozen=True)
class CalibrationBin:
    """Ratings from `low` to `high`, which belongs to the last bin alone."""

    low: float
    high: float
    right: Estimate  # share of right proposals; n are ratings
    rating: float | None  # their mean; None if there are none


@dataclass(frozen=True)
class RatingCalibration:
    """Ratings against the truth, `(rating + 1) / 2` taken as the probability of being right."""

    bins: tuple[CalibrationBin, ...]  # of equal width from -1 to 1
    # Expected calibration error, sum_b n_b / n |right_b - probability_b|. Resampling adds noise to bins, so with few
    # ratings its interval lies high.
    error: Estimate
    brier: Estimate  # mean of (probability - right)^2


@dataclass(frozen=True)
class Correlations:
    """Of rating and length of the proposal."""

    pearson: Estimate
    spearman: Estimate  # of the ranks among all of them, which resampling leaves as they are


@dataclass(frozen=True)
class LengthBias:
    """Whether longer proposals are rated higher; length in characters."""

    pooled: Correlations
    within: Correlations  # of what is above or below the mean of the ballot: what one judge saw side by side
    right: Correlations  # pooled, among right proposals alone
    wrong: Correlations
    judges: dict[str, Correlations]  # `within`, by judge


@dataclass(frozen=True)
class PositionBias:
    """Whether a rating depends on when a proposal is heard; orders are found again from the calls' seeds."""

    means: tuple[Estimate, ...]  # mean rating at each position, from the first
    correlation: Estimate  # Pearson's, of rating and position, both minus their ballot's mean


@dataclass(frozen=True)
class SelfPreference:
    """How an agent rates its own proposal, where the diagonal mask is off."""

    over_judges: Estimate  # its own rating minus the mean of the other judges' ratings of the same proposal
    over_others: Estimate  # minus the mean of its own ratings of others' proposals in the same round


@dataclass(frozen=True)
class Agreement:
    """Whether a judge prefers what resembles itself among the proposals of others: differences of mean ratings."""

    answer: Estimate  # with the final answer that the judge proposes itself in the same round, minus with another
    answer_right: Estimate  # the same among right proposals
    answer_wrong: Estimate  # among wrong ones
    backbone: Estimate  # by agents of the judge's own backbone, minus by others


def proposer_skill(tables: Tables, questions: Questions) -> ProposerSkill:
    """Count right proposals of round 1; an empty one is wrong."""
    first = tables.proposals[tables.proposals["round"] == 1]
    agents = {name: questions.share(own["question"], own["right"]) for name, own in tables.by_agent(first, "agent")}
    return ProposerSkill(questions.share(first["question"], first["right"]), agents)


def verification(tables: Tables, questions: Questions) -> Verification:
    """Measure every judge that rated somebody else."""
    ratings = tables.ratings[~tables.ratings["own"]]
    judges = {name: _discernment(own, questions) for name, own in tables.by_agent(ratings, "voter")}
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


def calibration(ratings: Table, questions: Questions) -> RatingCalibration:
    """Sort ratings of others' proposals into bins."""
    ratings = ratings[~ratings["own"]]
    rating, right = ratings["rating"], ratings["right"].astype(np.float64)
    # Rounded, for an edge such as -0.8 is not exact.
    number = np.minimum(np.round((rating + 1) * BINS / 2, 9).astype(int), BINS - 1)
    probability = (rating + 1) / 2
    bins, columns = [], []
    for b in range(BINS):
        inside = number == b
        mean = float(rating[inside].mean()) if inside.any() else None
        share = questions.share(ratings["question"][inside], right[inside])
        bins.append(CalibrationBin(2 * b / BINS - 1, 2 * (b + 1) / BINS - 1, share, mean))
        columns.append(inside * (right - probability))
    error = questions.value(ratings["question"], _expected_error, [np.ones(len(rating)), *columns])
    return RatingCalibration(tuple(bins), error, questions.mean(ratings["question"], (probability - right) ** 2))


def length_bias(tables: Tables, questions: Questions) -> LengthBias:
    """Correlate ratings of others' proposals with their length."""
    ratings = tables.ratings[~tables.ratings["own"]]
    return LengthBias(
        pooled=_correlations(ratings, questions),
        within=_correlations(ratings, questions, centred=True),
        right=_correlations(ratings[ratings["right"]], questions),
        wrong=_correlations(ratings[~ratings["right"]], questions),
        judges={name: _correlations(own, questions, centred=True) for name, own in tables.by_agent(ratings, "voter")},
    )


def position_bias(ratings: Table, questions: Questions) -> PositionBias:
    """Compare positions, over ratings of others' proposals."""
    heard = ratings[~ratings["own"] & (ratings["position"] > 0)]
    places = [heard[heard["position"] == place] for place in range(1, heard["position"].max(initial=0) + 1)]
    rating, position = (within(heard[column], heard["ballot"]) for column in ("rating", "position"))
    return PositionBias(
        tuple(questions.mean(place["question"], place["rating"]) for place in places),
        questions.correlation(heard["question"], rating, position),
    )


def self_preference(ratings: Table, questions: Questions) -> SelfPreference | None:
    """Compare own ratings with the others; None where nobody rated itself."""
    own, others = ratings[ratings["own"]], ratings[~ratings["own"]]
    if not len(own):
        return None
    gaps = []
    for column in ("proposal", "ballot"):
        size = ratings[column].max() + 1
        count, total = (np.bincount(others[column], w, minlength=size) for w in (None, others["rating"]))
        known = own[count[own[column]] > 0]
        gap = known["rating"] - (total / np.maximum(count, 1))[known[column]]
        gaps.append(questions.mean(known["question"], gap))
    return SelfPreference(*gaps)


def agreement(ratings: Table, questions: Questions) -> Agreement:
    """Compare ratings of what resembles the judge with the others."""
    ratings = ratings[~ratings["own"]]
    parts = (
        (ratings, "agrees"),
        (ratings[ratings["right"]], "agrees"),
        (ratings[~ratings["right"]], "agrees"),
        (ratings, "kin"),
    )
    known = [(part[part[flag] >= 0], flag) for part, flag in parts]
    return Agreement(*(questions.contrast(part["question"], part["rating"], part[flag] == 1) for part, flag in known))


def _correlations(ratings: Table, questions: Questions, *, centred: bool = False) -> Correlations:
    columns = [ratings["rating"], ratings["length"]]
    if centred:
        columns = [within(column, ratings["ballot"]) for column in columns]
    question = ratings["question"]
    return Correlations(
        questions.correlation(question, *columns), questions.correlation(question, *map(ranks, columns))
    )


def _expected_error(sums: Real) -> Real:
    return np.asarray(np.abs(sums[..., 1:]).sum(-1) / sums[..., 0], dtype=np.float64)


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
