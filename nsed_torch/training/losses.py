"""What training minimises."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nsed_torch.functional import Coefficient


def consensus_loss(
    support: Float[Tensor, "batch round proposal"],
    correct: Bool[Tensor, "batch round proposal"],
    proposal_mask: Bool[Tensor, "batch round proposal"],
    beta: Coefficient,
    *,
    weight: Float[Tensor, "batch round"] | None = None,
) -> Float[Tensor, ""]:
    """Mean of `-log sum_{j correct} p_j` with `p = softmax(beta support)`, over rounds that a vote can decide. Ours.

    A round whose answers are all right or all wrong teaches nothing and does not count.

    Args:
        support: net support of the proposals.
        correct: which are right.
        proposal_mask: which are there.
        beta: inverse temperature of the consensus.
        weight: of each round; 1 if None. Weights of 0 leave rounds out.

    Returns:
        The weighted mean; 0 where no round counts.
    """
    right, wrong = correct & proposal_mask, ~correct & proposal_mask
    counted = (right.any(-1) & wrong.any(-1)).to(support.dtype)
    if weight is not None:
        counted = counted * weight.to(support.dtype)
    logits = torch.where(proposal_mask, beta * support, 0)
    # Where a round does not count, every entry does, so that no row is empty and no gradient is NaN.
    ignored = (counted == 0)[..., None]
    share = _logsumexp(logits, proposal_mask | ignored) - _logsumexp(logits, right | ignored)
    return (counted * share).sum() / counted.sum().clamp(min=torch.finfo(support.dtype).tiny)


def distance_from_start(cell: nn.Module, start: Mapping[str, Tensor]) -> Float[Tensor, ""]:
    """Sum of squared differences of a module's trained parameters from where they started. Ours.

    A fresh cell is the published protocol, so this pulls towards the protocol where weight decay pulls towards zero.
    """
    named = [(name, p) for name, p in cell.named_parameters() if p.requires_grad]
    return torch.stack([(p - start[name].to(p)).square().sum() for name, p in named]).sum()


def _logsumexp(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask, -torch.inf).logsumexp(-1)
