"""Deliberation as a recurrent network: broker, rounds, halting."""

import difflib
import importlib.metadata
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import torch
from torch import nn

from nsed_torch.core.answer_classes import SameTexts
from nsed_torch.core.broker import Broker, InfeasibleBudgetError, Seating, hook, seating
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import Encoder, HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.halting import FixedHalting, Halting
from nsed_torch.core.named import part_named
from nsed_torch.core.open_round import DeliberationState
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.ratings import Rating
from nsed_torch.core.round import Counter, MacroRNNCell, Observer
from nsed_torch.core.team import Team, check_team, full_team
from nsed_torch.records.transcript import Round, Task, Transcript, Usage

UNSAID = 8
"""Rounds that there are at most where neither the user nor the halting rule says how many."""

_SAME: Any = object()


@dataclass(frozen=True)
class Deliberation:
    """What a `MacroRNN` returns: a transcript a task, in the order of the tasks."""

    transcripts: tuple[Transcript, ...]

    @property
    def answer(self) -> str:
        """The answer to the one task; a ValueError where there were several."""
        if len(self.transcripts) != 1:
            raise ValueError(f"answer: expected a deliberation on one task, got {len(self.transcripts)}: read answers")
        return self.transcripts[0].answer

    @property
    def answers(self) -> tuple[str, ...]:
        """The answer to each task."""
        return tuple(transcript.answer for transcript in self.transcripts)

    def _repr_html_(self) -> str:
        """What a notebook shows: the page of every transcript."""
        return "\n".join(transcript._repr_html_() for transcript in self.transcripts)


