"""Room in a trained cell for voters that it has never heard of."""

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

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
    larger = copy.deepcopy(cell)
    if count == 0:
        return larger
    larger.agents, larger.agent_names = cell.agents + count, None
    trust: Any = larger.trust
    if trust.features is None:
        _lengthen(trust, Trust(count, cell.dim))
    else:
        trust.features = _with_means(trust.features, count)
    if larger.calibration is not None:
        _lengthen(larger.calibration, Calibration(count))
    if larger.reading is not None:
        reading = larger.reading
        _lengthen(reading, Reading(count, reading.features, reading.categories), {"score", "common"})
        # Whoever is a stranger has the habits of those known, on average.
        reading.mean, reading.deviation = (_with_means(x, count) for x in (reading.mean, reading.deviation))
    return larger


def _with_means(known: Tensor, count: int) -> Tensor:
    """Rows for strangers, each the mean of those known."""
    return torch.cat([known, known.mean(0, keepdim=True).expand(count, -1)])


def _lengthen(part: nn.Module, fresh: nn.Module, without: Collection[str] = ()) -> None:
    """Append the fresh part's rows, one per agent, to all parameters but those named."""
    for name, rows in fresh.named_parameters():
        if name not in without:
            known: Tensor = getattr(part, name)
            setattr(part, name, nn.Parameter(torch.cat([known.detach(), rows.detach().to(known)])))
