"""What became of a workflow, as plain data that survives the process."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nsed_torch.records.checked import Record
from nsed_torch.records.transcript import AgentRecord, Task, Transcript, Usage


class Failure(StrEnum):
    """Why a step has no response."""

    WINDOW = "context window"
    ENGINE = "engine error"
    EMPTY = "empty answer"
    INFEASIBLE = "deliberation infeasible"

    @property
    def infrastructure(self) -> bool:
        """Whether the machinery failed: that says nothing about the workflow. All others happen again."""
        return self is Failure.ENGINE


@dataclass(frozen=True)
class StepRecord:
    """What a worker was asked in one step, and what came of it."""

    worker: str  # name of the agent, of the deliberation, or of the Conductor
    subtask: str  # as the workflow has it
    visible: list[int]  # the earlier steps, from 0, that it read; those without a response are not among them
    message_tokens: list[int]  # of each message of the chat, or of the one question that a deliberation was given
    response: str  # "" where it failed
    failure: Failure | None
    attempts: int = 1  # each with another seed; shortening its history is no further attempt
    notes: list[str] = field(default_factory=list)  # what failed on the way, a shortened history, shrunk allowances
    usage: Usage = field(default_factory=Usage)  # of all attempts
    transcript: Transcript | None = None  # of the deliberation, where the worker is one
    inner: "Execution | None" = None  # of the worker's own workflow, where it is a Conductor

    def __post_init__(self) -> None:
        if bool(self.response) == (self.failure is not None):
            raise ValueError(f"expected a response or a failure, got {self.response[:40]!r} and {self.failure}")


@dataclass(frozen=True)
class PlanRecord:
    """What a Conductor wrote, and what had to be made of it."""

    text: str  # as written, reasoning included
    reasons: list[str] = field(default_factory=list)  # what was mended; where `fallback`, why no step could be read
    fallback: bool = False  # whether the default workflow stands in for it
    notes: list[str] = field(default_factory=list)  # shrunk allowances
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Level:
    """One workflow and its steps."""

    pool: list[str]  # names of the workers, in the order of the numbers that the workflow knows them by
    workflow: str  # as the Conductor's language writes it
    steps: list[StepRecord]  # none where the workflow accepts the answer of the level before
    plan: PlanRecord | None = None  # what the workflow was read from; None where no Conductor wrote it


@dataclass(frozen=True)
class Execution(Record):
    """Everything of one executed workflow, or of several that each revised the answer of the one before."""

    WHAT = "an execution"
    VERSION = 1

    task: Task
    agents: list[AgentRecord]  # the ensemble, in its order
    levels: list[Level]  # of recursion, the first one first
    seed: int  # the run's
    settings: dict[str, Any] = field(default_factory=dict)  # templates, limits, versions
    schema_version: int = VERSION

    def __post_init__(self) -> None:
        if not self.levels or not self.levels[0].steps:
            raise ValueError("expected a first level with steps, got none")

    @property
    def last(self) -> StepRecord:
        """The step that answers: the last one of the last level that has any."""
        level = [level for level in self.levels if level.steps][-1]
        return level.steps[-1]

    @property
    def answer(self) -> str:
        """The answering step's response; "" where it failed."""
        return self.last.response

    @property
    def failure(self) -> Failure | None:
        """Why there is no answer; None where there is one."""
        return self.last.failure

    @property
    def disturbed(self) -> bool:
        """Whether the machinery failed in any step, so that the answer says nothing about the workflow."""
        steps = [step for level in self.levels for step in level.steps]
        failed = any(step.failure is not None and step.failure.infrastructure for step in steps)
        return failed or any(step.inner is not None and step.inner.disturbed for step in steps)

    @property
    def usage(self) -> Usage:
        """What all steps cost, and what it cost to plan them."""
        planned = Usage.sum(level.plan.usage for level in self.levels if level.plan)
        return planned + Usage.sum(step.usage for level in self.levels for step in level.steps)
