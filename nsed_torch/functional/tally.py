"""From ballots to a consensus: weights of voters, supports, the winner and how clear it was."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.functional._floats import Coefficient, first_largest, masked_softmax, tolerance, unit


def reliability(
    bias: Float[Tensor, "batch voter"],
    weight: Float[Tensor, "batch voter feature"],
    context: Float[Tensor, "batch feature"],
    voter_mask: Bool[Tensor, "batch voter"],
) -> Float[Tensor, "batch voter"]:
    """Weight of each voter, `tau_i = N softmax_i(a_i + w_i . context)`, N the voters that count. Ours.

    Args:
        bias: a.
        weight: w.
        context: `[x; h]`, task embedding and hidden state.
        voter_mask: which voters count.

    Returns:
        Non-negative weights with mean 1 over the voters that count; 0 for the others.
    """
    logits = bias + (weight * context[:, None, :]).sum(-1)
    return voter_mask.sum(-1, keepdim=True) * masked_softmax(logits, voter_mask)


def cosine(a: Float[Tensor, "*#shape dim"], b: Float[Tensor, "*#shape dim"]) -> Float[Tensor, "*#shape"]:
    """Cosine of the angle between a and b; 0 with gradient 0 where either has no direction.

    A norm below the square root of the smallest normal number counts as zero: its square underflows.
    """
    return (unit(a) * unit(b)).sum(-1)


def support(
    ballots: Float[Tensor, "batch voter proposal"],
    mask: Bool[Tensor, "batch voter proposal"],
    tau: Float[Tensor, "batch voter"],
    *,
    kappa: Coefficient,
    embeddings: Float[Tensor, "batch proposal dim"],
    hidden: Float[Tensor, "batch dim"],
) -> Float[Tensor, "batch proposal"]:
    """Net support `sum_i tau_i q_ij + kappa cos(e_j, h)`.

    The sum of ballots (tau = 1, kappa = 0) is published in the authors' SDK; tau, the weight of each voter, and
    kappa, how strongly the hidden state speaks into the vote, are ours.
    """
    votes = torch.where(mask, tau[:, :, None] * ballots, 0).sum(1)
    return votes + kappa * cosine(embeddings, hidden[:, None, :])


def author_weight(
    tau: Float[Tensor, "batch voter"], voters: Int[Tensor, "batch voter"], authors: Int[Tensor, "batch proposal"]
) -> Float[Tensor, "batch proposal"]:
    """Each proposal's author's own weight as a voter, `tau_i` of the i that wrote it; 0 where that one does not vote.

    What an author would add to its own proposal, were it allowed to rate it. Ours. Voters and authors are indices of
    agents.
    """
    return (tau[:, :, None] * (voters[:, :, None] == authors[:, None, :])).sum(1)


def consensus(
    support: Float[Tensor, "batch proposal"], proposal_mask: Bool[Tensor, "batch proposal"], beta: Coefficient
) -> tuple[Float[Tensor, "batch proposal"], Int[Tensor, "batch"]]:
    """Distribution `softmax(beta support)` over the proposals that count, and the winner.

    Ranking by support is published in the authors' SDK; the softmax and the tie rule are ours.

    Args:
        support: net support of each proposal.
        proposal_mask: which proposals count.
        beta: inverse temperature, above 0.

    Returns:
        Probabilities, 0 where masked; and the index of the largest support, -1 where nothing counts. Supports
        within 1e-9 (float32: 1e-5) times max(1, |largest|) of the largest tie, and the lowest index wins.
    """
    return masked_softmax(beta * support, proposal_mask), first_largest(support, proposal_mask)


def conviction(support: Float[Tensor, "batch proposal"], winner: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
    """`support of the winner / sum of absolute supports`, in [-1, 1]. Published in the authors' SDK.

    Zero without a winner, or where all supports together are within float noise of zero.
    """
    total = decisiveness(support)
    counts = (winner >= 0) & (total > tolerance(support))
    return torch.where(counts, _of_winner(support, winner) / torch.where(counts, total, 1), 0)


def decisiveness(support: Float[Tensor, "batch proposal"]) -> Float[Tensor, "batch"]:
    """Sum of absolute supports. Published in the authors' SDK."""
    return support.abs().sum(-1)


def all_negative(support: Float[Tensor, "batch proposal"], winner: Int[Tensor, "batch"]) -> Bool[Tensor, "batch"]:
    """Whether even the winner's support is below zero by more than float noise. Ours."""
    return (winner >= 0) & (_of_winner(support, winner) < -tolerance(support))


def controversy(
    ratings: Float[Tensor, "batch voter proposal"], mask: Bool[Tensor, "batch voter proposal"]
) -> Float[Tensor, "batch proposal"]:
    """Variance of each proposal's counted ratings, 0 without any.

    Published in the authors' SDK; dividing by their number rather than by one less is our reading.
    """
    ratings = torch.where(mask, ratings, 0)
    count = mask.sum(1).clamp(min=1)
    mean = ratings.sum(1) / count
    return torch.where(mask, (ratings - mean[:, None, :]).square(), 0).sum(1) / count


def _of_winner(support: Tensor, winner: Tensor) -> Tensor:
    return support.gather(1, winner.clamp(min=0)[:, None])[:, 0]
