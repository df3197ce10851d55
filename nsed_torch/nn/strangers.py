"""Room in a trained cell for voters that it has never heard of."""

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from nsed_torch.nn.cell import ConsensusCell
from nsed_torch.nn.reading import Reading
from nsed_torch.nn.trust import Calibration, Trust


def with_strangers(cell: ConsensusCell, count: int) -> ConsensusCell:
    """The same cell for a larger pool: its own agents keep their indices, strangers stand behind them.

    What belongs to a stranger is what a fresh cell gives every agent, so a ballot weighs as an untrained one does:
    bias and weight of trust 0, ratings as given. Where trust is computed from features, a stranger has the mean
    features of those known. Ours.

    Returns:
        A copy; while no stranger votes, it decides what the cell decides.
    """
    if type(cell.trust) is not Trust or type(cell.calibration) not in (Calibration, type(None)):
        got = f"{type(cell.trust).__qualname__} and {type(cell.calibration).__qualname__}"
        raise ValueError(f"strangers: expected Trust and Calibration of nsed_torch.nn, got {got}: use those")
    larger = copy.deepcopy(cell)
    if count == 0:
        return larger
    larger.agents, larger.agent_names = cell.agents + count, None
    trust: Any = larger.trust
    if trust.features is None:
        _lengthen(trust, Trust(count, cell.dim))
    else:
        trust.features = torch.cat([trust.features, trust.features.mean(0, keepdim=True).expand(count, -1)])
    if larger.calibration is not None:
        _lengthen(larger.calibration, Calibration(count))
    if larger.reading is not None:
        _lengthen(
            larger.reading, Reading(count, larger.reading.features, larger.reading.categories), {"score", "common"}
        )
        for name in ("mean", "deviation"):
            # Whoever is a stranger has the habits of those known, on average.
            known: torch.Tensor = getattr(larger.reading, name)
            setattr(larger.reading, name, torch.cat([known, known.mean(0, keepdim=True).expand(count, -1)]))
    return larger


def _lengthen(part: nn.Module, fresh: nn.Module, without: Collection[str] = ()) -> None:
    """Append the fresh part's rows, one per agent, to all parameters but those named."""
    for name, rows in fresh.named_parameters():
        if name in without:
            continue
        known: torch.Tensor = getattr(part, name)
        setattr(part, name, nn.Parameter(torch.cat([known.detach(), rows.detach().to(known)])))
