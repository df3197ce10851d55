"""Backpropagation through time, through the language models: from an answer to the round before it. Ours."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.core.engine import call_seed
from nsed_torch.core.functional import vote_mask
from nsed_torch.core.ratings import JudgeQuestion, VerdictRating
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.records.transcript import Task
from nsed_torch.tuning.answer_fit import closing


def answer_log_likelihood(cell: MacroRNNCell, task: Task, proposals: Mapping[str, str]) -> Float[Tensor, ""]:
    """`log p(target)` in a round that reads what another round proposed, with gradients to all that weighed it.

    Judges rate the proposals (`verdict`), the consensus cell votes and writes its memory, and every agent reads that
    with the weights that it has (`protocol.memory=weighted`, or `beside`). Gradients reach the vote, trust, calibration
    and gate of the cell, and the adapters of judges, as far as they require them. Freeze what should not learn.

    Args:
        cell: a team whose models are in this process.
        task: with a target.
        proposals: what each agent said in the round before, by name; who is not in it said nothing.

    Returns:
        The mean over agents that propose of the mean over the target's tokens and its end.

    Raises:
        ValueError: for unknown agents, fewer than two proposals, or a task without a target.
    """
    names = [agent.name for agent in cell.ensemble.agents]
    if task.target is None or len(proposals) < 2 or not set(proposals) <= set(names):
        wanted = f"expected a task with a target and proposals of two or more of {', '.join(names)}"
        raise ValueError(f"{wanted}, got target={task.target!r} and {', '.join(proposals) or 'none'}: correct them")
    authors = [name for name in names if name in proposals]
    texts = [proposals[name] for name in authors]
    like = cell.consensus.log_beta
    seats = torch.tensor([[names.index(name) for name in authors]])
    voters = torch.arange(len(names))[None]
    output, memory = cell.consensus(
        cell.encoder.embed(texts).to(like)[None],
        _ratings(cell, task, authors, texts).to(like)[None],
        vote_mask(voters, seats, torch.ones_like(seats, dtype=torch.bool), own=False),
        cell.encoder.embed([task.question]).to(like),
        authors=seats,
    )
    slots = {int(i) - cell.consensus.slots: k for k, i in enumerate(output.source[0]) if i >= 0}
    order = sorted(slots)  # of the proposals
    told, retention = [texts[i] for i in order], memory.retention[0][[slots[i] for i in order]]
    found = []
    for agent in cell.ensemble.proposers:
        request, weights = closing(cell, agent, task, told, retention)
        engine: Any = cell.ensemble.engine(agent)
        found += engine.log_likelihoods([request], [weights])
    return torch.stack([part[0] for part in found]).mean()


def _ratings(cell: MacroRNNCell, task: Task, authors: list[str], texts: list[str]) -> Float[Tensor, "voter proposal"]:
    """Verdicts of every agent on every proposal but its own, which stands as 0."""
    rows = []
    for agent in cell.ensemble.agents:
        others = [j for j, name in enumerate(authors) if name != agent.name]
        asked = JudgeQuestion(agent, task.question, tuple(texts[j] for j in others), call_seed(cell.seed, agent.name))
        engine: Any = cell.ensemble.engine(agent)
        given = engine.expected_ratings(VerdictRating().requests(cell.prompts, [asked]))
        rows.append(given.new_zeros(len(authors)).index_add(0, torch.tensor(others, device=given.device), given))
    return torch.stack(rows)
