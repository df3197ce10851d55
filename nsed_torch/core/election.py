"""What a round of votes starts from and comes to, as tensors."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core.memory import MemoryState, registered

EDGE = 1e-3
"""How far a rating may lie beyond [-1, 1] by rounding, in the coarsest dtype."""


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

    def seats(self) -> "Seats":
        """Who and what is there: everything, where nobody says."""
        batch, voters, proposals = self.ratings.shape
        # A rating that is no number was not given, as one that could not be parsed.
        device, counted = self.ratings.device, self.vote_mask & self.ratings.isfinite()
        if self.proposal_mask is not None:
            counted = counted & self.proposal_mask[:, None, :]
        if self.voter_mask is not None:
            counted = counted & self.voter_mask[:, :, None]

        def there(mask: Tensor | None, count: int) -> Tensor:
            return torch.ones(batch, count, dtype=torch.bool, device=device) if mask is None else mask

        who = torch.arange(voters, device=device).expand(batch, -1) if self.voters is None else self.voters
        return Seats(who, there(self.voter_mask, voters), there(self.proposal_mask, proposals), counted)


class Seats(NamedTuple):
    """Who takes part in a round, and which ratings count."""

    voters: Int[Tensor, "batch voter"]
    voter_mask: Bool[Tensor, "batch voter"]
    proposal_mask: Bool[Tensor, "batch proposal"]
    counted: Bool[Tensor, "batch voter proposal"]


class Prepared(NamedTuple):
    """What of a vote does not depend on trust; features are None where nothing is read."""

    ballots: Float[Tensor, "batch voter proposal"]  # 0 where masked
    said: Float[Tensor, "batch proposal feature"] | None  # features of the proposals against their authors' habits
    own: Float[Tensor, "batch voter feature"] | None  # those of each voter's own proposal


@registered
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


def check_round(
    cell: nn.Module, embeddings: Tensor, inputs: RoundInput, task: Tensor, state: MemoryState | None = None
) -> None:
    """Refuse, in one line, what is no round of this consensus cell: shapes, kinds of masks, ratings beyond [-1, 1]."""
    dim, agents, slots = (int(getattr(cell, name)) for name in ("dim", "agents", "slots"))
    ratings, mask = inputs.ratings, inputs.vote_mask
    if embeddings.ndim != 3 or ratings.ndim != 3:
        got = f"{tuple(embeddings.shape)} and {tuple(ratings.shape)}"
        raise ValueError(
            f"expected embeddings (batch, proposal, dim) and ratings (batch, voter, proposal), got {got}: "
            "add an axis for the batch with [None]"
        )
    batch, proposals, width = embeddings.shape
    if width != dim:
        raise ValueError(f"expected embeddings of width {dim}, got {width}: build the cell for it")
    voters = ratings.shape[1]
    sizes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("ratings", "vote_mask"), (batch, voters, proposals)),
        **dict.fromkeys(("voters", "voter_mask"), (batch, voters)),
        **dict.fromkeys(("authors", "classes", "proposal_mask"), (batch, proposals)),
        "task": (batch, dim),
    }
    for name, shape in sizes.items():
        value = task if name == "task" else getattr(inputs, name)
        if value is not None and value.shape != shape:
            raise ValueError(f"{name}: expected a tensor of shape {shape}, got {tuple(value.shape)}: correct it")
        if value is not None and name.endswith("mask") and value.dtype != torch.bool:
            raise ValueError(f"{name}: expected booleans, True where it counts, got {value.dtype}: pass {name}.bool()")
    if voters > agents:
        raise ValueError(f"expected at most {agents} voters, got {voters}: raise agents")
    if state is not None and state.mask.shape != (batch, slots):
        wrong = tuple(state.mask.shape)
        raise ValueError(f"expected a state of (batch, slots) = {(batch, slots)}, got {wrong}: start from state=None")
    # What a trace or a compiler follows has no values yet.
    if not torch.compiler.is_compiling():
        most = (
            torch.where(mask & ratings.isfinite(), ratings, 0).detach().abs().amax()
            if ratings.numel()
            else ratings.sum()
        )
        if most > 1 + EDGE:
            raise ValueError(f"expected ratings in [-1, 1], got one of size {float(most):g}: scale them")
