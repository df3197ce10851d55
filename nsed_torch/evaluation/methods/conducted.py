"""Workflows of a Conductor as a method, and the least that they must beat."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.policy import Conductor, check_recursion
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.workers import COUNCIL
from nsed_torch.core.agent import Agent
from nsed_torch.evaluation.methods.method import Answer, Panel
from nsed_torch.evaluation.workflows import workflow_of
from nsed_torch.records.execution import Execution, Level
from nsed_torch.records.transcript import Task


@dataclass(frozen=True)
class Conducted:
    """A Conductor writes a workflow for each task, and the answer is what its last step says.

    It has one size, whatever the budget: how much a workflow costs is the Conductor's own decision. Usage holds the
    Conductor's calls and all steps. Published (arXiv 2512.04388); what is ours stands at `Conductor`.

    Raises:
        ValueError: for a recursion outside 0 to 3, or any of a Conductor that does not look back.
    """

    one_size: ClassVar[bool] = True
    led: ClassVar[bool] = False

    conductor: Agent  # the model that writes, on a backbone of the ensemble
    recursion: int = 0  # further workflows at most
    itself: int = 0  # how deep a workflow may contain another
    council: bool = False  # whether the whole ensemble, deliberating, is a worker
    bare: bool = False  # whether every step answers the question, which shows what subtasks are worth
    pools: Pools = Pools()  # who may be asked
    max_steps: int = 5  # of a workflow
    # Task id -> everything of what this method did there.
    executions: dict[str, Execution] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_recursion(self.recursion, self.conductor)

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` for a task with inputs."""
        if reading := [task.id for task in tasks if task.inputs]:
            raise ValueError(
                f"task {reading[0]!r}: expected no inputs, which workflows show nobody: leave this method out"
            )
        teams = {"council": panel.rnn} if self.council and panel.rnn else {}
        executor = Executor(
            panel.ensemble,
            prompts=panel.prompts,
            deliberations=teams,
            seed=panel.seed,
            max_steps=self.max_steps,
            bare=self.bare,
        )
        told = dict.fromkeys(teams, COUNCIL)
        conductor = Conductor(executor, self.conductor, pools=self.pools, descriptions=told, itself=self.itself)
        done = conductor.answer(tasks, recursion=self.recursion)
        self.executions.update({task.id: execution for task, execution in zip(tasks, done, strict=True)})
        return [Answer(execution.answer, execution.usage, noted(execution)) for execution in done]


@dataclass(frozen=True)
class RandomRouting:
    """One answer of an agent drawn by seed and task. It has one size, whatever the budget.

    The agent is model 0 of the task's permuted pool, and the call the one of `Single`; so a Conductor that has permuted
    pools and writes nothing that can be read is this method, at a higher cost. `without` names agents to leave out.
    """

    one_size: ClassVar[bool] = True
    led: ClassVar[bool] = False

    without: tuple[str, ...] = ()

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""
        pools, names = Pools("permuted", without=self.without), [agent.name for agent in panel.ensemble.proposers]
        drafts = panel.propose([(task, panel.proposer(pools(names, task, panel.seed)[0])) for task in tasks])
        return [Answer(draft.text, draft.usage, f"by {draft.agent.name}") for draft in drafts]


def noted(execution: Execution) -> str:
    """What an answer says of the workflows that it comes from."""
    failed = f"; no answer: {execution.failure}" if execution.failure else ""
    return " > ".join(map(_outline, execution.levels)) + failed


def _outline(level: Level) -> str:
    """A workflow's shape, and what had to be made of its text."""
    flow, plan = workflow_of(level), level.plan
    made = f" ({'fallback' if plan.fallback else 'mended'}: {', '.join(plan.reasons)})" if plan and plan.reasons else ""
    return f"{flow.topology()}, {len(flow.steps)} steps{made}"
