"""One round with real models: the macro-RNN's cell."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor, nn

from nsed_torch.core.agent import Agent, Ensemble, Progress
from nsed_torch.core.answers import AnswerClasses, SameTexts
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.conformal import ConformalSets
from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.encoder import Encoder
from nsed_torch.core.engine import GenerateRequest, call_seed
from nsed_torch.core.features import groups_of, letters_of, proposal_features
from nsed_torch.core.forms import FORMS
from nsed_torch.core.functional import vote_mask
from nsed_torch.core.inputs import check_inputs, pieces
from nsed_torch.core.ledger import TokenLedger
from nsed_torch.core.memory import MemoryState
from nsed_torch.core.observer import Observer
from nsed_torch.core.open_round import OpenRound, round_record
from nsed_torch.core.prompts import NOTHING, Prompts, noted, unfence, unseen
from nsed_torch.core.ratings import (
    JudgeQuestion,
    JudgeReply,
    LikelihoodRating,
    RatingMode,
    VerdictRating,
    judging_order,
)
from nsed_torch.core.ratings_received import Hearing
from nsed_torch.core.sentences import sentences, verbatim
from nsed_torch.core.state import DeliberationState, SlotText, shown_texts
from nsed_torch.core.team import Standing, Team
from nsed_torch.records.transcript import AnswerSet, Proposal, Round, Task, Usage

SLACK = 1e-9
"""Of leads, which sums in another order do not meet exactly."""

UNITS = ("answer", "step")
"""What a round may elect."""

CONTROLS = (None, "ratings", "memory")
"""What may be made worthless, to see what it is worth."""


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
        unit: what a round elects. "answer", as published: everybody answers the question anew, beside what the memory
            holds. "step": the next step of some work, asked for with the work alone; equal texts are one answer, and
            the elected one alone enters the memory.
        ahead: ask one proposer after the other, until an answer is ahead of the next by so much trust in who gives it,
            1 each at the start; None asks all at once. Who is not asked does not vote. First to be ahead by k is
            published by Meyerson et al. (2025, arXiv 2511.09030), for samples of one model; trust is the consensus
            cell's, before it reads what proposals say. Where it is the log-odds of being right, this is a sequential
            test (Wald 1945).
        shown_from: retention, from 0 to below 1, from which agents are shown what a slot holds. With 0, as published,
            they read all slots, also what the gate has all but let go of. Ours.
        verbatim: whether of a note those sentences alone count that its author's piece says word for word, so that
            nobody remembers what was never said; False takes notes as they are. Ours.
        control: what is made worthless, to see what it is worth. "ratings": each judge's change places by chance.
            "memory": agents are shown what the memory of the batch's next task holds; of a task alone, nothing.

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
        prompts: Prompts | None = None,
        rating: RatingMode | None = None,
        memory_tokens: int = 256,
        seed: int = 0,
        diagonal_mask: bool = True,
        anonymous: bool = True,
        shuffled: bool = True,
        answers: AnswerClasses | None = None,
        sets: ConformalSets | None = None,
        unit: str = "answer",
        ahead: float | None = None,
        shown_from: float = 0.0,
        verbatim: bool = False,
        control: str | None = None,
    ) -> None:
        super().__init__()
        if unit not in UNITS or (ahead is not None and not 0 < ahead < math.inf):
            wanted = f"expected a unit out of {', '.join(UNITS)} and a lead above 0"
            raise ValueError(f"protocol: {wanted}, got {unit!r} and ahead={ahead}: correct them")
        if not 0 <= shown_from < 1:
            wanted = "expected a retention from 0 to below 1 from which slots are shown"
            raise ValueError(f"protocol: {wanted}, got shown_from={shown_from}: correct it")
        if control not in CONTROLS or (control == "memory" and unit == "step"):
            wanted = "expected a control out of null, ratings and, where rounds are answers, memory"
            raise ValueError(f"protocol: {wanted}, got {control!r}: correct it")
        if unit != "step" and (formed := [agent.name for agent in ensemble.agents if agent.form != "plain"]):
            wanted = "expected agents with a form of their own only where rounds are steps"
            raise ValueError(f"{wanted}, got {', '.join(formed)}: set protocol.unit=step or form=plain")
        sizes = ("dim", consensus.dim, encoder.dim), ("agents", consensus.agents, len(ensemble))
        for what, got, expected in sizes:
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
        if isinstance(self.rating, LikelihoodRating):
            self.rating.check(ensemble)
        self.memory_tokens, self.seed = memory_tokens, seed
        self.diagonal_mask, self.anonymous, self.shuffled = diagonal_mask, anonymous, shuffled
        self.answers, self.sets = SameTexts() if unit == "step" else answers, sets
        self.unit, self.ahead, self.control = unit, ahead, control
        self.shown_from, self.verbatim = shown_from, verbatim

    def start(self, tasks: Sequence[Task]) -> DeliberationState:
        """The state before the first round: no memory."""
        parameter = next(self.consensus.parameters())
        size = (len(tasks), self.consensus.slots, self.consensus.dim)
        memory = MemoryState.empty(*size, dtype=parameter.dtype, device=parameter.device)
        ledgers = tuple(TokenLedger() for _ in tasks)
        return DeliberationState(memory, ((),) * len(tasks), ({},) * len(tasks), (None,) * len(tasks), ledgers)

    def check(self, task: Task) -> None:
        """Refuse a task whose inputs no round can show, with a ValueError, before any run."""
        if task.inputs and self.unit == "step":
            raise ValueError(f"task {task.id!r}: expected no inputs where rounds are steps: set protocol.unit=answer")
        check_inputs(task, [agent.name for agent in self.ensemble.agents])

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
        turns = [
            # A copy, so that the same state gives the same round again.
            self._turn(i, task, team, last, ledger.copy())
            for i, (task, team, last, ledger) in enumerate(zip(tasks, teams, state.last, state.ledgers, strict=True))
        ]
        state = state.without([turn.standing.proposals for turn in turns])
        for turn in turns:
            self._show(turn, state, index)
        if self.ahead is not None:
            self._weigh(turns, state)
        self._propose(turns, state, index, partial(watch.on_phase, "propose", index))
        self._hear(turns, index, partial(watch.on_phase, "rate", index))
        output, memory = _notes_kept(turns, *self._vote(turns, state.memory), state.memory)
        sets = self._sets(tasks, output)
        width = self.consensus.slots
        records, received, slots = [], [], []
        for turn, answer_set, sources in zip(turns, sets, output.source.tolist(), strict=True):
            # Follow the tensors: the words of every slot that the memory kept.
            old, new = state.slots[turn.row], [SlotText(p.text, p.agent, index) for p in turn.proposals]
            slots.append(tuple(old[s] if s < width else new[s - width] for s in sources if s >= 0))
            before = {name: state.critiques[turn.row].get(name, ()) for name in turn.standing.proposals}
            # What was said of a note is no criticism of the answer to come.
            heard = {} if turn.reads else turn.hearing.received(turn.voter_names, turn.author_names, before)
            received.append(heard)
            shown = self._shown(slots[-1], memory.retention[turn.row])
            kept_set = None if turn.reads else answer_set
            records.append(round_record(turn, index, output, memory, slots[-1], shown, kept_set))
        ledgers = tuple(turn.ledger for turn in turns)
        return records, DeliberationState(memory, tuple(slots), tuple(received), tuple(records), ledgers)

    def _turn(self, row: int, task: Task, team: Team, last: Round | None, ledger: TokenLedger) -> OpenRound:
        authors, voters, heard = (
            [self.ensemble.agents[a] for a in which] for which in (team.proposers, team.voters, team.standing)
        )
        if heard and task.inputs:
            raise ValueError(f"task {task.id!r}: expected no inputs where answers stand: choose another broker")
        standing = Standing.of(last, [agent.name for agent in heard])
        return OpenRound(row, task, team, authors, voters, standing, ledger=ledger)

    def _show(self, turn: OpenRound, state: DeliberationState, index: int) -> None:
        """What a task's round shows: of the state to everybody, of the inputs to whom they are for."""
        tasks = len(state.slots)
        row = turn.row if self.control != "memory" else (turn.row + 1) % tasks
        slots = state.slots[row] if self.control != "memory" or tasks > 1 else ()
        shown = [text for text in self._shown(slots, state.memory.retention[row]) if text]
        # One fence for all agents and rounds, so that what stands in the memory is read once; who read the fence in an
        # earlier round and wrote it down has it changed.
        told = [text for texts in state.critiques[turn.row].values() for text in texts]
        forms = sorted({agent.form for agent in self.ensemble.agents})
        formed = [FORMS[form].shown(text) for form in forms for text in (*shown, turn.task.start)]
        names = [agent.name for agent in self.ensemble.agents]
        read = pieces(turn.task, index, names)
        turn.mark = unseen(call_seed(self.seed, turn.task.id, "propose"), [*formed, *told, *read.values()])
        if turn.task.reads(index):
            turn.reads, turn.pieces = True, read
            turn.shared = isinstance(turn.task.inputs[index - 1], str)
            piece_asked = {
                piece: self.prompts.read(turn.task.question, memory=shown, piece=piece, seed=turn.mark)
                for piece in {"", *read.values()}
            }
            turn.otherwise = {name: piece_asked[read.get(name, "")] for name in names}
            turn.excused = {name: Proposal(name, "", NOTHING) for name in names if name not in read}
        elif self.unit == "step":  # the strongest is the newest
            work = shown[::-1] or [turn.task.start] * bool(turn.task.start)
            asked = partial(self.prompts.work, turn.task.question, work, seed=turn.mark)
            turn.question = asked()
            turn.otherwise = {a.name: asked(form=a.form) for a in self.ensemble.agents if a.form != "plain"}
        else:
            turn.question, turn.memory = turn.task.question, shown

    def _weigh(self, turns: Sequence[OpenRound], state: DeliberationState) -> None:
        """How far every proposer of every task is trusted, before anything is said."""
        hidden, task = state.memory.hidden(), self.encoder.embed([turn.task.question for turn in turns])
        authors = _padded([turn.team.proposers for turn in turns]).to(hidden.device)
        trust = self.consensus.trust(authors, task.to(hidden), hidden, authors >= 0)
        for turn, row in zip(turns, trust.tolist(), strict=True):
            turn.trust = row[: len(turn.authors)]

    def _propose(self, turns: Sequence[OpenRound], state: DeliberationState, index: int, progress: Progress) -> None:
        """One proposal of every proposer of every task, new unless it stands, and which of them say the same."""
        for turn in turns:
            if turn.standing.proposals:
                turn.notes = [f"{', '.join(turn.standing.proposals)}: heard before, not asked again"]
        open_turns = list(turns)
        while open_turns:
            self._ask([(turn, self._next_asked(turn)) for turn in open_turns], state, index, progress)
            for turn in open_turns:
                # Every proposal is its own answer where nobody tells.
                rule = SameTexts() if turn.reads else self.answers
                turn.classes = rule.classes(turn.task, turn.texts) if rule else [-1] * len(turn.proposals)
            open_turns = [turn for turn in open_turns if self._next_asked(turn)]
        for turn in turns:
            turn.narrow()

    def _next_asked(self, turn: OpenRound) -> list[Agent]:
        """Who is asked next: all at once, or as few as can bring one answer far enough ahead."""
        waiting = turn.authors[len(turn.proposals) :]
        if self.ahead is None or turn.reads:  # who read another piece repeats nobody
            return waiting
        support: defaultdict[int | tuple[str, int], float] = defaultdict(float)
        for i, (same, text) in enumerate(zip(turn.classes, turn.texts, strict=True)):
            support[same if same >= 0 else ("own", i)] += turn.trust[i] if text else 0
        first, second = sorted([*support.values(), 0, 0], reverse=True)[:2]
        missing = self.ahead - (first - second) - SLACK
        reach = list(accumulate(abs(trust) for trust in turn.trust[len(turn.proposals) :]))
        return waiting[: bisect_left(reach, missing) + 1] if missing > 0 else []

    def _ask(
        self, asked: Sequence[tuple[OpenRound, list[Agent]]], state: DeliberationState, index: int, progress: Progress
    ) -> None:
        """Have some of each task's proposers propose, and take down what they said."""
        template = self.prompts.fingerprint("propose")
        requests = []
        for turn, agents in asked:
            for agent in (a for a in agents if a.name not in turn.given):
                seed = call_seed(self.seed, turn.task.id, index, agent.name, "propose")
                messages = self.prompts.propose(
                    turn.asked(agent.name),
                    memory=turn.memory,
                    critiques=state.critiques[turn.row].get(agent.name, ()),
                    persona=agent.persona,
                    seed=turn.mark,
                )
                call = agent.name, messages, agent.decoding, seed, agent.adapter, template
                requests.append(GenerateRequest(*call, ledger=turn.ledger))
        generations = iter(self.ensemble.generate(requests, progress, silent=True))
        for turn, agents in asked:
            failures = []
            for agent in agents:
                if agent.name in turn.given:
                    turn.proposals.append(turn.given[agent.name])
                    continue
                new = next(generations)
                text, reason = unfence(new.text), new.finish_reason
                if turn.reads and text:
                    text, notes = self._note(agent, text, turn.pieces[agent.name])
                    reason = reason if text else NOTHING
                    turn.notes += notes
                if self.unit == "step":
                    text, notes = self._step(agent, new.finish_reason, text)
                    turn.notes += notes
                turn.proposals.append(Proposal(agent.name, text, reason, agent.charged(new)))
                empty = [] if text or new.failure or reason == NOTHING else ["gave no answer"]
                turn.notes += [f"{agent.name}: {note}" for note in (*new.notes, *empty)]
                failures += [new.failure] * bool(new.failure)
            if failures and len(failures) == sum(p.agent not in turn.excused for p in turn.proposals):
                raise ConnectionError(f"task {turn.task.id!r}: nobody answered: {failures[0]}")
            turn.silent = {p.agent for p in turn.proposals if p.finish_reason == "failed"}

    def _note(self, agent: Agent, text: str, piece: str) -> tuple[str, list[str]]:
        """What counts of a note, "" where that is nothing, and that something of it does not."""
        text = noted(text)
        kept = verbatim(text, piece) if self.verbatim else text
        if len(sentences(kept)) == len(sentences(text)):
            return kept, []
        return kept, [f"{agent.name}: its piece does not say all of {text[:80]!r}"]

    def _step(self, agent: Agent, reason: str, text: str) -> tuple[str, list[str]]:
        """What an agent wrote, in the plain form; "" and why where the work could not go on from it."""
        step = FORMS[agent.form].plain(text)
        if step is None:
            return "", [f"{agent.name}: a step that is not {agent.form} is none"]
        if reason == "length" or self.ensemble.count_tokens(step) > self.memory_tokens:
            return "", [f"{agent.name}: a step that does not fit its allowance or memory_tokens is none"]
        return step, []

    def _hear(self, turns: Sequence[OpenRound], index: int, progress: Progress) -> None:
        """Have every voter rate every answer but its own, in an order of its own, as far as the switches say so.

        What it rated in the round before and what stands it is neither asked about nor shown again.
        """
        questions: list[JudgeQuestion | None] = []
        orders: list[list[int]] = []
        for turn in turns:
            names = turn.author_names
            for voter in turn.voters:
                seed = call_seed(self.seed, turn.task.id, index, voter.name, "rate")
                new = [bool(p.text) and (voter.name, p.agent) not in turn.standing.ratings for p in turn.proposals]
                order = judging_order(seed, voter.name, names, new, shuffled=self.shuffled, own=not self.diagonal_mask)
                orders.append(order)
                shown = None if self.anonymous else tuple(names[j] for j in order)
                written = FORMS[voter.form].written
                texts = tuple(written(turn.texts[j]) for j in order)
                # Nobody can say the same as who read something else.
                said = next((written(p.text) for p in turn.proposals if p.agent == voter.name and turn.shared), "")
                about = voter, turn.asked(voter.name), texts, seed, shown, turn.ledger, said, turn.reads
                # A judge of a growing team, or of notes, may have nothing new to rate.
                questions.append(JudgeQuestion(*about) if order or not (turn.team.standing or turn.reads) else None)
        wanted = [question for question in questions if question is not None]
        given = iter(self.rating.rate(self.ensemble, self.prompts, wanted, progress))
        nothing = JudgeReply((), (), Usage())
        replies = iter([(o, nothing if q is None else next(given)) for o, q in zip(orders, questions, strict=True)])
        for turn in turns:
            heard = [next(replies) for _ in turn.voters]
            asked = {voter.name: r.failure for voter, (order, r) in zip(turn.voters, heard, strict=True) if order}
            if all(asked.values()) and (lost := [why for name, why in asked.items() if name not in turn.silent]):
                raise ConnectionError(f"task {turn.task.id!r}: nobody rated: {lost[0]}")
            hearing = Hearing.of(heard, len(turn.proposals))
            if self.control == "ratings":
                phase = partial(call_seed, self.seed, turn.task.id, index)
                hearing = hearing.dealt_anew([phase(name, "control") for name in turn.voter_names])
            ratings = turn.standing.filled(hearing.ratings, turn.voter_names, turn.author_names)
            turn.hearing = replace(hearing, ratings=ratings)

    def _vote(self, turns: Sequence[OpenRound], memory: MemoryState) -> tuple[ConsensusOutput, MemoryState]:
        """Pad the batch into tensors and let the consensus cell vote."""
        like = memory.embeddings
        authors = _padded([turn.team.proposers for turn in turns])
        voters = _padded([turn.team.voters for turn in turns])
        answered = _padded([[bool(text) for text in turn.texts] for turn in turns], fill=False)
        ratings = torch.full((len(turns), voters.shape[1], authors.shape[1]), torch.nan, dtype=like.dtype)
        embeddings = torch.zeros(len(turns), authors.shape[1], self.consensus.dim, dtype=like.dtype)
        for i, turn in enumerate(turns):
            rows = [[math.nan if r is None else r for r in row] for row in turn.hearing.ratings]
            width = len(turn.proposals)
            # Reshaped, for no rows are no columns either.
            ratings[i, : len(rows), :width] = torch.tensor(rows, dtype=like.dtype).reshape(-1, width)
            embeddings[i, :width] = self.encoder.embed(turn.texts).to(like.dtype)
        counted = vote_mask(voters, authors, answered, own=not self.diagonal_mask) & ~ratings.isnan()
        output: tuple[ConsensusOutput, MemoryState] = self.consensus(
            embeddings.to(like.device),
            ratings.to(like.device),
            counted.to(like.device),
            self.encoder.embed([turn.task.question for turn in turns]).to(like),
            memory,
            voters=voters.clamp(min=0).to(like.device),
            authors=authors.to(like.device),
            classes=_padded([turn.classes for turn in turns]).to(like.device),
            **self._read(turns, authors.shape[1]),
            proposal_mask=answered.to(like.device),
            winner_alone=self.unit == "step",
            voter_mask=(voters >= 0).to(like.device),
        )
        return output

    def _read(self, turns: Sequence[OpenRound], width: int) -> dict[str, Tensor | None]:
        """Features of the proposals and categories of the tasks, for a consensus cell that reads them."""
        reading = self.consensus.reading
        if reading is None:
            return {}
        like, groups = reading.mean, groups_of(reading.features)
        features = like.new_full((len(turns), width, len(reading.features)), math.nan)
        for i, turn in enumerate(turns):
            finals = self.answers.finals(turn.task, turn.texts) if self.answers else [None] * len(turn.texts)
            rows = proposal_features(turn.task.question, turn.texts, letters_of(finals), groups, self.encoder.embed)
            features[i, : len(rows)] = like.new_tensor(rows).reshape(len(rows), -1)
        category = reading.categorized([turn.task.category or "" for turn in turns]).to(like.device)
        return {"features": features, "category": category}

    def _sets(self, tasks: Sequence[Task], output: ConsensusOutput) -> list[AnswerSet | None]:
        """What may be right, where somebody calibrated it."""
        if self.sets is None:
            return [None] * len(tasks)
        index = {name: i for i, name in enumerate(self.sets.categories)}
        category = torch.tensor([index.get(task.category or "", -1) for task in tasks], device=output.winner.device)
        sets = self.sets(output.consensus, output.answer_mask, category)
        return [
            AnswerSet(answers.nonzero()[:, 0].tolist(), bool(none), self.sets.coverage)
            for answers, none in zip(sets.answers, sets.none, strict=True)
        ]

    def _shown(self, slots: Sequence[SlotText], retention: Tensor) -> list[str | None]:
        """What agents are shown of each slot, strongest first: nothing of what the gate has all but let go of."""
        strong = [slot.text for slot, kept in zip(slots, retention.tolist(), strict=False) if kept >= self.shown_from]
        shown = shown_texts(strong, self.memory_tokens, self.ensemble.count_tokens)
        return shown + [None] * (len(slots) - len(strong))


