"""What a Conductor's texts are worth in training: read strictly, executed all together, graded."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from nsed_torch.conductor.executor import Executor, WorkflowJob
from nsed_torch.conductor.parsing import parse
from nsed_torch.conductor.workflow import Reason, Workflow, WorkflowError
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.execution import Execution
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task, Usage

UNREADABLE, WRONG, RIGHT = 0.0, 0.5, 1.0
"""The rewards: no workflow; a workflow without the right answer; one with it. As published."""

NEAR = 0.8  # the overlap of their words from which on subtasks are near-duplicates


@dataclass(frozen=True)
class Rollout:
    """A text that a Conductor wrote."""

    task: Task  # with a target
    pool: tuple[str, ...]  # names of the workers, by the numbers that the text knows them by
    text: str
    previous: Execution | None = None  # in a further round, what the text revises; it may then accept its answer


@dataclass(frozen=True)
class Scored:
    """What became of a text."""

    reward: float | None  # None where the machinery failed, so that nothing is known of the workflow
    reason: Reason | None = None  # why it is no workflow
    workflow: Workflow | None = None  # None where there is a reason
    workers: tuple[str, ...] = ()  # names of those that its steps ask, in order
    usage: Usage = Usage()  # of its steps; equal calls of other texts are charged again

    @property
    def right(self) -> bool:
        """Whether the answer is known to be right."""
        return self.reward is not None and self.reward > WRONG


class Rewards:
    """Rewards of texts: `rewards(rollouts) -> list[Scored]`.

    Texts are read by `parse`; what is no workflow is worth 0. All others are executed together: equal ones once, and
    equal calls once in the whole run, as the executor's call log has it. A workflow whose answer the grader finds right
    is worth 1, every other one 0.5, also where a worker said nothing or a prompt was too long, for that happens again
    (published: the Conductor, arXiv 2512.04388). Where an engine failed in any step, or the grader could not run, there
    is no reward (our decision: to score it 0 would teach that good workflows are bad ones). A right answer is worth
    `step_price` less for every step behind the first, so that a call that changes nothing does not pay; none was
    published. With `alone` a subtask is all that its worker reads, as the Conductor will have it run.

    Raises:
        ValueError: for a price at which the longest right workflow would be worth no more than a wrong one.
    """

    def __init__(
        self, executor: Executor, graded: GradedTasks, *, step_price: float = 0.0, alone: bool = False
    ) -> None:
        if not 0 <= step_price * (executor.max_steps - 1) < RIGHT - WRONG:
            most = (RIGHT - WRONG) / max(1, executor.max_steps - 1)
            raise ValueError(f"expected a step_price from 0 to below {most:g}, got {step_price:g}: lower it")
        self.executor = executor
        self.graded = graded
        self.step_price = step_price
        self.alone = alone

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Scored]:
        """Score all texts, in order; pools and previous executions are checked as by `Executor.run`."""
        read = [self._read(rollout) for rollout in rollouts]
        executed = self.executed([job for job in read if isinstance(job, WorkflowJob)])
        return [Scored(UNREADABLE, reason=job) if isinstance(job, Reason) else next(executed) for job in read]

    def _read(self, rollout: Rollout) -> WorkflowJob | Reason:
        further = rollout.previous is not None
        try:
            workflow = parse(
                rollout.text, workers=len(rollout.pool), max_steps=self.executor.max_steps, allow_empty=further
            )
        except WorkflowError as error:
            return error.reason
        return WorkflowJob(rollout.task, workflow, rollout.pool, rollout.previous, alone=self.alone)

    def executed(self, jobs: Sequence[WorkflowJob]) -> Iterator[Scored]:
        """Score workflows that need not be read, in order."""
        # Equal workflows of equal tasks and pools, after equal executions, are run once.
        names = [(job.task.id, job.pool, job.workflow, job.previous and job.previous.to_line()) for job in jobs]
        distinct = dict(zip(names, jobs, strict=True))
        done = dict(zip(distinct, self.executor.run(list(distinct.values())), strict=True))
        executions = [done[name] for name in names]
        grader = self.graded.grader
        answers = [(e.task, grader.extract(e.task, e.answer) if e.answer else None) for e in executions]
        for job, execution, verdict in zip(jobs, executions, self.graded.verdicts(answers), strict=True):
            steps = execution.levels[-1].steps
            # What was disturbed before this workflow is not its fault, but it read it.
            unknown = execution.disturbed or verdict is Verdict.NOT_RUN
            yield Scored(
                reward=None if unknown else self._paid(len(steps)) if verdict is Verdict.RIGHT else WRONG,
                workflow=job.workflow,
                workers=tuple(step.worker for step in steps),
                usage=Usage.sum(step.usage for step in steps),
            )

    def _paid(self, steps: int) -> float:
        """What a right answer after so many steps is worth; none where an earlier one is accepted."""
        return RIGHT - self.step_price * max(0, steps - 1)


def near_duplicates(workflow: Workflow) -> int:
    """Steps whose subtask says what an earlier step's said: |A and B| / |A or B| of their words is at least `NEAR`.

    Case, punctuation and the order of words make no difference. Measured because a Conductor is paid for it: asking the
    same thing again is a workflow, too. The measure is ours.
    """
    said = [frozenset(re.findall(r"\w+", step.subtask.casefold())) for step in workflow.steps]
    return sum(
        any(len(words & earlier) >= NEAR * len(words | earlier) for earlier in said[:k]) for k, words in enumerate(said)
    )


def tally(scored: Sequence[Scored], group: int) -> dict[str, Any]:
    """What a batch of scored texts comes to, in groups of `group` texts that answer the same prompt.

    `reward`, the mean where there is one; shares of all texts: `right`, `parsed`, `reasons` by code, `masked`;
    `no_signal`, the share of groups whose rewards are all equal, which teach nothing; of texts that were read: `steps`,
    the mean, and `topologies`; of their steps: `workers` and `near_duplicates`; `worker_tokens`, read and written.
    Means of nothing are None.
    """
    rewards = [s.reward for s in scored if s.reward is not None]
    flows = [s.workflow for s in scored if s.workflow is not None]
    steps = sum(len(flow.steps) for flow in flows)
    groups = [{s.reward for s in scored[i : i + group]} - {None} for i in range(0, len(scored), group)]
    return {
        "reward": fmean(rewards) if rewards else None,
        "right": sum(s.right for s in scored) / len(scored),
        "parsed": len(flows) / len(scored),
        "reasons": _shares([s.reason.value for s in scored if s.reason], len(scored)),
        "masked": (len(scored) - len(rewards)) / len(scored),
        "no_signal": sum(len(values) < 2 for values in groups) / len(groups),
        "steps": steps / len(flows) if flows else None,
        "topologies": _shares([flow.topology().value for flow in flows], len(flows)),
        "workers": _shares([name for s in scored for name in s.workers], steps),
        "near_duplicates": sum(map(near_duplicates, flows)) / steps if steps else None,
        "worker_tokens": sum(s.usage.tokens for s in scored),
    }


def _shares(values: Sequence[str], total: int) -> Mapping[str, float]:
    return {value: values.count(value) / total for value in sorted(set(values))}
