"""Graders of answers that can be read."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nsed_torch.questions.answers.kinds import KINDS, Extracted, Kind, guessed, read
from nsed_torch.questions.answers.letters import options_in
from nsed_torch.questions.answers.official import known_readings
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality


class Grader(Protocol):
    """What finds the final answer in a text, says which answers are the same, and which are right."""

    def extract(self, task: Task, text: str) -> str | None:
        """The final answer that a model's text gives to a task; None where there is none."""
        ...

    def classes(self, task: Task, answers: Sequence[str | None]) -> list[int]:
        """Equal answers get equal numbers, from 0 in order of appearance; no answer is -1."""
        return numbered(answers)

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """What becomes of each final answer; all at once, so that slow graders can work in parallel."""
        ...

    def identity(self) -> Mapping[str, Any]:
        """What tells these verdicts from those of another rule or version; JSON values only."""
        ...


@dataclass(frozen=True)
class GradersAnswers:
    """A grader's equality over whole texts, for a team that pools its equal answers. Which are right it never tells."""

    grader: Grader

    def classes(self, task: Task, texts: Sequence[str]) -> list[int]:
        """Equal numbers for texts with equal final answers; -1 for one without any, which is its own."""
        return self.grader.classes(task, self.finals(task, texts))

    def finals(self, task: Task, texts: Sequence[str]) -> list[str | None]:
        """The final answer that each text gives; None where there is none."""
        return [self.grader.extract(task, text) if text else None for text in texts]

    def identity(self) -> dict[str, Any]:
        """The grader's."""
        return {"rule": "final answers", "grader": dict(self.grader.identity())}


@dataclass(frozen=True)
class AnswerGrader(Grader):
    """Right if equal to the task's target: numbers as numbers, formulas by math-verify, the rest as texts."""

    equality: Equality = field(default_factory=Equality)
    kind: Kind | None = None  # of all answers; None guesses it from each task's target
    reading: str = "general"  # or the benchmark by whose own rule answers are read and graded, as in `known_readings`

    def __post_init__(self) -> None:
        if self.reading != "general" and self.reading not in (known := known_readings()):
            names = ", ".join(known)
            raise ValueError(f"reading: expected general or one of {names}, got {self.reading!r}: name one")
        if self.kind not in (None, *KINDS):
            raise ValueError(
                f"expected a kind of answers out of {', '.join(KINDS)}, got {self.kind!r}: or null to guess"
            )

    def kind_of(self, task: Task) -> Kind | None:
        """The kind of answers that a task calls for; None where neither a setting nor a target says."""
        return self.kind or (None if task.target is None else guessed(task.target, task.question))

    def read(self, task: Task, text: str) -> Extracted:
        """The final answer, and by which evidence it was found."""
        if self.reading != "general":
            rule = known_readings()[self.reading]
            return Extracted(rule.read(task, text), self.reading)
        kind = self.kind_of(task)
        return read(text, kind, options_in(task.question) if kind == "letter" else ())

    def extract(self, task: Task, text: str) -> str | None:
        """As `read`."""
        return self.read(task, text).answer

    def classes(self, task: Task, answers: Sequence[str | None]) -> list[int]:
        """As the equality has it."""
        return [int(number) for number in self.equality.classes([answers])[0]]

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """Compare each answer with its task's target; a task without one is a ValueError."""
        return [Verdict.RIGHT if self._right(task, answer) else Verdict.WRONG for task, answer in pairs]

    def _right(self, task: Task, answer: str) -> bool:
        if task.target is None:
            raise ValueError("expected a target to grade by, got none: give the task a target")
        if self.reading != "general":
            rule = known_readings()[self.reading]
            return rule.right(answer, task)
        letters = self.kind_of(task) == "letter"
        return self.equality.equal(answer, task.target.strip("(). ") if letters else task.target)

    def identity(self) -> dict[str, Any]:
        """The equality's, and what is set of kind and reading."""
        chosen = {"kind": self.kind, "reading": None if self.reading == "general" else self.reading}
        return self.equality.identity() | {name: value for name, value in chosen.items() if value}


Checker = Callable[[Task, str], bool]
"""Takes a task and a final answer, and tells whether it is right; it may know more than one right answer."""


@dataclass(frozen=True)
class CheckedGrader(AnswerGrader):
    """Right if a checker of the user's says so; equality tells which answers are the same."""

    checker: Checker = field(kw_only=True)

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """Ask the checker about each answer; what it raises is an answer that it cannot read, and wrong."""
        return [Verdict.RIGHT if self._checked(task, answer) else Verdict.WRONG for task, answer in pairs]

    def _checked(self, task: Task, answer: str) -> bool:
        try:
            return bool(self.checker(task, answer))
        except (ArithmeticError, LookupError, ValueError):
            return False

    def identity(self) -> dict[str, Any]:
        """The equality's, and the checker's name."""
        named = getattr(self.checker, "func", self.checker)
        return {**super().identity(), "checker": f"{named.__module__}.{named.__qualname__}"}


def question_id(task: Task) -> str:
    """Id of a task's question, whichever epoch asks it."""
    return task.id.partition("~")[0]


def numbered(keys: Sequence[Hashable | None]) -> list[int]:
    """Equal keys get equal numbers, from 0 in order of appearance; None is -1."""
    numbers: dict[Hashable, int] = {}
    return [-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys]
