"""`nsed report`: turn a run folder into a page."""

from pathlib import Path

from omegaconf import DictConfig

from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.evaluation.pages import write_report


@verb("report")
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Write `report.html` into the run folder."""
    if not cfg.run:
        files = "a transcript.json, a conduct.json or a traces.jsonl"
        raise ValueError(f"expected a run folder, got none: pass run=<folder with {files}>")
    return write_report(Path(cfg.run))
