"""Who does a step: an agent, a whole deliberation, or a Conductor. All answer the same kind of question."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.core.engine import ContextWindowError, GenerateRequest, Generation, call_seed
from nsed_torch.core.prompts import Prompts, unfence
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.records.execution import Execution, Failure
from nsed_torch.records.ledger import TokenLedger
from nsed_torch.records.transcript import Task, Transcript, Usage

FAILURES: dict[type[Exception], Failure] = {
    ContextWindowError: Failure.WINDOW,
    InfeasibleBudgetError: Failure.INFEASIBLE,
    RuntimeError: Failure.ENGINE,
    OSError: Failure.ENGINE,
}
"""What a worker can do to a run without ending it. The last covers a server that cannot be reached."""

COUNCIL = "all models together: they answer, rate each other's answers and vote"
"""What a Conductor reads of the worker that is the whole ensemble."""

FILLERS = {
    *("answer", "solve", "give", "provide", "return", "state", "please", "now", "just", "directly"),
    *("to", "the", "this", "that", "following", "given", "above", "question", "problem", "task"),
}
"""Words that tell nothing beside the question."""


class WorkerQuestion(NamedTuple):
    """What a worker is asked in one attempt at a step."""

    worker: str
    task: Task
    subtask: str  # "" for the question itself
    history: tuple[tuple[str, str], ...]  # earlier subtasks, likewise, each with the response to it
    step: int  # from 1
    level: int  # of recursion, from 0
    attempt: int  # from 1
    ledger: TokenLedger | None = None  # of its job

    @property
    def bare(self) -> bool:
        """Whether it is the task's question and nothing else, as in the first round of a deliberation."""
        return not self.subtask and not self.history

    @property
    def again(self) -> list[str]:
        """What names it beside task, step and worker; nothing for a first attempt at a first level."""
        return [f"level {self.level}, attempt {self.attempt}"] if (self.level, self.attempt) != (0, 1) else []


class WorkerReply(NamedTuple):
    """What a worker said, without copied marks."""

    text: str  # "" where it failed
    failure: Failure | None  # why there is no text
    retry: bool  # whether another seed may help
    notes: list[str]
    usage: Usage = Usage()  # of this attempt
    message_tokens: tuple[int, ...] = ()  # of what it was asked; none where it could not be
    transcript: Transcript | None = None  # of a deliberation
    inner: Execution | None = None  # of a workflow


@dataclass(frozen=True)
class Agents:
    """The agents of an ensemble as workers: a step is one call.

    A bare question in step k is the very call of the agent's k-th proposal (`Panel.propose`; for k = 1, that of a
    deliberation's first round): same prompt, same seed, and made once for all of them.
    """

    ensemble: Ensemble
    prompts: Prompts
    seed: int

    def ask(self, questions: Sequence[WorkerQuestion], report: Callable[[int, int], None]) -> list[WorkerReply]:
        """Answer all questions, each as if it were alone; one of `FAILURES` fails all of them.

        `report` is called with calls done and calls in all.
        """
        requests = [self._request(question) for question in questions]
        written = self.ensemble.generate(requests, report)
        return [self._reply(*pair) for pair in zip(requests, written, strict=True)]

    def _reply(self, request: GenerateRequest, generation: Generation) -> WorkerReply:
        agent, text = self.ensemble.agent(request.agent), unfence(generation.text)
        engine = self.ensemble.engine(agent)
        tokens = tuple(engine.count_tokens(message.content) for message in request.messages)
        return WorkerReply(text, _empty(text), _draws(agent), list(generation.notes), agent.charged(generation), tokens)

    def _request(self, question: WorkerQuestion) -> GenerateRequest:
        agent, text = self.ensemble.agent(question.worker), question.task.question
        kind = "propose" if question.bare else "step"
        seed = call_seed(self.seed, question.task.id, question.step, agent.name, kind, *question.again)
        if question.bare:
            messages = self.prompts.propose(text, memory=(), critiques=(), persona=agent.persona, seed=seed)
        else:
            messages = self.prompts.step(
                text, question.subtask, history=question.history, persona=agent.persona, seed=seed
            )
        template = self.prompts.fingerprint(kind)
        asked = agent.name, messages, agent.decoding, seed, agent.adapter, template
        return GenerateRequest(*asked, ledger=question.ledger)


