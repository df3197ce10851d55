"""How far back through the rounds a loss reaches."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn


class GradientReport(NamedTuple):
    """L2 norms of a loss's gradient: of each named input in each round, and of the parameters of each part."""

    rounds: dict[str, list[float]]
    parameters: dict[str, float]


def gradient_probe(cell: nn.Module, loss: Float[Tensor, ""], **inputs: Tensor) -> GradientReport:
    """Gradient norms of a loss, per round and per part of the cell ("gate", "trust", "kappa", ...); for training logs.

    Inputs are tensors (batch, round, ...) that went into the loss and require gradients. Where no gradient arrives the
    norm is 0. Nothing is written to `.grad`, and the graph stays, so `loss.backward()` may follow. Ours.
    """
    named = [(name, p) for name, p in cell.named_parameters() if p.requires_grad]
    wanted = [*inputs.values(), *(p for _, p in named)]
    gradients = iter(torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True))
    rounds = {name: next(gradients).transpose(0, 1).flatten(1).norm(dim=1).tolist() for name in inputs}
    squares: dict[str, float] = {}
    for (name, _), gradient in zip(named, gradients, strict=True):
        part = name.split(".")[0]
        squares[part] = squares.get(part, 0.0) + gradient.square().sum().item()
    return GradientReport(rounds, {part: math.sqrt(square) for part, square in squares.items()})
