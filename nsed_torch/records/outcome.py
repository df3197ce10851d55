"""What a method made of a task: one line of an evaluation."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from nsed_torch.records.checked import Record, json_line
from nsed_torch.records.transcript import Usage


class Verdict(StrEnum):
    """What became of an answer; RIGHT alone scores, NOT_RUN has no score at all."""

    RIGHT = "right"
    WRONG = "wrong"
    NO_ANSWER = "no answer"
    COMPILE_ERROR = "compile error"
    RUNTIME_ERROR = "runtime error"
    TIME_LIMIT = "time limit"
    MEMORY_LIMIT = "memory limit"
    OUTPUT_LIMIT = "output limit"
    NOT_RUN = "not run"
    FAILED = "failed"

    @property
    def score(self) -> float | None:
        """1 if right; None if nothing could tell (a program that was not run); 0 for everything else."""
        return None if self is Verdict.NOT_RUN else float(self is Verdict.RIGHT)


@dataclass(frozen=True)
class Outcome(Record):
    """What a method made of a task."""

    WHAT = "an outcome"
    REMEDY = "rerun the nsed evaluate that wrote it"

    method: str  # a single agent's is `single:<agent>`
    task: str
    group: str  # id of the question, which several tasks ask where it is asked in several epochs
    stratum: str  # the task's subject, difficulty or pattern; "" where there is none
    answer: str | None  # the final answer in the text
    text: str  # what was handed in, whole
    verdict: Verdict
    usage: Usage  # of all calls that the method made for this task, measured
    note: str = ""  # what went wrong, or how the answer was chosen
    suggested: str | None = None  # the answer that the task's user suggested; None where they suggested none
    adopts: bool | None = None  # whether the final answer equals it, by the grader
    by_lot: float | None = None  # where several texts stood level, the share of right ones; None where none did

    def to_line(self) -> str:
        """As JSON in one line; without the last three fields where there is nothing to say."""
        rare = {"suggested", "adopts", "by_lot"}
        return json_line({k: v for k, v in asdict(self).items() if v is not None or k not in rare})

    @property
    def score(self) -> float | None:
        """The verdict's."""
        return self.verdict.score


def read_outcomes(path: Path) -> list[Outcome]:
    """Read a file of outcomes, a line each; what cannot be read is a ValueError with file and line."""
    return list(Outcome.read_lines(path))
