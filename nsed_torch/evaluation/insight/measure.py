"""Everything that a run's traces tell, as one tree of numbers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from nsed_torch.evaluation.insight.competence import (
    Condition,
    Generation,
    Verification,
    condition,
    generation,
    verification,
)
from nsed_torch.evaluation.insight.judges import (
    Agreement,
    Calibration,
    LengthBias,
    PositionBias,
    SelfPreference,
    agreement,
    calibration,
    length_bias,
    position_bias,
    self_preference,
)
from nsed_torch.evaluation.insight.rounds import Course, course
from nsed_torch.evaluation.insight.tables import Same, read_tables, same_text
from nsed_torch.evaluation.insight.values import Questions
from nsed_torch.evaluation.statistics import plain
from nsed_torch.records import Task, Trace


@dataclass(frozen=True)
class Insight:
    """What graded traces tell of a team. Ratings of one's own proposal count in `self_preference` alone.

    Args:
        tasks: their number.
        questions: theirs; less where tasks are epochs of one question.
        course: what rounds do to the answer.
        p_g: how often agents are right on their own.
        p_v: how well judges tell right from wrong.
        condition: whether p_v > p_g, to be read beside `course.gain`.
        calibration: of ratings.
        length: whether longer proposals are rated higher.
        position: whether it matters when a proposal is heard.
        self_preference: None where nobody rated itself.
        agreement: whether judges prefer what resembles themselves.
    """

    tasks: int
    questions: int
    course: Course
    p_g: Generation
    p_v: Verification
    condition: Condition
    calibration: Calibration
    length: LengthBias
    position: PositionBias
    self_preference: SelfPreference | None
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
    resamples of whole questions (`values.Questions`); the law has its own (`nn.law`).

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
        course=course(tables, questions),
        p_g=generation(tables, questions),
        p_v=verification(tables, questions),
        condition=condition(tables, questions),
        calibration=calibration(ratings, questions),
        length=length_bias(ratings, tables.agents, questions),
        position=position_bias(ratings, questions),
        self_preference=self_preference(ratings, questions),
        agreement=agreement(ratings, questions),
    )
