"""What every formula needs of floats: roots, directions and ties that neither divide by zero nor lose gradients."""

import torch
from jaxtyping import Float
from torch import Tensor

Coefficient = float | Float[Tensor, "..."]
"""A number, or a tensor that broadcasts against the other arguments."""


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the entries that count; zeros elsewhere, also where none counts."""
    lowest = torch.finfo(logits.dtype).min  # finite, so that a row without entries has finite gradients
    return torch.where(mask, torch.where(mask, logits, lowest).softmax(-1), 0)


def root(x: Tensor) -> Tensor:
    """Square root with slope 0 where x is too small for a finite one."""
    sloped = x > torch.finfo(x.dtype).tiny
    return torch.where(sloped, torch.where(sloped, x, 1).sqrt(), x.detach().sqrt())


def finite(x: Tensor) -> Tensor:
    """The same with 0 for what is no number, or infinite."""
    # A sum is ten times as fast, and finite only where everything is; what a compiler follows has no values yet.
    if not torch.compiler.is_compiling() and bool(x.detach().sum().isfinite()):
        return x
    return x.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def length(x: Tensor) -> Tensor:
    """Of the last axis, which stays; infinite where its square underflows, so that what it divides is 0."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.where(norm > torch.finfo(x.dtype).tiny ** 0.5, norm, torch.inf)


def unit(x: Tensor) -> Tensor:
    """Direction of the last axis; 0 with gradient 0 where its length squared underflows."""
    return x / length(x)


def tolerance(x: Tensor) -> float:
    """Below which differences of supports or retentions are float noise."""
    return 1e-9 if x.dtype == torch.float64 else 1e-5


def largest(x: Tensor, mask: Tensor) -> Tensor:
    """Which entries that count are the largest: those within `tolerance` times max(1, |largest|) of it tie."""
    most = torch.where(mask, x, -torch.inf).amax(-1, keepdim=True)
    return mask & (x >= most - tolerance(x) * most.abs().clamp(min=1))


def first_largest(x: Tensor, mask: Tensor) -> Tensor:
    """Index of the first that is `largest`, -1 where none counts."""
    tied = largest(x, mask)
    # argmax returns the first of equal maxima.
    return torch.where(tied.any(-1), tied.to(torch.uint8).argmax(-1), -1)


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """Exactly `hard`, with the gradient of `soft`."""
    return hard + (soft - soft.detach())
