"""Fit a gate by answers alone: what a note's retention is worth to the models that answer in the end. Ours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.core.agent import Agent
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.engine import LikelihoodRequest, Note, call_seed
from nsed_torch.core.prompts import fence, nonce, unseen
from nsed_torch.core.protocol import FAINT
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.records.trace import read_traces
from nsed_torch.records.transcript import Task, Transcript
from nsed_torch.traces.episodes import Episodes
from nsed_torch.tuning.memory_fit import Notes

MOST = 32
"""Notes that a closing prompt shows at most, the strongest ones."""


@dataclass(frozen=True)
class Closings:
    """Closing rounds of recorded deliberations, asked anew of frozen models that hear notes as a gate retains them.

    The loss of a task is `-log p(target)`, the mean over the target's tokens and its end, under one of the agents that
    propose, in turn by task. No label but the target is used. Notes displace nobody.
    """

    team: MacroRNNCell  # whose models, prompts and personas ask
    transcripts: Mapping[str, Transcript]  # by task id

    @classmethod
    def of(cls, team: MacroRNNCell, folders: Iterable[str | Path]) -> "Closings":
        """Those of folders of traces; the team's models are frozen, and stay so."""
        for agent in team.ensemble.proposers:
            if not callable(getattr(team.ensemble.engine(agent), "log_likelihoods", None)):
                wanted = "expected models in this process, which pass gradients on"
                raise ValueError(f"loss answer: {wanted}, got another engine for {agent.name}: choose another team")
        told = {t.transcript.task.id: t.transcript for folder in folders for t in read_traces(folder)}
        if missing := [name for name, transcript in told.items() if not transcript.task.target]:
            raise ValueError(f"loss answer: expected tasks with a target, got none for {missing[0]!r}: leave it out")
        for parameter in team.ensemble.parameters():
            parameter.requires_grad_(False)
        return cls(team, told)

    def loss(self, ids: Sequence[str], notes: Notes) -> Float[Tensor, ""]:
        """The mean over some tasks, whose notes these are."""
        return -self.log_likelihoods(ids, notes).mean()

    def log_likelihoods(self, ids: Sequence[str], notes: Notes) -> Float[Tensor, "batch"]:
        """`log p(target)` of some tasks, whose notes these are.

        Gradients are those of the whole, but a task's pass through the models ends before the next begins: what a pass
        keeps for its gradient grows with the square of its tokens.
        """
        last = self._last(ids, notes)
        heard = notes.retention()[torch.arange(len(ids)), last]
        there = notes.there_mask[torch.arange(len(ids)), last]
        found = []
        for i, name in enumerate(ids):
            order = notes.place[i][there[i]].argsort()  # oldest first
            places, kept = notes.place[i][there[i]][order].tolist(), heard[i][there[i]][order]
            found.append(self._log_likelihood(name, places, kept, notes.news[0].mask.shape[1]))
        return torch.stack(found)

    def _log_likelihood(self, name: str, places: Sequence[int], kept: Tensor, width: int) -> Float[Tensor, ""]:
        """Of one task, whose notes stand at places in rounds of that width; linear in what they retain."""
        told, agent = self.transcripts[name], self._agent(name)
        texts = [told.rounds[place // width].proposals[place % width].text for place in places]
        engine: Any = self.team.ensemble.engine(agent)
        leaf = kept.detach().requires_grad_(kept.requires_grad and torch.is_grad_enabled())
        request, shown = closing(self.team, agent, told.task, texts, leaf)
        value: Tensor = engine.log_likelihoods([request], [shown])[0][0].double()
        if not value.requires_grad:
            return value
        (slope,) = torch.autograd.grad(value, leaf)
        return value.detach() + (slope * (kept - kept.detach())).sum()

    @torch.no_grad()
    def chances(self, cell: ConsensusCell, episodes: Episodes) -> Float[Tensor, "batch"]:
        """`p(target)` of each task with what a cell retains."""
        return self.log_likelihoods(episodes.ids, Notes.of(cell, episodes, labelled=False)).exp()

    def _last(self, ids: Sequence[str], notes: Notes) -> Tensor:
        """The round whose memory the closing round reads: that of the last piece, or the last but one."""
        rounds = notes.there_mask.shape[1]
        told = [self.transcripts[name] for name in ids]
        last = [len(t.task.inputs) - 1 if t.task.inputs else len(t.rounds) - 2 for t in told]
        if min(last) < 0:
            raise ValueError("loss answer: expected tasks with inputs, or two rounds or more, got one: collect anew")
        return torch.tensor(last).clamp(max=rounds - 1)

    def _agent(self, name: str) -> Agent:
        proposers = self.team.ensemble.proposers
        return proposers[call_seed(self.team.seed, name, "closing") % len(proposers)]


def closing(
    team: MacroRNNCell, agent: Agent, task: Task, texts: Sequence[str], retention: Float[Tensor, " note"]
) -> tuple[LikelihoodRequest, Float[Tensor, " shown"]]:
    """How likely an agent finds the target behind notes, oldest first, and the retention of each that it is shown.

    Equal texts are shown once, as the strongest of them; the strongest come first or, side by side, the oldest.
    """
    first: dict[str, int] = {}
    for i in sorted(range(len(texts)), key=lambda i: -float(retention[i].detach())):
        first.setdefault(texts[i], i)
    shown, beside = list(first.values())[:MOST], team.protocol.memory == "beside"
    if beside:
        shown.sort()
    told = [texts[i] for i in shown]
    mark = unseen(call_seed(team.seed, task.id, "propose"), told)
    chat = team.prompts.propose(task.question, memory=told, critiques=(), persona=agent.persona, seed=mark)
    notes = tuple(Note(fence(text, nonce(mark)), 1.0) for text in told)
    request = LikelihoodRequest(agent.name, chat, (task.target or "",), agent.adapter, notes=notes, beside=beside)
    return request, retention[shown].clamp(FAINT, 1.0)
