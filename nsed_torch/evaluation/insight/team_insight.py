"""Everything that a run's graded traces tell of a team, as one tree of numbers."""

from collections.abc import Callable, Iterable

import numpy as np

from nsed_torch.evaluation.competence_law import ROUNDS_NEEDED, fit_fatigue_law
from nsed_torch.evaluation.insight.trace_tables import Table, read_tables
from nsed_torch.evaluation.insight.values import Column, Questions, Real, Tree, within
from nsed_torch.evaluation.statistics import Estimate
from nsed_torch.records import Task, Trace

BINS = 10


def insight(traces: Iterable[Trace], *, question: Callable[[Task], str] | None = None, seed: int = 0) -> Tree:
    """Read traces once and measure everything; `statistics.plain` makes JSON data of it.

    Shares have Wilson's interval for the effective number of observations, all other numbers the 95% interval of 1000
    resamples of whole questions (`values.Questions`); the law has its own (`competence_law`). Ratings of one's own
    proposal do not count.

    Args:
        traces: graded, of one ensemble; `records.read_traces` gives them one by one.
        question: id of the question a task asks, `GradedTasks.group`; the task's own if None.
        seed: of the resamples.

    Raises:
        ValueError: for no traces.
    """
    tables = read_tables(traces, question or (lambda task: task.id))
    questions, rounds, ratings = Questions(tables.questions, seed), tables.rounds, tables.ratings
    first = rounds[rounds["round"] == 1]
    return {
        "tasks": int(rounds["task"].max()) + 1,
        "questions": len(tables.questions),  # less than tasks where these are epochs of one question
        "course": over_rounds(rounds, questions),
        # The paper's: right proposals before anybody has heard anybody; an empty one is wrong.
        "p_g": {"pooled": questions.share(first["question"], first["right"], first["proposals"])},
        "p_v": {"pooled": verification(ratings, questions)},
        "calibration": calibration(ratings, questions),
        "length": length_bias(ratings, questions),
        "position": position_bias(ratings, questions),
    }


def over_rounds(rounds: Table, questions: Questions) -> Tree:
    """What rounds do to the answer that stands after each; a task that stopped earlier keeps its answer."""
    question = rounds["question"][np.unique(rounds["task"], return_index=True)[1]]
    standing = _standing(rounds)
    final, proposed = standing[:, -1], np.bincount(rounds["task"], rounds["right"]) > 0
    values = _rounds(rounds, question, standing, questions)
    return {
        "rounds": values,
        "gain": questions.mean(question, final - standing[:, 0]),  # accuracy after the last round minus after the first
        "law": _law([value["accuracy"].mean for value in values], len(final)),
        "flips": _flips(rounds),
        # Share of tasks where some proposal of some round is right and the final answer is not.
        "oracle_gap": questions.share(question, proposed - final),
    }


def _standing(rounds: Table) -> Real:
    """Whether the standing answer is right [task round]."""
    held = np.bincount(rounds["task"])
    values = np.zeros((len(held), rounds["round"].max()))
    values[rounds["task"], rounds["round"] - 1] = rounds["standing"]
    last = np.minimum(np.arange(values.shape[1]), held[:, None] - 1)
    return np.take_along_axis(values, last, 1)


def _rounds(rounds: Table, question: Column, standing: Real, questions: Questions) -> list[Tree]:
    spent = np.bincount(rounds["round"] - 1, rounds["tokens"]).cumsum() / len(question)
    return [
        {
            "round": r + 1,
            "deliberating": int((rounds["round"] == r + 1).sum()),  # tasks that held it
            "accuracy": questions.share(question, right),
            "tokens": float(spent[r]),  # read and written up to it, the mean over all tasks
        }
        for r, right in enumerate(standing.T)
    ]


