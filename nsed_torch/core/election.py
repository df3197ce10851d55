"""What a round of votes starts from and comes to, as tensors."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.functional.floats import largest
from nsed_torch.core.functional.ties import Ties


class RoundInput(NamedTuple):
    """What one round's vote reads, see `ConsensusCell.forward`."""

    ratings: Float[Tensor, "batch voter proposal"]
    vote_mask: Bool[Tensor, "batch voter proposal"]
    voters: Int[Tensor, "batch voter"] | None = None
    authors: Int[Tensor, "batch proposal"] | None = None
    classes: Int[Tensor, "batch proposal"] | None = None
    features: Float[Tensor, "batch proposal feature"] | None = None
    category: Int[Tensor, "batch"] | None = None
    proposal_mask: Bool[Tensor, "batch proposal"] | None = None
    voter_mask: Bool[Tensor, "batch voter"] | None = None

    def seats(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Voters, which of them and which proposals are there, and which ratings count: everything, if nobody says."""
        batch, voters, proposals = self.ratings.shape
        device = self.ratings.device
        who = torch.arange(voters, device=device).expand(batch, -1) if self.voters is None else self.voters
        everybody = torch.ones(batch, voters, dtype=torch.bool, device=device)
        voter_mask = everybody if self.voter_mask is None else self.voter_mask
        everything = torch.ones(batch, proposals, dtype=torch.bool, device=device)
        proposal_mask = everything if self.proposal_mask is None else self.proposal_mask
        # A rating that is no number was not given, as one that could not be parsed.
        counted = self.vote_mask & proposal_mask[:, None, :] & voter_mask[:, :, None] & self.ratings.isfinite()
        return who, voter_mask, proposal_mask, counted


class Prepared(NamedTuple):
    """What of a vote does not depend on trust; features are None where nothing is read."""

    ballots: Float[Tensor, "batch voter proposal"]  # 0 where masked
    said: Float[Tensor, "batch proposal feature"] | None  # features of the proposals against their authors' habits
    own: Float[Tensor, "batch voter feature"] | None  # those of each voter's own proposal


class ConsensusOutput(NamedTuple):
    """What a round's vote decided and the memory kept; values of answers stand at the proposal that shows them, else 0.

    Without memory, from `elect`, there are no slots; from `unroll` the axis `round` stands after `batch`.
    """

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
    controversy: Float[Tensor, "batch proposal"]  # variance of each proposal's counted ratings
    gate: Float[Tensor, "batch slot"]  # factor on the incoming slots; 0 for an empty one
    source: Int[Tensor, "batch slot"]  # of each new slot: its index among old ones followed by proposals, -1 if empty

    @property
    def answer_mask(self) -> Bool[Tensor, "*batch proposal"]:
        """Which proposals show an answer."""
        return self.shown_by == torch.arange(self.shown_by.shape[-1], device=self.shown_by.device)

    def chances(
        self, ties: Ties = Ties.FIRST, accuracy: Float[Tensor, "*#batch proposal"] | None = None
    ) -> Float[Tensor, "*batch proposal"]:
        """The chance of each proposal to show the answer that wins, under a rule for ties; `winner` goes by FIRST.

        `accuracy` is that of the proposals' authors, for a rule that asks for it.
        """
        shown = self.shown_by.clamp(min=0)
        tied = largest(self.answer_support.detach().gather(-1, shown), self.shown_by >= 0)
        chance = ties.chances(tied, self.shown_by, accuracy)
        return torch.zeros_like(chance).scatter_add(-1, shown, chance)
