"""Deliberation as a recurrent network: broker, rounds, halting."""

import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import Encoder, HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.observer import Observer
from nsed_torch.core.prompts import finished
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.state import DeliberationState
from nsed_torch.core.team import Team, full_team
from nsed_torch.records.transcript import Round, Task, Transcript, Usage


class Halting(Protocol):
    """When a task is done: a cap on the rounds, and a rule that reads the convictions so far."""

    rounds: int

    def reasons(self, convictions: Float[Tensor, "batch round"]) -> list[str]:
        """Why each task stops after its last round; "" where it goes on."""
        ...


class Broker(Protocol):
    """Who takes part: one team for each task and round of a run. It keeps what it needs between `begin` and the end."""

    def check(self, cell: MacroRNNCell) -> None:
        """Refuse a cell that it cannot choose teams for, with a ValueError, before any run."""
        ...

    def begin(self, tasks: Sequence[Task], cell: MacroRNNCell) -> None:
        """A run begins; a broker that asks a model asks about all tasks together here."""
        ...

    def team(self, task: Task, rounds: Sequence[Round]) -> Team | None:
        """The next team; None where nobody else is worth asking, an `InfeasibleBudgetError` where none can be paid."""
        ...

    def heard(self, records: Sequence[Round]) -> list[Round]:
        """The records of a round, one per task that held it, with what the broker has to add."""
        ...

    def settings(self) -> dict[str, Any]:
        """What a transcript keeps of it; JSON data."""
        ...


