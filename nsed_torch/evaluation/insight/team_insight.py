"""Everything that a run's graded traces tell of a team, as one tree of numbers; first of all what rounds change."""

from collections.abc import Callable, Iterable

import numpy as np

from nsed_torch.evaluation.competence_law import ROUNDS_NEEDED, fit_fatigue_law
from nsed_torch.evaluation.insight import judging
from nsed_torch.evaluation.insight.trace_tables import Same, Table, Tables, read_tables, same_text
from nsed_torch.evaluation.insight.values import Column, Questions, Real, Tree
from nsed_torch.records import Task, Trace


def insight(
    traces: Iterable[Trace], same: Same = same_text, *, question: Callable[[Task], str] | None = None, seed: int = 0
) -> Tree:
    """Read traces once and measure everything; `statistics.plain` makes JSON data of it.

    Shares have Wilson's interval for the effective number of observations, all other numbers the 95% interval of 1000
    resamples of whole questions (`values.Questions`); the law has its own (`competence_law`).

    Args:
        traces: graded, of one ensemble; `records.read_traces` gives them one by one.
        same: which final answers of a task are equal, a grader's `classes`; equal texts otherwise.
        question: id of the question a task asks, `GradedTasks.group`; the task's own if None.
        seed: of the resamples.

    Returns:
        What the functions here and in `judging` return, by name: `course` is `over_rounds`, `p_g` is `proposer_skill`,
        `p_v` is `verification`.

    Raises:
        ValueError: for no traces.
    """
    tables = read_tables(traces, same, question or (lambda task: task.id))
    questions, ratings = Questions(tables.questions, seed), tables.ratings
    return {
        "tasks": int(tables.rounds["task"].max()) + 1,
        "questions": len(tables.questions),  # less than tasks where these are epochs of one question
        "course": over_rounds(tables, questions),
        "p_g": judging.proposer_skill(tables, questions),
        "p_v": judging.verification(tables, questions),
        "condition": judging.condition(tables, questions),  # to be read beside the course's `gain`
        "calibration": judging.calibration(ratings, questions),
        "length": judging.length_bias(tables, questions),
        "position": judging.position_bias(ratings, questions),
        "self_preference": judging.self_preference(ratings, questions),
        "agreement": judging.agreement(ratings, questions),
    }


def over_rounds(tables: Tables, questions: Questions) -> Tree:
    """What rounds do to the answer that stands after each; a task that stopped earlier keeps its answer."""
    rounds, moves = tables.rounds, tables.moves
    question = rounds["question"][np.unique(rounds["task"], return_index=True)[1]]
    standing = _standing(rounds)
    final = standing[:, -1]
    proposed = np.bincount(rounds["task"], rounds["any"]) > 0
    values = _rounds(rounds, question, standing, questions)
    kept = rounds["task"][1:] == rounds["task"][:-1]
    before, after = rounds[:-1][kept], rounds[1:][kept]
    return {
        "rounds": values,
        "gain": questions.mean(question, final - standing[:, 0]),  # accuracy after the last round minus after the first
        "law": _law([value["accuracy"].mean for value in values], len(final)),
        "flips": _flips(before["round"], before["standing"], after["standing"]),
        "agent_flips": {
            name: _flips(rows["round"], rows["before"], rows["after"]) for name, rows in tables.by("agent", moves)
        },
        "conformity": _conformity(moves, questions),
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
    values = []
    for r, right in enumerate(standing.T):
        held = rounds[rounds["round"] == r + 1]
        values.append(
            {
                "round": r + 1,
                "deliberating": len(held),  # tasks that held it
                "accuracy": questions.share(question, right),
                "tokens": float(spent[r]),  # read and written up to it, the mean over all tasks
                # Among tasks that held it, share where some proposal of the round is right, its winner not.
                "oracle_gap": questions.share(held["question"], held["any"] & ~held["winner"]),
            }
        )
    return values


def _law(accuracy: list[float], tasks: int) -> Tree:
    """The fit, and what it cannot bear; or None, and why."""
    if len(accuracy) < ROUNDS_NEEDED:
        why = f"a law needs at least {ROUNDS_NEEDED} rounds, got {len(accuracy)}: record more"
        return {"fit": None, "notes": [why]}
    if len(set(accuracy)) == 1:
        return {"fit": None, "notes": ["accuracy is the same after every round: there is no curve to fit"]}
    fit = fit_fatigue_law(accuracy, [tasks] * len(accuracy))
    return {"fit": fit, "notes": fit.notes}


def _flips(round_of: Column, before: Column, after: Column) -> list[Tree]:
    """What became of answers in the next round, counted over tasks that held both; wrong ones may differ."""
    kinds = ("right_to_right", "right_to_wrong", "wrong_to_right", "wrong_to_wrong")
    counts = []
    for index in np.unique(round_of):
        here = round_of == index
        count = np.bincount(2 * ~before[here] + ~after[here], minlength=len(kinds))
        counts.append({"round": int(index), **dict(zip(kinds, count.tolist(), strict=True))})
    return counts


def _conformity(moves: Table, questions: Questions) -> Tree:
    """How often an agent whose answer differed from the winner's gives the winner's in the next round."""
    differed = moves[moves["follows"] >= 0]
    right = differed["led_right"]
    parts = {"pooled": differed, "winner_right": differed[right], "winner_wrong": differed[~right]}
    return {name: questions.share(part["question"], part["follows"]) for name, part in parts.items()}
