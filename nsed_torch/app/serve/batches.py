"""Questions of many clients on their way through the models: a queue, and one thread that owns the teams."""

import copy
import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import torch

from nsed_torch.app.serve.formats import FinalAnswer
from nsed_torch.app.serve.wire import ChatRequest, RefusedError
from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.core.engine import ContextWindowError
from nsed_torch.core.halting import FixedHalting, Halting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import Observer
from nsed_torch.parts.halting_rules import EvidenceHalting, FatigueHalting
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Round, Task, Transcript

HALTING: dict[str, Callable[[int], Halting]] = {
    "fixed": FixedHalting,
    "evidence": EvidenceHalting,
    "fatigue": FatigueHalting,
}
"""Rules that a request may name; without one the model's own rule holds, with the request's cap."""

KEPT_CALLS = 20_000
"""Finished calls that are kept in memory; with more, all are forgotten."""

Event = str | Round | Transcript | RefusedError
"""What a client hears: a line of progress, a round, and one of the last two at the end."""


class Terms(NamedTuple):
    """What questions of one batch have in common."""

    model: str
    seed: int | None  # these three: None is the model's own
    rounds: int | None
    halting: str | None

    def team(self, own: MacroRNN) -> MacroRNN:
        """The model's own team on these terms; a ValueError for a rule that cannot have that cap."""
        rounds, rule = own.rounds if self.rounds is None else self.rounds, own.halting
        if self.halting is not None:
            rule = HALTING[self.halting](rounds)
        elif self.rounds is not None:
            rule = copy.deepcopy(rule)
            if hasattr(rule, "rounds"):
                rule.rounds = rounds
        return own.with_(halting=rule, rounds=rounds, seed=own.cell.seed if self.seed is None else self.seed)


class QueuedQuestion:
    """A question that waits or is deliberated on, and where its client hears of it.

    Without an id of its own a task is named by its text: the same question gets the same seeds, whatever else is in its
    batch and whoever asks. `tell` is called from the thread of the models.
    """

    def __init__(self, asked: ChatRequest, tell: Callable[[Event], None]) -> None:
        question = asked.question
        self.task = Task(question, asked.task_id or hashlib.sha256(question.encode()).hexdigest()[:16])
        self.terms = Terms(asked.model, asked.seed, asked.rounds, asked.halting)
        self.gone = False  # nobody listens any more
        self.asked = asked
        self.answer = FinalAnswer("")  # once there is a transcript
        self.heard = 0  # rounds told, so that a deliberation that is begun again tells none twice
        self._tell = tell

    def tell(self, event: Event) -> None:
        """Let the client hear of it, unless it left or has heard it."""
        if isinstance(event, Round):
            if event.index <= self.heard:
                return
            self.heard = event.index
        if not self.gone:
            self._tell(event)


