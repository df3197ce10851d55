"""`nsed collect`: record what a team says to many questions, graded, to study it many times without a model."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
from omegaconf import DictConfig

from nsed_torch.app.build import bound, build_rnn, call_log, graded_tasks, pool_answers
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.app.view import summary_table, view
from nsed_torch.core.observer import Observer
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.evaluation.round_statistics import Summary, adoption, summarize
from nsed_torch.evaluation.statistics import plain
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.pressure import pressed
from nsed_torch.records.files import write_json
from nsed_torch.records.pace import time_left
from nsed_torch.records.trace import ABOUT, TraceWriter, read_traces
from nsed_torch.records.withholding import withheld_trace


@verb("collect", ("traces.jsonl", "embeddings.safetensors", "collect.json", "report.html"))
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Compose, build, deliberate task by task, write the folder of traces, print what it comes to."""
    tasks = graded_tasks(cfg)
    graded = pressed(tasks.limited(cfg.limit), cfg.pressure, seed=cfg.seed, among=tasks.tasks)
    with call_log(cfg, run.folder) as log:
        rnn = build_rnn(cfg, log, run.report)
        graded = bound(graded, rnn)
        pool_answers(rnn, graded, cfg)
        with view(run.console, rounds=False) as watch:
            summary = collect(rnn, graded, run.folder, batch_tasks=cfg.batch_tasks, report=run.report, observer=watch)
    run.console.print(summary_table(summary))
    return run.folder


def collect(
    rnn: MacroRNN,
    graded: GradedTasks,
    folder: Path,
    *,
    batch_tasks: int = 8,
    report: Callable[[str], None] = lambda text: None,
    observer: Observer | None = None,
) -> Summary:
    """Deliberate on graded tasks and keep everything in a folder.

    Written are `traces.jsonl`, `embeddings.safetensors` and `collect.json`; of tasks whose texts are withheld no text
    is kept. The team needs a call log if the run is to survive its process. `report` hears of every batch, the observer
    of progress within it.
    """
    writer, tasks, began = TraceWriter(folder), graded.tasks, perf_counter()
    for start in range(0, len(tasks), batch_tasks):
        batch = tasks[start : start + batch_tasks]
        with torch.no_grad():
            deliberation = rnn(batch, observer=observer)
        traces = graded.traces(deliberation.transcripts)
        writer.add([withheld_trace(trace) if graded.withheld else trace for trace in traces])
        done = start + len(batch)
        report(f"{done} of {len(tasks)} tasks{time_left(perf_counter() - began, done, len(tasks))}")
    report("embedding questions and proposals")
    writer.finish(rnn.cell.encoder.embed)
    summary = summarize(read_traces(folder))
    about = {
        "agents": [dataclasses.asdict(agent) for agent in rnn.cell.ensemble.records()],
        "encoder": dict(rnn.cell.encoder.identity()),
        "seed": rnn.cell.seed,
        "settings": rnn.settings(),
        "grading": dict(graded.identity),
        "counts": dataclasses.asdict(summary),
        **({"adoption": plain(adoption(read_traces(folder), graded))} if graded.suggestions else {}),
        **({"withheld": True} if graded.withheld else {}),
    }
    write_json(writer.folder / ABOUT, about)
    return summary
