"""What a Conductor writes: steps, each a worker, a subtask and what it reads of the steps before it."""

import enum
import json
import reprlib
from dataclasses import dataclass
from typing import Any, Literal


class Reason(enum.StrEnum):
    """Why a text is no workflow, or a workflow not a valid one. The first four are faults of texts alone."""

    TOO_LONG = "too_long"  # the text is longer than is read
    NO_LISTS = "no_lists"  # the three lists do not stand there, one after the other
    BROKEN_LIST = "broken_list"  # they would, but a list does not end, or holds what no list of literals holds
    NOT_LITERAL = "not_literal"  # a list is complete, but not a Python literal; of accesses each entry is read alone
    UNEQUAL_LENGTHS = "unequal_lengths"  # the lists differ in length
    NO_STEPS = "no_steps"  # there is no step, where accepting an earlier answer is not possible
    TOO_MANY_STEPS = "too_many_steps"  # there are more steps than allowed
    BAD_WORKER = "bad_worker"  # a worker is no integer; True and False are none either
    UNKNOWN_WORKER = "unknown_worker"  # a worker's number lies outside the pool
    BAD_SUBTASK = "bad_subtask"  # a subtask is no text that can be written as UTF-8
    EMPTY_SUBTASK = "empty_subtask"  # a subtask is blank
    BAD_ACCESS = (
        "bad_access"  # an access entry is neither "all" nor a list of step numbers from 0; it may be no literal
    )
    FORWARD_REFERENCE = "forward_reference"  # a step reads itself or a later one


class WorkflowError(ValueError):
    """A text is no valid workflow: the fault's code, and the fault in one line."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[1])


class Topology(enum.StrEnum):
    """The shape of a workflow, by who waits for whom. The first definition that fits holds. Our reading."""

    ACCEPT = "accept"  # no step: the previous answer stands
    SINGLE = "single"  # one step
    PARALLEL = "parallel"  # no step reads another
    CHAIN = "chain"  # every step waits for the one before it
    TREE = "tree"  # each step but the last feeds exactly one, so that all that is written runs together in the answer
    GRAPH = "graph"  # anything else: a step that feeds several, or nobody


@dataclass(frozen=True)
class WorkflowStep:
    """One call of one worker."""

    worker: int  # its number in the pool, from 0
    subtask: str
    access: Literal["all"] | tuple[int, ...] = ()  # the earlier steps whose subtasks and responses it reads


@dataclass(frozen=True)
class Workflow:
    """Steps in order; the last one's response is the answer. No step accepts the one before (recursion).

    Nothing is checked here: `check` does, and the methods hold for what passes it.
    """

    steps: tuple[WorkflowStep, ...] = ()

    def visible(self, k: int) -> tuple[int, ...]:
        """The earlier steps whose subtask and response step k reads, ascending, each once."""
        access = self.steps[k].access
        return tuple(range(k)) if access == "all" else tuple(sorted(set(access)))

    def waves(self) -> tuple[tuple[int, ...], ...]:
        """Steps that can run together, in the fewest waves: each step goes down right after the last that it reads."""
        depth: list[int] = []
        for k in range(len(self.steps)):
            depth.append(max((depth[i] + 1 for i in self.visible(k)), default=0))
        return tuple(tuple(k for k, at in enumerate(depth) if at == wave) for wave in range(max(depth, default=-1) + 1))

    def topology(self) -> Topology:
        """The workflow's shape. What a step reads by way of another that it reads as well makes no difference."""
        n, waves = len(self.steps), len(self.waves())
        if n < 2:
            return Topology.SINGLE if n else Topology.ACCEPT
        if waves in (1, n):
            return Topology.PARALLEL if waves == 1 else Topology.CHAIN
        fed = [i for k in range(n) for i in self._feeds(k)]
        return Topology.TREE if sorted(fed) == list(range(n - 1)) else Topology.GRAPH

    def render(self) -> str:
        """The three lists as a Conductor writes them, a line each; `parse` gives the workflow back."""
        lists = {
            "model_id": [step.worker for step in self.steps],
            "subtasks": [step.subtask for step in self.steps],
            "access_list": [step.access for step in self.steps],
        }
        # JSON's strings are Python literals as well, and always in double quotes: one form for a model to learn.
        return "\n".join(f"{label} = {json.dumps(values, ensure_ascii=False)}" for label, values in lists.items())

    def _feeds(self, k: int) -> tuple[int, ...]:
        """The steps that step k waits for directly: visible, and not behind another visible one."""
        behind: set[int] = set()
        for i in reversed(range(k)):
            if i in behind or i in self.visible(k):
                behind.update(self.visible(i))
        return tuple(i for i in self.visible(k) if i not in behind)


