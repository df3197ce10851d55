"""Graders of answers that can be read: numbers, formulas, words; and one that remembers another's verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

from nsed_torch.agents import Ensemble, Prompts
from nsed_torch.benchmarks.final_answer import final_answer, grade, last_line, marked_answer
from nsed_torch.data.equality import Equality
from nsed_torch.records import CallLog, Task, Verdict, call_key


class Grader(Protocol):
    """What finds the final answer in a text, says which answers are the same, and which are right."""

    def extract(self, task: Task, text: str) -> str | None:
        """The final answer that a model's text gives to a task; None where there is none."""
        ...

    def classes(self, task: Task, answers: Sequence[str | None]) -> list[int]:
        """Equal answers get equal numbers, from 0 in order of appearance; no answer is -1."""
        ...

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """What becomes of each final answer; all at once, so that slow graders can work in parallel."""
        ...

    def identity(self) -> Mapping[str, Any]:
        """What tells these verdicts from those of another rule or version; JSON values only."""
        ...


@runtime_checkable
class AskingGrader(Protocol):
    """What grades by asking an agent, once it is told whom it may ask."""

    def asking(self, ensemble: Ensemble, prompts: Prompts, seed: int) -> Grader:
        """The grader that asks an agent of this ensemble."""
        ...


@dataclass(frozen=True)
class GradersAnswers:
    """A grader's equality over whole texts, for a team that pools its equal answers. Which are right it never tells.

    Args:
        grader: finds final answers and says which are equal.
    """

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
class LoggedGrader:
    """A grader whose verdicts are kept in a call log: a repeated run grades alike, and nothing twice.

    That nobody could grade an answer is not kept.

    Args:
        grader: the one that grades.
        call_log: where its verdicts are kept.
    """

    grader: Grader
    call_log: CallLog

    def extract(self, task: Task, text: str) -> str | None:
        """As the grader."""
        return self.grader.extract(task, text)

    def classes(self, task: Task, answers: Sequence[str | None]) -> list[int]:
        """As the grader."""
        return self.grader.classes(task, answers)

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """As the grader did, or does."""
        identity = dict(self.grader.identity())
        # Without the category, which no verdict depends on, so that logs from before there was one still count.
        asked = [{k: v for k, v in asdict(task).items() if k != "category"} for task, _ in pairs]
        keys = [
            call_key(kind="grade", grader=identity, task=task, answer=answer)
            for task, (_, answer) in zip(asked, pairs, strict=True)
        ]
        known = {key: Verdict(value) for key, value in self.call_log.get(keys).items()}
        missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}
        if missing:
            new = dict(zip(missing, self.grader.grade(list(missing.values())), strict=True))
            self.call_log.put({key: verdict.value for key, verdict in new.items() if verdict is not Verdict.NOT_RUN})
            known |= new
        return [known[key] for key in keys]

    def identity(self) -> Mapping[str, Any]:
        """The grader's."""
        return self.grader.identity()


@dataclass(frozen=True)
class AnswerGrader:
    """Right if equal to the task's target: numbers as numbers, formulas by math-verify, the rest as texts.

    Args:
        equality: when answers are the same.
        numeric: whether all answers are numbers, so that the last number of any text is one.
    """

    equality: Equality = field(default_factory=Equality)
    numeric: bool = True

    def extract(self, task: Task, text: str) -> str | None:
        """As `final_answer`; where answers may be words, a text that marks none ends with it: its last line. Ours."""
        return final_answer(text) if self.numeric else marked_answer(text) or last_line(text)

    def classes(self, task: Task, answers: Sequence[str | None]) -> list[int]:
        """As the equality has it."""
        return [int(number) for number in self.equality.classes([answers])[0]]

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """Compare each answer with its task's target.

        Raises:
            ValueError: if a task has no target.
        """
        return [Verdict.RIGHT if grade(a, task.target, self.equality) else Verdict.WRONG for task, a in pairs]

    def identity(self) -> dict[str, Any]:
        """The equality's."""
        return self.equality.identity()
