"""What tests of views share: workflows run by scripted workers, and one execution that has everything."""

import dataclasses

from scripted_workers import NAMES, TASKS, answers, build, council, flow

from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.executor import WorkflowJob as Job
from nsed_torch.records.execution import Execution, Level, PlanRecord, StepRecord
from nsed_torch.records.transcript import Task, Usage

DIAMOND = flow(
    (0, "Solve it with an equation.", ()),
    (1, "Solve it by trying numbers.", ()),
    (2, "Compare both ways and say which of them is right.", (0, 1)),
    (0, "Check the comparison against the question.", "all"),
    (1, "Write the final answer.", (0, 3)),
)
REVISED = flow((2, "Look for a mistake.", ()), (0, "Correct it.", "all"))
ACCEPTED = flow()
PLAN = PlanRecord(
    "I would ask two of them.\nmodel_id = [0, 9]",
    ["unknown_worker", "too_many_steps"],
    notes=["its allowance shrank"],
    usage=Usage(1, 400, 60),
)
UNREADABLE = PlanRecord("", ["no_lists"], fallback=True)


def executed(*workflows, plans=(), silent=None, task=TASKS[0], pool=NAMES, observer=None):
    """An execution with a level a workflow; workers say nothing to the subtask `silent`."""

    def write(request):
        return "" if silent and silent in request.messages[-1].content else answers(request)

    executor, _ = build(write, observer=observer)
    if "team" in pool:
        executor = Executor(
            executor.ensemble,
            prompts=executor.prompts,
            deliberations={"team": council(executor)},
            observer=observer,
        )
    execution = None
    for i, workflow in enumerate(workflows):
        plan = plans[i] if i < len(plans) else None
        (execution,) = executor.run([Job(task, workflow, tuple(pool), execution, plan)])
    return execution


def everything(observer=None):
    """Three levels: one with a step that failed and one that accepts; texts that were mended, and could not be."""
    plans = [PLAN, None, UNREADABLE]
    return executed(DIAMOND, REVISED, ACCEPTED, plans=plans, silent="Solve it by trying", observer=observer)


def said(question, text):
    """One text in every place of an execution that takes a model's or a user's words."""
    agents = [dataclasses.replace(record, persona=text, backbone=text) for record in executed(REVISED).agents]
    steps = [
        StepRecord("w" + text, text, [], [1], text, None, notes=[text]),
        StepRecord("w" + text, text, [0], [1], text, None),
    ]
    workflow = flow((0, "a", ()), (0, "b", "all")).render()
    level = Level(["w" + text], workflow, steps, PlanRecord(text, [text], notes=[text]))
    return Execution(Task(question, "x" + text, text), agents, [level, level], 0, {text: text})
