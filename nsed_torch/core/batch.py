"""A batch of open rounds as tensors, padded to the widest team."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.encoder import Encoder
from nsed_torch.core.memory import MemoryState
from nsed_torch.core.open_round import OpenRound
from nsed_torch.records.transcript import AnswerSet


class BallotBox(NamedTuple):
    """What a batch of rounds is voted on by."""

    embeddings: Float[Tensor, "batch proposal dim"]
    ratings: Float[Tensor, "batch voter proposal"]  # NaN where there is none
    authors: Int[Tensor, "batch proposal"]  # indices into the team, -1 for nobody
    voters: Int[Tensor, "batch voter"]  # likewise
    classes: Int[Tensor, "batch proposal"]
    answered: Bool[Tensor, "batch proposal"]  # which proposals say anything

    @classmethod
    def of(cls, turns: Sequence[OpenRound], encoder: Encoder, like: Tensor) -> "BallotBox":
        """From what was proposed and rated; in the type of `like` and on its device."""
        authors, voters = (padded([getattr(turn.team, role) for turn in turns]) for role in ("proposers", "voters"))
        ratings = torch.full((len(turns), voters.shape[1], authors.shape[1]), torch.nan, dtype=like.dtype)
        embeddings = torch.zeros(len(turns), authors.shape[1], encoder.dim, dtype=like.dtype)
        for i, turn in enumerate(turns):
            rows = [[math.nan if r is None else r for r in row] for row in turn.hearing.ratings]
            width = len(turn.proposals)
            # Reshaped, for no rows are no columns either.
            ratings[i, : len(rows), :width] = torch.tensor(rows, dtype=like.dtype).reshape(-1, width)
            embeddings[i, :width] = encoder.embed(turn.texts).to(like.dtype)
        answered = padded([[bool(text) for text in turn.texts] for turn in turns], fill=False)
        box = cls(embeddings, ratings, authors, voters, padded([turn.classes for turn in turns]), answered)
        return cls(*(tensor.to(like.device) for tensor in box))


def check_consensus(consensus: ConsensusCell, dim: int, names: Sequence[str]) -> None:
    """Refuse, with a ValueError, a consensus cell for other sizes or agents than an encoder's and a team's."""
    for what, got, expected in (("dim", consensus.dim, dim), ("agents", consensus.agents, len(names))):
        if got != expected:
            wanted = f"expected a consensus cell of {what}={expected}, got {got}"
            raise ValueError(f"{wanted}: build it with {what}={expected}")
    if consensus.agent_names not in {None, tuple(names)}:
        wanted = f"expected a consensus cell of the agents {tuple(names)}"
        raise ValueError(f"{wanted}, got one of {consensus.agent_names}: load it for them")


def padded(rows: Sequence[Sequence[int | bool]], fill: int | bool = -1) -> Int[Tensor, "batch width"]:
    """Rows of different lengths, filled up."""
    width = max(map(len, rows))
    filled = [[*row, *[fill] * (width - len(row))] for row in rows]
    # Named, for rows without entries would come out as floats.
    return torch.tensor(filled, dtype=torch.bool if fill is False else torch.long)


def remembered(
    turns: Sequence[OpenRound], output: ConsensusOutput, memory: MemoryState, before: MemoryState
) -> tuple[ConsensusOutput, MemoryState]:
    """The memory as it was, with every slot its own source, where a round's kind remembers nothing."""
    forgets = torch.tensor([not turn.kind.remembers for turn in turns], device=before.mask.device)
    if not bool(forgets.any()):
        return output, memory

    def rows(those: Tensor, others: Tensor) -> Tensor:
        return torch.where(forgets.reshape(-1, *[1] * (others.ndim - 1)), those, others)

    places = torch.arange(before.mask.shape[1], device=before.mask.device)
    output = output._replace(
        source=rows(torch.where(before.mask, places, -1), output.source),
        gate=rows(torch.ones_like(output.gate), output.gate),
    )
    return output, MemoryState(*(rows(old, new) for old, new in zip(before, memory, strict=True)))


class SetRule(Protocol):
    """Says what may be right in each round, in one method; `parts.conformal` has a rule that is calibrated."""

    def of_rounds(self, turns: Sequence[OpenRound], output: ConsensusOutput) -> list[AnswerSet | None]:
        """The set of each round, from the consensus over its answers; None where proposals are no answers."""
        ...