class MacroRNN(nn.Module):
    """Deliberates: `rnn(tasks) -> Deliberation`.

    Every round the broker names each task's team, the cell runs the round for all tasks that still deliberate, and
    the halting rule says which of them are done. Where rounds are steps, a task is done as soon as the team elects a
    step that says so. Where a task has inputs, a round a piece comes first, and the halting rule counts and reads the
    closing rounds behind them, which alone give answers. A task stops with what it has where the broker finds nobody
    else worth asking, or what is left of the budget pays for no team.

    Args:
        cell: one round.
        halting: when to stop; as many rounds as there are at most if None.
        rounds: how many there are at most, behind the inputs; if None, as many as the rule says, 3 without one, 8 for a
            rule that does not say.
        broker: who takes part; None is everybody, as in the published runs.
        without: names of agents that take no part, where there is no broker: others may still ask them alone.

    Raises:
        ValueError: if a part is none, the broker knows other agents, there are more rounds than the rule allows, or
            agents are left out that are not there, or beside a broker.

    Examples:
        >>> from nsed_torch.core.agent import Agent, Ensemble
        >>> from nsed_torch.core.encoder import HashedEncoder
        >>> from nsed_torch.engines.scripted import ScriptedEngine
        >>> from nsed_torch.core.cell import ConsensusCell
        >>> engine = ScriptedEngine(lambda request: f"{request.agent} says 17", lambda request, candidate: 0.5)
        >>> ensemble = Ensemble({"tiny": engine}, [Agent("ant", "tiny"), Agent("bee", "tiny")])
        >>> cell = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(dim=8, agents=2))
        >>> rnn = MacroRNN(cell, rounds=2)
        >>> rnn("17 or 71?").answer
        'ant says 17'
        >>> rnn.with_(broker=lambda task, rounds: Team((1,), ())).forward(["17 or 71?", "7 or 1?"]).answers
        ('bee says 17', 'bee says 17')
    """

    def __init__(
        self,
        cell: MacroRNNCell,
        *,
        halting: Halting | None = None,
        rounds: int | None = None,
        broker: Broker | Seating | None = None,
        without: Sequence[str] = (),
    ) -> None:
        super().__init__()
        given: Any = cell  # which may be the consensus cell alone
        if not isinstance(given, MacroRNNCell):
            wanted = "expected a MacroRNNCell, one round of a team"
            raise ValueError(f"cell: {wanted}, got {_kind(given)}: build it of ensemble, encoder and consensus cell")
        self.cell = cell
        self.observer: Observer | None = None  # hears of every run that names no other
        self.halting: Halting = halting if halting is not None else FixedHalting(3 if rounds is None else rounds)
        self.rounds = _most_rounds(self.halting, rounds)
        if broker is not None:
            seating(broker)
            hook(broker, "check")(cell)
        known = [agent.name for agent in cell.ensemble.agents]
        if without and (broker is not None or not set(without) <= set(known)):
            wanted = f"expected agents to leave out of {', '.join(known)}, and no broker"
            raise ValueError(f"protocol: {wanted}, got without={list(without)}: correct the names, or set broker=none")
        self.broker, self.without = broker, tuple(without)
        if broker is None:
            full_team(cell.ensemble, self.without)  # refuses to leave nobody

    def with_(
        self,
        *,
        cell: ConsensusCell | MacroRNNCell | None = None,
        halting: Halting | None = None,
        rounds: int | None = None,
        broker: Broker | Seating | None = _SAME,
        without: Sequence[str] | None = None,
        **parts: Any,
    ) -> "MacroRNN":
        """The same team with other parts; engines, and whatever is not named, are shared.

        Args:
            cell: the consensus cell, or a whole `MacroRNNCell`.
            halting: the rule; the same if None, or with `rounds` alone that many rounds.
            rounds: as in `MacroRNN`.
            broker: another, or None for everybody.
            without: who takes no part.
            parts: of the `MacroRNNCell`, by the names of its arguments.
        """
        if halting is None and rounds is None:
            halting, rounds = self.halting, self.rounds
        if without is None:
            without = self.without if broker is _SAME else ()
        if not isinstance(cell, ConsensusCell | MacroRNNCell | None):
            raise ValueError(f"cell: expected a ConsensusCell or a MacroRNNCell, got {_kind(cell)}: pass one of them")
        whole = cell if isinstance(cell, MacroRNNCell) else self.cell
        parts |= {"consensus": cell} if isinstance(cell, ConsensusCell) else {}
        broker = self.broker if broker is _SAME else broker
        other = MacroRNN(whole.with_(**parts), halting=halting, rounds=rounds, broker=broker, without=without)
        other.observer = self.observer
        return other

    @classmethod
    def from_models(
        cls,
        models: Mapping[str, tuple[Any, Any]],
        *,
        personas: Mapping[str, str] | None = None,
        rounds: int | None = None,
        cell: ConsensusCell | None = None,
        gate: Any = None,
        vote: Any = None,
        broker: Broker | Seating | None = None,
        halting: Halting | None = None,
        rating: Rating | str | None = None,
        decoding: Decoding | None = None,
        encoder: Encoder | None = None,
        protocol: Protocol | None = None,
        progress: bool = False,
        **others: Any,
    ) -> "MacroRNN":
        """A team of causal language models that are in memory already, by the published protocol.

        Args:
            models: agent's name -> (model, tokenizer), as transformers loads them; several agents may share a model,
                which is then held and asked once for all of them.
            personas: agent's name -> what it is told about itself.
            rounds: how many are held, 3 if None.
            cell: votes and remembers; a fresh one if None, with the gate and vote that are named.
            gate: of a fresh cell, by its name or a module of your own.
            vote: likewise.
            broker: who takes part; everybody if None.
            halting: when to stop; after `rounds` if None.
            rating: how judges rate: `verdict`, as if None, `likelihood`, `critique`, `agreement`, or your own.
            decoding: how all of them write; by default 256 tokens at a temperature of 0.7.
            encoder: turns texts into vectors; by default bags of hashed words, which need no weights. A fresh cell
                decides alike with any, a tuned one wants that of its training.
            protocol: the switches of rounds.
            progress: whether finished calls are counted on standard error.
            others: further arguments of `MacroRNNCell`: prompts, seed, answers, sets.

        Raises:
            ValueError: in one line, for models that are none, an argument that is not there, and as the parts.
        """
        from nsed_torch.engines.backbones import ensemble_of  # noqa: PLC0415 - engines are imported when one is built

        wanted = set(inspect.signature(MacroRNNCell).parameters) - {"ensemble", "encoder", "consensus"}
        if unknown := [name for name in others if name not in wanted]:
            known = [*inspect.signature(cls.from_models).parameters, *sorted(wanted)]
            near = difflib.get_close_matches(unknown[0], known, n=1)
            hint = f": did you mean {near[0]}?" if near else f": it takes {', '.join(dict.fromkeys(known))}"
            raise ValueError(f"from_models: got an unexpected argument {unknown[0]!r}{hint}")
        ensemble = ensemble_of(models, personas or {}, decoding or Decoding(256, 0.7))
        encoder = encoder or HashedEncoder()
        if cell is not None and (gate is not None or vote is not None):
            raise ValueError(
                "from_models: expected a cell, or the gate and vote of a fresh one, got both: use cell.like"
            )
        consensus = cell or ConsensusCell(encoder.dim, len(ensemble), gate=gate, vote=vote).double()
        mode = part_named("rating", rating) if isinstance(rating, str) else rating
        whole = MacroRNNCell(ensemble, encoder, consensus, rating=mode, protocol=protocol, **others)
        rnn = cls(whole, halting=halting, rounds=rounds, broker=broker)
        rnn.observer = Counter() if progress else None
        return rnn

    def forward(self, tasks: str | Task | Sequence[str | Task], *, observer: Observer | None = None) -> Deliberation:
        """Deliberate on all tasks, batched phase by phase.

        A text is a task of its own: alone it has the id "task", in a list "task-1", "task-2" and so on by its place.

        Raises:
            ValueError: for no tasks, two of the same id, or inputs that no round can show.
            InfeasibleBudgetError: if a task's budget pays for no team even at the start; names the resource.
            ContextWindowError: if a prompt does not fit a model's window.
        """
        tasks = _tasks(tasks)
        if not tasks or len({task.id for task in tasks}) < len(tasks):
            raise ValueError(f"expected tasks with different ids, got {[task.id for task in tasks]}")
        for task in tasks:
            self.cell.check(task)
        with self.cell.ensemble.one_run():
            return self._run(tasks, observer or self.observer or Observer())

    def _run(self, tasks: Sequence[Task], watch: Observer) -> Deliberation:
        if self.broker is not None:
            hook(self.broker, "begin")(tasks, self.cell)
        rounds: list[list[Round]] = [[] for _ in tasks]
        reasons = [""] * len(tasks)  # why each task stopped, once it has
        over: dict[int, Transcript] = {}
        active = list(range(len(tasks)))
        state = self.cell.start(tasks)
        for index in range(1, max(len(task.inputs) for task in tasks) + self.rounds + 1):
            teams: dict[int, Team] = {}
            for i in active:
                team, reasons[i] = self._team(tasks[i], rounds[i])
                teams |= {i: team} if team else {}
            over |= self._ended([i for i in active if i not in teams], tasks, rounds, reasons, watch)
            active, state = _keep(active, state, list(teams))
            if not active:
                break
            batch = [tasks[i] for i in active]
            records, state = self.cell(batch, list(teams.values()), state, index=index, observer=watch)
            if self.broker is not None:
                records = hook(self.broker, "heard")(records)
            for i, record in zip(active, records, strict=True):
                rounds[i].append(record)
                watch.on_round(tasks[i], record)
            halted = self._halted([rounds[i][len(tasks[i].inputs) :] for i in active])
            for i, reason in zip(active, halted, strict=True):
                stood = None if reason else self._stands(tasks[i], rounds[i])
                over_now = self._finished(tasks[i], rounds[i]) is not None
                reasons[i] = "finished" if over_now else "settled" if stood is not None and stood[2] else reason
            over |= self._ended([i for i in active if reasons[i]], tasks, rounds, reasons, watch)
            active, state = _keep(active, state, [i for i in active if not reasons[i]])
        return Deliberation(tuple(over[i] for i in range(len(tasks))))

    def settings(self) -> dict[str, Any]:
        """What shapes a run besides its agents, as a transcript keeps it."""
        cell = self.cell
        rating: Any = cell.rating
        forms = {agent.name: agent.form for agent in cell.ensemble.agents if agent.form != "plain"}
        rule = cell.answers if cell.protocol.unit == "answer" else SameTexts()
        settings = {
            "version": importlib.metadata.version("nsed_torch"),
            "encoder": dict(cell.encoder.identity()),
            "consensus": str(cell.consensus),
            "cell": cell.consensus.fingerprint(),
            "parameters": {k: v.tolist() for k, v in cell.consensus.state_dict().items() if v.numel() <= 32},
            "rating": {"mode": type(rating).__name__, **(asdict(rating) if is_dataclass(type(rating)) else {})},
            "templates": {name: cell.prompts.fingerprint(name) for name in ("propose", "rate", "critique")},
            **cell.protocol.settings(),
            "answers": dict(rule.identity()) if rule else None,
            "halting": _named(self.halting),
            "budget": None,
            **{name: value for name, value in {"without": self.without, "forms": forms}.items() if value},
            **(hook(self.broker, "settings")() if self.broker is not None else {}),
        }
        # As JSON has it, with lists for tuples, so that a transcript equals its saved copy.
        return dict(json.loads(json.dumps(settings, default=str)))

    def _ended(
        self, which: list[int], tasks: Sequence[Task], rounds: list[list[Round]], reasons: list[str], watch: Observer
    ) -> dict[int, Transcript]:
        """The transcripts of tasks that are over; nobody waits for the others to hear of them."""
        ended = {i: self._transcript(tasks[i], rounds[i], reasons[i]) for i in which}
        for transcript in ended.values():
            watch.on_end(transcript)
        return ended

    def _halted(self, closing: Sequence[Sequence[Round]]) -> list[str]:
        """Why each task stops after its rounds behind the inputs; "" where it goes on, or is still reading."""
        reasons = [""] * len(closing)
        for count in sorted({len(rounds) for rounds in closing} - {0}):
            which = [j for j, rounds in enumerate(closing) if len(rounds) == count]
            convictions = torch.tensor([[record.conviction for record in closing[j]] for j in which])
            given: Any = self.halting.reasons(convictions)
            if not isinstance(given, list | tuple) or [type(reason) for reason in given] != [str] * len(which):
                wanted = f"expected a list of {len(which)} reasons, one text per task, empty where it goes on"
                raise ValueError(f"halting {type(self.halting).__name__}: {wanted}, got {given!r}: correct reasons()")
            for j, reason in zip(which, given, strict=True):
                reasons[j] = reason or ("rounds" if count >= self.rounds else "")
        return reasons

    def _stands(self, task: Task, rounds: Sequence[Round]) -> tuple[int, int, bool] | None:
        """What a halting rule that goes back says of the rounds behind the inputs; None for any other."""
        closing = rounds[len(task.inputs) :]
        rule: Any = getattr(self.halting, "stands", None)
        found = rule(task, closing, self.cell.answers) if rule is not None and closing else None
        return None if found is None else (found[0] + len(task.inputs), *found[1:])

    def _team(self, task: Task, rounds: Sequence[Round]) -> tuple[Team | None, str]:
        """Who takes part next; where nobody does, why."""
        if self.broker is None:
            return full_team(self.cell.ensemble, self.without), ""
        try:
            team: Any = seating(self.broker)(task, rounds)
        except InfeasibleBudgetError:
            if not rounds:
                raise
            return None, "budget"
        if team is None:
            return None, "broker"
        check_team(team, self.cell.ensemble)
        return team, ""

    def _finished(self, task: Task, rounds: Sequence[Round]) -> str | None:
        """The answer where the last elected text says that nothing is left to do."""
        last = rounds[-1] if rounds else None
        if last is None or last.winner is None:
            return None
        return self.cell.kind(task, last.index).finished(last.proposals[last.winner].text)

    def _transcript(self, task: Task, rounds: list[Round], reason: str) -> Transcript:
        winners = [r.proposals[r.winner].text for r in rounds if r.winner is not None and not task.reads(r.index)]
        final = self._finished(task, rounds)
        if final is None and (stood := self._stands(task, rounds)) is not None:
            final = rounds[stood[0]].proposals[stood[1]].text
        settings = self.settings()
        if task.inputs:
            settings["templates"] |= {name: self.cell.prompts.fingerprint(name) for name in ("read", "weigh")}
        return Transcript(
            task=task,
            agents=self.cell.ensemble.records(),
            rounds=rounds,
            answer=final or (winners[-1] if winners else ""),
            stop_reason=reason if winners else "no_answers",
            usage=Usage.sum(record.usage for record in rounds),
            seed=self.cell.seed,
            settings=settings,
        )


