"""Tasks that can be graded: what is asked, and what tells whether an answer is right."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsed_torch.benchmarks.equality import Equality
from nsed_torch.benchmarks.final_answer import final_answer, grade
from nsed_torch.benchmarks.recorded import read_tasks
from nsed_torch.records import Task, Trace, Transcript

Grader = Callable[[Task, str], bool]
"""Task and final answer -> whether it is right."""


@dataclass(frozen=True)
class GradedTasks:
    """Tasks with their grader.

    Args:
        tasks: with different ids.
        grader: for the final answers to these tasks.
        identity: what tells these grades from others; JSON values only.
    """

    tasks: tuple[Task, ...]
    grader: Grader
    identity: Mapping[str, Any]

    def limited(self, limit: int | None) -> "GradedTasks":
        """The first `limit` tasks; all if None.

        Raises:
            ValueError: for a limit below 1.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"expected a limit of at least 1 task, or null for all, got {limit}")
        return GradedTasks(self.tasks[:limit], self.grader, self.identity)

    def trace(self, transcript: Transcript) -> Trace:
        """Grade every proposal of a transcript by its final answer."""
        answers = [[final_answer(proposal.text) for proposal in record.proposals] for record in transcript.rounds]
        given = {answer for row in answers for answer in row if answer is not None}
        right = {answer for answer in given if self.grader(transcript.task, answer)}
        return Trace(transcript, [[answer in right for answer in row] for row in answers], answers)


def file_tasks(questions: str, *, math_verify: bool | None = None) -> GradedTasks:
    """Tasks from a file of questions, right if equal to its gold answers.

    Args:
        questions: JSON Lines {id, question, gold}, compressed if the name ends in `.gz`.
        math_verify: whether formulas are compared by math-verify; None where it is installed.

    Raises:
        ValueError: if no file is named or a question has no gold answer, and as `read_tasks` and `Equality`.
    """
    if not questions:
        raise ValueError("expected a file of questions, got none: pass questions=FILE, or tasks=reasoning_gym")
    equality = Equality(math_verify)
    tasks = read_tasks(Path(questions))
    if missing := [task.id for task in tasks if task.target is None]:
        raise ValueError(f"{questions}: expected a gold answer for every question, got none for {missing[0]!r}")
    return GradedTasks(tasks, lambda task, answer: grade(answer, task.target, equality), equality.identity())
