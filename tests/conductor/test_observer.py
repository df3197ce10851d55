"""Whoever watches hears of every workflow before it runs, of every wave as it ends, and of the end."""

from executed_workflows import ACCEPTED, DIAMOND, PLAN, executed
from scripted_workers import CHAIN, NAMES, TASKS, build, flow

from nsed_torch.conductor.executor import WorkflowJob as Job
from nsed_torch.conductor.executor import WorkflowObserver


class Diary(WorkflowObserver):
    def __init__(self):
        self.told = []

    def on_workflow(self, job):
        self.told.append((job.task.id, job.level, "begins"))

    def on_wave(self, job, number, steps):
        assert all(job.workflow.steps[k].subtask == step.subtask for k, step in steps.items())
        self.told.append((job.task.id, number, tuple(steps)))

    def on_end(self, execution):
        self.told.append((execution.task.id, execution.levels[-1], "ends"))


def test_waves_of_all_workflows_are_told_as_they_end():
    diary = Diary()
    executor, _ = build(observer=diary)
    jobs = [
        Job(TASKS[0], CHAIN, NAMES),
        Job(TASKS[1], flow((0, "Try.", ()), (1, "Try too.", ())), NAMES),
    ]
    first, second = executor.run(jobs)
    assert diary.told == [
        ("a", 0, "begins"),
        ("b", 0, "begins"),
        ("a", 1, (0,)),
        ("b", 1, (0, 1)),
        ("a", 2, (1,)),
        ("a", 3, (2,)),
        ("a", first.levels[0], "ends"),
        ("b", second.levels[0], "ends"),
    ]


def test_a_wave_is_told_before_the_next_one_is_asked():
    asked = []

    class Watcher(WorkflowObserver):
        def on_wave(self, job, number, steps):
            asked.append(len(engine.asked))

    executor, engine = build(lambda request: "yes", observer=Watcher())
    executor.run([Job(TASKS[0], DIAMOND, NAMES)])
    assert asked == [2, 3, 4, 5]


def test_levels_count_and_the_plan_is_kept():
    diary = Diary()
    execution = executed(CHAIN, ACCEPTED, plans=[PLAN], observer=diary)
    assert [told[1] for told in diary.told if told[2] == "begins"] == [0, 1]
    assert [level.plan for level in execution.levels] == [PLAN, None]
    steps = [step.usage.tokens for step in execution.levels[0].steps]
    assert execution.usage.tokens == PLAN.usage.tokens + sum(steps)
