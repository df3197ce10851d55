"""Collected traces as tensors."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nsed_torch.records.lookalikes import one_line
from nsed_torch.records.trace import Trace, read_embeddings, read_traces
from nsed_torch.records.transcript import Round
from nsed_torch.traces.episodes import Episodes, joined, padded
from nsed_torch.traces.equality import Equality


def load_traces(folder: str | Path, *, equality: Equality | None = None, reading: bool = False) -> Episodes:
    """Read what `nsed collect` wrote, for `ConsensusCell.unroll` and everything that learns from it.

    Unrolled over them, a cell like the one that deliberated decides again what the transcripts say, if its team pooled
    equal answers. An empty proposal is masked. Classes are those that the team pooled its answers by, else come from
    the final answers; a proposal without one has class -1. Costs are tokens read and written. With `reading` only the
    rounds are read that show a piece, without tasks that have none.

    Returns:
        The tasks in the order of the file, in float64, padded to the most rounds, voters and proposals there are.

    Raises:
        ValueError: in one line with the folder, if it holds no traces, or none with inputs where they are wanted, or
            traces and embeddings that do not belong together, as where a run has not ended.
    """
    traces = list(read_traces(folder))
    vectors = read_embeddings(folder)
    agents = [agent.name for agent in traces[0].transcript.agents]
    for number, trace in enumerate(traces, start=1):
        if fault := _fault(trace, agents, vectors):
            raise ValueError(f"{folder}: trace {number}: {fault}; rerun the nsed collect that wrote it")
    rule = equality or Equality()
    if reading:
        traces = [_reading(trace) for trace in traces if trace.transcript.task.inputs]
        if not traces:
            raise ValueError(f"{folder}: expected traces of tasks with inputs, got none: collect tasks=reading")
    return joined([_episode(trace, agents, *vectors[trace.transcript.task.id], rule) for trace in traces])


def _reading(trace: Trace) -> Trace:
    """A trace without its closing rounds."""
    count = len(trace.transcript.task.inputs)
    transcript = replace(trace.transcript, rounds=trace.transcript.rounds[:count])
    return Trace(transcript, trace.grades[:count], trace.answers[:count], trace.needed[:count])


def _fault(trace: Trace, agents: Sequence[str], vectors: Mapping[str, tuple[Tensor, Tensor]]) -> str:
    """What does not fit the other traces or the embeddings; "" for nothing."""
    records = trace.transcript.rounds
    named = {name for record in records for name in (*record.voters, *record.proposers)}
    if [agent.name for agent in trace.transcript.agents] != agents or not named <= set(agents):
        return f"expected the agents {one_line(', '.join(agents))}, as in the first trace, got others"
    name, proposals = trace.transcript.task.id, sum(len(record.proposals) for record in records)
    dim = next(iter(vectors.values()))[0].shape[-1] if vectors else 0
    expected, got = [(dim,), (proposals, dim)], [tuple(tensor.shape) for tensor in vectors.get(name, ())]
    return "" if got == expected else f"expected embeddings of task {name!r:.60} of shapes {expected}, got {got}"


def _episode(trace: Trace, agents: Sequence[str], task: Tensor, embeddings: Tensor, equality: Equality) -> Episodes:
    """One task."""
    records = trace.transcript.rounds
    sizes = [(len(record.voters), len(record.proposals)) for record in records]

    def rows(values: Sequence[Sequence[Any]], dtype: torch.dtype, blank: float = 0) -> Tensor:
        return padded([torch.tensor(value, dtype=dtype)[None] for value in values], blank)[None]

    def pairs(values: Sequence[Any], dtype: torch.dtype) -> Tensor:
        # Reshaped, for no voters are no columns either.
        parts = zip(values, sizes, strict=True)
        return padded([torch.tensor(value, dtype=dtype).reshape(1, *size) for value, size in parts])[None]

    ratings = [[[0.0 if rating is None else rating for rating in row] for row in record.ratings] for record in records]
    lengths = rows([[float(max(len(p.text), 1)) for p in record.proposals] for record in records], torch.float64, 1)
    parts = embeddings[: sum(proposals for _, proposals in sizes)].double().split([p for _, p in sizes])
    mask = rows([[bool(p.text) for p in record.proposals] for record in records], torch.bool)
    return Episodes(
        ids=(trace.transcript.task.id,),
        agents=tuple(agents),
        task=task.double()[None],
        embeddings=padded([part[None] for part in parts])[None],
        ratings=pairs(ratings, torch.float64),
        vote_mask=pairs([record.vote_mask for record in records], torch.bool),
        voters=rows([[agents.index(name) for name in record.voters] for record in records], torch.long, -1),
        authors=rows([[agents.index(name) for name in record.proposers] for record in records], torch.long, -1),
        proposal_mask=mask,
        voter_mask=rows([[True] * len(record.voters) for record in records], torch.bool),
        round_mask=torch.ones(1, len(records), dtype=torch.bool),
        correct=rows(trace.grades, torch.bool),
        classes=_classes(trace, mask.shape[-1], equality)[None].masked_fill(~mask, -1),
        cost=torch.tensor([[_alone(record) for record in records]], dtype=torch.float64),
        proposal_cost=rows([[p.usage.billed for p in record.proposals] for record in records], torch.float64),
        length=lengths.log(),
        needed=rows(trace.needed, torch.long) if trace.needed else None,
    )


def _alone(record: Round) -> int:
    """Tokens computed in a round, but of every proposal all: whose a shared prompt is depends on who else is asked."""
    return record.usage.tokens + sum(p.usage.billed - p.usage.tokens for p in record.proposals)


def _classes(trace: Trace, width: int, equality: Equality) -> Tensor:
    """Equal answers of all rounds, equal numbers; within a round, those that the team pooled are equal."""
    said = [answer for row in trace.answers for answer in (*row, *[None] * (width - len(row)))]
    classes = equality.classes([said]).reshape(len(trace.answers), width)
    fresh = itertools.count(int(classes.max()) + 1)
    for r, record in enumerate(trace.transcript.rounds):
        numbers: dict[int, int] = {-1: -1}
        if any(number >= 0 for number in record.classes):
            for j, number in enumerate(record.classes):
                known = int(classes[r, j])
                if number not in numbers:
                    # Answers that the team told apart stay apart.
                    numbers[number] = known if known >= 0 and known not in numbers.values() else next(fresh)
            classes[r, : len(record.classes)] = torch.tensor([numbers[number] for number in record.classes])
    return classes
