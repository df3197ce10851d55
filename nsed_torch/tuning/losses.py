"""What training minimises."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nsed_torch.core.functional.floats import Coefficient


def consensus_loss(
    support: Float[Tensor, "batch *round proposal"],
    correct: Bool[Tensor, "batch *round proposal"],
    answer_mask: Bool[Tensor, "batch *round proposal"],
    beta: Coefficient,
    *,
    weight: Float[Tensor, "batch *round"] | None = None,
) -> Float[Tensor, ""]:
    """Mean of `-log sum_{a right} p_a` with `p = softmax(beta support)` over answers, where a vote can decide. Ours.

    The same p decides: the answer of largest p wins. An answer counts once, however many proposals give it: its support
    stands at the one that shows it. A round whose answers are all right or all wrong teaches nothing and does not
    count, nor does one of weight 0; where none counts the loss is 0.
    """
    right, wrong = correct & answer_mask, ~correct & answer_mask
    counted = (right.any(-1) & wrong.any(-1)).to(support.dtype)
    if weight is not None:
        counted = counted * weight.to(support.dtype)
    logits = torch.where(answer_mask, beta * support, 0)
    # Where a round does not count, every entry does, so that no row is empty and no gradient is NaN.
    ignored = (counted == 0)[..., None]
    share = _logsumexp(logits, answer_mask | ignored) - _logsumexp(logits, right | ignored)
    return (counted * share).sum() / counted.sum().clamp(min=torch.finfo(support.dtype).tiny)


def memory_loss(
    retention: Float[Tensor, "batch slot"], matters: Bool[Tensor, "batch slot"], slot_mask: Bool[Tensor, "batch slot"]
) -> Float[Tensor, ""]:
    """Mean of `-log` of the share of all retention that lies on slots that matter: what a gate is to keep. Ours.

    A share, for what stays is decided by comparison: that everything fades alike costs nothing. A memory whose slots
    all matter, or none, teaches nothing and does not count, nor does one whose retention is 0 throughout; where none
    counts the loss is 0. What was displaced on the way has no part in it. `functional.held` tells what a slot holds.
    """
    tiny = torch.finfo(retention.dtype).tiny
    weight = torch.where(slot_mask, retention, 0)
    useful, all_of_it = (torch.where(mask, weight, 0).sum(-1) for mask in (matters & slot_mask, slot_mask))
    counted = (matters & slot_mask).any(-1) & (~matters & slot_mask).any(-1) & (useful > tiny)
    # Where a memory does not count, its share is 1, so that no logarithm is of 0 and no gradient is NaN.
    share = torch.where(counted, useful, 1).log() - torch.where(counted, all_of_it, 1).log()
    return -share.sum() / counted.sum().clamp(min=1)


def worth_loss(
    retention: Float[Tensor, "batch slot"],
    worth: Float[Tensor, "batch slot"],
    slot_mask: Bool[Tensor, "batch slot"],
    count: int,
) -> Float[Tensor, ""]:
    """Mean of `-sum_k worth_k pi_k`: what a memory of some slots is expected to add to the answer, if worth adds. Ours.

    A slot stays with the chance `pi_k = 1 - (1 - s_k)^count` that so many draws by its share s of all retention find
    it. As of `memory_loss`, that everything fades alike costs nothing; a memory whose retention is 0 does not count.
    """
    weight = torch.where(slot_mask, retention, 0)
    whole = weight.sum(-1, keepdim=True)
    tiny = torch.finfo(weight.dtype).tiny
    share = torch.where(whole > tiny, weight / torch.where(whole > tiny, whole, 1), 0)
    stays = -torch.expm1(count * torch.log1p(-share.clamp(max=1 - torch.finfo(weight.dtype).eps)))
    return -(torch.where(slot_mask, worth, 0) * stays).sum(-1).mean()


SHARP = 10.0
"""A beta that no vote needs: a whole ballot more makes an answer e^10 times as likely."""

READERS = ("trust.weight", "reading.")
"""Beginnings of the names of parameters that read a question, a state or a text: many for the tasks there are."""


def reads(name: str) -> bool:
    """Whether the parameter of this name reads what changes from task to task."""
    return name.startswith(READERS)


def distance_from_start(cell: nn.Module, start: Mapping[str, Tensor], firmness: float = 1.0) -> Float[Tensor, ""]:
    """Sum of squared differences of a module's trained parameters from where they started. Ours.

    A fresh cell is the published protocol, so this pulls towards the protocol where weight decay pulls towards zero.
    Parameters that read count firmness times, and more where beta is above SHARP: it multiplies what they move, so that
    a consensus without bound would set them free.
    """
    named = [(name, p) for name, p in cell.named_parameters() if p.requires_grad]
    held: Tensor | float = firmness * (getattr(cell, "beta", torch.ones(())) / SHARP).clamp(min=1).square()
    squares = [(held if reads(name) else 1.0) * (p - start[name].to(p)).square().sum() for name, p in named]
    return torch.stack(squares).sum()


def _logsumexp(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask, -torch.inf).logsumexp(-1)


def linear(loss: Float[Tensor, ""], parameters: Sequence[Tensor]) -> Float[Tensor, ""]:
    """The same loss with the same gradient by some tensors, and nothing kept of how it came about."""
    if not loss.requires_grad:
        return loss
    slopes = torch.autograd.grad(loss, parameters, materialize_grads=True)
    reached = [(slope * (p - p.detach())).sum() for slope, p in zip(slopes, parameters, strict=True)]
    return torch.stack([loss.detach(), *reached]).sum()
