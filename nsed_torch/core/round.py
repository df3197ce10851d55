"""One round with real models: ask, rate, vote, remember."""

import inspect
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from torch import nn

from nsed_torch.core.agent import Agent, Ensemble, Progress
from nsed_torch.core.answer_classes import AnswerClasses
from nsed_torch.core.asking import (
    check_weighs,
    checked_rating,
    counted_ratings,
    judged,
    next_asked,
    rated,
    request_of,
    shown_slots,
    weigh,
)
from nsed_torch.core.batch import BallotBox, SetRule, check_consensus, remembered
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.encoder import Encoder
from nsed_torch.core.engine import call_seed
from nsed_torch.core.functional import vote_mask
from nsed_torch.core.inputs import check_inputs
from nsed_torch.core.kinds import RoundKind, check_no_inputs, check_plain
from nsed_torch.core.kinds.answers import Answers
from nsed_torch.core.memory import MemoryState
from nsed_torch.core.open_round import DeliberationState, OpenRound, SlotText, round_record, shown_texts
from nsed_torch.core.prompts import NOTHING, Prompts, unfence, unseen
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.ratings import Hearing, JudgeReply, Rating, VerdictRating
from nsed_torch.core.team import Standing, Team
from nsed_torch.records.transcript import Proposal, Round, Task, Transcript


class Observer:
    """Hears of progress and results; this one ignores them. Override what you want to see."""

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        """`done` of `total` calls of a phase ("propose" or "rate") of round `index` are finished."""

    def on_round(self, task: Task, record: Round) -> None:
        """A task's round is over."""

    def on_end(self, transcript: Transcript) -> None:
        """A task's deliberation is over; those of the batch that go on may take longer."""


class Counter(Observer):
    """Counts finished calls on one line of standard error."""

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        """Show them."""
        sys.stderr.write(f"\rround {index}, {phase}: {done} of {total} calls ")
        sys.stderr.flush()

    def on_end(self, transcript: Transcript) -> None:
        """Leave the line."""
        sys.stderr.write("\n")


