"""Fit a gate by answers alone: what a note's retention is worth to the models that answer in the end. Ours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_torch.core.agent import Agent, Progress
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.engine import LikelihoodRequest, Note, call_seed
from nsed_torch.core.prompts import fence, nonce, unseen
from nsed_torch.core.protocol import FAINT
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.records.trace import Trace, read_traces
from nsed_torch.records.transcript import Task, Transcript
from nsed_torch.traces.episodes import Episodes
from nsed_torch.tuning.losses import linear, worth_loss
from nsed_torch.tuning.memory_fit import Notes

MOST = 32
"""Notes that a closing prompt shows at most, the strongest ones."""

DRAWS = 24
"""Memories a task that models read where notes are shown alike."""

LEAST = 1e-30
"""The least likelihood that is told from none."""


@dataclass(frozen=True)
class Closings:
    """Closing rounds of recorded deliberations, asked anew of frozen models that hear notes as a gate retains them.

    The loss of a task is `-log p(target)`, the mean over the target's tokens and its end, under one of the agents that
    propose, in turn by task. No label but the target is used. With other answers of a task it is how likely the target
    is among these and itself.

    Without draws all notes are heard at once, displace nobody, and gradients pass through the models. With draws models
    read memories of as many notes as the cell has slots, drawn at random, once for all of a fit. What a note is worth
    is how much likelier the target is with it among them than without (Banzhaf 1965, here of coalitions of one size),
    and a gate learns to hold what is worth most in every memory until then (`losses.worth_loss`), which asks no models.
    """

    team: MacroRNNCell  # whose models, prompts and personas ask
    transcripts: Mapping[str, Transcript]  # by task id
    draws: int = 0  # memories a task
    progress: Progress | None = None  # hears how many of them were read
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by task id, wrong answers that agents gave
    _known: dict[tuple[str, int], Tensor] = field(default_factory=dict)  # worths by task and number of slots

    @classmethod
    def of(
        cls,
        team: MacroRNNCell,
        folders: Iterable[str | Path],
        draws: int | None = None,
        progress: Progress | None = None,
        *,
        options: bool = False,
    ) -> "Closings":
        """Those of folders of traces; the team's models are frozen, and stay so.

        Without a number of draws it is `DRAWS` where the team's notes are shown alike, else 0. With options the wrong
        answers of a task's agents stand beside the target.
        """
        if draws is None:
            draws = DRAWS if team.protocol.memory == "shown" else 0
        for agent in () if draws else team.ensemble.proposers:
            if not callable(getattr(team.ensemble.engine(agent), "log_likelihoods", None)):
                wanted = "expected models in this process, which pass gradients on"
                raise ValueError(f"loss answer: {wanted}, got another engine for {agent.name}: choose another team")
        traces = [trace for folder in folders for trace in read_traces(folder)]
        told = {t.transcript.task.id: t.transcript for t in traces}
        if missing := [name for name, transcript in told.items() if not transcript.task.target]:
            raise ValueError(f"loss answer: expected tasks with a target, got none for {missing[0]!r}: leave it out")
        for parameter in team.ensemble.parameters():
            parameter.requires_grad_(False)
        others = {t.transcript.task.id: _wrong(t) for t in traces} if options else {}
        return cls(team, told, draws, progress, others)

    @property
    def what(self) -> tuple[str, ...]:
        """What `scores` are."""
        if self.others:
            return ("share whose target is the likeliest of the answers given", "probability of the target among these")
        return ("probability of the target, a token",)

    def loss(self, ids: Sequence[str], notes: Notes) -> Float[Tensor, ""]:
        """The mean over some tasks, whose notes these are."""
        if not self.draws:
            return -self.log_likelihoods(ids, notes).mean()
        # Memories of all rounds before: what one of them has displaced is lost to the last.
        retention, number = notes.retention(), torch.arange(notes.there_mask.shape[1])
        there = notes.there_mask & (number <= self._last(ids, notes)[:, None])[..., None]
        worth = self.worths(ids, notes).to(retention)[:, None].expand_as(retention)
        return worth_loss(retention.flatten(0, 1), worth.flatten(0, 1), there.flatten(0, 1), notes.cell.slots)

    def log_likelihoods(self, ids: Sequence[str], notes: Notes) -> Float[Tensor, "batch"]:
        """`log p(target)` of some tasks, whose notes these are.

        Gradients are those of the whole, but a task's pass through the models ends before the next begins: what a pass
        keeps for its gradient grows with the square of its tokens.
        """
        retained = notes.retention()[torch.arange(len(ids)), self._last(ids, notes)]
        found = []
        for i, (texts, columns) in enumerate(self._held(ids, notes)):
            found.append(self._heard(ids[i], texts, retained[i, columns]))
        return torch.stack(found)

    @torch.no_grad()
    def worths(self, ids: Sequence[str], notes: Notes) -> Float[Tensor, "batch note"]:
        """What each note is worth to the answer, in nats a token; 0 where there are not more notes than slots."""
        slots, held = notes.cell.slots, self._held(ids, notes)
        rows, asked = {}, []
        for i, (texts, _) in enumerate(held):
            key = (ids[i], slots)
            if key in self._known or len(texts) <= slots:
                continue
            generator = torch.Generator().manual_seed(call_seed(self.team.seed, ids[i], "memories"))
            rows[key] = torch.rand(self.draws, len(texts), generator=generator).argsort(-1)[:, :slots]
            asked += [(ids[i], [texts[k] for k in row]) for row in rows[key].tolist()]
        heard = list(map(_among, self._shown(asked, self.progress)))
        for i, key in enumerate(rows):
            values = torch.stack(heard[i * self.draws : (i + 1) * self.draws])
            self._known[key] = gains(values, rows[key], notes.place.shape[1])
        found = torch.zeros(notes.place.shape, dtype=torch.float64)
        for i, (texts, columns) in enumerate(held):
            if (key := (ids[i], slots)) in self._known:
                found[i, columns] = self._known[key][: len(texts)]
        return found

    def _shown(
        self, asked: Sequence[tuple[str, Sequence[str]]], progress: Progress | None = None
    ) -> list[Float[Tensor, " text"]]:
        """`log p` of target and others of each task behind some notes, all shown alike, by any engine that measures."""
        requests = []
        for name, texts in asked:
            alike = torch.ones(len(texts))
            request, _ = self._closing(name, texts, alike)
            requests.append(replace(request, notes=(), beside=False))
        # A model that overflows finds nothing likely.
        found = [[value or 0.0 for value in one.values] for one in self.team.ensemble.measure(requests, progress)]
        return [torch.tensor(values, dtype=torch.float64).clamp(min=LEAST).log() for values in found]

    def _closing(self, name: str, texts: Sequence[str], retention: Tensor) -> tuple[LikelihoodRequest, Tensor]:
        request, shown = closing(self.team, self._agent(name), self.transcripts[name].task, texts, retention)
        return replace(request, texts=(*request.texts, *self.others.get(name, ()))), shown

    def _held(self, ids: Sequence[str], notes: Notes) -> list[tuple[list[str], Tensor]]:
        """Of each task its notes when the closing round is asked, oldest first: their texts and columns."""
        there = notes.there_mask[torch.arange(len(ids)), self._last(ids, notes)]
        width, found = notes.news[0].mask.shape[1], []
        for i, name in enumerate(ids):
            rounds, columns = self.transcripts[name].rounds, there[i].nonzero()[:, 0]
            columns = columns[notes.place[i, columns].argsort()]
            places = notes.place[i, columns].tolist()
            found.append(([rounds[place // width].proposals[place % width].text for place in places], columns))
        return found

    def _heard(self, name: str, texts: Sequence[str], kept: Tensor) -> Float[Tensor, ""]:
        """`log p(target)` of one task behind notes that are heard as far as retained; linear in that."""
        return linear(_among(self._each_heard(name, texts, kept)), [kept])

    def _each_heard(self, name: str, texts: Sequence[str], kept: Tensor) -> Float[Tensor, " text"]:
        """`log p` of target and others of one task."""
        engine: Any = self.team.ensemble.engine(self._agent(name))
        request, shown = self._closing(name, texts, kept)
        values: Tensor = engine.log_likelihoods([request], [shown])[0].double()
        return values

    @torch.no_grad()
    def scores(self, cell: ConsensusCell, episodes: Episodes) -> tuple[Float[Tensor, "batch"], ...]:
        """`p(target)` of each task with what a cell retains; with draws, behind as many notes as it has slots.

        With options, before it, whether the target is the likeliest of them; as likely as another it is not.
        """
        notes, asked = Notes.of(cell, episodes, labelled=False), []
        retained = notes.retention()[torch.arange(len(episodes)), self._last(episodes.ids, notes)]
        for i, (texts, columns) in enumerate(self._held(episodes.ids, notes)):
            kept = retained[i, columns]
            strongest = kept.topk(min(cell.slots, len(columns))).indices if self.draws else torch.arange(len(columns))
            asked.append((episodes.ids[i], [texts[k] for k in strongest.tolist()], kept[strongest]))
        found = self._shown([one[:2] for one in asked]) if self.draws else [self._each_heard(*one) for one in asked]
        chances = torch.stack([_among(values).exp() for values in found])
        if not self.others:
            return (chances,)
        return torch.stack([(values[0] > values[1:]).all() for values in found]).double(), chances

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


def _wrong(trace: Trace) -> tuple[str, ...]:
    """Wrong answers that a task's agents gave, each once."""
    rounds = zip(trace.answers, trace.grades, strict=True)
    given = [said for answers, grades in rounds for said, right in zip(answers, grades, strict=True) if not right]
    return tuple(
        dict.fromkeys(said for said in given if said and said.strip() and said != trace.transcript.task.target)
    )


def _among(values: Float[Tensor, " text"]) -> Float[Tensor, ""]:
    """`log p` of the first of some texts, where there are others among these."""
    return values.log_softmax(-1)[0] if len(values) > 1 else values[0]


def gains(values: Float[Tensor, " draw"], rows: Int[Tensor, "draw rank"], count: int) -> Float[Tensor, " note"]:
    """The mean of values whose rows hold one of so many notes, less that of all others; 0 where all do, or none."""
    inside = torch.zeros(len(rows), count, dtype=values.dtype).scatter(1, rows, 1.0)
    held, left = inside.sum(0), (1 - inside).sum(0)
    gain = values @ inside / held.clamp(min=1) - values @ (1 - inside) / left.clamp(min=1)
    return torch.where((held > 0) & (left > 0), gain, 0)


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
