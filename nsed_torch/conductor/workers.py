"""Who does a step: an agent of the ensemble, or a whole deliberation. Both answer the same kind of question."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from nsed_torch.agents import (
    Agent,
    ContextWindowError,
    Ensemble,
    GenerateRequest,
    Generation,
    Message,
    Prompts,
    call_seed,
    unfence,
)
from nsed_torch.deliberation import MacroRNN
from nsed_torch.nn import InfeasibleBudgetError
from nsed_torch.records import Failure, Task, Transcript, Usage

FAILURES: dict[type[Exception], Failure] = {
    ContextWindowError: Failure.WINDOW,
    InfeasibleBudgetError: Failure.INFEASIBLE,
    RuntimeError: Failure.ENGINE,
    OSError: Failure.ENGINE,
}
"""What a worker can do to a run without ending it. The last covers a server that cannot be reached."""

FILLERS = {
    *("answer", "solve", "give", "provide", "return", "state", "please", "now", "just", "directly"),
    *("to", "the", "this", "that", "following", "given", "above", "question", "problem", "task"),
}
"""Words that tell nothing beside the question."""


class Question(NamedTuple):
    """What a worker is asked in one attempt at a step.

    Args:
        worker: its name.
        task: the user's.
        subtask: what the step is about; "" for the question itself.
        history: earlier subtasks, likewise, each with the response to it.
        step: from 1.
        level: of recursion, from 0.
        attempt: from 1.
    """

    worker: str
    task: Task
    subtask: str
    history: tuple[tuple[str, str], ...]
    step: int
    level: int
    attempt: int

    @property
    def bare(self) -> bool:
        """Whether it is the task's question and nothing else, as in the first round of a deliberation."""
        return not self.subtask and not self.history

    @property
    def again(self) -> list[str]:
        """What names it beside task, step and worker; nothing for a first attempt at a first level."""
        return [f"level {self.level}, attempt {self.attempt}"] if (self.level, self.attempt) != (0, 1) else []


class Reply(NamedTuple):
    """What a worker said, without copied marks.

    Args:
        text: "" where it failed.
        failure: why there is no text.
        retry: whether another seed may help.
        notes: events worth knowing.
        usage: of this attempt.
        message_tokens: of what it was asked; none where it could not be.
        transcript: of a deliberation.
    """

    text: str
    failure: Failure | None
    retry: bool
    notes: list[str]
    usage: Usage = Usage()
    message_tokens: tuple[int, ...] = ()
    transcript: Transcript | None = None


class Workers(Protocol):
    """Workers that are asked together."""

    def ask(self, questions: Sequence[Question], report: Callable[[int, int], None]) -> list[Reply]:
        """Answer all questions, each as if it were alone.

        Args:
            questions: to workers of this kind.
            report: called with calls done and calls in all, where they can be counted.

        Raises:
            Exception: one of `FAILURES`, for all of them.
        """
        ...


@dataclass(frozen=True)
class Agents:
    """The agents of an ensemble as workers: a step is one call.

    A bare question in step k is the very call of the agent's k-th proposal (`Panel.propose`; for k = 1, that of a
    deliberation's first round): same prompt, same seed, and made once for all of them.

    Args:
        ensemble: the agents.
        prompts: the templates.
        seed: the run's.
    """

    ensemble: Ensemble
    prompts: Prompts
    seed: int

    def ask(self, questions: Sequence[Question], report: Callable[[int, int], None]) -> list[Reply]:
        """As `Workers`."""
        asked = [(self.ensemble.agent(question.worker), self._request(question)) for question in questions]
        written = self.ensemble.generate([request for _, request in asked], report)
        return [
            self._reply(agent, request, generation) for (agent, request), generation in zip(asked, written, strict=True)
        ]

    def _reply(self, agent: Agent, request: GenerateRequest, generation: Generation) -> Reply:
        text, engine = unfence(generation.text), self.ensemble.engine(agent)
        usage = agent.usage(generation.prompt_tokens, generation.completion_tokens, generation.seconds)
        tokens = tuple(engine.count_tokens(message.content) for message in request.messages)
        return Reply(text, _empty(text), _draws(agent), list(generation.notes), usage, tokens)

    def _request(self, question: Question) -> GenerateRequest:
        agent = self.ensemble.agent(question.worker)
        kind = "propose" if question.bare else "step"
        seed = call_seed(self.seed, question.task.id, question.step, agent.name, kind, *question.again)
        messages = self._messages(question, agent.persona, seed)
        template = self.prompts.fingerprint(kind)
        return GenerateRequest(agent.name, messages, agent.decoding, seed, agent.adapter, template)

    def _messages(self, question: Question, persona: str, seed: int) -> tuple[Message, ...]:
        text = question.task.question
        if question.bare:
            return self.prompts.propose(text, memory=(), critiques=(), persona=persona, seed=seed)
        return self.prompts.step(text, question.subtask, history=question.history, persona=persona, seed=seed)