def _notes_kept(
    turns: Sequence[OpenRound], output: ConsensusOutput, memory: MemoryState, before: MemoryState
) -> tuple[ConsensusOutput, MemoryState]:
    """What was read stays as it was in rounds behind the last piece: their answers are no notes.

    Ours. Where an answer took a note's place, the next round drew its conclusions from what was left (docs/reading.md).
    """
    closing = torch.tensor([bool(turn.task.inputs) and not turn.reads for turn in turns], device=before.mask.device)
    if not bool(closing.any()):
        return output, memory

    def rows(those: Tensor, others: Tensor) -> Tensor:
        return torch.where(closing.reshape(-1, *[1] * (others.ndim - 1)), those, others)

    places = torch.arange(before.mask.shape[1], device=before.mask.device)
    output = output._replace(
        source=rows(torch.where(before.mask, places, -1), output.source),
        gate=rows(torch.ones_like(output.gate), output.gate),
    )
    return output, MemoryState(*(rows(old, new) for old, new in zip(before, memory, strict=True)))


def _padded(rows: Sequence[Sequence[int | bool]], fill: int | bool = -1) -> Tensor:
    width = max(map(len, rows))
    padded = [[*row, *[fill] * (width - len(row))] for row in rows]
    # Named, for rows without entries would come out as floats.
    return torch.tensor(padded, dtype=torch.bool if fill is False else torch.long)
