"""Tasks of one's own, from a file or from Python, graded by their targets."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nsed_torch.questions.answers.kinds import Kind
from nsed_torch.questions.graded import GradedTasks, answer_grader, file_tasks, targeted
from nsed_torch.questions.graders import Checker
from nsed_torch.questions.known import KEYS, Known, known
from nsed_torch.records.transcript import Task


def tasks(
    source: str | Path | Iterable[Task | Mapping[str, Any]],
    *,
    prompt: str = "",
    math_verify: bool | None = None,
    kind: Kind | None = None,
    checker: Checker | None = None,
) -> GradedTasks:
    """Questions with their targets, to be asked and graded.

    Args:
        source: a file of JSON Lines {question, answer}, compressed if its name ends in `.gz`; or tasks, or mappings
            with these keys; and with those that `known` reads besides, as steps.
        prompt: behind every question, how to answer; "" is nothing.
        math_verify: whether formulas are compared by math-verify; None where it is installed.
        kind: of all answers: number, formula, letter, text or list; None guesses it from each target. The identity
            tells how many there are of each.
        checker: takes a task and a final answer and tells whether that is right; None asks for the target.

    Raises:
        ValueError: in one line, for no questions, one without a target, an id that comes twice, or a file that is none.

    Examples:
        >>> own = tasks([{"id": "sum", "question": "17 + 25?", "target": "42"}, {"question": "7 * 6?", "target": "42"}])
        >>> [task.id for task in own.tasks]
        ['sum', 'question-2']
        >>> train, test = own.split(0.5)
        >>> len(train.tasks), len(test.tasks)
        (1, 1)
    """
    if isinstance(source, str | Path):
        return file_tasks(str(source), prompt=prompt, math_verify=math_verify, kind=kind, checker=checker)
    given = [_known(row, number, prompt) for number, row in enumerate(source, start=1)]
    if not given:
        raise ValueError("tasks: expected one question or more, got none: pass a file or {question, target} each")
    if len({line.task.id for line in given}) < len(given):
        ids = [line.task.id for line in given][:8]
        raise ValueError(f"tasks: expected different ids, got {ids}: give each its own")
    return targeted(given, answer_grader(given, math_verify, kind, checker))


def _known(row: Any, number: int, prompt: str) -> Known:
    where = f"tasks: question {number}"
    if isinstance(row, Task):
        row = {name: value for name in KEYS[:7] if (value := getattr(row, name))}
    if not isinstance(row, Mapping) or (strange := set(row) - set(KEYS)):
        got = f"{', '.join(map(str, strange))} too" if isinstance(row, Mapping) else repr(row)[:60]
        raise ValueError(f"{where}: expected {{question, answer}}, got {got}: correct it")
    return known({"id": f"question-{number}", **row, **({"id": str(row["id"])} if "id" in row else {})}, where, prompt)
