"""`nsed fetch`: have an ensemble's weights, or recorded answers, on this machine before they are needed."""

import time

from omegaconf import DictConfig

from nsed_torch.app.build import fetch_weights
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.traces.public_recordings import known_source, make_recorded


@verb("fetch")
def main(cfg: DictConfig, run: VerbRun) -> str:
    """Resolve the weights of every backbone and of the encoder, and say where each lies; or make recorded answers."""
    start = time.perf_counter()
    if cfg.recorded or cfg.clone:
        return _recorded(cfg, run)
    found = fetch_weights(cfg, offline=cfg.offline, report=run.report, here=False)
    for name, weights in found.items():
        run.report(f"{name}: {weights.folder} (from {weights.source}, {weights.revision})")
    return f"{len(found)} models are here, {time.perf_counter() - start:.0f} s"


def _recorded(cfg: DictConfig, run: VerbRun) -> str:
    """A folder that `nsed tune data_dir=` reads, from a clone."""
    source = known_source(cfg.recorded)
    if not cfg.clone:
        wanted = f"git clone https://github.com/{source.repository} and pass clone=DIR"
        raise ValueError(f"clone: expected a folder for recorded={cfg.recorded}, got none: {wanted}")
    if cfg.output_dir == ".":
        raise ValueError("output_dir: expected a folder for recorded answers, got none: pass output_dir=OUT")
    made = make_recorded(cfg.recorded, cfg.clone, run.folder, cfg.agents, run.report)
    run.report(f"{made['source']}, commit {made['commit']}, {made['license']}: {len(made['read'])} files read")
    left = f", {made['left_out']} left out that not all were asked in the same words" if made["left_out"] else ""
    return f"{made['questions']} questions{left}: nsed tune data_dir={cfg.output_dir}"