class Batches:
    """A queue of questions, and one thread that owns the teams and deliberates on what waits, batch by batch.

    Who joins when: the thread takes the oldest question and all that wait for the same model with the same seed, rounds
    and halting, up to `max_batch` tasks, which then go through every phase of every round in the engine's batches
    together. Who comes later joins the next batch, not the next phase. Each is answered as soon as its own
    deliberation is over, while others of its batch may go on. Equal questions are one task. Whoever left before its
    batch starts is not in it; a batch that everybody left ends with its phase. A batch that fails is asked again task
    by task, finished calls being kept, so that a prompt too long for a window costs nobody else the answer.

    Args:
        teams: the models by their names.
        max_queue: questions that may wait; more are refused with the time after which to come again.
        max_batch: tasks of one batch.
        gather_s: seconds without a newcomer after which a batch starts that is not full.
        calls: file of finished calls, which outlive the server; None keeps them in memory, so that a request that comes
            again costs nothing, until there are `KEPT_CALLS`.
    """

    def __init__(
        self,
        teams: Mapping[str, MacroRNN],
        *,
        max_queue: int = 256,
        max_batch: int = 64,
        gather_s: float = 0.005,
        calls: Path | None = None,
    ) -> None:
        self.teams = dict(teams)
        self.max_queue, self.max_batch, self.gather_s, self.calls = max_queue, max_batch, gather_s, calls
        self.running = self.batches = self.tasks = 0
        self.seconds = 0.0  # of all batches
        self._waiting: list[QueuedQuestion] = []
        self._changed = threading.Condition()
        self._closing = False
        self._kept: CallLog | None = None  # of the thread of the models
        self._thread = threading.Thread(target=self._work, name="nsed-models")

    def start(self) -> None:
        """Let the thread begin."""
        self._thread.start()

    def close(self) -> None:
        """Finish what waits and what runs; returns when the thread has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Questions in the queue."""
        return len(self._waiting)

    def submit(self, question: QueuedQuestion) -> None:
        """Put a question into the queue."""
        with self._changed:
            if self._closing:
                raise RefusedError(503, "the server is closing: ask another")
            self._waiting = [other for other in self._waiting if not other.gone]
            if len(self._waiting) >= self.max_queue:
                ahead = math.ceil((len(self._waiting) + self.running) / self.max_batch)
                after = max(1, math.ceil(ahead * self.seconds / max(self.batches, 1)))
                told = f"expected at most {self.max_queue} waiting questions, got another: ask again in {after} s"
                raise RefusedError(429, told, "queue_full", retry_after=after)
            self._waiting.append(question)
            self._changed.notify()

    def _work(self) -> None:
        while batch := self._take():
            self.running, began = len(batch), time.perf_counter()
            self._run(batch)
            self.seconds += time.perf_counter() - began
            self.batches += 1
            self.running = 0
        self._forget()

    def _take(self) -> list[QueuedQuestion]:
        """The next batch, once there is one; none where the server closes and nobody waits."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                seen = 0
                while seen < len(self._waiting) < self.max_batch and not self._closing:
                    seen = len(self._waiting)
                    self._changed.wait(self.gather_s)
                self._waiting = [question for question in self._waiting if not question.gone]
                if self._waiting:
                    break
                if self._closing:
                    return []
            asked: dict[str, Task] = {}
            batch = []
            for question in self._waiting:
                task = question.task
                fits = asked.get(task.id, task) == task and (task.id in asked or len(asked) < self.max_batch)
                if question.terms == self._waiting[0].terms and fits:
                    asked[task.id] = task
                    batch.append(question)
            self._waiting = [question for question in self._waiting if question not in batch]
            return batch

    def _run(self, batch: Sequence[QueuedQuestion]) -> None:
        """Deliberate on a batch; whatever happens, everybody in it hears an end."""
        terms = batch[0].terms
        told = _Telling(batch, self.teams[terms.model])
        try:
            with ExitStack() as held:
                held.enter_context(torch.no_grad())
                rnn = terms.team(self.teams[terms.model])
                rnn.cell.ensemble.call_log = held.enter_context(CallLog(self.calls)) if self.calls else self._memory()
                self._deliberate(rnn, list(told.listening), told)
        except Exception as error:
            told.fail(list(told.listening), error)

    def _memory(self) -> CallLog:
        """Finished calls of earlier batches."""
        if self._kept is None or len(self._kept) > KEPT_CALLS:
            self._forget()
            self._kept = CallLog(None)
        return self._kept

    def _forget(self) -> None:
        if self._kept is not None:
            self._kept.close()

    def _deliberate(self, rnn: MacroRNN, tasks: list[Task], told: "_Telling") -> None:
        self.tasks += len(tasks)
        try:
            rnn(tasks, observer=told)
            return
        except _DesertedError:
            return
        except Exception as error:
            if len(tasks) == 1:
                told.fail(tasks, error)
                return
        for task in [task for task in tasks if task in told.listening]:
            self.tasks -= 1
            self._deliberate(rnn, [task], told)


class _DesertedError(Exception):
    """Everybody left."""


class _Telling(Observer):
    """Passes what happens to a batch on to those who wait for its tasks."""

    def __init__(self, batch: Sequence[QueuedQuestion], team: MacroRNN) -> None:
        self._team = team
        self.listening: dict[Task, list[QueuedQuestion]] = {}
        for question in batch:
            self.listening.setdefault(question.task, []).append(question)
        self._told: set[tuple[str, int]] = set()

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        if done == 0 and all(question.gone for questions in self.listening.values() for question in questions):
            raise _DesertedError
        if (phase, index) not in self._told:
            self._told.add((phase, index))
            what = {"propose": "agents propose", "rate": "agents rate each other"}[phase]
            for task in self.listening:
                self._tell(task, f"Round {index}: {what} ...")

    def on_round(self, task: Task, record: Round) -> None:
        self._tell(task, record)

    def on_end(self, transcript: Transcript) -> None:
        # Tokens are counted here, for tokenizers belong to this thread.
        count = next(iter(self._team.cell.ensemble.engines.values())).count_tokens
        for question in self.listening[transcript.task]:
            question.answer = question.asked.final(transcript, count)
        self._tell(transcript.task, transcript)
        del self.listening[transcript.task]

    def fail(self, tasks: Sequence[Task], error: Exception) -> None:
        """Tell those who wait for some tasks why there is no answer."""
        for task in tasks:
            self._tell(task, _refusal(error))
            del self.listening[task]

    def _tell(self, task: Task, event: Event) -> None:
        for question in self.listening[task]:
            question.tell(event)


def _refusal(error: Exception) -> RefusedError:
    """What a client hears of an error: what it can change, or that it is not its doing."""
    if isinstance(error, ContextWindowError):
        return RefusedError(400, str(error), "context_length_exceeded")
    if isinstance(error, InfeasibleBudgetError):
        return RefusedError(400, str(error))
    if isinstance(error, ConnectionError):
        return RefusedError(502, str(error))
    logging.getLogger(__name__).error("a deliberation failed", exc_info=error)
    return RefusedError(500, f"the deliberation failed ({type(error).__name__}): the server's log says more")