def _tasks(given: Any) -> list[Task]:
    """Tasks of tasks and texts, each text with an id by its place."""
    if isinstance(given, str | Task):
        return [Task(given) if isinstance(given, str) else given]
    listed = list(given) if isinstance(given, Iterable) else [given]
    if wrong := [one for one in listed if not isinstance(one, str | Task)]:
        raise ValueError(f"expected a text, a Task, or a list of these, got {wrong[0]!r:.60}: pass one of them")
    return [Task(one, f"task-{i}") if isinstance(one, str) else one for i, one in enumerate(listed, 1)]


def _most_rounds(halting: Any, rounds: int | None) -> int:
    """How many rounds there are at most; a ValueError for no rule, or more rounds than it allows."""
    if isinstance(halting, type) or not callable(getattr(halting, "reasons", None)):
        wanted = "expected an object with reasons(convictions)"
        raise ValueError(f"halting: {wanted}, got {halting!r}: pass one such as FixedHalting(3)")
    own = getattr(halting, "rounds", None)
    if rounds is not None and not 1 <= rounds <= (own or rounds):
        most = "" if own is None else f" and at most {own}, the rule's"
        raise ValueError(f"rounds: expected at least 1{most}, got {rounds}: correct it, or pass another halting rule")
    return rounds or own or UNSAID


def _kind(given: object) -> str:
    return given.__name__ if isinstance(given, type) else type(given).__name__


def _named(part: object) -> str:
    """A part as a transcript names it, alike in every process."""
    return type(part).__name__ if type(part).__repr__ is object.__repr__ else str(part)


def _keep(active: list[int], state: DeliberationState, kept: list[int]) -> tuple[list[int], DeliberationState]:
    """Narrow the batch to the tasks that go on."""
    return (active, state) if kept == active else (kept, state.select([active.index(i) for i in kept]))
