"""Cells worth saving."""

import hashlib
import json

import torch
from safetensors.torch import load_file, save_file

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.named import part_named
from nsed_torch.core.trust import Calibration
from nsed_torch.parts.votes import LinearVote

DIM, POOL = 4, 5
NAMES = tuple("abcde")


def cell_of(vote="quadratic", gate="learned", calibration=False, dtype=torch.float64, seed=0):
    """A cell whose every parameter has left its start."""
    g = torch.Generator().manual_seed(seed)
    cell = ConsensusCell(
        DIM,
        POOL,
        slots=3,
        vote=vote,
        gate=gate if gate == "none" else part_named("gate", gate, leak=0.7),
        calibration=Calibration(POOL) if calibration else None,
    ).to(dtype)
    with torch.no_grad():
        for p in cell.parameters():
            p.add_((torch.randn(p.shape, generator=g) * 0.3).to(dtype))
    return cell


class OwnVote(LinearVote):
    """Another's."""


def with_part(name, part):
    """A cell with another part."""
    cell = cell_of()
    setattr(cell, name, part)
    return cell


def edited(folder, **changes):
    """Rewrite settings of a saved cell."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


def reweighed(folder, **changes):
    """Rewrite tensors, with a hash that fits."""
    path = folder / "model.safetensors"
    tensors = load_file(path) | changes
    save_file({key: value for key, value in tensors.items() if value is not None}, path)
    edited(folder, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