@dataclass(frozen=True)
class Council:
    """A deliberation as a worker: what it is asked in a step is the question it deliberates on.

    A bare question in step 1 is the deliberation on the task itself. Calls get their seeds from the deliberation's own
    run seed; where that is the workflow's, `nsed evaluate` and workflows make equal calls once. Its tokens are counted
    as if it stood alone, for several workflows may share it.
    """

    rnn: MacroRNN
    prompts: Prompts  # put question, history and subtask into one text
    seed: int  # of fences and ids

    @torch.no_grad()
    def ask(self, questions: Sequence[WorkerQuestion], report: Callable[[int, int], None]) -> list[WorkerReply]:
        """As `Agents.ask`; questions that several workflows ask alike are deliberated once, and nothing is reported."""
        tasks = [_as_task(question, self.prompts, self.seed) for question in questions]
        distinct = list({task.id: task for task in tasks}.values())
        transcripts = {transcript.task.id: transcript for transcript in self.rnn(distinct).transcripts}
        ensemble = self.rnn.cell.ensemble
        draws = any(map(_draws, ensemble.proposers))
        replies = []
        for task in tasks:
            transcript, tokens = transcripts[task.id], (ensemble.count_tokens(task.question),)
            text, usage = transcript.answer, transcript.usage
            replies.append(WorkerReply(text, _empty(text), draws, [], usage, tokens, transcript))
        return replies


@dataclass(frozen=True)
class Contractor:
    """A Conductor as a worker: what it is asked in a step is the question that a workflow of its own answers.

    So a workflow may contain another (published: a Conductor may name itself). A bare question in step 1 is the task's
    own. Its tokens are counted as if it stood alone.
    """

    answer: Callable[[Sequence[Task]], list[Execution]]
    prompts: Prompts  # put question, history and subtask into one text
    seed: int  # of fences and ids
    count_tokens: Callable[[str], int]

    def ask(self, questions: Sequence[WorkerQuestion], report: Callable[[int, int], None]) -> list[WorkerReply]:
        """As `Agents.ask`; questions that several workflows ask alike are answered once, and nothing is reported."""
        tasks = [_as_task(question, self.prompts, self.seed) for question in questions]
        distinct = list({task.id: task for task in tasks}.values())
        done = {execution.task.id: execution for execution in self.answer(distinct)}
        return [self._reply(task, done[task.id]) for task in tasks]

    def _reply(self, task: Task, done: Execution) -> WorkerReply:
        tokens = (self.count_tokens(task.question),)
        return WorkerReply(done.answer, done.failure, False, [], done.usage, tokens, inner=done)


def _as_task(question: WorkerQuestion, prompts: Prompts, seed: int) -> Task:
    """The question as one text, under an id that no other text and no other attempt has."""
    if question.bare and question.step == 1 and not question.again:
        return question.task
    read = [text for pair in question.history for text in pair]
    mark = call_seed(seed, question.task.id, question.step, question.subtask, *read, *question.again)
    text = question.task.question
    if not question.bare:
        text = prompts.step_in_one(text, question.subtask, history=question.history, seed=mark)
    return Task(text, f"{question.task.id}/{mark:016x}")


def worth_saying(subtask: str, question: str) -> str:
    """The subtask, or "" where it says nothing beside the question: the question again, among words like "Solve:".

    Small experts were trained on the bare question; any other text in front of them is worse than none. Our reading.
    """
    said, asked = words_of(subtask), words_of(question)
    rest = f" {said} ".replace(f" {asked} ", " ") if asked else said
    return "" if FILLERS.issuperset(rest.split()) else subtask.strip()


def guarded(
    ask: Callable[[Sequence[WorkerQuestion]], list[WorkerReply]], questions: Sequence[WorkerQuestion]
) -> list[WorkerReply]:
    """Ask all questions together; where that fails, in halves, so that one of them spoils no other.

    What was answered before the failure is in the call log, and too large a batch succeeds in parts.
    """
    try:
        return ask(questions)
    except tuple(FAILURES) as error:
        if len(questions) == 1:
            kind = next(kind for family, kind in FAILURES.items() if isinstance(error, family))
            why = " ".join(f"{type(error).__name__}: {error}".split())
            return [WorkerReply("", kind, kind.infrastructure, [why])]
        middle = len(questions) // 2
        return [*guarded(ask, questions[:middle]), *guarded(ask, questions[middle:])]


def words_of(text: str) -> str:
    """A text's words, numbers and signs, without the marks that only part sentences."""
    return " ".join(re.findall(r"\d+(?:\.\d+)*|\w+|[^\w\s.,:;!?\"'`]", text.casefold()))


def _empty(text: str) -> Failure | None:
    return None if text else Failure.EMPTY


def _draws(agent: Agent) -> bool:
    return agent.decoding.temperature > 0