def _law(accuracy: list[float], tasks: int) -> Tree:
    """The fit, and what it cannot bear; or None, and why."""
    if len(accuracy) < ROUNDS_NEEDED:
        why = f"a law needs at least {ROUNDS_NEEDED} rounds, got {len(accuracy)}: record more"
        return {"fit": None, "notes": [why]}
    if len(set(accuracy)) == 1:
        return {"fit": None, "notes": ["accuracy is the same after every round: there is no curve to fit"]}
    fit = fit_fatigue_law(accuracy, tasks)
    return {"fit": fit, "notes": fit.notes}


def _flips(rounds: Table) -> list[Tree]:
    """What became of standing answers in the next round, over tasks that held both; wrong ones may differ."""
    kept = rounds["task"][1:] == rounds["task"][:-1]
    before, after = rounds[:-1][kept], rounds[1:][kept]
    kinds = ("right_to_right", "right_to_wrong", "wrong_to_right", "wrong_to_wrong")
    kind = 2 * ~before["standing"] + ~after["standing"]
    counts = []
    for index in np.unique(before["round"]):
        count = np.bincount(kind[before["round"] == index], minlength=len(kinds))
        counts.append({"round": int(index), **dict(zip(kinds, count.tolist(), strict=True))})
    return counts


def verification(ratings: Table, questions: Questions) -> Tree:
    """What judges know: the paper's p_v.

    The paper leaves open how p_v is measured; both readings are ours. `auc` is the chance that a right proposal is
    rated above a wrong one of the same task and round by the same judge, equal ratings counting one half; n are pairs.
    `sign` is the share of ratings above 0 for a right, below 0 for a wrong proposal, 0 counting one half.
    """
    starts = np.flatnonzero(np.diff(ratings["ballot"], prepend=-1))
    wins, pairs = [], []
    for ballot in np.split(ratings, starts)[1:]:
        right, wrong = (ballot["rating"][ballot["right"] == which] for which in (True, False))
        ahead = np.sign(right[:, None] - wrong)
        wins.append((ahead.sum() + ahead.size) / 2)
        pairs.append(ahead.size)
    side = np.sign(ratings["rating"]) * np.where(ratings["right"], 1, -1)
    return {
        "auc": questions.share(ratings["question"][starts], np.array(wins, float), np.array(pairs, float)),
        "sign": questions.share(ratings["question"], (1 + side) / 2),
    }


def calibration(ratings: Table, questions: Questions) -> Tree:
    """Ratings against the truth, `(rating + 1) / 2` taken as the probability of being right.

    `error` is the expected calibration error, sum_b n_b / n |right_b - probability_b|, over bins of equal width, the
    upper end in the last one alone. Resampling adds noise to bins, so with few ratings its interval lies high.
    """
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
        "error": questions.value(
            ratings["question"],
            lambda sums: np.abs(sums[..., 1:]).sum(-1) / sums[..., 0],
            [np.ones(len(rating)), *columns],
        ),
        "brier": questions.mean(ratings["question"], (probability - right) ** 2),
    }


def length_bias(ratings: Table, questions: Questions) -> dict[str, Estimate]:
    """Whether longer proposals are rated higher: Pearson's correlations of rating and length in characters.

    They are `pooled`; `within` a ballot, of what is above or below its mean: what one judge saw side by side; and
    pooled among `right` and among `wrong` proposals.
    """

    def correlation(part: Table) -> Estimate:
        return questions.correlation(part["question"], part["rating"], part["length"])

    return {
        "pooled": correlation(ratings),
        "within": questions.correlation(ratings["question"], *within(ratings, "rating", "length")),
        "right": correlation(ratings[ratings["right"]]),
        "wrong": correlation(ratings[~ratings["right"]]),
    }


def position_bias(ratings: Table, questions: Questions) -> Estimate:
    """Whether a rating depends on when a proposal is heard: their correlation, both minus their ballot's mean."""
    heard = ratings[ratings["position"] > 0]
    return questions.correlation(heard["question"], *within(heard, "rating", "position"))
