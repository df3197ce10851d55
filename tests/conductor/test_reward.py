"""Rewards of texts: 0, 0.5, 1 or none, whatever stands beside a text, and what a batch of them comes to."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_workers import NAMES, TASKS, Recorder, build, drawn, flow
from workflow_texts import mutated, random_text, read

from nsed_torch.conductor.executor import WorkflowJob as Job
from nsed_torch.conductor.parsing import parse
from nsed_torch.conductor.reward import Rewards, Rollout, Scored, near_duplicates, tally
from nsed_torch.conductor.workflow import Reason, Topology
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.outcome import Verdict
from nsed_torch.traces.equality import Equality

GRADED = GradedTasks(tuple(TASKS), AnswerGrader(Equality(False), kind="text"), {})
POOLS = (NAMES, NAMES[::-1], (NAMES[1], NAMES[0]))


def knows(request):
    """Oberon alone knows; the others write what they like."""
    return "secret" if request.agent == "Oberon" else drawn(request)


def rewards(write=knows, **options):
    executor, engine = build(write, **options)
    return Rewards(executor, GRADED), engine


def text(*steps):
    return "So.\n" + flow(*steps).render()


def rollout(seed):
    draw = random.Random(seed)
    return Rollout(draw.choice(TASKS), draw.choice(POOLS), mutated(random_text(draw), draw))


@given(st.lists(st.integers(0, 200), min_size=1, max_size=6))
def test_a_text_is_worth_what_its_workflow_comes_to_alone(seeds):
    scorer, _ = rewards()
    rollouts = [rollout(seed) for seed in seeds]
    for one, scored in zip(rollouts, scorer(rollouts), strict=True):
        workflow, reason = read(parse, one.text, workers=len(one.pool))
        if workflow is None:
            assert scored == Scored(0.0, reason=reason)
            continue
        (alone,) = build(knows)[0].run([Job(one.task, workflow, one.pool)])
        assert scored.reward == (1.0 if "secret" in alone.answer.split("\n")[-1:] else 0.5)
        assert scored.workflow == workflow
        assert scored.workers == tuple(one.pool[step.worker] for step in workflow.steps)
        assert scored.usage == alone.usage


def test_the_three_rewards():
    scorer, _ = rewards()
    right, wrong = text((2, "Solve.", ())), text((0, "Solve.", ()))
    permuted = Rollout(TASKS[0], POOLS[1], wrong)
    texts = [Rollout(TASKS[0], NAMES, said) for said in (right, wrong, "I would rather not.")]
    assert [s.reward for s in scorer([*texts, permuted])] == [1.0, 0.5, 0.0, 1.0]


@pytest.mark.parametrize("alone", [False, True])
def test_workflows_are_run_as_the_conductor_will_have_them_run(alone):
    executor, engine = build(knows)
    scorer = Rewards(executor, GRADED, alone=alone)
    scorer([Rollout(TASKS[0], NAMES, text((2, "Count the apples.", ())))])
    (asked,) = ["\n".join(message.content for message in request.messages) for request in engine.asked]
    assert "Count the apples." in asked
    assert (TASKS[0].question in asked) is not alone


def test_a_step_more_costs_its_price_and_never_makes_right_as_little_as_wrong():
    executor, _ = build(knows)
    scorer = Rewards(executor, GRADED, step_price=0.1)
    go_on = [(0, f"Step {k}.", ()) for k in range(4)]
    texts = [text(*go_on[:k], (2, "Solve.", ())) for k in range(5)]
    scored = scorer([Rollout(TASKS[0], NAMES, said) for said in (*texts, text(*go_on[:2]))])
    assert [s.reward for s in scored] == [pytest.approx(1 - 0.1 * k) for k in range(5)] + [0.5]
    assert [s.right for s in scored] == [True] * 5 + [False]
    assert tally(scored, 6)["right"] == pytest.approx(5 / 6)
    (before,) = executor.run([Job(TASKS[0], flow((2, "Say.", ())), NAMES)])
    (accepted,) = scorer([Rollout(TASKS[0], NAMES, flow().render(), before)])
    assert accepted.reward == 1.0
    for price in (0.125, -0.1):
        with pytest.raises(ValueError, match=r"expected a step_price from 0 to below 0\.125, got"):
            Rewards(executor, GRADED, step_price=price)


def test_equal_workflows_are_executed_once():
    scorer, engine = rewards()
    many = [Rollout(TASKS[0], NAMES, text((0, "Begin.", ()), (2, "End.", "all")))] * 8
    first = scorer(many)
    assert len(engine.asked) == 2
    assert scorer(many[:3]) == first[:3]
    assert len(engine.asked) == 2  # the call log remembers
    assert all(s == first[0] for s in first)


def test_what_the_machinery_spoils_has_no_reward():
    def breaks(request):
        if request.agent == NAMES[0]:
            raise RuntimeError("out of memory")
        return knows(request)

    scorer, _ = rewards(breaks)
    said = [text((0, "Go.", ()), (2, "Say.", ())), text((2, "Say.", ())), "no"]
    scored = scorer([Rollout(TASKS[0], NAMES, s) for s in said])
    assert [s.reward for s in scored] == [None, 1.0, 0.0]
    assert scored[0].workers == (NAMES[0], NAMES[2])
    assert tally(scored, 3)["masked"] == pytest.approx(1 / 3)


def test_an_answer_that_nobody_could_grade_has_no_reward():
    class Down(AnswerGrader):
        def grade(self, pairs):
            return [Verdict.NOT_RUN for _ in pairs]

    executor, _ = build(knows)
    (scored,) = Rewards(executor, replace(GRADED, grader=Down(kind="text")))(
        [Rollout(TASKS[0], NAMES, text((2, "Say.", ())))]
    )
    assert scored.reward is None
    assert scored.workflow is not None


def test_silence_and_prompts_that_are_too_long_are_the_workflow_s_own_faults():
    silent, _ = rewards(lambda request: "")
    narrow, _ = rewards(engine=Recorder(knows, window=12))
    for scorer in (silent, narrow):
        (scored,) = scorer([Rollout(TASKS[0], NAMES, text((2, "Say it now. " * 5, ())))])
        assert scored.reward == 0.5


def test_a_further_round_may_accept():
    executor, _ = build(knows)
    (before,) = executor.run([Job(TASKS[0], flow((2, "Say.", ())), NAMES)])
    scorer, empty = Rewards(executor, GRADED), flow().render()
    accepted, fresh = scorer([Rollout(TASKS[0], NAMES, empty, before), Rollout(TASKS[0], NAMES, empty)])
    assert (accepted.reward, accepted.workers) == (1.0, ())
    assert (fresh.reward, fresh.reason) == (0.0, Reason.NO_STEPS)


def test_near_duplicates():
    said = ["Add the two numbers.", "add THE numbers two!", "Check the sum.", "Add the two numbers, please."]
    assert near_duplicates(flow(*[(0, s, ()) for s in said])) == 2
    assert near_duplicates(flow((0, "?", ()), (0, "!", ()))) == 1  # no words at all: the same nothing
    assert near_duplicates(flow()) == 0


def test_a_batch_comes_to():
    scorer, _ = rewards()
    said = [text((2, "Say.", ())), text((0, "Go.", ()), (2, "Go!", "all")), "no", "no"]
    scored = scorer([Rollout(TASKS[0], NAMES, s) for s in said])
    found = tally(scored, 2)
    assert (found["reward"], found["right"], found["parsed"]) == (0.5, 0.5, 0.5)
    assert found["no_signal"] == 1.0  # both right, then both unreadable
    assert tally(scored[1:3], 2)["no_signal"] == 0.0
    assert found["reasons"] == {Reason.NO_LISTS: 0.5}
    assert found["steps"] == 1.5
    assert found["topologies"] == {Topology.CHAIN: 0.5, Topology.SINGLE: 0.5}
    assert found["workers"] == {NAMES[2]: pytest.approx(2 / 3), NAMES[0]: pytest.approx(1 / 3)}
    assert found["near_duplicates"] == pytest.approx(1 / 3)
    assert found["worker_tokens"] == sum(s.usage.tokens for s in scored)
    nothing = tally(scorer([Rollout(TASKS[0], NAMES, "no")]), 1)
    assert nothing["steps"] is nothing["near_duplicates"] is None
