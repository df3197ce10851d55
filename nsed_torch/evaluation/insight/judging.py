"""Who is right alone, how well judges tell right from wrong, and what ratings follow besides the truth.

Ratings of one's own proposal count in `self_preference` alone.
"""

import numpy as np

from nsed_torch.evaluation.insight.trace_tables import Table, Tables
from nsed_torch.evaluation.insight.values import Questions, Real, Tree, ranks, within

BINS = 10


def proposer_skill(tables: Tables, questions: Questions) -> Tree:
    """Share of right proposals in round 1, before anybody has heard anybody: the paper's p_g; an empty one is wrong."""
    first = _first_round(tables)
    return {
        "pooled": questions.share(first["question"], first["right"]),
        "agents": {name: questions.share(rows["question"], rows["right"]) for name, rows in tables.by("agent", first)},
    }


def verification(tables: Tables, questions: Questions) -> Tree:
    """What judges know: the paper's p_v from their ratings of others' proposals.

    The paper leaves open how p_v is measured; both readings are ours. `auc` is the chance that a right proposal is
    rated above a wrong one of the same task and round by the same judge, equal ratings counting one half; n are pairs.
    `sign` is the share of ratings above 0 for a right, below 0 for a wrong proposal, 0 counting one half.
    """
    ratings = _of_others(tables.ratings)
    return {
        "pooled": _discernment(ratings, questions),
        "judges": {name: _discernment(rows, questions) for name, rows in tables.by("voter", ratings)},
    }


def condition(tables: Tables, questions: Questions) -> Tree:
    """The paper's condition for deliberation to help, p_v > p_g, with `auc` for p_v, on one set of resamples.

    n of the margin are judges' ballots with a right and a wrong proposal, and proposals; `holds` is None where nothing
    was rated.
    """
    question, wins, pairs = _pairs(_of_others(tables.ratings))
    question, wins, pairs = (column[pairs > 0] for column in (question, wins, pairs))
    first = _first_round(tables)
    margin = questions.contrast(
        np.concatenate([question, first["question"]]),
        np.concatenate([wins, first["right"]]),
        np.arange(len(wins) + len(first)) < len(wins),
        np.concatenate([pairs, np.ones(len(first))]),
    )
    return {"margin": margin, "holds": None if margin.mean is None else margin.mean > 0}


def calibration(ratings: Table, questions: Questions) -> Tree:
    """Ratings against the truth, `(rating + 1) / 2` taken as the probability of being right.

    `error` is the expected calibration error, sum_b n_b / n |right_b - probability_b|, over bins of equal width, the
    upper end in the last one alone. Resampling adds noise to bins, so with few ratings its interval lies high.
    """
    ratings = _of_others(ratings)
    rating, right = ratings["rating"], ratings["right"].astype(np.float64)
    # Rounded, for an edge such as -0.8 is not exact.
    number = np.minimum(np.round((rating + 1) * BINS / 2, 9).astype(int), BINS - 1)
    probability = (rating + 1) / 2
    bins, columns = [], []
    for b in range(BINS):
        inside = number == b
        share = questions.share(ratings["question"][inside], right[inside])
        mean = float(rating[inside].mean()) if inside.any() else None
        bins.append({"low": 2 * b / BINS - 1, "high": 2 * (b + 1) / BINS - 1, "right": share, "rating": mean})
        columns.append(inside * (right - probability))
    return {
        "bins": bins,
        "error": questions.value(ratings["question"], _expected_error, [np.ones(len(rating)), *columns]),
        "brier": questions.mean(ratings["question"], (probability - right) ** 2),
    }


