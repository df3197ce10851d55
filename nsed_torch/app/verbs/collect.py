"""`nsed collect`: record what a team says to many questions, graded, to study it many times without a model."""

import dataclasses
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nsed_torch.app.build import bound, build_rnn, call_log, graded_tasks, pool_answers
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.app.view import summary_table, view
from nsed_torch.evaluation.round_statistics import Summary, adoption, summarize
from nsed_torch.evaluation.statistics import plain
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.pressure import pressed
from nsed_torch.records.files import read_json, write_json
from nsed_torch.records.trace import ABOUT
from nsed_torch.traces.collecting import Traces, collect


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
            how = {"batch_tasks": cfg.batch_tasks, "pooled": False, "report": run.report, "observer": watch}
            traces = collect(rnn, graded, run.folder, **how)
    summary = counted(traces, graded)
    run.console.print(summary_table(summary))
    return run.folder


def counted(traces: Traces, graded: GradedTasks) -> Summary:
    """What traces come to, which is told beside what they are."""
    summary = summarize(traces)
    about: dict[str, Any] = {"counts": dataclasses.asdict(summary)}
    if graded.suggestions:
        about["adoption"] = plain(adoption(traces, graded))
    path = traces.folder / ABOUT
    write_json(path, {**read_json(path), **about})
    return summary
