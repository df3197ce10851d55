"""This process among those that `accelerate launch` or `torchrun` started."""

import os
from datetime import timedelta

import torch
from omegaconf import DictConfig

from nsed_torch.evaluation.run_methods import Shard


def this_shard(ensemble: DictConfig) -> Shard:
    """This process's share of the work; of several, each takes an accelerator, where there is one.

    Every engine of the ensemble that leaves the choice of a device open gets the process's own.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Shard()
    from accelerate import PartialState  # noqa: PLC0415 - joins the other processes

    # Shards may differ by hours; the default patience is minutes.
    # Accelerate takes several processes without an accelerator for one each, unless it is told.
    state = PartialState(cpu=not torch.accelerator.is_available(), timeout=timedelta(days=30))
    if torch.cuda.is_available() and state.num_processes > 1:
        for engine in ensemble.engines.values():
            if "device" in engine and engine.device is None:
                engine.device = f"cuda:{torch.cuda.current_device()}"
    return Shard(state.process_index, state.num_processes, state.wait_for_everyone)
