"""What a round of votes comes to, as tensors."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Prepared(NamedTuple):
    """What a vote starts from.

    Args:
        ballots: the votes; 0 where masked.
        said: features of the proposals against their authors' habits; None where nothing is read.
        own: those of each voter's own proposal.
    """

    ballots: Float[Tensor, "batch voter proposal"]
    said: Float[Tensor, "batch proposal feature"] | None
    own: Float[Tensor, "batch voter feature"] | None


class Election(NamedTuple):
    """What a round's vote decided.

    Args:
        ballots: the votes; 0 where masked.
        trust: in each voter; 0 where masked.
        support: net support of the proposals; 0 where masked.
        shown_by: for each proposal the one that shows its answer; -1 where masked. Its own index without classes.
        answer_support: of each answer, at the proposal that shows it; 0 elsewhere.
        consensus: probability of each answer, at the proposal that shows it; 0 elsewhere.
        winner: index of the proposal that shows the winning answer, -1 where none counts.
        all_negative: whether even the winner has negative support.
        conviction: the winner's share of the absolute supports of all answers, in [-1, 1].
        decisiveness: sum of the absolute supports of answers.
    """

    ballots: Float[Tensor, "batch voter proposal"]
    trust: Float[Tensor, "batch voter"]
    support: Float[Tensor, "batch proposal"]
    shown_by: Int[Tensor, "batch proposal"]
    answer_support: Float[Tensor, "batch proposal"]
    consensus: Float[Tensor, "batch proposal"]
    winner: Int[Tensor, "batch"]
    all_negative: Bool[Tensor, "batch"]
    conviction: Float[Tensor, "batch"]
    decisiveness: Float[Tensor, "batch"]

    @property
    def answer_mask(self) -> Bool[Tensor, "*batch proposal"]:
        """Which proposals show an answer."""
        return shows_itself(self.shown_by)


class ConsensusOutput(NamedTuple):
    """What one round decided and kept; from `ConsensusCell.unroll`, every field has the axis `round` after `batch`.

    The fields of `Election`, then those of the memory.

    Args:
        controversy: variance of each proposal's counted ratings.
        gate: factor on the incoming slots; 0 for an empty one.
        source: for each slot of the new state its index among old slots followed by proposals, -1 if empty.
        hidden: the hidden state after the update.
    """

    ballots: Float[Tensor, "batch voter proposal"]
    trust: Float[Tensor, "batch voter"]
    support: Float[Tensor, "batch proposal"]
    shown_by: Int[Tensor, "batch proposal"]
    answer_support: Float[Tensor, "batch proposal"]
    consensus: Float[Tensor, "batch proposal"]
    winner: Int[Tensor, "batch"]
    all_negative: Bool[Tensor, "batch"]
    conviction: Float[Tensor, "batch"]
    decisiveness: Float[Tensor, "batch"]
    controversy: Float[Tensor, "batch proposal"]
    gate: Float[Tensor, "batch slot"]
    source: Int[Tensor, "batch slot"]
    hidden: Float[Tensor, "batch dim"]

    @property
    def answer_mask(self) -> Bool[Tensor, "*batch proposal"]:
        """Which proposals show an answer."""
        return shows_itself(self.shown_by)


def shows_itself(shown_by: Int[Tensor, "*batch proposal"]) -> Bool[Tensor, "*batch proposal"]:
    """Which proposals show their answer themselves."""
    return shown_by == torch.arange(shown_by.shape[-1], device=shown_by.device)
