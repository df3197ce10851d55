r"""The final answer in a model's text, and graders of answers that can be read."""

import itertools
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality

_BRACES = re.compile(r"\\boxed\s*\{|\\?[{}]")
_SAID = re.compile(r"\banswer[*_\s]*(?:\bis\b|:)[*_:\s]*([^\n]+)", re.IGNORECASE)
_HASHED = re.compile(r"####[^\S\n]*([^\n]+)")
_SENTENCE_END = re.compile(r"[.;!?]\s")
_NUMBER = re.compile(
    r"(?<![\w.])(?:(?<![\w)\]}])[-+\u2212])?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:/[0-9]+)?"
)


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
    numeric: bool = True  # whether all answers are numbers, so that the last number of any text is one

    def extract(self, task: Task, text: str) -> str | None:
        """As `answer_in`."""
        return answer_in(text, numeric=self.numeric)

    def classes(self, task: Task, answers: Sequence[str | None]) -> list[int]:
        """As the equality has it."""
        return [int(number) for number in self.equality.classes([answers])[0]]

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """Compare each answer with its task's target; a task without one is a ValueError."""
        return [Verdict.RIGHT if grade(a, task.target, self.equality) else Verdict.WRONG for task, a in pairs]

    def identity(self) -> dict[str, Any]:
        """The equality's."""
        return self.equality.identity()


def question_id(task: Task) -> str:
    """Id of a task's question, whichever epoch asks it."""
    return task.id.partition("~")[0]


def numbered(keys: Sequence[Hashable | None]) -> list[int]:
    """Equal keys get equal numbers, from 0 in order of appearance; None is -1."""
    numbers: dict[Hashable, int] = {}
    return [-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys]


def final_answer(text: str) -> str | None:
    r"""The answer that a text ends with.

    The first of these that there is, of several the last: what `\boxed{...}` holds, braces balanced; the sentence after
    "Answer:" or "answer is", on the same line or the next; the line after `####`; a number. Our reading of how
    benchmarks have models say it. The answer is as it was written, for `Equality` to compare; None where there is none.
    """
    return marked_answer(text) or next(reversed(_NUMBER.findall(text)), None)


def answer_in(text: str, *, numeric: bool) -> str | None:
    """The final answer; where answers may be words, a text that marks none ends with it: its last line. Ours."""
    return final_answer(text) if numeric else marked_answer(text) or last_line(text)


def marked_answer(text: str) -> str | None:
    """The answer that a text marks as such: `final_answer` without the numbers."""
    said = (_SENTENCE_END.split(found, maxsplit=1)[0] for found in reversed(_SAID.findall(text)))
    candidates = itertools.chain(boxes(text), said, reversed(_HASHED.findall(text)))
    return next((answer for candidate in candidates if (answer := _bare(candidate))), None)


def last_line(text: str) -> str | None:
    """The last line that says anything, without marks of emphasis and a final period."""
    return next((answer for line in reversed(text.splitlines()) if (answer := _bare(line))), None)


def grade(answer: str | None, target: str | None, equality: Equality) -> bool:
    """Whether a final answer equals the target; no answer is never right."""
    if target is None:
        raise ValueError("expected a target to grade by, got none: give the task a target")
    return answer is not None and equality.equal(answer, target)


def boxes(text: str) -> Iterator[str]:
    r"""What every closed `\boxed{...}` holds, in one pass; the one that opens last comes first."""
    opened: list[int] = []  # where boxes begin; -1 for a brace of their own
    closed: list[tuple[int, int]] = []
    for mark in _BRACES.finditer(text):
        if mark[0] == "}":
            start = opened.pop() if opened else -1
            if start >= 0:
                closed.append((start, mark.start()))
        elif mark[0] not in (r"\{", r"\}"):
            opened.append(-1 if mark[0] == "{" else mark.end())
    for start, end in sorted(closed, reverse=True):
        yield text[start:end]


def _bare(answer: str) -> str:
    """Without blanks, marks of emphasis and a final period around it."""
    return answer.strip().strip("*_").strip().removesuffix(".").strip("*_ ")