@dataclass(frozen=True)
class Council:
    """A deliberation as a worker: what it is asked in a step is the question it deliberates on.

    A bare question in step 1 is the deliberation on the task itself. Calls get their seeds from the deliberation's own
    run seed; where that is the workflow's, `nsed evaluate` and workflows make equal calls once.

    Args:
        rnn: which deliberates.
        prompts: the templates that put question, history and subtask into one text.
        seed: the run's, for fences.
    """

    rnn: MacroRNN
    prompts: Prompts
    seed: int

    @torch.no_grad()
    def ask(self, questions: Sequence[Question], report: Callable[[int, int], None]) -> list[Reply]:
        """As `Workers`; questions that several workflows ask alike are deliberated once."""
        tasks = [self._task(question) for question in questions]
        distinct = list({task.id: task for task in tasks}.values())
        found = {transcript.task.id: transcript for transcript in self.rnn(distinct).transcripts}
        return [self._reply(task, found[task.id]) for task in tasks]

    def _reply(self, task: Task, transcript: Transcript) -> Reply:
        ensemble, text = self.rnn.cell.ensemble, transcript.answer
        tokens = (ensemble.count_tokens(task.question),)
        draws = any(map(_draws, ensemble.proposers))
        return Reply(text, _empty(text), draws, [], transcript.usage, tokens, transcript)

    def _task(self, question: Question) -> Task:
        """The question as one text, under an id that no other text and no other attempt has."""
        if question.bare and question.step == 1 and not question.again:
            return question.task
        read = [text for pair in question.history for text in pair]
        seed = call_seed(self.seed, question.task.id, question.step, question.subtask, *read, *question.again)
        text = question.task.question
        if not question.bare:
            text = self.prompts.step_in_one(text, question.subtask, history=question.history, seed=seed)
        return Task(text, f"{question.task.id}/{seed:016x}")


def worth_saying(subtask: str, question: str) -> str:
    """The subtask, or "" where it says nothing beside the question: the question again, among words like "Solve:".

    Small experts were trained on the bare question; any other text in front of them is worse than none. Our reading.
    """
    said, asked = _words(subtask), _words(question)
    rest = f" {said} ".replace(f" {asked} ", " ") if asked else said
    return "" if FILLERS.issuperset(rest.split()) else subtask.strip()


def guarded(ask: Callable[[Sequence[Question]], list[Reply]], questions: Sequence[Question]) -> list[Reply]:
    """Ask all questions together; where that fails, in halves, so that one of them spoils no other.

    What was answered before the failure is in the call log, and too large a batch succeeds in parts.
    """
    try:
        return ask(questions)
    except tuple(FAILURES) as error:
        if len(questions) == 1:
            kind = next(kind for family, kind in FAILURES.items() if isinstance(error, family))
            why = " ".join(f"{type(error).__name__}: {error}".split())
            return [Reply("", kind, kind.infrastructure, [why])]
        middle = len(questions) // 2
        return [*guarded(ask, questions[:middle]), *guarded(ask, questions[middle:])]


def _words(text: str) -> str:
    """Words, numbers and signs, without the marks that only part sentences."""
    return " ".join(re.findall(r"\d+(?:\.\d+)*|\w+|[^\w\s.,:;!?\"'`]", text.casefold()))


def _empty(text: str) -> Failure | None:
    return None if text else Failure.EMPTY


def _draws(agent: Agent) -> bool:
    return agent.decoding.temperature > 0
