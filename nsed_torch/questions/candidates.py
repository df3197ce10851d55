"""Candidates for judges: right answers and wrong ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nsed_torch.records.trace import read_traces
from nsed_torch.records.transcript import Task
from nsed_torch.traces.recorded import load_recorded


class Candidate(NamedTuple):
    """One answer to a task, and whether it is right."""

    task: Task
    text: str
    right: bool


def read_candidates(folder: str | Path) -> list[Candidate]:
    """What agents answered, as recorded: every text once per task, whoever wrote it, in every round.

    The folder holds traces of `nsed collect` or `nsed evaluate`, or recorded answers.
    """
    root = Path(folder).expanduser()
    candidates: dict[tuple[str, str], Candidate] = {}
    for candidate in _traced(root) if (root / "traces.jsonl").is_file() else _recorded(root):
        if candidate.text:
            candidates.setdefault((candidate.task.id, candidate.text), candidate)
    return list(candidates.values())


def _traced(folder: Path) -> Iterator[Candidate]:
    for trace in read_traces(folder):
        for record, grades in zip(trace.transcript.rounds, trace.grades, strict=True):
            for proposal, right in zip(record.proposals, grades, strict=True):
                yield Candidate(trace.transcript.task, proposal.text, right)


def _recorded(folder: Path) -> Iterator[Candidate]:
    table = load_recorded(folder)
    for task, *columns in zip(table.tasks, table.outputs, table.answered.tolist(), table.correct.tolist(), strict=True):
        for text, answered, right in zip(*columns, strict=True):
            if answered:
                yield Candidate(task, text, right)
