"""`nsed fetch`: have an ensemble's weights on this machine before they are needed."""

import time

from omegaconf import DictConfig
from rich.console import Console

from nsed_torch.config import verb
from nsed_torch.experiments.build import fetch_weights


@verb("fetch")
def main(cfg: DictConfig) -> None:
    """Resolve the weights of every backbone and of the encoder, and say where each lies."""
    console = Console(highlight=False, soft_wrap=True)
    start = time.perf_counter()
    found = fetch_weights(cfg, offline=cfg.offline, report=lambda text: console.print(text, markup=False))
    for name, weights in found.items():
        console.print(f"{name}: {weights.folder} (from {weights.source}, {weights.revision})", markup=False)
    console.print(f"{len(found)} models are here, {time.perf_counter() - start:.0f} s")
