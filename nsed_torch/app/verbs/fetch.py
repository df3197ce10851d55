"""`nsed fetch`: have an ensemble's weights on this machine before they are needed."""

import time

from omegaconf import DictConfig

from nsed_torch.app.build import fetch_weights
from nsed_torch.app.verb import VerbRun, verb


@verb("fetch")
def main(cfg: DictConfig, run: VerbRun) -> str:
    """Resolve the weights of every backbone and of the encoder, and say where each lies."""
    start = time.perf_counter()
    found = fetch_weights(cfg, offline=cfg.offline, report=run.report, here=False)
    for name, weights in found.items():
        run.report(f"{name}: {weights.folder} (from {weights.source}, {weights.revision})")
    return f"{len(found)} models are here, {time.perf_counter() - start:.0f} s"
