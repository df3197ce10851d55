"""Everything that a run's graded traces tell of a team, as one tree of numbers; first of all what rounds change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsed_torch.evaluation.competence_law import ROUNDS_NEEDED, FatigueLaw, fit_fatigue_law
from nsed_torch.evaluation.insight.judging import (
    Agreement,
    Condition,
    LengthBias,
    PositionBias,
    ProposerSkill,
    RatingCalibration,
    SelfPreference,
    Verification,
    agreement,
    calibration,
    condition,
    length_bias,
    position_bias,
    proposer_skill,
    self_preference,
    verification,
)
from nsed_torch.evaluation.insight.trace_tables import Same, Table, Tables, read_tables, same_text
from nsed_torch.evaluation.insight.values import Column, Questions, Real
from nsed_torch.evaluation.statistics import Estimate, plain
from nsed_torch.records import Task, Trace


@dataclass(frozen=True)
class RoundInsight:
    """Where the team stands after a round."""

    round: int  # from 1
    deliberating: int  # tasks that held it
    accuracy: Estimate  # of the answer standing after it; a task that stopped earlier keeps its answer
    tokens: float  # read and written up to it, the mean over all tasks
    oracle_gap: Estimate  # among tasks that held it, share where some proposal of the round is right, its winner not


@dataclass(frozen=True)
class Law:
    """The efficiency-fatigue law fitted to accuracy by round; `notes` say what it cannot bear, or why there is none."""

    fit: FatigueLaw | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Flips:
    """Answers of a round and what became of them in the next, counted over tasks that held both."""

    round: int  # the first of the two
    right_to_right: int
    right_to_wrong: int
    wrong_to_right: int
    wrong_to_wrong: int  # the same or another


@dataclass(frozen=True)
class Conformity:
    """How often an agent whose answer differed from the winner's gives the winner's in the next round."""

    pooled: Estimate
    winner_right: Estimate
    winner_wrong: Estimate


@dataclass(frozen=True)
class OverRounds:
    """What rounds do to the answer."""

    rounds: tuple[RoundInsight, ...]
    gain: Estimate  # accuracy after the last round minus after the first
    law: Law
    flips: tuple[Flips, ...]  # of the standing answer, one per transition
    agent_flips: dict[str, tuple[Flips, ...]]  # of every agent's own proposals
    conformity: Conformity
    oracle_gap: Estimate  # share of tasks where some proposal of some round is right and the final answer is not


@dataclass(frozen=True)
class Insight:
    """What graded traces tell of a team. Ratings of one's own proposal count in `self_preference` alone."""

    tasks: int
    questions: int  # less than tasks where these are epochs of one question
    course: OverRounds
    p_g: ProposerSkill
    p_v: Verification
    condition: Condition  # to be read beside `course.gain`
    calibration: RatingCalibration
    length: LengthBias
    position: PositionBias
    self_preference: SelfPreference | None  # None where nobody rated itself
    agreement: Agreement

    def to_json(self) -> dict[str, Any]:
        """As JSON data: floats with 9 decimals; null for what is not there or has no bound."""
        data: dict[str, Any] = plain(self)
        return data


def insight(
    traces: Iterable[Trace],
    same: Same | None = None,
    *,
    question: Callable[[Task], str] | None = None,
    seed: int = 0,
) -> Insight:
    """Read traces once and measure everything.

    Shares have Wilson's interval for the effective number of observations, all other numbers the 95% interval of 1000
    resamples of whole questions (`values.Questions`); the law has its own (`competence_law`).

    Args:
        traces: graded, of one ensemble; `records.read_traces` gives them one by one.
        same: which final answers of a task are equal, a grader's `classes`; equal texts if None.
        question: id of the question a task asks, `GradedTasks.group`; the task's own if None.
        seed: of the resamples.

    Raises:
        ValueError: for no traces.
    """
    tables = read_tables(traces, same or same_text, question or (lambda task: task.id))
    questions, ratings = Questions(tables.questions, seed), tables.ratings
    return Insight(
        tasks=int(tables.rounds["task"].max()) + 1,
        questions=len(tables.questions),
        course=over_rounds(tables, questions),
        p_g=proposer_skill(tables, questions),
        p_v=verification(tables, questions),
        condition=condition(tables, questions),
        calibration=calibration(ratings, questions),
        length=length_bias(tables, questions),
        position=position_bias(ratings, questions),
        self_preference=self_preference(ratings, questions),
        agreement=agreement(ratings, questions),
    )


def over_rounds(tables: Tables, questions: Questions) -> OverRounds:
    """Follow the answers through the rounds."""
    rounds, moves = tables.rounds, tables.moves
    question = rounds["question"][np.unique(rounds["task"], return_index=True)[1]]
    standing = _by_task(rounds, "standing")
    final = standing[:, -1]
    proposed = np.bincount(rounds["task"], rounds["any"]) > 0
    values = _rounds(rounds, question, standing, questions)
    kept = rounds["task"][1:] == rounds["task"][:-1]
    before, after = rounds[:-1][kept], rounds[1:][kept]
    return OverRounds(
        rounds=values,
        gain=questions.mean(question, final - standing[:, 0]),
        law=_law([value.accuracy.mean or 0.0 for value in values], len(final)),
        flips=_flips(before["round"], before["standing"], after["standing"]),
        agent_flips={
            name: _flips(own["round"], own["before"], own["after"]) for name, own in tables.by_agent(moves, "agent")
        },
        conformity=_conformity(moves, questions),
        oracle_gap=questions.share(question, proposed - final),
    )


def _by_task(rounds: Table, column: str) -> Real:
    """A column as [task round]; a task that stopped earlier keeps its last value."""
    held = np.bincount(rounds["task"])
    values = np.zeros((len(held), rounds["round"].max()))
    values[rounds["task"], rounds["round"] - 1] = rounds[column]
    last = np.minimum(np.arange(values.shape[1]), held[:, None] - 1)
    return np.take_along_axis(values, last, 1)


def _rounds(rounds: Table, question: Column, standing: Real, questions: Questions) -> tuple[RoundInsight, ...]:
    spent = np.bincount(rounds["round"] - 1, rounds["tokens"]).cumsum() / len(question)
    values = []
    for r, right in enumerate(standing.T):
        held = rounds[rounds["round"] == r + 1]
        gap = questions.share(held["question"], held["any"] & ~held["winner"])
        values.append(RoundInsight(r + 1, len(held), questions.share(question, right), float(spent[r]), gap))
    return tuple(values)


def _law(accuracy: list[float], tasks: int) -> Law:
    if len(accuracy) < ROUNDS_NEEDED:
        return Law(None, (f"a law needs at least {ROUNDS_NEEDED} rounds, got {len(accuracy)}: record more",))
    if len(set(accuracy)) == 1:
        return Law(None, ("accuracy is the same after every round: there is no curve to fit",))
    fit = fit_fatigue_law(accuracy, [tasks] * len(accuracy))
    return Law(fit, fit.notes)


def _flips(round_of: Column, before: Column, after: Column) -> tuple[Flips, ...]:
    """Count transitions, an entry for every first round there is."""
    counts = []
    for index in np.unique(round_of):
        here = round_of == index
        kinds = np.bincount(2 * ~before[here] + ~after[here], minlength=4)
        counts.append(Flips(int(index), *kinds.tolist()))
    return tuple(counts)


def _conformity(moves: Table, questions: Questions) -> Conformity:
    differed = moves[moves["follows"] >= 0]
    parts = (differed, differed[differed["led_right"]], differed[~differed["led_right"]])
    return Conformity(*(questions.share(part["question"], part["follows"]) for part in parts))