def workflow_schema(workers: int, max_steps: int = 5, *, allow_empty: bool = False) -> dict[str, Any]:
    """The JSON schema of a plan and the three lists, for servers that hold a model to one; arguments as of `parse`.

    It says what such servers understand alike. That lists are equally long and steps read earlier ones it cannot say.
    """

    def entries(of: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "items": of, "minItems": 0 if allow_empty else 1, "maxItems": max_steps}

    reads = [{"type": "string", "enum": ["all"]}, {"type": "array", "items": {"type": "integer"}}]
    properties = {
        "plan": {"type": "string"},
        "model_id": entries({"type": "integer", "enum": list(range(workers))}),
        "subtasks": entries({"type": "string"}),
        "access_list": entries({"anyOf": reads}),
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def check(workflow: Workflow, *, workers: int, max_steps: int = 5, allow_empty: bool = False) -> None:
    """Whether a workflow, which may hold values of any type, may be executed; arguments are those of `parse`.

    Raises:
        WorkflowError: the first fault: the number of steps, then step by step worker, subtask, access.
    """
    faults = size_faults(len(workflow.steps), max_steps, allow_empty=allow_empty)
    faults += [fault for k, step in enumerate(workflow.steps) if (fault := step_fault(step, k, workers))]
    if faults:
        raise faults[0]


def size_faults(steps: int, max_steps: int, *, allow_empty: bool) -> list[WorkflowError]:
    """What is wrong with a number of steps."""
    if steps > max_steps:
        message = f"expected at most {max_steps} steps, got {steps}: write fewer"
        return [WorkflowError(Reason.TOO_MANY_STEPS, message)]
    if steps or allow_empty:
        return []
    return [WorkflowError(Reason.NO_STEPS, "expected a step or more, got none: write one entry a step in each list")]


def step_fault(step: WorkflowStep, k: int, workers: int) -> WorkflowError | None:
    """The first fault of step k on its own: of its worker, its subtask, its access. None if there is none."""
    # A step made by hand or read from a file may hold anything.
    anything: tuple[Any, Any, Any] = (step.worker, step.subtask, step.access)
    worker, subtask, access = anything

    def fault(reason: Reason, expected: str, got: object) -> WorkflowError:
        return WorkflowError(reason, f"step {k}: expected {expected}, got {_shown(got)}")

    if type(worker) is not int or not 0 <= worker < workers:
        reason = Reason.UNKNOWN_WORKER if type(worker) is int else Reason.BAD_WORKER
        return fault(reason, f"a worker from 0 to {workers - 1} in model_id", worker)
    if not isinstance(subtask, str) or any("\ud800" <= letter <= "\udfff" for letter in subtask):
        return fault(Reason.BAD_SUBTASK, "a text without surrogates in subtasks", subtask)
    if not subtask.strip():
        return fault(Reason.EMPTY_SUBTASK, "a text in subtasks", subtask)
    if access != "all" and (not isinstance(access, tuple) or any(type(i) is not int or i < 0 for i in access)):
        return fault(Reason.BAD_ACCESS, '"all" or a list of step numbers from 0 in access_list', access)
    if access != "all" and any(i >= k for i in access):
        return fault(Reason.FORWARD_REFERENCE, f"numbers of steps before step {k} in access_list", access)
    return None


def _shown(value: object) -> str:
    """A value of any kind and size, in short and on one line; tuples are the lists that a text holds."""
    try:
        return reprlib.repr(list(value) if isinstance(value, tuple) else value)
    except ValueError:
        return "a huge number"  # Python refuses to print integers of thousands of digits