def length_bias(tables: Tables, questions: Questions) -> Tree:
    """Whether longer proposals are rated higher; length in characters.

    Correlations are `pooled`; `within` a ballot, of what is above or below its mean: what one judge saw side by side;
    pooled among `right` and among `wrong` proposals; within ballots by judge. Spearman's ranks are those among all
    ratings, which resampling leaves as they are.
    """
    ratings = _of_others(tables.ratings)
    return {
        "pooled": _correlations(ratings, questions),
        "within": _correlations(ratings, questions, centred=True),
        "right": _correlations(ratings[ratings["right"]], questions),
        "wrong": _correlations(ratings[~ratings["right"]], questions),
        "judges": {name: _correlations(rows, questions, centred=True) for name, rows in tables.by("voter", ratings)},
    }


def position_bias(ratings: Table, questions: Questions) -> Tree:
    """Whether a rating depends on when a proposal is heard; orders are found again from the calls' seeds.

    The mean rating at each position, from the first; the correlation with it, both minus their ballot's mean.
    """
    heard = _of_others(ratings)
    heard = heard[heard["position"] > 0]
    places = [heard[heard["position"] == place] for place in range(1, heard["position"].max(initial=0) + 1)]
    rating, position = (within(heard[column], heard["ballot"]) for column in ("rating", "position"))
    return {
        "means": [questions.mean(place["question"], place["rating"]) for place in places],
        "correlation": questions.correlation(heard["question"], rating, position),
    }


def self_preference(ratings: Table, questions: Questions) -> Tree | None:
    """How an agent rates its own proposal, where the diagonal mask is off; None where nobody rated itself.

    Its own rating minus the mean of the other judges' ratings of the same proposal; minus the mean of its own ratings
    of others' proposals in the same round.
    """
    own, others = ratings[ratings["own"]], _of_others(ratings)
    if not len(own):
        return None
    gaps = {}
    for name, column in (("over_judges", "proposal"), ("over_others", "ballot")):
        size = ratings[column].max() + 1
        count, total = (np.bincount(others[column], w, minlength=size) for w in (None, others["rating"]))
        known = own[count[own[column]] > 0]
        gap = known["rating"] - (total / np.maximum(count, 1))[known[column]]
        gaps[name] = questions.mean(known["question"], gap)
    return gaps


def agreement(ratings: Table, questions: Questions) -> Tree:
    """Whether a judge prefers what resembles itself among the proposals of others: differences of mean ratings.

    With the final answer that the judge proposes itself in the same round, minus with another; the same among right and
    among wrong proposals; by agents of the judge's own backbone, minus by others.
    """
    ratings = _of_others(ratings)
    parts = {
        "answer": (ratings, "agrees"),
        "answer_right": (ratings[ratings["right"]], "agrees"),
        "answer_wrong": (ratings[~ratings["right"]], "agrees"),
        "backbone": (ratings, "kin"),
    }
    contrasts = {}
    for name, (part, flag) in parts.items():
        known = part[part[flag] >= 0]
        contrasts[name] = questions.contrast(known["question"], known["rating"], known[flag] == 1)
    return contrasts


def _of_others(ratings: Table) -> Table:
    others: Table = ratings[~ratings["own"]]
    return others


def _first_round(tables: Tables) -> Table:
    first: Table = tables.proposals[tables.proposals["round"] == 1]
    return first


def _correlations(ratings: Table, questions: Questions, *, centred: bool = False) -> Tree:
    columns = [ratings["rating"], ratings["length"]]
    if centred:
        columns = [within(column, ratings["ballot"]) for column in columns]
    question = ratings["question"]
    return {
        "pearson": questions.correlation(question, *columns),
        "spearman": questions.correlation(question, *map(ranks, columns)),
    }


def _expected_error(sums: Real) -> Real:
    return np.asarray(np.abs(sums[..., 1:]).sum(-1) / sums[..., 0], dtype=np.float64)


def _discernment(ratings: Table, questions: Questions) -> Tree:
    side = np.sign(ratings["rating"]) * np.where(ratings["right"], 1, -1)
    return {"auc": questions.share(*_pairs(ratings)), "sign": questions.share(ratings["question"], (1 + side) / 2)}


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
