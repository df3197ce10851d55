"""What a round leaves behind, as plain data: its judges' replies, put in order, and the consensus cell's tensors."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nsed_torch.deliberation.rating import JudgeReply
from nsed_torch.deliberation.state import SlotText
from nsed_torch.nn import ConsensusOutput, MemoryState
from nsed_torch.records import Proposal, Round, Usage
from nsed_torch.records.transcript import Critique, MemorySlot

DIGITS = 9
"""Decimal digits kept, of ratings before they are voted on: far coarser than float64's noise across batch sizes, far
finer than anything that matters."""


@dataclass(frozen=True)
class Hearing:
    """What a team's judges said about its proposals; rows are voters, columns proposals, None where nothing counts."""

    ratings: list[list[float | None]]
    critiques: list[Critique]
    usage: Usage
    notes: list[str]

    @classmethod
    def of(cls, replies: Sequence[tuple[list[int], JudgeReply]], proposals: int) -> "Hearing":
        """From a reply per voter, each with the indices of the proposals in the order that the voter saw."""
        ratings: list[list[float | None]] = [[None] * proposals for _ in replies]
        critiques = []
        for i, (order, reply) in enumerate(replies):
            for j, rating, text in zip(order, reply.ratings, reply.critiques, strict=True):
                # What is recorded is what is voted on, so that a trace votes again as the team did.
                ratings[i][j] = None if rating is None else round(rating, DIGITS)
                if text:
                    critiques.append(Critique(i, j, text))
        notes = [note for _, reply in replies for note in reply.notes]
        return cls(ratings, critiques, Usage.sum(reply.usage for _, reply in replies), notes)

    def received(
        self, voters: Sequence[str], authors: Sequence[str], before: Mapping[str, tuple[str, ...]] | None = None
    ) -> dict[str, tuple[str, ...]]:
        """Author -> what others wrote about its proposal, behind what they wrote `before` about one that stands."""
        received: dict[str, tuple[str, ...]] = defaultdict(tuple, before or {})
        for critique in self.critiques:
            if (author := authors[critique.proposal]) != voters[critique.voter]:
                received[author] += (critique.text,)
        return dict(received)


def round_record(
    task: int,
    index: int,
    voters: Sequence[str],
    proposals: Sequence[Proposal],
    ratings: Sequence[Sequence[float | None]],
    output: ConsensusOutput,
    memory: MemoryState,
    slots: Sequence[SlotText],
    shown: Sequence[str | None],
    **rest: Any,
) -> Round:
    """One task's round out of a batch.

    `task` is its row in the batch, `output` is padded to the widest team, `slots` say what the memory's slots hold in
    words, `shown` what of each fits the token budget, and `rest` are further fields of the record.
    """
    v, p = len(voters), len(proposals)
    winner = int(output.winner[task])
    width = output.gate.shape[1]
    sources = [s for s in output.source[task].tolist() if s >= 0]
    return Round(
        index=index,
        proposers=[proposal.agent for proposal in proposals],
        voters=list(voters),
        proposals=list(proposals),
        ratings=[list(row) for row in ratings],
        vote_mask=[[r is not None for r in row] for row in ratings],
        ballots=[_floats(row[:p]) for row in output.ballots[task, :v]],
        trust=_floats(output.trust[task, :v]),
        support=_floats(output.support[task, :p]),
        consensus=_floats(output.consensus[task, :p]),
        winner=None if winner < 0 else winner,
        all_negative=bool(output.all_negative[task]),
        conviction=_float(output.conviction[task]),
        decisiveness=_float(output.decisiveness[task]),
        controversy=_floats(output.controversy[task, :p]),
        memory=[
            MemorySlot(
                *slot,
                retention=_float(memory.retention[task, k]),
                gate=_float(output.gate[task, source]) if source < width else 1.0,
                shown=text is not None,
            )
            for k, (slot, source, text) in enumerate(zip(slots, sources, shown, strict=True))
        ],
        **rest,
    )


def _float(value: Tensor) -> float:
    # Adding 0.0 turns a rounded -0.0 into 0.0, so that equal values read equal.
    return round(value.item(), DIGITS) + 0.0


def _floats(values: Tensor) -> list[float]:
    return [_float(value) for value in values]
