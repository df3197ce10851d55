"""Workflows on a page: where steps and lines stand in a graph."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nsed_torch.conductor.parsing import parse
from nsed_torch.conductor.workflow import Topology, Workflow
from nsed_torch.records.execution import Execution, Level

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
"""What the words for shapes mean."""


def workflow_of(level: Level) -> Workflow:
    """The workflow that a level ran; a `ValueError` if it holds none, which no executor writes."""
    return parse(level.workflow, workers=len(level.pool), max_steps=len(level.steps), allow_empty=True)


def sources(workflow: Workflow, k: int, *, previous: bool) -> tuple[int, ...]:
    """What step k may read: earlier steps, and before them `PREVIOUS` where there is an answer that "all" includes."""
    first = (PREVIOUS,) if previous and workflow.steps[k].access == "all" else ()
    return (*first, *workflow.visible(k))


def reading(read: Iterable[int], heard: Collection[int]) -> str:
    """What a step reads (as `sources` has it), in words; of the steps `heard` there was a response."""
    words = [
        "the previous answer" if i == PREVIOUS else f"step {i}" + ("" if i in heard else " (no response)") for i in read
    ]
    return ", ".join(words) or "nothing"


class Box(NamedTuple):
    """A step in a graph."""

    step: int  # or `PREVIOUS`
    x: int  # of the upper left corner, in pixels
    y: int
    reads: bool  # whether a line ends there


class Line(NamedTuple):
    """From what is read to who reads it."""

    source: int
    target: int
    path: str  # of an SVG
    heard: bool  # not where there was nothing to read


@dataclass(frozen=True)
class Drawing:
    """A level of an execution and its graph: one column per wave, a line for everything that a step may read.

    Lines to the next column are curves. Longer ones pass below all steps, those of one source in a lane of their own,
    so that no line crosses a step.
    """

    level: Level
    workflow: Workflow
    answers: bool  # whether the execution's answer is that of this level
    columns: list[tuple[int, ...]]  # the waves; before them the previous answer, where a step reads it
    boxes: list[Box]
    lines: list[Line]
    width: int  # pixels
    height: int
    reading: list[str]  # what each step may read, in words


def drawings(execution: Execution) -> Iterator[Drawing]:
    """Every level with its graph."""
    last = max(i for i, level in enumerate(execution.levels) if level.steps)
    answer = ""
    for i, level in enumerate(execution.levels):
        yield draw(level, previous=bool(answer), answers=i == last)
        answer = level.steps[-1].response if level.steps else answer


def draw(level: Level, *, previous: bool, answers: bool) -> Drawing:
    """Place a level's steps and lines; `previous` says whether there is an answer before it."""
    workflow = workflow_of(level)
    read = [sources(workflow, k, previous=previous) for k in range(len(workflow.steps))]
    pairs = [(i, k) for k, own in enumerate(read) for i in own]
    columns = [*([(PREVIOUS,)] if any(i == PREVIOUS for i, _ in pairs) else []), *workflow.waves()]
    rows = max(map(len, columns), default=0)
    boxes = {}
    for c, column in enumerate(columns):
        top = (rows - len(column)) * (HEIGHT + ROW) // 2
        for r, k in enumerate(column):
            boxes[k] = Box(k, c * (WIDTH + GAP), top + r * (HEIGHT + ROW), k != PREVIOUS and bool(read[k]))
    bottom = rows * (HEIGHT + ROW) - ROW
    # The first source has the lowest lane, so that later ones do not cross it.
    far = sorted({i for i, k in pairs if boxes[k].x - boxes[i].x > WIDTH + GAP}, reverse=True)
    lanes = {i: bottom + (n + 1) * LANE for n, i in enumerate(far)}
    lines = [
        Line(i, k, _path(boxes[i], boxes[k], lanes.get(i, 0)), i == PREVIOUS or i in level.steps[k].visible)
        for i, k in pairs
    ]
    words = [reading(own, step.visible) for own, step in zip(read, level.steps, strict=True)]
    size = len(columns) * (WIDTH + GAP) - GAP, bottom + len(lanes) * LANE
    return Drawing(level, workflow, answers, columns, list(boxes.values()), lines, *size, words)


def _path(source: Box, target: Box, lane: int) -> str:
    """From the middle of one's right side to the middle of the other's left side."""
    x1, y1, x2, y2 = source.x + WIDTH, source.y + HEIGHT // 2, target.x, target.y + HEIGHT // 2
    bend = GAP // 2
    if x2 - x1 == GAP:
        return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    down = f"C{x1 + bend} {y1} {x1 + bend} {lane} {x1 + GAP} {lane}"
    return f"M{x1} {y1}{down}H{x2 - GAP}C{x2 - bend} {lane} {x2 - bend} {y2} {x2} {y2}"
