"""From tensors to the plain data a transcript keeps."""

from collections.abc import Sequence

from torch import Tensor

from nsed_torch.deliberation.state import SlotText
from nsed_torch.nn import ConsensusOutput, MemoryState
from nsed_torch.records import MemorySlot, Proposal, Round

DIGITS = 9
"""Decimal digits kept, of ratings before they are voted on: far coarser than float64's noise across batch sizes, far
finer than anything that matters."""


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
) -> Round:
    """One task's round out of a batch.

    Args:
        task: its row in the batch.
        index: the round, from 1.
        voters: names, in the order of the rating rows.
        proposals: the task's, in the order of the rating columns.
        ratings: voters x proposals.
        output: of the consensus cell, padded to the widest team.
        memory: after the round.
        slots: what the memory's slots hold in words.
        shown: what of each slot fits the token budget.
    """
    v, p = len(voters), len(proposals)
    winner = int(output.winner[task])
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
        memory=_memory_slots(task, output, memory, slots, shown),
    )


def _memory_slots(
    task: int,
    output: ConsensusOutput,
    memory: MemoryState,
    slots: Sequence[SlotText],
    shown: Sequence[str | None],
) -> list[MemorySlot]:
    width = output.gate.shape[1]
    sources = [s for s in output.source[task].tolist() if s >= 0]
    return [
        MemorySlot(
            text=slot.text,
            agent=slot.agent,
            round=slot.round,
            retention=_float(memory.retention[task, k]),
            gate=_float(output.gate[task, source]) if source < width else 1.0,
            shown=text is not None,
        )
        for k, (slot, source, text) in enumerate(zip(slots, sources, shown, strict=True))
    ]


def _float(value: Tensor) -> float:
    # Adding 0.0 turns a rounded -0.0 into 0.0, so that equal values read equal.
    return round(value.item(), DIGITS) + 0.0


def _floats(values: Tensor) -> list[float]:
    return [_float(value) for value in values]
