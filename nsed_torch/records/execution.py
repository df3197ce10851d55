"""What became of a workflow, as plain data that survives the process."""

import dataclasses
import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from nsed_torch.records.files import read_json, write_json
from nsed_torch.records.task import Task
from nsed_torch.records.transcript import SCHEMA_VERSION as TRANSCRIPT_VERSION
from nsed_torch.records.transcript import AgentRecord, Transcript, Usage, rebuild

SCHEMA_VERSION = 1
"""Raised by one when a field changes its meaning or goes away; new fields alone leave it."""

_REMEDY = "rerun the command that wrote it"


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
    """What a worker was asked in one step, and what came of it.

    Args:
        worker: name of the agent, or of the deliberation.
        subtask: as the workflow has it.
        visible: the earlier steps, from 0, that it read; those without a response are not among them.
        message_tokens: tokens of each message of the chat; of the one question that a deliberation was given.
        response: what it said; "" where it failed.
        failure: why there is no response; None where there is one.
        attempts: how often it was asked, each time with another seed; shortening its history is no further attempt.
        notes: events worth knowing: what failed on the way, a shortened history, shrunk allowances.
        usage: of all attempts.
        transcript: of the deliberation, where the worker is one.

    Raises:
        ValueError: for a response and a failure, or neither.
    """

    worker: str
    subtask: str
    visible: list[int]
    message_tokens: list[int]
    response: str
    failure: Failure | None
    attempts: int = 1
    notes: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    transcript: Transcript | None = None

    def __post_init__(self) -> None:
        if bool(self.response) == (self.failure is not None):
            raise ValueError(f"expected a response or a failure, got {self.response[:40]!r} and {self.failure}")


@dataclass(frozen=True)
class PlanRecord:
    """What a Conductor wrote, and what had to be made of it.

    Args:
        text: as written, reasoning included.
        reasons: codes of what was mended; of why no step could be read, where `fallback`.
        fallback: whether the default workflow stands in for it.
        notes: events worth knowing: shrunk allowances.
        usage: of the call.
    """

    text: str
    reasons: list[str] = field(default_factory=list)
    fallback: bool = False
    notes: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Level:
    """One workflow and its steps.

    Args:
        pool: names of the workers, in the order of the numbers that the workflow knows them by.
        workflow: as the Conductor's language writes it.
        steps: in order; none where the workflow accepts the answer of the level before.
        plan: what the workflow was read from; None where no Conductor wrote it.
    """

    pool: list[str]
    workflow: str
    steps: list[StepRecord]
    plan: PlanRecord | None = None


@dataclass(frozen=True)
class Execution:
    """Everything of one executed workflow, or of several that each revised the answer of the one before.

    Args:
        task: what was asked.
        agents: the ensemble, in its order.
        levels: of recursion, one or more, the first one first.
        seed: the run's seed.
        settings: what shaped the run besides its agents: templates, limits, versions.
        schema_version: see `SCHEMA_VERSION`.

    Raises:
        ValueError: for no level, or a first one without steps.
    """

    task: Task
    agents: list[AgentRecord]
    levels: list[Level]
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if not self.levels or not self.levels[0].steps:
            raise ValueError("expected a first level with steps, got none")

    @property
    def last(self) -> StepRecord:
        """The step that answers: the last one of the last level that has any."""
        return [level.steps[-1] for level in self.levels if level.steps][-1]

    @property
    def answer(self) -> str:
        """The last step's response; "" where it failed."""
        return self.last.response

    @property
    def failure(self) -> Failure | None:
        """Why there is no answer; None where there is one."""
        return self.last.failure

    @property
    def disturbed(self) -> bool:
        """Whether the machinery failed in any step, so that the answer says nothing about the workflow."""
        return any(s.failure is not None and s.failure.infrastructure for level in self.levels for s in level.steps)

    @property
    def usage(self) -> Usage:
        """What all steps cost, and what it cost to plan them."""
        planned = Usage.sum(level.plan.usage for level in self.levels if level.plan)
        return planned + Usage.sum(step.usage for level in self.levels for step in level.steps)

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path) -> "Execution":
        """Read what `save` wrote.

        Raises:
            ValueError: if the file is no execution of a version this package reads; names file and version.
        """
        return cls.from_data(read_json(path), str(path))

    def to_line(self) -> str:
        """As JSON in one line."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_line(cls, line: str | bytes, where: str) -> "Execution":
        """Read what `to_line` wrote.

        Args:
            line: JSON.
            where: its file and line, for errors.

        Raises:
            ValueError: in one line with `where`, if it is no execution of a version this package reads.
        """
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: not valid JSON ({error}); {_REMEDY}") from error
        return cls.from_data(data, where)

    @classmethod
    def from_data(cls, data: Any, where: str) -> "Execution":
        """Rebuild an execution from the JSON data that `save` writes.

        Args:
            data: as JSON keeps it; unknown keys are passed over.
            where: its file, and line if it is one of several, for errors.

        Raises:
            ValueError: if it is no execution of a version this package reads.
        """
        version = data.get("schema_version") if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"{where}: expected an execution of schema version {SCHEMA_VERSION}, got {version}; {_REMEDY}"
            )
        try:
            execution: Execution = rebuild(cls, data)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: not a complete execution ({error}); {_REMEDY}") from error
        inside = [step.transcript for level in execution.levels for step in level.steps if step.transcript]
        if any(deliberation.schema_version != TRANSCRIPT_VERSION for deliberation in inside):
            raise ValueError(
                f"{where}: expected transcripts of schema version {TRANSCRIPT_VERSION} in it, got others; {_REMEDY}"
            )
        return execution