class MacroRNNCell(nn.Module):
    """Asks an ensemble for proposals, embeds them, has them rated, votes, and renders the new memory into words.

    All tasks of the batch go through each phase together. What a round asks for, counts and elects is its `RoundKind`,
    chosen for each task and round: `Readings` where the task has a piece to read, else what the protocol says. The
    consensus cell runs in the dtype of its parameters; in float64 a transcript does not depend on the batch to the last
    digit it keeps. Every argument is an attribute of the same name.

    Args:
        ensemble: the agents.
        encoder: turns proposals and tasks into vectors for the gate.
        consensus: votes and updates the memory.
        protocol: how rounds are held; as published if None.
        prompts: the templates.
        rating: how judges come to their ratings.
        seed: the run's; every call's seed derives from it and from what the call is for.
        answers: tells which proposals say the same, so that they pool their support; None makes each its own answer,
            as published.
        sets: says which answers may be right, at the coverage that it was calibrated for; nobody does if None.

    Raises:
        ValueError: if the consensus cell was built for other sizes than the encoder's and the ensemble's, or was
            saved for other agents, or a judge cannot give such ratings.

    Examples:
        >>> from nsed_torch.core.agent import Agent
        >>> from nsed_torch.core.encoder import HashedEncoder
        >>> from nsed_torch.engines.scripted import ScriptedEngine
        >>> from nsed_torch.core.team import full_team
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
        protocol: Protocol | None = None,
        prompts: Prompts | None = None,
        rating: Rating | None = None,
        seed: int = 0,
        answers: AnswerClasses | None = None,
        sets: SetRule | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(protocol, Protocol | None):
            raise ValueError(f"protocol: expected a Protocol, got {protocol!r}: pass Protocol(...) with these switches")
        self.protocol = protocol or Protocol()
        check_weighs(self.protocol, ensemble)
        if self.protocol.unit != "step":
            check_plain(ensemble.agents)
        check_consensus(consensus, encoder.dim, [agent.name for agent in ensemble.agents])
        self.ensemble, self.encoder, self.consensus = ensemble, encoder, consensus
        self.prompts, self.seed = prompts or Prompts(), seed
        self.rating: Rating = checked_rating(rating or VerdictRating(), ensemble)
        self.answers, self.sets = answers, sets

    def with_(self, **parts: Any) -> "MacroRNNCell":
        """The same cell with other parts, named as its arguments; all else is shared."""
        names = inspect.signature(MacroRNNCell).parameters
        if unknown := [name for name in parts if name not in names]:
            raise ValueError(f"expected parts out of {', '.join(names)}, got {', '.join(unknown)}: correct the names")
        return MacroRNNCell(**{name: parts.get(name, getattr(self, name)) for name in names})

    def like(self, **parts: Any) -> ConsensusCell:
        """The consensus cell with other parts in place of its own, to be fitted: `team.cell.like(gate=MyGate())`."""
        return self.consensus.like(**parts)

    def start(self, tasks: Sequence[Task]) -> DeliberationState:
        """The state before the first round: no memory."""
        return DeliberationState.start(len(tasks), self.consensus)

    def check(self, task: Task) -> None:
        """Refuse a task whose inputs no round can show, with a ValueError, before any run."""
        if self.protocol.unit == "step":
            check_no_inputs(task)
        check_inputs(task, [agent.name for agent in self.ensemble.agents])

    def kind(self, task: Task, index: int) -> RoundKind:
        """What round `index` of a task asks for, counts and elects."""
        agents, protocol = self.ensemble.agents, self.protocol
        if task.reads(index):
            from nsed_torch.core.kinds.readings import Readings  # noqa: PLC0415 - loaded where a task gives to read

            return Readings(task, index, agents, self.prompts, verbatim=protocol.verbatim)
        if protocol.unit == "step":
            from nsed_torch.core.kinds.steps import Steps  # noqa: PLC0415 - loaded where rounds are steps

            return Steps(task, self.ensemble, self.prompts, protocol.memory_tokens)
        return Answers(task, agents, self.answers)

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
            ConnectionError: if every call for a task's proposals, or ratings, failed. Otherwise an agent whose call
                failed is silent: no proposal, or no ratings, and a note of why.
        """
        watch = observer or Observer()
        turns, before = self._open(tasks, teams, state, index)
        self._propose(turns, before.memory, index, partial(watch.on_phase, "propose", index))
        self._rate(turns, index, partial(watch.on_phase, "rate", index))
        output, memory = self._vote(turns, before.memory)
        return self._remember(turns, before, output, memory, index)

    def _open(
        self, tasks: Sequence[Task], teams: Sequence[Team], state: DeliberationState, index: int
    ) -> tuple[list[OpenRound], DeliberationState]:
        """The rounds with what they ask, and the state without what stands, which enters the memory anew."""
        agents = self.ensemble.agents
        standing = [
            Standing.of(last, [agents[a].name for a in team.standing])
            for last, team in zip(state.last, teams, strict=True)
        ]
        state = state.without([kept.proposals for kept in standing])
        turns = []
        for row, (task, team) in enumerate(zip(tasks, teams, strict=True)):
            if team.standing and task.inputs:
                raise ValueError(f"task {task.id!r}: expected no inputs where answers stand: choose another broker")
            kind, critiques = self.kind(task, index), state.critiques[row]
            weights = self._weights(*shown_slots(self.protocol.control, state, row))
            shown = [text for text, _ in weights]
            # One fence for all agents and rounds, so that what stands in the memory is read once; who read the fence in
            # an earlier round and wrote it down has it changed.
            told = [text for texts in critiques.values() for text in texts]
            mark = unseen(call_seed(self.seed, task.id, "propose"), [*kind.quoted(shown), *told])
            seats = [agents[a] for a in team.proposers], [agents[a] for a in team.voters]
            # A copy of the ledger, so that the same state gives the same round again.
            asked, ledger = kind.ask(shown, mark), state.ledgers[row].copy()
            turn = OpenRound(row, task, kind, team, *seats, standing[row], asked, mark, critiques, ledger)
            if self.protocol.memory != "shown":
                turn.weights, turn.beside = weights, self.protocol.memory == "beside"
            turns.append(turn)
        return turns, state

    def _propose(self, turns: Sequence[OpenRound], memory: MemoryState, index: int, progress: Progress) -> None:
        """One proposal of every proposer of every task, new unless it stands, and which of them say the same."""
        ahead = self.protocol.ahead
        if ahead is not None:
            weigh(turns, self.consensus, self.encoder, memory)
        for turn in turns:
            if turn.standing.proposals:
                turn.notes = [f"{', '.join(turn.standing.proposals)}: heard before, not asked again"]
        waiting = list(turns)
        while waiting:
            self._ask([(turn, next_asked(turn, ahead)) for turn in waiting], index, progress)
            for turn in waiting:
                rule = turn.kind.rule
                turn.classes = rule.classes(turn.task, turn.texts) if rule else [-1] * len(turn.proposals)
            waiting = [turn for turn in waiting if next_asked(turn, ahead)]
        for turn in turns:
            turn.narrow()

    def _ask(self, asked: Sequence[tuple[OpenRound, list[Agent]]], index: int, progress: Progress) -> None:
        """Have some of each task's proposers propose, and take down what counts of it."""
        asks = partial(request_of, prompts=self.prompts, template=self.prompts.fingerprint("propose"))
        requests = [
            asks(turn, agent, seed=call_seed(self.seed, turn.task.id, index, agent.name, "propose"))
            for turn, agents in asked
            for agent in agents
            if agent.name not in turn.given
        ]
        generations = iter(self.ensemble.generate(requests, progress, silent=True))
        for turn, agents in asked:
            failures = []
            for agent in agents:
                if agent.name in turn.given:
                    turn.proposals.append(turn.given[agent.name])
                    continue
                new = next(generations)
                text, reason, notes = turn.kind.count(agent, unfence(new.text), new.finish_reason)
                turn.proposals.append(Proposal(agent.name, text, reason, agent.charged(new)))
                empty = [] if text or new.failure or reason == NOTHING else ["gave no answer"]
                turn.notes += [*notes, *(f"{agent.name}: {note}" for note in (*new.notes, *empty))]
                failures += [new.failure] * bool(new.failure)
            if failures and len(failures) == sum(p.agent not in turn.asked.excused for p in turn.proposals):
                raise ConnectionError(f"task {turn.task.id!r}: nobody answered: {failures[0]}")

    def _rate(self, turns: Sequence[OpenRound], index: int, progress: Progress) -> None:
        """Have every voter rate every answer but its own, or those that it drew, in an order of its own.

        What it rated in the round before and what stands it is neither asked about nor shown again.
        """
        asked = []
        for turn in turns:
            seeds = [call_seed(self.seed, turn.task.id, index, name, "rate") for name in turn.voter_names]
            rows = zip(turn.voters, seeds, self._drawn(turn, index), strict=True)
            asked.append([judged(turn, voter, self.protocol, seed, rates) for voter, seed, rates in rows])
        wanted = [question for row in asked for _, question in row if question is not None]
        given = iter(rated(self.rating, self.ensemble, self.prompts, wanted, progress))
        for turn, row in zip(turns, asked, strict=True):
            heard = [(order, JudgeReply(()) if question is None else next(given)) for order, question in row]
            failed = {v.name: reply.failure for v, (order, reply) in zip(turn.voters, heard, strict=True) if order}
            silent = {p.agent for p in turn.proposals if p.finish_reason == "failed"}
            if all(failed.values()) and (lost := [why for name, why in failed.items() if name not in silent]):
                raise ConnectionError(f"task {turn.task.id!r}: nobody rated: {lost[0]}")
            seeds = [call_seed(self.seed, turn.task.id, index, name, "control") for name in turn.voter_names]
            hearing = counted_ratings(self.protocol.control, Hearing.of(heard, len(turn.proposals)), seeds)
            ratings = turn.standing.filled(hearing.ratings, turn.voter_names, turn.author_names)
            if self.protocol.equal_once:
                from nsed_torch.core.sparse import shared  # noqa: PLC0415 - loaded where judging is sparse

                ratings = shared(turn, self.protocol, ratings)
            turn.hearing = replace(hearing, ratings=ratings)

    def _drawn(self, turn: OpenRound, index: int) -> Sequence[set[int] | None]:
        """What each judge rates; None is all that it may."""
        if not self.protocol.sparse:
            return [None] * len(turn.voters)
        from nsed_torch.core.sparse import pairs  # noqa: PLC0415 - loaded where judging is sparse

        return pairs(turn, self.protocol, call_seed(self.seed, turn.task.id, index, "pairs"))

    def _vote(self, turns: Sequence[OpenRound], memory: MemoryState) -> tuple[ConsensusOutput, MemoryState]:
        """Let the consensus cell vote on the whole batch."""
        like, reading = memory.embeddings, self.consensus.reading
        box = BallotBox.of(turns, self.encoder, like)
        counted = vote_mask(box.voters, box.authors, box.answered, own=not self.protocol.diagonal_mask)
        read = {}
        if reading is not None:
            finals = [rule.finals(t.task, t.texts) if (rule := t.kind.rule) else [None] * len(t.texts) for t in turns]
            told = [turn.task.question for turn in turns], [turn.texts for turn in turns], finals
            read["features"] = reading.of_texts(*told, box.authors.shape[1], self.encoder)
            read["category"] = reading.categorized([turn.task.category or "" for turn in turns]).to(like.device)
        output, after = self.consensus(
            box.embeddings,
            box.ratings,
            counted & ~box.ratings.isnan(),
            self.encoder.embed([turn.task.question for turn in turns]).to(like),
            memory,
            voters=box.voters.clamp(min=0),
            authors=box.authors,
            classes=box.classes,
            proposal_mask=box.answered,
            voter_mask=box.voters >= 0,
            winner_alone=turns[0].kind.winner_alone,  # a batch's tasks are all of one unit
            **read,
        )
        return remembered(turns, output, after, memory)

    def _remember(
        self,
        turns: Sequence[OpenRound],
        state: DeliberationState,
        output: ConsensusOutput,
        memory: MemoryState,
        index: int,
    ) -> tuple[list[Round], DeliberationState]:
        """The records, and the words of every slot that the memory kept."""
        records, slots, width = [], [], self.consensus.slots
        sets = self.sets.of_rounds(turns, output) if self.sets is not None else [None] * len(turns)
        for turn, sources in zip(turns, output.source.tolist(), strict=True):
            # Follow the tensors.
            old, new = state.slots[turn.row], [SlotText(p.text, p.agent, index) for p in turn.proposals]
            slots.append(tuple(old[s] if s < width else new[s - width] for s in sources if s >= 0))
            shown = self._shown(slots[-1], memory.retention[turn.row].tolist())
            records.append(round_record(turn, index, output, memory, slots[-1], shown, sets[turn.row]))
        received, ledgers = tuple(turn.received() for turn in turns), tuple(turn.ledger for turn in turns)
        return records, DeliberationState(memory, tuple(slots), received, tuple(records), ledgers)

    def _weights(self, slots: Sequence[SlotText], retention: Sequence[float]) -> list[tuple[str, float]]:
        """What agents are shown of the memory, with retentions, strongest first; side by side, oldest first."""
        shown = zip(self._shown(slots, retention), retention, slots, strict=False)
        kept = [(text, min(round(r, 4), 1.0), slot.round) for text, r, slot in shown if text]
        if self.protocol.memory == "beside":
            kept.sort(key=itemgetter(2))  # what is new comes last, so that what was read stays where it was
        return [(text, r) for text, r, _ in kept]

    def _shown(self, slots: Sequence[SlotText], retention: Sequence[float]) -> list[str | None]:
        """What agents are shown of each slot, strongest first: nothing of what the gate has all but let go of."""
        strong = [slot.text for slot, kept in zip(slots, retention, strict=False) if kept >= self.protocol.floor]
        shown = shown_texts(strong, self.protocol.memory_tokens, self.ensemble.count_tokens)
        return shown + [None] * (len(slots) - len(strong))
