"""Workflows on a page: where steps and lines stand in a graph, and what the workflows of a run have in common."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from nsed_torch.conductor import Topology, Workflow, parse
from nsed_torch.evaluation.statistics import Estimate, mean_score
from nsed_torch.records import Execution, Level, Outcome

PREVIOUS = -1
"""Stands among steps for the answer that a further workflow starts from."""

WIDTH, HEIGHT, GAP, ROW, LANE = 166, 80, 44, 16, 14
"""Pixels: of a step, between columns and between rows, and between lines that pass below the steps."""

SHAPES = {
    Topology.ACCEPT: "no step: the answer before stands",
    Topology.SINGLE: "one step",
    Topology.PARALLEL: "no step reads another",
    Topology.CHAIN: "every step waits for the one before it",
    Topology.TREE: "each step but the last feeds exactly one",
    Topology.GRAPH: "some step feeds several others, or none",
}
"""What the words for shapes mean; the order of tables."""


def workflow_of(level: Level) -> Workflow:
    """The workflow that a level ran.

    Raises:
        ValueError: if the level holds none, which no executor writes.
    """
    return parse(level.workflow, workers=len(level.pool), max_steps=len(level.steps), allow_empty=True)


def sources(workflow: Workflow, k: int, *, previous: bool) -> tuple[int, ...]:
    """What step k may read: earlier steps, and before them `PREVIOUS` where there is an answer that "all" includes."""
    first = (PREVIOUS,) if previous and workflow.steps[k].access == "all" else ()
    return (*first, *workflow.visible(k))


def reading(read: Iterable[int], heard: Collection[int]) -> str:
    """What a step reads, in words.

    Args:
        read: as `sources` has it.
        heard: the steps among them that there was a response of.
    """
    named = {PREVIOUS: "the previous answer"}
    told = [named.get(i) or f"step {i}" + ("" if i in heard else " (no response)") for i in read]
    return ", ".join(told) or "nothing"


class Node(NamedTuple):
    """A step, or `PREVIOUS`, with its upper left corner in pixels; `reads` says whether a line ends there."""

    step: int
    x: int
    y: int
    reads: bool


class Edge(NamedTuple):
    """A line from what is read to who reads it, as the path of an SVG; not `heard` where there was nothing to read."""

    source: int
    target: int
    path: str
    heard: bool


@dataclass(frozen=True)
class Drawing:
    """A level of an execution and its graph: a column a wave, a line for everything that a step may read.

    Lines to the next column are curves. Longer ones pass below all steps, those of one source in a lane of their own,
    so that no line crosses a step.

    Args:
        level: as recorded.
        workflow: of the level.
        previous: whether there is an answer before it.
        answers: whether the execution's answer is that of this level.
    """

    level: Level
    workflow: Workflow
    previous: bool
    answers: bool

    @cached_property
    def columns(self) -> list[tuple[int, ...]]:
        """The waves; before them the previous answer, where a step reads it."""
        first = [(PREVIOUS,)] if any(source == PREVIOUS for source, _ in self.pairs) else []
        return [*first, *self.workflow.waves()]

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """(what is read, who reads it) of all lines."""
        return [(i, k) for k in range(len(self.workflow.steps)) for i in self.read(k)]

    @cached_property
    def nodes(self) -> list[Node]:
        """All steps, those of one column below each other."""
        rows, found = max(map(len, self.columns), default=0), []
        readers = {target for _, target in self.pairs}
        for c, column in enumerate(self.columns):
            top = (rows - len(column)) * (HEIGHT + ROW) // 2
            found += [Node(k, c * (WIDTH + GAP), top + r * (HEIGHT + ROW), k in readers) for r, k in enumerate(column)]
        return found

    @cached_property
    def edges(self) -> list[Edge]:
        """A line for each pair."""
        at, lanes = {node.step: node for node in self.nodes}, self._lanes
        return [
            Edge(i, k, _path(at[i], at[k], lanes.get(i, 0)), i == PREVIOUS or i in self.level.steps[k].visible)
            for i, k in self.pairs
        ]

    @property
    def width(self) -> int:
        """Of the graph, in pixels."""
        return len(self.columns) * (WIDTH + GAP) - GAP

    @property
    def height(self) -> int:
        """Of the graph, in pixels."""
        return self._bottom + len(self._lanes) * LANE

    def read(self, k: int) -> tuple[int, ...]:
        """What step k may read."""
        return sources(self.workflow, k, previous=self.previous)

    def reading(self, k: int) -> str:
        """The same in words."""
        return reading(self.read(k), self.level.steps[k].visible)

    @property
    def _bottom(self) -> int:
        return max(map(len, self.columns), default=0) * (HEIGHT + ROW) - ROW

    @cached_property
    def _lanes(self) -> dict[int, int]:
        """Where lines pass below the steps, by source; the first lowest, so that later ones do not cross it."""
        column = {k: c for c, ks in enumerate(self.columns) for k in ks}
        far = sorted({i for i, k in self.pairs if column[k] > column[i] + 1}, reverse=True)
        return {i: self._bottom + (n + 1) * LANE for n, i in enumerate(far)}


def drawings(execution: Execution) -> Iterator[Drawing]:
    """Every level with its graph."""
    last = max(i for i, level in enumerate(execution.levels) if level.steps)
    answer = ""
    for i, level in enumerate(execution.levels):
        yield Drawing(level, workflow_of(level), previous=bool(answer), answers=i == last)
        answer = level.steps[-1].response if level.steps else answer


def _path(source: Node, target: Node, lane: int) -> str:
    """From the middle of one's right side to the middle of the other's left side."""
    x1, y1, x2, y2 = source.x + WIDTH, source.y + HEIGHT // 2, target.x, target.y + HEIGHT // 2
    bend = GAP // 2
    if x2 - x1 == GAP:
        return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    down = f"C{x1 + bend} {y1} {x1 + bend} {lane} {x1 + GAP} {lane}"
    return f"M{x1} {y1}{down}H{x2 - GAP}C{x2 - bend} {lane} {x2 - bend} {y2} {x2} {y2}"


class ShapeRow(NamedTuple):
    """How often workflows of a level have a shape, and how often the answers of these tasks are right.

    Args:
        level: of recursion, from 0.
        shape: of the workflows.
        tasks: that have it.
        share: of all tasks with such a level.
        right: mean score with its interval over questions, as far as answers were graded.
    """

    level: int
    shape: Topology
    tasks: int
    share: float
    right: Estimate


@dataclass(frozen=True)
class WorkflowSummary:
    """What the workflows of a method have in common.

    Args:
        method: its name.
        tasks: their number.
        steps: of the first workflows, on average.
        shapes: by level, then in the order of `SHAPES`.
        workers: name -> share of all steps of all levels, most asked first.
        reasons: code of a repair -> tasks, most frequent first.
        fallbacks: tasks where the default workflow stood in.
    """

    method: str
    tasks: int
    steps: float
    shapes: list[ShapeRow]
    workers: dict[str, float]
    reasons: dict[str, int]
    fallbacks: int

    @classmethod
    def of(cls, method: str, found: Sequence[tuple[Execution, Outcome | None]]) -> "WorkflowSummary":
        """Count.

        Args:
            method: its name.
            found: executions, one or more, each with what became of its answer.
        """
        executions = [execution for execution, _ in found]
        levels = [level for execution in executions for level in execution.levels]
        asked = Counter(step.worker for level in levels for step in level.steps)
        plans = [[level.plan for level in execution.levels if level.plan] for execution in executions]
        reasons = Counter(reason for own in plans for reason in dict.fromkeys(r for plan in own for r in plan.reasons))
        return cls(
            method,
            len(found),
            sum(len(execution.levels[0].steps) for execution in executions) / len(found),
            list(_shape_rows(found)),
            {name: count / asked.total() for name, count in asked.most_common()},
            dict(reasons.most_common()),
            sum(any(plan.fallback for plan in own) for own in plans),
        )


def _shape_rows(found: Sequence[tuple[Execution, Outcome | None]]) -> Iterator[ShapeRow]:
    for level in range(max(len(execution.levels) for execution, _ in found)):
        having = [(e.levels[level], outcome) for e, outcome in found if len(e.levels) > level]
        shaped = [(workflow_of(own).topology(), outcome) for own, outcome in having]
        for shape in SHAPES:
            outcomes = [outcome for own, outcome in shaped if own == shape]
            if outcomes:
                yield ShapeRow(level, shape, len(outcomes), len(outcomes) / len(shaped), _right(outcomes))


def _right(outcomes: Sequence[Outcome | None]) -> Estimate:
    """Of answers that were graded; tasks that ask one question count as one."""
    scores: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome is not None and outcome.score is not None:
            scores.setdefault(outcome.group, []).append(outcome.score)
    return mean_score(list(scores.values()))
