"""Where the steps and lines of a graph stand, and what the workflows of a run have in common."""

import itertools
import re

import pytest
from executed_workflows import REVISED, everything, executed
from hypothesis import given, settings
from scripted_workers import flow
from workflow_texts import workflows

from nsed_torch.conductor.workflow import Topology
from nsed_torch.evaluation.workflows import HEIGHT, PREVIOUS, SHAPES, WIDTH, draw, drawings, reading
from nsed_torch.records.execution import Level, StepRecord
from nsed_torch.records.transcript import Task


def drawn(workflow, *, previous=False):
    steps = [
        StepRecord("w", s.subtask, list(workflow.visible(k)), [], "yes", None) for k, s in enumerate(workflow.steps)
    ]
    return draw(Level(["w"] * 4, workflow.render(), steps), previous=previous, answers=True)


@settings(max_examples=20)
@given(workflows())
def test_lines_are_what_steps_may_read_and_cross_no_step(workflow):
    for previous in (False, True):
        drawing = drawn(workflow, previous=previous)
        visible = [(i, k) for k in range(len(workflow.steps)) for i in workflow.visible(k)]
        further = [(PREVIOUS, k) for k, step in enumerate(workflow.steps) if previous and step.access == "all"]
        assert sorted((edge.source, edge.target) for edge in drawing.lines) == sorted([*visible, *further])
        at = {node.step: node for node in drawing.boxes}
        assert len(at) == len(workflow.steps) + bool(further)
        for one, other in itertools.combinations(drawing.boxes, 2):
            assert abs(one.x - other.x) > WIDTH or abs(one.y - other.y) > HEIGHT
        lowest = max(node.y for node in drawing.boxes) + HEIGHT
        for edge in drawing.lines:
            points = [int(n) for n in re.findall(r"-?\d+", re.sub(r"H(-?\d+)", r"H\1 0", edge.path))]
            assert (points[0], points[1]) == (at[edge.source].x + WIDTH, at[edge.source].y + HEIGHT // 2)
            assert (points[-2], points[-1]) == (at[edge.target].x, at[edge.target].y + HEIGHT // 2)
            lane = re.search(r" (\d+)H", edge.path)
            beyond = at[edge.target].x - at[edge.source].x > 2 * WIDTH
            assert bool(lane) == beyond
            assert lane is None or lowest < int(lane[1]) <= drawing.height
        assert max(node.x for node in drawing.boxes) + WIDTH == drawing.width
        assert {edge.target for edge in drawing.lines} == {node.step for node in drawing.boxes if node.reads}


def test_columns_are_waves_and_lines_know_who_was_silent():
    first, second, third = drawings(everything())
    assert first.columns == [(0, 1), (2,), (3,), (4,)]
    assert [(e.source, e.target) for e in first.lines if not e.heard] == [(1, 2), (1, 3)]
    assert second.columns == [(PREVIOUS,), (0,), (1,)]
    assert [(e.source, e.target, e.heard) for e in second.lines] == [(PREVIOUS, 1, True), (0, 1, True)]
    assert (third.columns, third.lines, third.boxes) == ([], [], [])
    assert [drawing.answers for drawing in (first, second, third)] == [False, True, False]


def test_there_is_no_previous_answer_to_read_where_it_failed():
    _, second = drawings(executed(flow((0, "Fail.", ())), REVISED, silent="Fail."))
    assert second.reading[1] == "step 0"


def test_what_a_step_reads_in_words():
    assert reading((), ()) == "nothing"
    assert reading((PREVIOUS, 0, 2), (2,)) == "the previous answer, step 0 (no response), step 2"


def test_every_shape_has_its_words():
    assert set(SHAPES) == set(Topology)


def test_a_level_without_a_workflow_is_refused():
    with pytest.raises(ValueError, match="expected complete lists"):
        list(
            drawings(executed(REVISED).__class__(Task("Why?"), [], [Level(["w"], "x", drawn(REVISED).level.steps)], 0))
        )
