"""Workflows to begin with are valid, of every shape, and know the way only where they are told."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_conductor import TASKS, TWO, conductor
from scripted_workers import NAMES

from nsed_torch.conductor.parsing import parse
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.reward import near_duplicates
from nsed_torch.conductor.warm_start import random_workflow, workflow_lessons
from nsed_torch.conductor.workflow import Topology, WorkflowStep, check
from nsed_torch.core.engine import call_seed
from nsed_torch.questions.known import Hop
from nsed_torch.records.transcript import Task

MANY = [Task(f"How much is {i}?", f"m{i}") for i in range(300)]


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 7))
def test_a_random_workflow_is_valid_and_says_nothing_twice(seed, workers, most):
    flow = random_workflow(random.Random(seed), range(workers), most)
    check(flow, workers=workers, max_steps=most)
    assert parse(flow.render(), workers=workers, max_steps=most) == flow
    assert near_duplicates(flow) == 0
    assert flow.steps[0].access == ()


def test_every_shape_and_every_worker_comes():
    flows = [random_workflow(random.Random(seed), range(4), 5) for seed in range(300)]
    assert {flow.topology() for flow in flows} == {*Topology} - {Topology.ACCEPT}
    assert {len(flow.steps) for flow in flows} == {1, 2, 3, 4, 5}
    counts = Counter(step.worker for flow in flows for step in flow.steps)
    assert min(counts.values()) > 0.7 * max(counts.values())


def test_a_lesson_is_what_the_conductor_will_be_asked():
    conducts, _ = conductor(TWO, pools=Pools("random", 2))
    for task, lesson in zip(TASKS, workflow_lessons(conducts, TASKS), strict=True):
        system, user = lesson[0]
        assert task.question in user.content
        assert "model_id" in system.content
        assert "model 1\n" in user.content
        assert "model 2\n" not in user.content
        parse(lesson[1], workers=2)
    assert workflow_lessons(conducts, TASKS) == workflow_lessons(conducts, TASKS)
    assert workflow_lessons(conducts, TASKS[1:]) == workflow_lessons(conducts, TASKS)[1:]


def test_hops_are_workflows_by_those_they_are_for():
    conducts, _ = conductor(TWO, pools=Pools("random", 2))
    hops = {task.id: (Hop(NAMES[2], "Begin.", "1"), Hop("", "Go on.", "2", reads=True)) for task in MANY[1:]}
    first, *lessons = workflow_lessons(conducts, MANY, hops)
    assert [first] == workflow_lessons(conducts, MANY[:1])  # without hops at random
    places = Counter()
    for messages, reply in lessons:
        assert "model 1\n" in messages[1].content
        first, second = parse(reply, workers=2).steps
        assert (first.subtask, first.access, second) == ("Begin.", (), WorkflowStep(0, "Go on.", "all"))
        places[first.worker] += 1
    assert min(places.values()) > 100  # a number carries no identity
    with pytest.raises(ValueError, match=r"expected hops of a kind out of .*, got 'x': rename it"):
        workflow_lessons(conducts, MANY, {"m1": (Hop("x", "a", "b"),)})
    with pytest.raises(ValueError, match="expected at most 5 hops, got 6"):
        workflow_lessons(conducts, MANY, {"m1": (Hop("", "a", "b"),) * 6})


def test_a_reply_names_its_workers_in_the_words_of_the_pool_before_it_numbers_them():
    conducts, _ = conductor(TWO, pools=Pools("permuted"))
    conducts.descriptions = {NAMES[0]: "adds", NAMES[1]: "", NAMES[2]: "counts [cows]"}
    told = set()
    for task, lesson in zip(MANY, workflow_lessons(conducts, MANY), strict=True):
        pool = conducts.pools(conducts.executor.workers, task, call_seed(0, "lessons"))
        flow = parse(lesson[1], workers=3)
        said = lesson[1].removesuffix(flow.render()).splitlines()
        asked = [(step.worker, conducts.descriptions[pool[step.worker]]) for step in flow.steps]
        assert said == [f"{words}: model {number}" for number, words in asked if words]
        told.update(said)
    assert told == {f"{words}: model {i}" for words in ("adds", "counts [cows]") for i in range(3)}
