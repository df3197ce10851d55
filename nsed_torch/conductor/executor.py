"""Workflows become answers: steps that do not read each other go down together, those of all workflows at once."""

import copy
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from nsed_torch.conductor.references import referred
from nsed_torch.conductor.workers import Agents, Contractor, Council, WorkerQuestion, WorkerReply, guarded, worth_saying
from nsed_torch.conductor.workflow import Workflow, check
from nsed_torch.core.agent import Ensemble
from nsed_torch.core.open_round import longest_end
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.records.execution import Execution, Failure, Level, PlanRecord, StepRecord
from nsed_torch.records.ledger import TokenLedger
from nsed_torch.records.transcript import Task, Usage

SHRINK = 4  # divides what visible responses are cut to as long as a prompt does not fit its window


@dataclass(frozen=True)
class WorkflowJob:
    """A workflow to run."""

    task: Task
    workflow: Workflow
    pool: tuple[str, ...]  # names of the workers, in the order of the workflow's numbers
    previous: Execution | None = None  # with recursion, what it revises; its answer is shown where access is "all"
    plan: PlanRecord | None = None  # what it was read from; None where no Conductor wrote it
    # What the task's plans and earlier levels had computed; None where nothing had.
    ledger: TokenLedger | None = field(default=None, compare=False, repr=False)
    alone: bool = False  # whether a subtask is all that its worker reads, with responses for references (`references`)

    @property
    def level(self) -> int:
        """Of recursion, from 0."""
        return len(self.previous.levels) if self.previous else 0


class WorkflowObserver:
    """Hears what becomes of workflows; this one ignores it. Override what you want to see."""

    def on_workflow(self, job: WorkflowJob) -> None:
        """A workflow is about to run, or accepts the answer before it."""

    def on_wave(self, job: WorkflowJob, number: int, steps: Mapping[int, StepRecord]) -> None:
        """All steps of a workflow's wave are over; waves count from 1, steps from 0."""

    def on_end(self, execution: Execution) -> None:
        """A workflow is over; levels before it are part of the execution."""


@dataclass
class _Attempt:
    """A step that is being asked."""

    job: WorkflowJob
    index: int  # of the step, from 0
    done: dict[int, StepRecord]  # what came of the job's steps so far
    limit: int  # tokens that a visible response may take
    ledger: TokenLedger  # of the job
    bare: bool = False  # whether its subtasks are left out
    number: int = 1  # of this attempt
    notes: list[str] = field(default_factory=list)
    usage: Usage = Usage()  # of all attempts

    def history(self, cut: Callable[[str, int], str]) -> dict[int, tuple[str, str]]:
        """The subtask and the response of every earlier step that is read, by its index; the previous answer is -1."""
        step, previous = self.job.workflow.steps[self.index], self.job.previous
        shown = {-1: ("", previous.answer)} if previous and step.access == "all" else {}
        for k in self.job.workflow.visible(self.index):
            shown[k] = (self.subtask(k), self.done[k].response)
        kept = {k: (subtask, cut(response, self.limit)) for k, (subtask, response) in shown.items()}
        return {k: pair for k, pair in kept.items() if pair[1]}

    def question(self, history: Mapping[int, tuple[str, str]]) -> WorkerQuestion:
        job, worker = self.job, self.job.pool[self.job.workflow.steps[self.index].worker]
        task, subtask, told = job.task, self.subtask(self.index), tuple(history.values())
        if job.alone and subtask:
            whole = referred(subtask, {k: response for k, (_, response) in history.items()})
            task, subtask, told = replace(task, question=whole), "", ()
        return WorkerQuestion(worker, task, subtask, told, self.index + 1, job.level, self.number, self.ledger)

    def settle(self, worker: str, visible: list[int], reply: WorkerReply) -> None:
        """This attempt was the last: keep what came of the step."""
        self.done[self.index] = StepRecord(
            worker=worker,
            subtask=self.job.workflow.steps[self.index].subtask,
            visible=visible,
            message_tokens=list(reply.message_tokens),
            response=reply.text,
            failure=reply.failure,
            attempts=self.number,
            notes=self.notes,
            usage=self.usage,
            transcript=reply.transcript,
            inner=reply.inner,
        )

    def subtask(self, k: int) -> str:
        """What step k is about, "" for the question itself."""
        return "" if self.bare else worth_saying(self.job.workflow.steps[k].subtask, self.job.task.question)


