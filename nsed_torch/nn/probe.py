"""How far back through the rounds a loss reaches."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn


class GradientReport(NamedTuple):
    """How much of a loss's gradient arrives where.

    Args:
        rounds: for each named input, the L2 norm of its gradient in each round.
        parameters: for each part of the cell, the L2 norm of the gradient of its parameters.
    """

    rounds: dict[str, list[float]]
    parameters: dict[str, float]


def gradient_probe(cell: nn.Module, loss: Float[Tensor, ""], **inputs: Tensor) -> GradientReport:
    """Gradient norms of a loss, per round and per parameter group; for the training log. Ours.

    Nothing is written to `.grad`, and the graph stays, so `loss.backward()` may follow.

    Args:
        cell: its parameters are grouped by the part they belong to: "gate", "trust", "kappa", ...
        loss: a scalar computed with the cell.
        inputs: tensors (batch, round, ...) that went into the loss and require gradients, by name.

    Returns:
        The norms; 0 where no gradient arrives.

    Raises:
        ValueError: if an input does not require gradients or has no axis `round`.
    """
    for name, value in inputs.items():
        if not value.requires_grad or value.ndim < 2:
            got = f"shape {tuple(value.shape)}, requires_grad={value.requires_grad}"
            raise ValueError(f"probe input {name!r}: expected (batch, round, ...) that requires gradients, got {got}")
    named = [(name, p) for name, p in cell.named_parameters() if p.requires_grad]
    wanted = [*inputs.values(), *(p for _, p in named)]
    gradients = iter(torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True))
    rounds = {name: next(gradients).transpose(0, 1).flatten(1).norm(dim=1).tolist() for name in inputs}
    squares: dict[str, float] = {}
    for (name, _), gradient in zip(named, gradients, strict=True):
        group = name.split(".")[0]
        squares[group] = squares.get(group, 0.0) + gradient.square().sum().item()
    return GradientReport(rounds, {group: math.sqrt(square) for group, square in squares.items()})
