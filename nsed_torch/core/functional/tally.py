"""From ballots to a consensus: trust in voters, supports of proposals and answers, the winner and how clear it was."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.functional.floats import Coefficient, first_largest, masked_softmax, tolerance, unit

POOLINGS = ("mean", "sum", "logsumexp")
"""How the supports of proposals that say the same become the support of their answer."""


class Consensus(NamedTuple):
    """What a team's proposals come to; values of answers stand at the proposal that shows them, 0 elsewhere."""

    probability: Float[Tensor, "batch proposal"]  # of each answer
    support: Float[Tensor, "batch proposal"]  # of each answer, pooled
    shown_by: Int[Tensor, "batch proposal"]  # the proposal that shows each proposal's answer; -1 where masked
    winner: Int[Tensor, "batch"]  # the proposal that shows the winning answer; -1 where none counts


def trust(
    bias: Float[Tensor, "agent"],
    weight: Float[Tensor, "agent feature"],
    context: Float[Tensor, "batch feature"],
    voters: Int[Tensor, "batch voter"],
    voter_mask: Bool[Tensor, "batch voter"],
) -> Float[Tensor, "batch voter"]:
    """Trust in each voter, `tau_i = 1 + a_i + w_i . context`. Ours.

    With a the bias, w the weight and `[x; h]` the context, task embedding and hidden state; voters are indices into
    the pool. Trust has any sign, below 0 for a voter that is better not followed; it is 0 where masked.
    """
    everybody = 1 + bias + context @ weight.T
    return torch.where(voter_mask, everybody.gather(1, torch.where(voter_mask, voters, 0)), 0)


def cosine(a: Float[Tensor, "*#shape dim"], b: Float[Tensor, "*#shape dim"]) -> Float[Tensor, "*#shape"]:
    """Cosine of the angle between a and b; 0 with gradient 0 where either has no direction.

    A norm below the square root of the smallest normal number counts as zero: its square underflows.
    """
    return (unit(a) * unit(b)).sum(-1)


def support(
    ballots: Float[Tensor, "batch voter proposal"],
    mask: Bool[Tensor, "batch voter proposal"],
    tau: Float[Tensor, "batch voter"],
) -> Float[Tensor, "batch proposal"]:
    """Net support `sum_i tau_i q_ij`.

    The sum of ballots (tau = 1) is published in the authors' SDK; tau, the trust in each voter, is ours.
    """
    return torch.where(mask, tau[:, :, None] * ballots, 0).sum(1)


def author_weight(
    tau: Float[Tensor, "batch voter"], voters: Int[Tensor, "batch voter"], authors: Int[Tensor, "batch proposal"]
) -> Float[Tensor, "batch proposal"]:
    """Each proposal's author's own weight as a voter, `tau_i` of the i that wrote it; 0 where that one does not vote.

    What an author would add to its own proposal, were it allowed to rate it. Ours. Voters and authors are indices of
    agents.
    """
    return (tau[:, :, None] * (voters[:, :, None] == authors[:, None, :])).sum(1)


def same_answer(
    proposal_mask: Bool[Tensor, "batch proposal"], classes: Int[Tensor, "batch proposal"] | None = None
) -> Bool[Tensor, "batch proposal proposal"]:
    """Which proposals say the same: both count and have equal classes. Every proposal that counts says what it says.

    Classes are equal numbers for equal answers, -1 for a proposal that is its own; None makes every one its own.
    """
    same = torch.eye(proposal_mask.shape[1], dtype=torch.bool, device=proposal_mask.device).expand(
        proposal_mask.shape[0], -1, -1
    )
    if classes is not None:
        same = same | ((classes[:, :, None] == classes[:, None, :]) & (classes >= 0)[:, :, None])
    return same & proposal_mask[:, :, None] & proposal_mask[:, None, :]


def answer_support(
    support: Float[Tensor, "batch proposal"],
    same: Bool[Tensor, "batch proposal proposal"],
    beta: Coefficient = 1.0,
    pooling: str = "mean",
) -> Float[Tensor, "batch proposal"]:
    """Support of the answer that each proposal gives, pooled over all proposals that give it. Ours.

    Of an answer a: `mean_{j in a} s_j`, `sum_{j in a} s_j`, or `log(sum_{j in a} exp(beta s_j)) / beta`, with which
    `softmax(beta support)` adds up the probabilities of equal proposals. An answer given once has the support of its
    proposal. Which one is best was decided by data (`lab/pages`): with the sum, an answer that few gave has less
    support than one that nobody else gave, for each of its proposals brings its rejections along.

    `same` is from `same_answer`; beta, the consensus's inverse temperature, is read by "logsumexp" alone. Values are
    equal for proposals that say the same, and 0 where masked.

    Raises:
        ValueError: for an unknown pooling.
    """
    there = same.any(-1)
    if pooling == "logsumexp":
        terms = (beta * support)[:, None, :].expand(same.shape)
        # A masked row counts all entries, so that no row is empty and no gradient is NaN.
        pooled = terms.masked_fill(~same & there[:, :, None], -torch.inf).logsumexp(-1) / beta
    elif pooling in {"mean", "sum"}:
        pooled = torch.where(same, support[:, None, :], 0).sum(-1)
        if pooling == "mean":
            pooled = pooled / same.sum(-1).clamp(min=1)
    else:
        raise ValueError(f"expected pooling to be mean, sum or logsumexp, got {pooling!r}")
    return torch.where(there, pooled, 0)


def consensus(
    support: Float[Tensor, "batch proposal"],
    proposal_mask: Bool[Tensor, "batch proposal"],
    beta: Coefficient,
    classes: Int[Tensor, "batch proposal"] | None = None,
    pooling: str = "mean",
) -> Consensus:
    """Distribution `softmax(beta support)` over answers, and the winner.

    Ranking proposals by support is published in the authors' SDK; that is what comes out where every proposal is its
    own answer. Pooling proposals that say the same, the softmax and the tie rule are ours.

    Args:
        support: net support of each proposal.
        proposal_mask: which proposals count.
        beta: inverse temperature, above 0.
        classes: equal numbers for equal answers, as in `same_answer`.
        pooling: as in `answer_support`.

    Returns:
        Probabilities and supports of answers, each at the proposal of largest support among those that give it.
        Supports within 1e-9 (float32: 1e-5) times max(1, |largest|) of the largest tie: of proposals of an answer the
        first shows it, and of answers the one wins that was given first.
    """
    same = same_answer(proposal_mask, classes)
    pooled = answer_support(support, same, beta, pooling)
    shown_by = first_largest(support.detach()[:, None, :].expand(same.shape), same)
    head = shown_by == torch.arange(support.shape[1], device=support.device)
    first = first_largest(pooled.detach(), proposal_mask)
    winner = torch.where(first >= 0, shown_by.gather(1, first.clamp(min=0)[:, None])[:, 0], -1)
    return Consensus(masked_softmax(beta * pooled, head), torch.where(head, pooled, 0), shown_by, winner)


def conviction(support: Float[Tensor, "batch proposal"], winner: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
    """`support of the winner / sum of absolute supports`, in [-1, 1]. Published in the authors' SDK, for proposals.

    Over answers, give it their supports as `consensus` returns them.
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
