"""One round with real models: the macro-RNN's cell."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from nsed_torch.agents import Encoder, Ensemble, GenerateRequest, Generation, Prompts, call_seed, unfence
from nsed_torch.agents.features import groups_of, letters_of, proposal_features
from nsed_torch.deliberation.answer_classes import AnswerClasses
from nsed_torch.deliberation.rating import JudgeQuestion, JudgeReply, RatingMode, VerdictRating, judging_order
from nsed_torch.deliberation.round_record import Hearing, round_record
from nsed_torch.deliberation.state import DeliberationState, SlotText, shown_texts
from nsed_torch.deliberation.team import Standing, Team
from nsed_torch.functional import vote_mask
from nsed_torch.nn import ConformalSets, ConsensusCell, ConsensusOutput, MemoryState
from nsed_torch.records import AnswerSet, Proposal, Round, Task, Transcript, Usage


class Observer:
    """Hears of progress and results; this one ignores them. Override what you want to see."""

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        """`done` of `total` calls of a phase ("propose" or "rate") of round `index` are finished."""

    def on_round(self, task: Task, record: Round) -> None:
        """A task's round is over."""

    def on_end(self, transcript: Transcript) -> None:
        """A task's deliberation is over."""


class MacroRNNCell(nn.Module):
    """Asks an ensemble for proposals, embeds them, has them rated, votes, and renders the new memory into words.

    All tasks of the batch go through each phase together. The consensus cell runs in the dtype of its parameters;
    in float64 a transcript does not depend on the batch to the last digit it keeps.

    Args:
        ensemble: the agents.
        encoder: turns proposals and tasks into vectors for the gate.
        consensus: votes and updates the memory.
        prompts: the templates.
        rating: how judges come to their ratings.
        memory_tokens: what the memory may take of a prompt, in tokens.
        seed: the run's; every call's seed derives from it and from what the call is for.
        diagonal_mask: whether a voter rates all answers but its own; False lets it rate that too, and counts it.
        anonymous: whether judges see Candidate_A, Candidate_B, ...; False shows them the authors' names instead.
        shuffled: whether every judge sees the candidates in an order of its own; False is the ensemble's for all.
        answers: tells which proposals say the same, so that they pool their support; None makes each its own answer,
            as published.
        sets: say which answers may be right, at the coverage that they were calibrated for; nobody does if None.

    Raises:
        ValueError: if the consensus cell was built for other sizes than the encoder's and the ensemble's, or was
            saved for other agents.

    Examples:
        >>> from nsed_torch.agents import Agent, HashedEncoder, ScriptedEngine
        >>> from nsed_torch.deliberation import full_team
        >>> engine = ScriptedEngine(lambda request: f"{request.agent} says 17", lambda request, candidate: 0.5)
        >>> ensemble = Ensemble({"tiny": engine}, [Agent("ant", "tiny"), Agent("bee", "tiny")])
        >>> cell, tasks = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(dim=8, agents=2)), [Task("17 or 71?")]
        >>> (record,), state = cell(tasks, [full_team(ensemble)], cell.start(tasks), index=1)
        >>> record.ratings, record.winner
        ([[None, 0.5], [0.5, None]], 0)
    """

    def __init__(
        self,
        ensemble: Ensemble,
        encoder: Encoder,
        consensus: ConsensusCell,
        *,
        prompts: Prompts | None = None,
        rating: RatingMode | None = None,
        memory_tokens: int = 256,
        seed: int = 0,
        diagonal_mask: bool = True,
        anonymous: bool = True,
        shuffled: bool = True,
        answers: AnswerClasses | None = None,
        sets: ConformalSets | None = None,
    ) -> None:
        super().__init__()
        for what, got, expected in (
            ("dim", consensus.dim, encoder.dim),
            ("agents", consensus.agents, len(ensemble)),
        ):
            if got != expected:
                raise ValueError(
                    f"expected a consensus cell of {what}={expected}, got {got}: build it with {what}={expected}"
                )
        names = tuple(agent.name for agent in ensemble.agents)
        if consensus.agent_names not in {None, names}:
            raise ValueError(
                f"expected a consensus cell of the agents {names}, got one of {consensus.agent_names}: load it for them"
            )
        self.ensemble, self.encoder, self.consensus = ensemble, encoder, consensus
        self.prompts = prompts or Prompts()
        self.rating: RatingMode = rating or VerdictRating()
        self.memory_tokens, self.seed = memory_tokens, seed
        self.diagonal_mask, self.anonymous, self.shuffled = diagonal_mask, anonymous, shuffled
        self.answers, self.sets = answers, sets

    def start(self, tasks: Sequence[Task]) -> DeliberationState:
        """The state before the first round: no memory."""
        parameter = next(self.consensus.parameters())
        size = (len(tasks), self.consensus.slots, self.consensus.dim)
        memory = MemoryState.empty(*size, dtype=parameter.dtype, device=parameter.device)
        return DeliberationState(memory, ((),) * len(tasks), ({},) * len(tasks), (None,) * len(tasks))

    def forward(
        self,
        tasks: Sequence[Task],
        teams: Sequence[Team],
        state: DeliberationState,
        *,
        index: int,
        observer: Observer | None = None,
    ) -> tuple[list[Round], DeliberationState]:
        """Run round `index` (from 1) of every task with a team each, from the state of the round before or `start`.

        Returns:
            A record per task, and the state for the next round.

        Raises:
            ContextWindowError: if a prompt does not fit a model's window.
        """
        watch = observer or Observer()
        standing = self._standing(teams, state)
        state = state.without([one.proposals for one in standing])
        proposals, notes = self._propose(tasks, teams, standing, state, index, watch)
        hearings = self._hear(tasks, teams, standing, proposals, index, watch)
        classes = [self._classes(task, answers) for task, answers in zip(tasks, proposals, strict=True)]
        output, memory = self._vote(tasks, teams, proposals, classes, hearings, state.memory)
        sets = self._sets(tasks, output)
        slots = self._slots(teams, proposals, state, output, index)
        records, received = [], []
        for i, team in enumerate(teams):
            names = [self.ensemble.agents[a].name for a in team.voters]
            shown = shown_texts([slot.text for slot in slots[i]], self.memory_tokens, self.ensemble.count_tokens)
            record = round_record(i, index, names, proposals[i], hearings[i].ratings, output, memory, slots[i], shown)
            kept = {name: state.critiques[i].get(name, ()) for name in standing[i].proposals}
            received.append(hearings[i].received(names, record.proposers, kept))
            records.append(
                replace(
                    record,
                    classes=classes[i],
                    answer_set=sets[i],
                    standing=list(standing[i].proposals),
                    critiques=hearings[i].critiques,
                    notes=notes[i] + hearings[i].notes,
                    usage=Usage.sum(p.usage for p in proposals[i]) + hearings[i].usage,
                )
            )
        return records, DeliberationState(memory, slots, tuple(received), tuple(records))

    def _standing(self, teams: Sequence[Team], state: DeliberationState) -> list[Standing]:
        """What stands of every task's round before, for its team of this round."""
        names = [[self.ensemble.agents[a].name for a in team.standing] for team in teams]
        return [Standing.of(last, stand) for last, stand in zip(state.last, names, strict=True)]

    def _propose(
        self,
        tasks: Sequence[Task],
        teams: Sequence[Team],
        standing: Sequence[Standing],
        state: DeliberationState,
        index: int,
        watch: Observer,
    ) -> tuple[list[list[Proposal]], list[list[str]]]:
        """One proposal of every proposer of every task, new unless it stands, and what happened on the way."""
        template = self.prompts.fingerprint("propose")
        requests = []
        for i, (task, team) in enumerate(zip(tasks, teams, strict=True)):
            texts = [slot.text for slot in state.slots[i]]
            memory = [text for text in shown_texts(texts, self.memory_tokens, self.ensemble.count_tokens) if text]
            for agent in (self.ensemble.agents[a] for a in team.proposers if a not in team.standing):
                seed = call_seed(self.seed, task.id, index, agent.name, "propose")
                messages = self.prompts.propose(
                    task.question,
                    memory=memory,
                    critiques=state.critiques[i].get(agent.name, ()),
                    persona=agent.persona,
                    seed=seed,
                )
                requests.append(GenerateRequest(agent.name, messages, agent.decoding, seed, agent.adapter, template))
        generations = iter(self.ensemble.generate(requests, partial(watch.on_phase, "propose", index)))
        proposals: list[list[Proposal]] = []
        notes: list[list[str]] = []
        for team, old in zip(teams, standing, strict=True):
            proposals.append([])
            notes.append(old.notes())
            for agent in (self.ensemble.agents[a] for a in team.proposers):
                if agent.name in old.proposals:
                    proposals[-1].append(old.proposals[agent.name])
                    continue
                new = next(generations)
                usage = agent.usage(new.prompt_tokens, new.completion_tokens, new.seconds)
                proposals[-1].append(Proposal(agent.name, unfence(new.text), new.finish_reason, usage))
                notes[-1] += _notes(agent.name, new)
        return proposals, notes

    def _hear(
        self,
        tasks: Sequence[Task],
        teams: Sequence[Team],
        standing: Sequence[Standing],
        proposals: Sequence[Sequence[Proposal]],
        index: int,
        watch: Observer,
    ) -> list[Hearing]:
        """Have every voter rate every answer but its own, in an order of its own, as far as the switches say so.

        What it rated in the round before and what stands it is neither asked about nor shown again.
        """
        questions: list[JudgeQuestion] = []
        orders: list[list[int]] = []
        asks: list[bool] = []
        for task, team, old, answers in zip(tasks, teams, standing, proposals, strict=True):
            authors = [p.agent for p in answers]
            for voter in (self.ensemble.agents[a] for a in team.voters):
                seed = call_seed(self.seed, task.id, index, voter.name, "rate")
                asked = [bool(p.text) and (voter.name, p.agent) not in old.ratings for p in answers]
                order = judging_order(
                    seed, voter.name, authors, asked, shuffled=self.shuffled, own=not self.diagonal_mask
                )
                orders.append(order)
                shown = None if self.anonymous else tuple(authors[j] for j in order)
                texts = tuple(answers[j].text for j in order)
                asks.append(bool(order) or not team.standing)
                if asks[-1]:  # a judge of a growing team may have nothing new to rate
                    questions.append(JudgeQuestion(voter, task.question, texts, seed, shown))
        progress = partial(watch.on_phase, "rate", index)
        given = iter(self.rating.rate(self.ensemble, self.prompts, questions, progress))
        nothing = JudgeReply((), (), Usage())
        replies = iter([(order, next(given) if ask else nothing) for order, ask in zip(orders, asks, strict=True)])
        hearings = []
        for team, old, answers in zip(teams, standing, proposals, strict=True):
            names = [self.ensemble.agents[a].name for a in team.voters]
            heard = Hearing.of([next(replies) for _ in names], len(answers))
            hearings.append(replace(heard, ratings=old.filled(heard.ratings, names, [p.agent for p in answers])))
        return hearings

    def _classes(self, task: Task, proposals: Sequence[Proposal]) -> list[int]:
        """Which proposals say the same; every one its own where nobody tells."""
        if self.answers is None:
            return [-1] * len(proposals)
        return self.answers.classes(task, [proposal.text for proposal in proposals])

    def _vote(
        self,
        tasks: Sequence[Task],
        teams: Sequence[Team],
        proposals: Sequence[Sequence[Proposal]],
        classes: Sequence[Sequence[int]],
        hearings: Sequence[Hearing],
        memory: MemoryState,
    ) -> tuple[ConsensusOutput, MemoryState]:
        """Pad the batch into tensors and let the consensus cell vote."""
        like = memory.embeddings
        authors = _padded([team.proposers for team in teams])
        voters = _padded([team.voters for team in teams])
        answered = _padded([[bool(p.text) for p in answers] for answers in proposals], fill=False)
        ratings = torch.full((len(tasks), voters.shape[1], authors.shape[1]), torch.nan, dtype=like.dtype)
        embeddings = torch.zeros(len(tasks), authors.shape[1], self.consensus.dim, dtype=like.dtype)
        for i, (hearing, answers) in enumerate(zip(hearings, proposals, strict=True)):
            rows = [[math.nan if r is None else r for r in row] for row in hearing.ratings]
            # Reshaped, for no rows are no columns either.
            ratings[i, : len(rows), : len(answers)] = torch.tensor(rows, dtype=like.dtype).reshape(-1, len(answers))
            embeddings[i, : len(answers)] = self.encoder.embed([p.text for p in answers]).to(like.dtype)
        counted = vote_mask(voters, authors, answered, own=not self.diagonal_mask) & ~ratings.isnan()
        questions = self.encoder.embed([task.question for task in tasks]).to(like)
        output: tuple[ConsensusOutput, MemoryState] = self.consensus(
            embeddings.to(like.device),
            ratings.to(like.device),
            counted.to(like.device),
            questions,
            memory,
            voters=voters.clamp(min=0).to(like.device),
            authors=authors.to(like.device),
            classes=_padded(classes).to(like.device),
            **self._read(tasks, proposals, authors.shape[1]),
            proposal_mask=answered.to(like.device),
            voter_mask=(voters >= 0).to(like.device),
        )
        return output

    def _read(
        self, tasks: Sequence[Task], proposals: Sequence[Sequence[Proposal]], width: int
    ) -> dict[str, Tensor | None]:
        """Features of the proposals and categories of the tasks, for a consensus cell that reads them."""
        reading = self.consensus.reading
        if reading is None:
            return {}
        like, groups = reading.mean, groups_of(reading.features)
        features = like.new_full((len(tasks), width, len(reading.features)), math.nan)
        for i, (task, answers) in enumerate(zip(tasks, proposals, strict=True)):
            texts = [proposal.text for proposal in answers]
            finals = self.answers.finals(task, texts) if self.answers else [None] * len(texts)
            rows = proposal_features(task.question, texts, letters_of(finals), groups, self.encoder.embed)
            features[i, : len(rows)] = like.new_tensor(rows).reshape(len(rows), -1)
        category = reading.categorized([task.category or "" for task in tasks]).to(like.device)
        return {"features": features, "category": category}

    def _sets(self, tasks: Sequence[Task], output: ConsensusOutput) -> list[AnswerSet | None]:
        """What may be right, where somebody calibrated it."""
        if self.sets is None:
            return [None] * len(tasks)
        index = {name: i for i, name in enumerate(self.sets.categories)}
        category = torch.tensor([index.get(task.category or "", -1) for task in tasks], device=output.winner.device)
        found = self.sets(output.consensus, output.answer_mask, category)
        return [
            AnswerSet(answers.nonzero()[:, 0].tolist(), bool(none), self.sets.coverage)
            for answers, none in zip(found.answers, found.none, strict=True)
        ]

    def _slots(
        self,
        teams: Sequence[Team],
        proposals: Sequence[Sequence[Proposal]],
        state: DeliberationState,
        output: ConsensusOutput,
        index: int,
    ) -> tuple[tuple[SlotText, ...], ...]:
        """Follow the tensors: the words of every slot that the memory kept."""
        width = self.consensus.slots
        slots = []
        for i, sources in enumerate(output.source.tolist()):
            new = [SlotText(p.text, p.agent, index) for p in proposals[i]]
            slots.append(tuple(state.slots[i][s] if s < width else new[s - width] for s in sources if s >= 0))
        return tuple(slots)


def _padded(rows: Sequence[Sequence[int | bool]], fill: int | bool = -1) -> Tensor:
    width = max(map(len, rows))
    padded = [[*row, *[fill] * (width - len(row))] for row in rows]
    # Named, for rows without entries would come out as floats.
    return torch.tensor(padded, dtype=torch.bool if fill is False else torch.long)


def _notes(name: str, generation: Generation) -> list[str]:
    empty = [] if unfence(generation.text) else ["gave no answer"]
    return [f"{name}: {note}" for note in (*generation.notes, *empty)]