class Executor:
    """Runs workflows: `executor.run(jobs) -> list[Execution]`.

    A worker reads the task, the visible (subtask, response) pairs as earlier turns of a chat, and its own subtask; the
    last step's response is the answer (published: the Conductor, arXiv 2512.04388). A step with nothing to read and
    nothing to say beside the question is asked as a proposal is. Our reading: steps that do not read each other go down
    together; a step without a response is absent for later ones, and the workflow goes on.

    What comes of a job does not depend on the others: seeds derive from run seed, task, step, agent and phase, and from
    level and attempt behind the first. Every call goes through the ensemble's call log, so equal steps are made once,
    and a killed run goes on where it was.

    Args:
        ensemble: the agents; those that may propose may be workers.
        deliberations: name -> a team that is a worker as a whole, with the ensemble's call log. Telemetry makes it
            depend on what came before.
        response_tokens: what a visible response may take of a prompt; it is cut to its end, where answers stand.
        attempts: how often a step is asked at most, each time with another seed, where its worker's answer is empty or
            its engine fails. A prompt beyond the window is asked again with shorter responses, in the end with none.
        bare: whether subtasks are left out, so that every step answers the question.
        report: called with the wave, calls done and calls in all.

    Raises:
        ValueError: for a limit below 1, or a deliberation that bears an agent's name.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        *,
        prompts: Prompts | None = None,
        deliberations: Mapping[str, MacroRNN] | None = None,
        seed: int = 0,
        response_tokens: int = 256,
        attempts: int = 2,
        max_steps: int = 5,
        bare: bool = False,
        report: Callable[[str, int, int], None] = lambda wave, done, total: None,
        observer: WorkflowObserver | None = None,
    ) -> None:
        for name, limit in (("response_tokens", response_tokens), ("attempts", attempts), ("max_steps", max_steps)):
            if limit < 1:
                raise ValueError(f"expected {name} of at least 1, got {limit}: raise it")
        self.ensemble, self.prompts, self.seed = ensemble, prompts or Prompts(), seed
        self.response_tokens, self.attempts, self.max_steps = response_tokens, attempts, max_steps
        self.bare = bare
        self.report, self.observer = report, observer or WorkflowObserver()
        agents = Agents(ensemble, self.prompts, seed)
        self._workers: dict[str, Agents | Council | Contractor] = {agent.name: agents for agent in ensemble.proposers}
        for name, rnn in (deliberations or {}).items():
            if name in {agent.name for agent in ensemble.agents}:
                raise ValueError(
                    f"expected a deliberation with a name of its own, got that of agent {name!r}: rename it"
                )
            self._workers[name] = Council(rnn, self.prompts, seed)

    @property
    def workers(self) -> tuple[str, ...]:
        """Names that a pool may hold."""
        return tuple(self._workers)

    def joined_by(self, name: str, worker: Contractor) -> "Executor":
        """The same with one more worker; this one stays as it is."""
        joined = copy.copy(self)
        joined._workers = {**self._workers, name: worker}
        return joined

    def run(self, jobs: Sequence[WorkflowJob]) -> list[Execution]:
        """Run all workflows, on the same task or on others, wave by wave together; what fails is told per step.

        Raises:
            WorkflowError: for a workflow that cannot be run with its pool.
            ValueError: for a pool with an unknown worker, or a previous execution of another task.
        """
        for job in jobs:
            self._check(job)
        for job in jobs:
            self.observer.on_workflow(job)
        done: list[dict[int, StepRecord]] = [{} for _ in jobs]
        ledgers = [job.ledger or TokenLedger() for job in jobs]
        waves = zip_longest(*(job.workflow.waves() for job in jobs), fillvalue=())
        with self.ensemble.one_run():
            for number, wave in enumerate(waves, start=1):
                running = list(zip(jobs, done, wave, strict=True))
                pending = [
                    _Attempt(job, k, over, self.response_tokens, ledger, self.bare)
                    for (job, over, steps), ledger in zip(running, ledgers, strict=True)
                    for k in steps
                ]
                while pending:
                    pending = self._ask(pending, f"wave {number}")
                for job, over, steps in running:
                    if steps:
                        self.observer.on_wave(job, number, {k: over[k] for k in steps})
        agents, settings = self.ensemble.records(), self.settings()
        executions = []
        for job, over in zip(jobs, done, strict=True):
            level = Level(list(job.pool), job.workflow.render(), [over[k] for k in range(len(over))], job.plan)
            levels = [*(job.previous.levels if job.previous else ()), level]
            executions.append(Execution(job.task, agents, levels, self.seed, settings))
            self.observer.on_end(executions[-1])
        return executions

    def settings(self) -> dict[str, Any]:
        """What an execution keeps besides the agents."""
        return {
            "version": importlib.metadata.version("nsed_torch"),
            "templates": {kind: self.prompts.fingerprint(kind) for kind in ("propose", "step")},
            "response_tokens": self.response_tokens,
            "attempts": self.attempts,
        }

    def _check(self, job: WorkflowJob) -> None:
        known = ", ".join(self.workers)
        for name in job.pool:
            if name not in self._workers:
                raise ValueError(f"expected a pool of workers out of {known}, got {name!r}: correct the name")
        if job.previous is not None and job.previous.task != job.task:
            expected, got = job.task.id, job.previous.task.id
            raise ValueError(f"expected a previous execution of task {expected!r}, got one of {got!r}: pass its own")
        check(job.workflow, workers=len(job.pool), max_steps=self.max_steps, allow_empty=job.previous is not None)

    def _ask(self, attempts: Sequence[_Attempt], wave: str) -> list[_Attempt]:
        """Ask the workers of some steps, each kind of workers once; return the steps to be asked again."""
        cut = partial(longest_end, count=self.ensemble.count_tokens)
        histories = [attempt.history(cut) for attempt in attempts]
        questions = [attempt.question(history) for attempt, history in zip(attempts, histories, strict=True)]
        replies: dict[int, WorkerReply] = {}
        for workers in {id(w): w for w in (self._workers[q.worker] for q in questions)}.values():
            mine = [i for i, question in enumerate(questions) if self._workers[question.worker] is workers]
            ask = partial(workers.ask, report=partial(self.report, wave))
            replies |= zip(mine, guarded(ask, [questions[i] for i in mine]), strict=True)
        again = []
        for i, (attempt, history) in enumerate(zip(attempts, histories, strict=True)):
            if self._goes_on(attempt, replies[i], shown=bool(history)):
                again.append(attempt)
            else:
                attempt.settle(questions[i].worker, [k for k in history if k >= 0], replies[i])
        return again

    def _goes_on(self, attempt: _Attempt, reply: WorkerReply, *, shown: bool) -> bool:
        """Take down what an attempt came to, and get the next one ready if there is one."""
        attempt.usage += reply.usage
        attempt.notes += reply.notes
        if reply.failure is None:
            return False
        attempt.notes.append(f"attempt {attempt.number}: {reply.failure}")
        if reply.failure is Failure.WINDOW and shown:
            attempt.limit //= SHRINK
            attempt.notes.append(f"responses cut to {attempt.limit} tokens each")
            return True
        if reply.retry and attempt.number < self.attempts:
            attempt.number += 1
            return True
        return False
