"""A subtask that is all its worker reads: earlier responses stand in place of references, and no task beside them."""

import json

import pytest
from scripted_workers import NAMES, TASKS, build, flow

from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.executor import WorkflowJob as Job
from nsed_torch.conductor.policy import Conductor, WritingAgent
from nsed_torch.conductor.references import referred
from nsed_torch.core.agent import Ensemble

FLOW = flow((0, "Turn x, y.", ()), (1, "Put {0 last} to {0}, not {7}.", "all"), (2, "Answer the question.", "all"))


@pytest.mark.parametrize(
    ("subtask", "said"),
    [
        ("Add 9 to {0}.", "Add 9 to a, b."),
        ("{0 first} and {0 last}", "a and b"),
        ("{1}{0 first}", "7a"),
        ("{2}, {x}, {0 next}", "{2}, {x}, {0 next}"),
    ],
)
def test_references_are_replaced_by_responses_that_are_read(subtask, said):
    assert referred(subtask, {0: "a,\nb", 1: " 7 "}) == said


def asked_of(engine):
    return [[message.content for message in request.messages] for request in engine.asked]


def test_a_worker_reads_its_subtask_as_its_question_and_nothing_of_the_task():
    executor, engine = build(lambda request: {"Zebulon": "y, x", "Quillfeather": "x, y, x"}.get(request.agent, "end"))
    (done,) = executor.run([Job(TASKS[0], FLOW, NAMES, alone=True)])
    first, second, third = asked_of(engine)
    assert "Question: Turn x, y." in first[-1]
    assert "Question: Put x to y, x, not {7}." in second[-1]
    assert len(second) == 2  # no turns of others
    assert TASKS[0].question not in "".join([*first, *second])
    assert TASKS[0].question in third[-1]  # a subtask that says nothing is the task itself
    assert done.answer == "end"
    assert done.task == TASKS[0]
    assert [step.subtask for step in done.levels[0].steps] == [step.subtask for step in FLOW.steps]


@pytest.mark.parametrize("alone", [False, True])
def test_a_conductor_says_whether_its_subtasks_stand_alone(alone):
    executor, engine = build(lambda request: FLOW.render() if request.agent == "writer" else "1")
    writer = WritingAgent("writer", "one", alone=alone)
    Conductor(Executor(Ensemble({"one": engine}, executor.ensemble.agents)), writer).answer(TASKS[:1])
    assert [TASKS[0].question in json.dumps(asked) for asked in asked_of(engine)] == [True, not alone, not alone, True]


def test_a_conductor_that_does_not_look_back_writes_one_workflow_a_task():
    executor, engine = build(lambda request: FLOW.render() if request.agent == "writer" else "1")
    team = Ensemble({"one": engine}, executor.ensemble.agents)
    conductor = Conductor(Executor(team), WritingAgent("writer", "one", looks_back=False))
    assert len(conductor.answer(TASKS[:1])[0].levels) == 1
    asked = len(asked_of(engine))
    with pytest.raises(ValueError, match="expected no recursion of writer, which does not look back, got 1: leave it"):
        conductor.answer(TASKS[:1], recursion=1)
    assert len(asked_of(engine)) == asked