@dataclass(frozen=True)
class Deliberation:
    """What a `MacroRNN` returns: a transcript a task, in the order of the tasks."""

    transcripts: tuple[Transcript, ...]

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
        halting: when to stop, and the most rounds there are; 3 fixed rounds by default.
        broker: who takes part; None is everybody, as in the published runs.
        without: names of agents that take no part, where there is no broker: others may still ask them alone.

    Raises:
        ValueError: if the broker knows other agents, or agents are left out that are not there, or beside a broker.

    Examples:
        >>> from nsed_torch.core.agent import Agent, Ensemble
        >>> from nsed_torch.core.encoder import HashedEncoder
        >>> from nsed_torch.engines.scripted import ScriptedEngine
        >>> from nsed_torch.core.cell import ConsensusCell
        >>> engine = ScriptedEngine(lambda request: f"{request.agent} says 17", lambda request, candidate: 0.5)
        >>> ensemble = Ensemble({"tiny": engine}, [Agent("ant", "tiny"), Agent("bee", "tiny")])
        >>> cell = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(dim=8, agents=2))
        >>> rnn = MacroRNN(cell, halting=FixedHalting(2))
        >>> rnn([Task("17 or 71?")]).answers
        ('ant says 17',)
    """

    def __init__(
        self,
        cell: MacroRNNCell,
        *,
        halting: Halting | None = None,
        broker: Broker | None = None,
        without: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.cell = cell
        self.halting: Halting = halting or FixedHalting()
        if broker is not None:
            broker.check(cell)
        known = [agent.name for agent in cell.ensemble.agents]
        if without and (broker is not None or not set(without) <= set(known)):
            wanted = f"expected agents to leave out of {', '.join(known)}, and no broker"
            raise ValueError(f"protocol: {wanted}, got without={list(without)}: correct the names, or set broker=none")
        self.broker, self.without = broker, tuple(without)
        if broker is None:
            full_team(cell.ensemble, self.without)  # refuses to leave nobody

    @classmethod
    def from_models(
        cls,
        models: Mapping[str, tuple[Any, Any]],
        *,
        decoding: Decoding | None = None,
        encoder: Encoder | None = None,
        halting: Halting | None = None,
        **cell: Any,
    ) -> "MacroRNN":
        """A team of causal language models that are in memory already, by the published protocol.

        Args:
            models: agent's name -> (model, tokenizer), as transformers loads them; several agents may share a model,
                which is then held and asked once for all of them.
            decoding: how all of them write; by default 256 tokens at a temperature of 0.7.
            encoder: turns texts into vectors; by default bags of hashed words, which need no weights. A fresh cell
                decides alike with any, a tuned one wants that of its training.
            halting: as in `MacroRNN`.
            cell: further arguments of `MacroRNNCell`, as `rating` and `seed`.

        Raises:
            ValueError: for models that `agents.in_memory` refuses, and as the parts.
        """
        from nsed_torch.engines.backbones import in_memory  # noqa: PLC0415 - engines are imported when one is built

        numbers = {pair: i for i, pair in enumerate(dict.fromkeys((id(m), id(t)) for m, t in models.values()))}
        engines = {f"model{numbers[id(m), id(t)]}": (m, t) for m, t in models.values()}
        how = decoding or Decoding(256, 0.7)
        agents = [Agent(name, f"model{numbers[id(m), id(t)]}", decoding=how) for name, (m, t) in models.items()]
        ensemble = Ensemble({name: in_memory(*pair) for name, pair in engines.items()}, agents)
        encoder = encoder or HashedEncoder()
        consensus = ConsensusCell(encoder.dim, len(agents)).double()
        return cls(MacroRNNCell(ensemble, encoder, consensus, **cell), halting=halting)

    def forward(self, tasks: Sequence[Task], *, observer: Observer | None = None) -> Deliberation:
        """Deliberate on all tasks, batched phase by phase.

        Raises:
            ValueError: for no tasks, two of the same id, or inputs that no round can show.
            InfeasibleBudgetError: if a task's budget pays for no team even at the start; names the resource.
            ContextWindowError: if a prompt does not fit a model's window.
        """
        if not tasks or len({task.id for task in tasks}) < len(tasks):
            raise ValueError(f"expected tasks with different ids, got {[task.id for task in tasks]}")
        for task in tasks:
            self.cell.check(task)
        with self.cell.ensemble.one_run():
            return self._run(tasks, observer or Observer())

    def _run(self, tasks: Sequence[Task], watch: Observer) -> Deliberation:
        if self.broker is not None:
            self.broker.begin(tasks, self.cell)
        rounds: list[list[Round]] = [[] for _ in tasks]
        reasons = [""] * len(tasks)  # why each task stopped, once it has
        over: dict[int, Transcript] = {}
        active = list(range(len(tasks)))
        state = self.cell.start(tasks)
        for index in range(1, max(len(task.inputs) for task in tasks) + self.halting.rounds + 1):
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
                records = self.broker.heard(records)
            for i, record in zip(active, records, strict=True):
                rounds[i].append(record)
                watch.on_round(tasks[i], record)
            halted = self._halted([rounds[i][len(tasks[i].inputs) :] for i in active])
            for i, reason in zip(active, halted, strict=True):
                reasons[i] = "finished" if self._finished(rounds[i]) is not None else reason
            over |= self._ended([i for i in active if reasons[i]], tasks, rounds, reasons, watch)
            active, state = _keep(active, state, [i for i in active if not reasons[i]])
        over |= self._ended(active, tasks, rounds, reasons, watch)  # nobody, unless a rule of the user's knows no cap
        return Deliberation(tuple(over[i] for i in range(len(tasks))))

    def settings(self) -> dict[str, Any]:
        """What shapes a run besides its agents, as a transcript keeps it."""
        rating = self.cell.rating
        forms = {agent.name: agent.form for agent in self.cell.ensemble.agents if agent.form != "plain"}
        rare = {
            "without": self.without,
            "forms": forms,
            "shown_from": self.cell.shown_from,
            "verbatim": self.cell.verbatim,
            "control": self.cell.control,
        }
        settings = {
            "version": importlib.metadata.version("nsed_torch"),
            "encoder": dict(self.cell.encoder.identity()),
            "consensus": str(self.cell.consensus),
            "cell": self.cell.consensus.fingerprint(),
            "parameters": {k: v.tolist() for k, v in self.cell.consensus.state_dict().items() if v.numel() <= 32},
            "rating": {"mode": type(rating).__name__, **dataclasses.asdict(rating)},  # type: ignore[call-overload]
            "templates": {name: self.cell.prompts.fingerprint(name) for name in ("propose", "rate", "critique")},
            "memory_tokens": self.cell.memory_tokens,
            "diagonal_mask": self.cell.diagonal_mask,
            "anonymous": self.cell.anonymous,
            "shuffled": self.cell.shuffled,
            "unit": self.cell.unit,
            "ahead": self.cell.ahead,
            "answers": dict(self.cell.answers.identity()) if self.cell.answers else None,
            "halting": str(self.halting),
            "budget": None,
            **{name: value for name, value in rare.items() if value},
            **(self.broker.settings() if self.broker else {}),
        }
        # As JSON has it, with lists for tuples, so that a transcript equals its saved copy.
        return dict(json.loads(json.dumps(settings)))

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
            for j, reason in zip(which, self.halting.reasons(convictions), strict=True):
                reasons[j] = reason
        return reasons

    def _team(self, task: Task, rounds: Sequence[Round]) -> tuple[Team | None, str]:
        """Who takes part next; where nobody does, why."""
        if self.broker is None:
            return full_team(self.cell.ensemble, self.without), ""
        try:
            team = self.broker.team(task, rounds)
        except InfeasibleBudgetError:
            if not rounds:
                raise
            return None, "budget"
        return team, "" if team else "broker"

    def _finished(self, rounds: Sequence[Round]) -> str | None:
        """The answer where the last elected step says that nothing is left to do."""
        last = rounds[-1] if rounds else None
        if self.cell.unit != "step" or last is None or last.winner is None:
            return None
        return finished(last.proposals[last.winner].text)

    def _transcript(self, task: Task, rounds: list[Round], reason: str) -> Transcript:
        winners = [r.proposals[r.winner].text for r in rounds if r.winner is not None and not task.reads(r.index)]
        final = self._finished(rounds)
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


def _keep(active: list[int], state: DeliberationState, kept: list[int]) -> tuple[list[int], DeliberationState]:
    """Narrow the batch to the tasks that go on."""
    return (active, state) if kept == active else (kept, state.select([active.index(i) for i in kept]))
