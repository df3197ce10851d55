"""A batch of open rounds as tensors, padded to the widest team, and the sets of answers that hold the right one."""

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


class AnswerSets(NamedTuple):
    """What may be right, task by task."""

    answers: Bool[Tensor, "batch proposal"]  # which proposals show an answer of the set
    none: Bool[Tensor, "batch"]  # whether the set holds "none of these" as well
    decided: Bool[Tensor, "batch"]  # whether it is one answer alone


class SetRule(Protocol):
    """Says which answers may be right, from a consensus over them; `parts.conformal` has one that is calibrated."""

    @property
    def coverage(self) -> float:
        """Promised share of sets that hold the truth."""
        ...

    @property
    def categories(self) -> Sequence[str]:
        """Of tasks, which are told apart by their place among them."""
        ...

    def __call__(
        self,
        consensus: Float[Tensor, "batch proposal"],
        answer_mask: Bool[Tensor, "batch proposal"],
        category: Int[Tensor, "batch"] | None = None,
    ) -> AnswerSets:
        """The sets; a category that is not known is -1."""
        ...


def answer_sets(rule: SetRule | None, turns: Sequence[OpenRound], output: ConsensusOutput) -> list[AnswerSet | None]:
    """What may be right in each round, where there is a rule and proposals are answers."""
    if rule is None:
        return [None] * len(turns)
    index = {name: i for i, name in enumerate(rule.categories)}
    category = [index.get(turn.task.category or "", -1) for turn in turns]
    sets = rule(output.consensus, output.answer_mask, torch.tensor(category, device=output.winner.device))
    return [
        None if turn.kind.notes else AnswerSet(answers.nonzero()[:, 0].tolist(), bool(none), rule.coverage)
        for turn, answers, none in zip(turns, sets.answers, sets.none, strict=True)
    ]
