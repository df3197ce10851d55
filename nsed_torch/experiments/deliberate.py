"""`nsed deliberate`: ask a team one question and see how it gets to the answer."""

from functools import partial
from pathlib import Path

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from nsed_torch.config import verb
from nsed_torch.experiments.build import build_rnn, call_log
from nsed_torch.experiments.view import undecided, view, visible
from nsed_torch.records import Task


@verb("deliberate")
def main(cfg: DictConfig) -> None:
    """Compose, build, deliberate, write `transcript.json`, print the answer."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    task = Task(cfg.question)
    console = Console(highlight=False)
    with call_log(cfg, folder) as log:
        report = partial(console.print, style="dim", markup=False, emoji=False, soft_wrap=True)
        rnn = build_rnn(cfg, log, report)
        with view(console) as watch, torch.no_grad():
            deliberation = rnn([task], observer=watch)
    transcript = deliberation.transcripts[0]
    transcript.save(folder / "transcript.json")
    report(f"transcript: {folder / 'transcript.json'}")
    if escalated := undecided(transcript):
        report(escalated)
    # Not through the console, which would expand tabs and turn :key: into a picture.
    print(f"\n{visible(transcript.answer or '(no agent gave an answer)')}")  # noqa: T201 - the result
