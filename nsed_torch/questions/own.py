"""Tasks of one's own, from a file or from Python, graded by their targets."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nsed_torch.questions.answers.kinds import Kind
from nsed_torch.questions.graded import GradedTasks, file_tasks, targeted
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality


def tasks(
    source: str | Path | Iterable[Task | Mapping[str, Any]],
    *,
    prompt: str = "",
    math_verify: bool | None = None,
    kind: Kind | None = None,
) -> GradedTasks:
    """Questions with their targets, to be asked and graded.

    Args:
        source: a file of JSON Lines {id, question, target}, compressed if its name ends in `.gz`; or tasks, or mappings
            with these keys.
        prompt: behind every question, how to answer; "" is nothing.
        math_verify: whether formulas are compared by math-verify; None where it is installed.
        kind: of all answers: number, formula, letter, text or list; None guesses it from each target. The identity
            tells how many there are of each.

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
        return file_tasks(str(source), prompt=prompt, math_verify=math_verify, kind=kind)
    given = [_task(row, number, prompt) for number, row in enumerate(source, start=1)]
    if not given:
        raise ValueError("tasks: expected one question or more, got none: pass a file or {question, target} each")
    if len({task.id for task in given}) < len(given):
        raise ValueError(f"tasks: expected different ids, got {[task.id for task in given][:8]}: give each its own")
    return targeted(given, AnswerGrader(Equality(math_verify), kind))


_KEYS = ("id", "question", "target", "category", "inputs")


def _task(row: Any, number: int, prompt: str) -> Task:
    if isinstance(row, Task):
        values: dict[str, Any] = {name: getattr(row, name) for name in (*_KEYS, "start", "goal")}
    elif isinstance(row, Mapping) and not (unknown := set(row) - set(_KEYS)):
        values = {"id": f"question-{number}", **row}
    else:
        got = f"{', '.join(map(str, unknown))} too" if isinstance(row, Mapping) else repr(row)[:60]
        raise ValueError(f"tasks: expected {{id, question, target}} for question {number}, got {got}: correct it")
    if values.get("target") is None or not isinstance(values.get("question"), str):
        raise ValueError(f"tasks: expected a question and a target for question {number}, got {row!r:.80}: give both")
    question = f"{values['question']}\n\n{prompt}" if prompt else values["question"]
    return Task(**{**values, "id": str(values["id"]), "question": question, "target": str(values["target"])})
