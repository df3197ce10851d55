"""`nsed collect`: record what a team says to many questions, graded, to study it many times without a model."""

import dataclasses
from pathlib import Path

from omegaconf import DictConfig

from nsed_torch.app.build import bound, build_rnn, call_log, graded_tasks, pool_answers
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.app.view import summary_table, view
from nsed_torch.evaluation.round_statistics import summarize
from nsed_torch.records.files import read_json, write_json
from nsed_torch.records.trace import ABOUT
from nsed_torch.traces.collecting import collect


@verb("collect", ("traces.jsonl", "embeddings.safetensors", "collect.json", "report.html"))
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Compose, build, deliberate task by task, write the folder of traces, print what it comes to."""
    graded = graded_tasks(cfg).limited(cfg.limit)
    with call_log(cfg, run.folder) as log:
        rnn = build_rnn(cfg, log, run.report)
        graded = bound(graded, rnn)
        pool_answers(rnn, graded, cfg)
        with view(run.console, rounds=False) as watch:
            how = {"batch_tasks": cfg.batch_tasks, "pooled": False, "report": run.report, "observer": watch}
            traces = collect(rnn, graded, run.folder, **how)
    summary, about = summarize(traces), run.folder / ABOUT
    write_json(about, {**read_json(about), "counts": dataclasses.asdict(summary)})
    run.console.print(summary_table(summary))
    return run.folder
