"""What ratings follow besides the truth: calibration, length, position, one's own words, one's own answer."""

from dataclasses import dataclass

import numpy as np

from nsed_torch.evaluation.insight.tables import Table
from nsed_torch.evaluation.insight.values import Questions, Real, ranks, within
from nsed_torch.evaluation.statistics import Estimate

BINS = 10


@dataclass(frozen=True)
class Bin:
    """Ratings from `low` to `high`.

    Args:
        low: lower edge, which belongs to it.
        high: upper edge, which does only in the last bin.
        right: share of right proposals; n are ratings.
        rating: their mean; None if there are none.
    """

    low: float
    high: float
    right: Estimate
    rating: float | None


@dataclass(frozen=True)
class Calibration:
    """Ratings against the truth, `(rating + 1) / 2` taken as the probability of being right.

    Args:
        bins: of equal width from -1 to 1.
        error: expected calibration error, `sum_b n_b / n |right_b - probability_b|`. Resampling adds noise to
            bins, so with few ratings its interval lies high.
        brier: mean of `(probability - right)^2`.
    """

    bins: tuple[Bin, ...]
    error: Estimate
    brier: Estimate


@dataclass(frozen=True)
class Correlations:
    """Of rating and length of the proposal.

    Args:
        pearson: of the values.
        spearman: of their ranks among all of them, which resampling leaves as they are.
    """

    pearson: Estimate
    spearman: Estimate


@dataclass(frozen=True)
class LengthBias:
    """Whether longer proposals are rated higher; length in characters.

    Args:
        pooled: over all ratings.
        within: of what is above or below the mean of the ballot: what one judge saw side by side.
        right: pooled, among right proposals alone.
        wrong: among wrong ones alone.
        judges: `within`, by judge.
    """

    pooled: Correlations
    within: Correlations
    right: Correlations
    wrong: Correlations
    judges: dict[str, Correlations]


@dataclass(frozen=True)
class PositionBias:
    """Whether a rating depends on when a proposal is heard; orders are found again from the calls' seeds.

    Args:
        means: mean rating at each position, from the first.
        correlation: Pearson's, of rating and position, both minus their ballot's mean.
    """

    means: tuple[Estimate, ...]
    correlation: Estimate


@dataclass(frozen=True)
class SelfPreference:
    """How an agent rates its own proposal, where the diagonal mask is off.

    Args:
        over_judges: its own rating minus the mean of the other judges' ratings of the same proposal.
        over_others: minus the mean of its own ratings of others' proposals in the same round.
    """

    over_judges: Estimate
    over_others: Estimate


@dataclass(frozen=True)
class Agreement:
    """Whether a judge prefers what resembles itself among the proposals of others: differences of mean ratings.

    Args:
        answer: with the final answer that the judge proposes itself in the same round, minus with another.
        answer_right: the same among right proposals.
        answer_wrong: among wrong ones.
        backbone: by agents of the judge's own backbone, minus by others.
    """

    answer: Estimate
    answer_right: Estimate
    answer_wrong: Estimate
    backbone: Estimate


def calibration(ratings: Table, questions: Questions) -> Calibration:
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
        bins.append(Bin(2 * b / BINS - 1, 2 * (b + 1) / BINS - 1, share, mean))
        columns.append(inside * (right - probability))
    error = questions.value(ratings["question"], _expected_error, [np.ones(len(rating)), *columns])
    return Calibration(tuple(bins), error, questions.mean(ratings["question"], (probability - right) ** 2))


def length_bias(ratings: Table, agents: list[str], questions: Questions) -> LengthBias:
    """Correlate ratings of others' proposals with their length."""
    ratings = ratings[~ratings["own"]]
    judges = {
        name: _correlations(own, questions, centred=True)
        for i, name in enumerate(agents)
        if len(own := ratings[ratings["voter"] == i])
    }
    return LengthBias(
        pooled=_correlations(ratings, questions),
        within=_correlations(ratings, questions, centred=True),
        right=_correlations(ratings[ratings["right"]], questions),
        wrong=_correlations(ratings[~ratings["right"]], questions),
        judges=judges,
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
