"""Record what a team says to graded tasks, once, to study it many times without a model."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch

from nsed_torch.core.answer_classes import AnswerClasses
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import Observer
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.files import write_json
from nsed_torch.records.pace import time_left
from nsed_torch.records.trace import ABOUT, Trace, TraceWriter, read_traces
from nsed_torch.records.transcript import Task, Transcript
from nsed_torch.records.withholding import withheld_trace
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.load import load_traces

CALLS = "calls.sqlite"
"""Where a folder keeps finished calls, unless the team has a call log of its own."""


class Graded(Protocol):
    """Tasks that can be graded, such as `questions.graded.GradedTasks`."""

    @property
    def tasks(self) -> Sequence[Task]:
        """With different ids."""
        ...

    @property
    def answers(self) -> AnswerClasses:
        """What tells which texts give the same answer."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """Which questions these are; JSON values only."""
        ...

    @property
    def withheld(self) -> bool:
        """Whether texts are shown nowhere."""
        ...

    def traces(self, transcripts: Sequence[Transcript]) -> list[Trace]:
        """The transcripts with their grades."""
        ...


@dataclass(frozen=True)
class Traces:
    """Graded deliberations in a folder, one trace a task."""

    folder: Path

    def __iter__(self) -> Iterator[Trace]:
        return read_traces(self.folder)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def episodes(self, *, reading: bool = False) -> Episodes:
        """The same as tensors; with `reading` only the rounds that show a piece."""
        return load_traces(self.folder, reading=reading)

    def __str__(self) -> str:
        traces = list(self)
        rounds = [trace.transcript.rounds for trace in traces]
        right = [grades[-1][turns[-1].winner] for turns, grades in zip(rounds, (t.grades for t in traces), strict=True)
                 if turns and turns[-1].winner is not None]  # fmt: skip
        return (
            f"{self.folder}: {len(traces)} tasks, {sum(map(len, rounds))} rounds, {sum(right)} of {len(traces)} right"
        )


def collect(
    team: MacroRNN,
    tasks: Graded,
    folder: str | Path,
    *,
    batch_tasks: int = 8,
    pooled: bool = True,
    report: Callable[[str], None] = lambda text: None,
    observer: Observer | None = None,
) -> Traces:
    """Deliberate on graded tasks and keep everything in a folder.

    Written are `traces.jsonl`, `embeddings.safetensors` and `collect.json`; of tasks whose texts are withheld no text
    is kept. The same call again goes on where it was interrupted: finished calls are in the team's call log, or, where
    that is in memory, in `calls.sqlite` of the folder.

    Args:
        team: who deliberates.
        tasks: what is asked, such as `nsed_torch.tasks("questions.jsonl")`.
        folder: where everything is kept.
        batch_tasks: tasks that deliberate together.
        pooled: whether proposals that the grader calls equal pool their support, unless the team has a rule of its own.
        report: hears of every batch.
        observer: hears of progress within it; the team's own if None.
    """
    root = Path(folder).expanduser()
    writer, asked, began = TraceWriter(root), tasks.tasks, perf_counter()
    with logged_calls(team, root / CALLS), pooling(team, tasks if pooled else None):
        for start in range(0, len(asked), batch_tasks):
            batch = asked[start : start + batch_tasks]
            with torch.no_grad():
                deliberation = team(batch, observer=observer)
            traces = tasks.traces(deliberation.transcripts)
            writer.add([withheld_trace(trace) if tasks.withheld else trace for trace in traces])
            done = start + len(batch)
            report(f"{done} of {len(asked)} tasks{time_left(perf_counter() - began, done, len(asked))}")
        report("embedding questions and proposals")
        writer.finish(team.cell.encoder.embed)
        about = {
            "agents": [dataclasses.asdict(agent) for agent in team.cell.ensemble.records()],
            "encoder": dict(team.cell.encoder.identity()),
            "seed": team.cell.seed,
            "settings": team.settings(),
            "grading": dict(tasks.identity),
            **({"withheld": True} if tasks.withheld else {}),
        }
        write_json(root / ABOUT, about)
    return Traces(root)


@contextmanager
def logged_calls(team: MacroRNN, file: Path) -> Iterator[CallLog]:
    """Finished calls are kept in a file, unless the team's call log has one already."""
    ensemble = team.cell.ensemble
    own = ensemble.call_log
    if own.path is not None:
        yield own
        return
    with CallLog(file) as log:
        ensemble.call_log = log
        try:
            yield log
        finally:
            ensemble.call_log = own


@contextmanager
def pooling(team: MacroRNN, graded: Graded | None) -> Iterator[None]:
    """Answers that a grader calls equal pool their support, where the team has no rule and its rounds are answers."""
    cell, own = team.cell, team.cell.answers
    if graded is not None and own is None and cell.protocol.unit == "answer":
        cell.answers = graded.answers
    try:
        yield
    finally:
        cell.answers = own
