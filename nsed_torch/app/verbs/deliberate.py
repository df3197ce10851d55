"""`nsed deliberate`: ask a team one question and see how it gets to the answer."""

import torch
from omegaconf import DictConfig

from nsed_torch.app.build import build_rnn, call_log
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.app.view import undecided, view, visible
from nsed_torch.records.transcript import Task


@verb("deliberate", ("transcript.json", "report.html"))
def main(cfg: DictConfig, run: VerbRun) -> str:
    """Compose, build, deliberate, write `transcript.json`, print the answer."""
    task = Task(cfg.question)
    with call_log(cfg, run.folder) as log:
        rnn = build_rnn(cfg, log, run.report)
        with view(run.console, steps=rnn.cell.protocol.unit == "step") as watch, torch.no_grad():
            deliberation = rnn([task], observer=watch)
    transcript = deliberation.transcripts[0]
    transcript.save(run.folder / "transcript.json")
    run.report(f"transcript: {run.folder / 'transcript.json'}")
    if escalated := undecided(transcript):
        run.report(escalated)
    return f"\n{visible(transcript.answer or '(no agent gave an answer)')}"
