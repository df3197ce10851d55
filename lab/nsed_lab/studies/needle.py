"""`-m nsed_lab.studies.needle FOLDER`: tasks with right and wrong candidates that no model wrote, for judges."""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from nsed_torch.questions.generated import generated_tasks
from nsed_torch.records.files import write_text
from nsed_torch.records.transcript import Task


def write_candidates(folder: str | Path, tasks: Sequence[Task], *, count: int = 3, seed: int = 0) -> int:
    """Write tasks with one right and `count - 1` wrong candidates each, in the layout of `load_recorded`.

    No model wrote these: the right candidate is the task's own target, the wrong ones are targets of other tasks,
    so that neither form nor frequency of a candidate betrays it. The "agents" `candidate_1`, `candidate_2`, ... are
    places; the right one is in a place drawn for each task. Tasks whose question came before are left out.

    Returns:
        The number of tasks written.
    """
    unique = list({task.question: task for task in tasks}.values())
    targets = [task.target for task in unique]
    different = {target for target in targets if target}
    if not all(targets) or count < 2 or len(different) < count:
        raise ValueError(
            f"expected tasks with targets and 2 or more candidates out of {len(different)} different targets, "
            f"got count={count} and {sum(not t for t in targets)} tasks without a target"
        )
    lines: list[list[str]] = [[] for _ in range(count)]
    for task in unique:
        draw = random.Random(f"{seed}\x1f{task.id}")  # noqa: S311 - fairness, not secrecy
        chosen = [task.target]
        while len(chosen) < count:
            # Drawn from all targets rather than from the different ones: a frequent answer is wrong as often.
            if (other := draw.choice(targets)) not in chosen:
                chosen.append(other)
        draw.shuffle(chosen)
        for place, text in zip(lines, chosen, strict=True):
            place.append(_line(id=task.id, output=text, answer=text, correct=text == task.target))
    root = Path(folder).expanduser()
    for number, place in enumerate(lines, start=1):
        write_text(root / "answers" / f"candidate_{number}.jsonl", "".join(place))
    questions = (_line(id=task.id, question=task.question, gold=task.target) for task in unique)
    write_text(root / "questions.jsonl", "".join(questions))
    return len(unique)


def _line(**record: str | bool | None) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sentences = {"min_num_statements": 2, "max_num_statements": 2}
    write_candidates(sys.argv[1], generated_tasks("needle_haystack", 600, options=sentences).tasks, count=2)
