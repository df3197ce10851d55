"""What a round of votes comes to, as tensors."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Prepared(NamedTuple):
    """What a vote starts from; features are None where nothing is read."""

    ballots: Float[Tensor, "batch voter proposal"]  # 0 where masked
    said: Float[Tensor, "batch proposal feature"] | None  # features of the proposals against their authors' habits
    own: Float[Tensor, "batch voter feature"] | None  # those of each voter's own proposal


class Election(NamedTuple):
    """What a round's vote decided; values of answers stand at the proposal that shows them, 0 elsewhere."""

    ballots: Float[Tensor, "batch voter proposal"]  # the votes; 0 where masked
    trust: Float[Tensor, "batch voter"]  # in each voter; 0 where masked
    support: Float[Tensor, "batch proposal"]  # net support of the proposals; 0 where masked
    shown_by: Int[Tensor, "batch proposal"]  # the proposal that shows each one's answer; -1 where masked
    answer_support: Float[Tensor, "batch proposal"]  # of answers
    consensus: Float[Tensor, "batch proposal"]  # probability of answers
    winner: Int[Tensor, "batch"]  # the proposal that shows the winning answer, -1 where none counts
    all_negative: Bool[Tensor, "batch"]  # whether even the winner has negative support
    conviction: Float[Tensor, "batch"]  # the winner's share of the absolute supports of answers, in [-1, 1]
    decisiveness: Float[Tensor, "batch"]  # sum of the absolute supports of answers

    @property
    def answer_mask(self) -> Bool[Tensor, "*batch proposal"]:
        """Which proposals show an answer."""
        return _shows_itself(self.shown_by)


class ConsensusOutput(NamedTuple):
    """What one round decided, as `Election`, and kept; from `unroll` with the axis `round` after `batch`."""

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
    controversy: Float[Tensor, "batch proposal"]  # variance of each proposal's counted ratings
    gate: Float[Tensor, "batch slot"]  # factor on the incoming slots; 0 for an empty one
    source: Int[Tensor, "batch slot"]  # of each new slot: its index among old ones followed by proposals, -1 if empty
    hidden: Float[Tensor, "batch dim"]  # the hidden state after the update

    @property
    def answer_mask(self) -> Bool[Tensor, "*batch proposal"]:
        """Which proposals show an answer."""
        return _shows_itself(self.shown_by)


def _shows_itself(shown_by: Int[Tensor, "*batch proposal"]) -> Bool[Tensor, "*batch proposal"]:
    return shown_by == torch.arange(shown_by.shape[-1], device=shown_by.device)
