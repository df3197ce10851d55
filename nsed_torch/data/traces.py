"""Collected traces as tensors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_torch.data.episodes import Episodes
from nsed_torch.data.equality import Equality
from nsed_torch.records import Trace, read_embeddings, read_traces


def load_traces(folder: str | Path, *, equality: Equality | None = None) -> Episodes:
    """Read what `nsed collect` wrote, for `ConsensusCell.unroll` and everything that learns from it.

    Unrolled over them, a cell like the one that deliberated decides again what the transcripts say, if its team pooled
    equal answers. An empty proposal
    is masked. Classes are those that the team pooled its answers by, else come from the final answers; a proposal
    without one has class -1. Costs are tokens read and written.

    Args:
        folder: with `traces.jsonl` and `embeddings.safetensors`.
        equality: when answers are the same; by default the rule of `Equality()`.

    Returns:
        The tasks in the order of the file, in float64, padded to the most rounds, voters and proposals there are.

    Raises:
        ValueError: in one line with the folder, if it holds no traces, or traces and embeddings that do not belong
            together, as where a run has not ended.
    """
    traces = list(read_traces(folder))
    vectors = read_embeddings(folder)
    agents = [agent.name for agent in traces[0].transcript.agents]
    for number, trace in enumerate(traces, start=1):
        if fault := _fault(trace, agents, vectors):
            raise ValueError(f"{folder}: trace {number}: {fault}; rerun the nsed collect that wrote it")
    task = torch.stack([vectors[trace.transcript.task.id][0] for trace in traces]).double()
    tensors = _blank(traces, task)
    for b, trace in enumerate(traces):
        _fill(
            {name: tensor[b] for name, tensor in tensors.items()}, trace, vectors[trace.transcript.task.id][1], agents
        )
    return Episodes(
        ids=tuple(trace.transcript.task.id for trace in traces),
        agents=tuple(agents),
        task=task,
        classes=_classes(traces, tensors["proposal_mask"], equality or Equality()),
        **tensors,
    )


def _fault(trace: Trace, agents: Sequence[str], vectors: Mapping[str, tuple[Tensor, Tensor]]) -> str:
    """What does not fit the other traces or the embeddings; "" for nothing."""
    records = trace.transcript.rounds
    named = {name for record in records for name in (*record.voters, *record.proposers)}
    if [agent.name for agent in trace.transcript.agents] != agents or not named <= set(agents):
        return f"expected the agents {', '.join(agents)}, as in the first trace, got others"
    name, proposals = trace.transcript.task.id, sum(len(record.proposals) for record in records)
    dim = next(iter(vectors.values()))[0].shape[-1] if vectors else 0
    expected, got = [(dim,), (proposals, dim)], [tuple(tensor.shape) for tensor in vectors.get(name, ())]
    return "" if got == expected else f"expected embeddings of task {name!r} of shapes {expected}, got {got}"


def _blank(traces: Sequence[Trace], task: Float[Tensor, "batch dim"]) -> dict[str, Any]:
    """Padding alone, by field."""
    records = [record for trace in traces for record in trace.transcript.rounds]
    held = (len(traces), max(len(trace.transcript.rounds) for trace in traces))
    voter = (*held, max(len(record.voters) for record in records))
    proposal = (*held, max(len(record.proposals) for record in records))
    pair = (*voter, proposal[-1])
    return {
        "embeddings": task.new_zeros(*proposal, task.shape[-1]),
        "ratings": task.new_zeros(pair),
        "vote_mask": torch.zeros(pair, dtype=torch.bool),
        "voters": torch.full(voter, -1),
        "authors": torch.full(proposal, -1),
        "proposal_mask": torch.zeros(proposal, dtype=torch.bool),
        "voter_mask": torch.zeros(voter, dtype=torch.bool),
        "round_mask": torch.zeros(held, dtype=torch.bool),
        "correct": torch.zeros(proposal, dtype=torch.bool),
        "cost": task.new_full(held, torch.nan),
        "proposal_cost": task.new_zeros(proposal),
        "length": task.new_zeros(proposal),
    }


def _fill(tensors: Mapping[str, Tensor], trace: Trace, embeddings: Tensor, agents: Sequence[str]) -> None:
    """One task's rounds into its rows of the padding."""
    records = trace.transcript.rounds
    parts = embeddings.split([len(record.proposals) for record in records])
    for r, (record, part, grades) in enumerate(zip(records, parts, trace.grades, strict=True)):
        v, p = len(record.voters), len(record.proposals)
        row = {name: tensor[r] for name, tensor in tensors.items()}
        row["embeddings"][:p] = part
        # Reshaped, for no voters are no columns either.
        ratings = [[0.0 if rating is None else rating for rating in ratings] for ratings in record.ratings]
        row["ratings"][:v, :p] = torch.tensor(ratings, dtype=torch.float64).reshape(v, p)
        row["vote_mask"][:v, :p] = torch.tensor(record.vote_mask, dtype=torch.bool).reshape(v, p)
        row["voters"][:v] = torch.tensor([agents.index(name) for name in record.voters])
        row["authors"][:p] = torch.tensor([agents.index(name) for name in record.proposers])
        row["proposal_mask"][:p] = torch.tensor([bool(proposal.text) for proposal in record.proposals])
        row["voter_mask"][:v] = True
        row["round_mask"].fill_(True)
        row["correct"][:p] = torch.tensor(grades)
        row["cost"].fill_(record.usage.tokens)
        row["length"][:p] = (
            torch.tensor([len(p.text) for p in record.proposals], dtype=torch.float64).clamp(min=1).log()
        )
        row["proposal_cost"][:p] = torch.tensor([float(proposal.usage.tokens) for proposal in record.proposals])


def _classes(traces: Sequence[Trace], proposal_mask: Tensor, equality: Equality) -> Int[Tensor, "batch round proposal"]:
    batch, rounds, proposals = proposal_mask.shape
    nothing: list[str | None] = [None] * proposals
    rows: list[list[str | None]] = []
    for trace in traces:
        held = [[*row, *nothing[len(row) :]] for row in trace.answers]
        rows += [*held, *[nothing] * (rounds - len(held))]
    classes = equality.classes(rows).reshape(batch, rounds, proposals)
    for b, trace in enumerate(traces):
        for r, record in enumerate(trace.transcript.rounds):
            if any(number >= 0 for number in record.classes):
                classes[b, r, : len(record.classes)] = torch.tensor(record.classes)
    return classes.masked_fill(~proposal_mask, -1)
