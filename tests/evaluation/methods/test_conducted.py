"""Workflows as a method, and a worker drawn at random."""

from dataclasses import replace

import pytest
from scripted_conductor import GARBAGE, TWO, WRITER, text, writes

from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.executor import WorkflowJob as Job
from nsed_torch.conductor.parsing import parse
from nsed_torch.conductor.policy import PromptedAgent
from nsed_torch.conductor.pools import Pools
from nsed_torch.evaluation.methods.conducted import Conducted, RandomRouting
from nsed_torch.evaluation.methods.costs_ahead import expected_usage
from nsed_torch.evaluation.methods.independent import Single
from nsed_torch.records.transcript import Task, Usage

CONDUCTOR = {"conductor": replace(WRITER, backbone="scripted", prompt_price=0.0, completion_price=0.0)}
METHODS = [
    RandomRouting(),
    Conducted(**CONDUCTOR),
    Conducted(**CONDUCTOR, recursion=2, pools=Pools("random", 2)),
    Conducted(PromptedAgent(WRITER.name, "scripted", decoding=WRITER.decoding)),
]
ALL = pytest.mark.parametrize("method", METHODS, ids=["random_routing", "conductor", "recursion", "prompted"])


def steady(request):
    """Eight words, all different."""
    return f"the answer may well be some number {request.seed}"


def panel(team, *texts, **options):
    return team.build(writes(*texts or (TWO,), workers=options.pop("workers", steady)), **options)


@ALL
def test_usage_is_what_the_calls_cost_whatever_the_budget(team, method):
    built, engine = panel(team)
    answers = method(built, team.tasks, None)
    assert Usage.sum(answer.usage for answer in answers) == engine.usage
    for budgets in ([0] * 4, [10**6] * 4):
        assert method(panel(team)[0], team.tasks, budgets) == answers


@ALL
def test_other_tasks_and_their_order_change_nothing(team, method):
    together = method(panel(team)[0], team.tasks, None)
    assert method(panel(team)[0], team.tasks[::-1], None) == together[::-1]
    for task, answer in zip(team.tasks, together, strict=True):
        assert method(panel(team)[0], [task], None) == [answer]
    assert method(panel(team)[0], [], None) == []


@ALL
def test_no_target_reaches_a_model(team, method):
    built, engine = panel(team)
    method(built, team.tasks, None)
    assert not any("secret" in message.content for request in engine.requests for message in request.messages)


@ALL
def test_it_is_estimated_from_above_and_asks_nobody(team, method):
    long = text(*[(0, f"Do part {k}.", "all") for k in range(5)])
    built, engine = panel(team, long, long, workers=lambda r: f"{r.seed} " + "word " * 40)
    expected = expected_usage(method, built, team.tasks)
    assert engine.usage.calls == 0
    real = Usage.sum(answer.usage for answer in method(built, team.tasks, None))
    assert expected.calls == real.calls
    assert expected.completion_tokens >= real.completion_tokens
    assert expected.prompt_tokens > 0.9 * real.prompt_tokens


def test_the_answer_is_the_executors_and_the_note_says_what_was_made_of_the_text(team):
    built, _ = panel(team, workers=lambda request: "" if request.agent == "Quillfeather" else "ok")
    (answer,) = Conducted(**CONDUCTOR)(built, team.tasks[:1])
    assert (answer.text, answer.note) == ("", "chain, 2 steps; no answer: empty answer")
    mended = text((0, "A b.", ()), (9, "C d.", ()))
    for written, note in (
        ((mended, GARBAGE), "single, 1 steps (mended: unknown_worker) > accept, 0 steps (fallback: no_lists)"),
        ((GARBAGE, TWO), "single, 1 steps (fallback: no_lists) > chain, 2 steps"),
    ):
        (answer,) = Conducted(**CONDUCTOR, recursion=1)(panel(team, *written)[0], team.tasks[:1])
        assert answer.note == note


def test_everything_is_kept_for_whoever_asks(team):
    method, (built, _) = Conducted(**CONDUCTOR), panel(team, seed=3)
    answers = method(built, team.tasks)
    assert list(method.executions) == [task.id for task in team.tasks]
    executor = Executor(built.ensemble, prompts=built.prompts, seed=3)
    for task, answer in zip(team.tasks, answers, strict=True):
        execution = method.executions[task.id]
        assert (execution.answer, execution.usage) == (answer.text, answer.usage)
        (plain,) = executor.run([Job(task, parse(TWO, workers=3), team.names)])
        assert execution.levels[0].steps == plain.levels[0].steps


def test_a_drawn_agent_answers_as_it_would_alone_and_draws_differ(team):
    tasks = [Task(f"How much is {i}?", f"t{i}") for i in range(30)]
    routed = RandomRouting()(panel(team)[0], tasks)
    alone = {name: Single(name)(panel(team)[0], tasks) for name in team.names}
    for i, answer in enumerate(routed):
        name = answer.note.removeprefix("by ")
        assert (answer.text, answer.usage) == alone[name][i][:2]
    assert {answer.note for answer in routed} == {f"by {name}" for name in team.names}
    left = RandomRouting(without=["Oberon"])(panel(team)[0], tasks)
    assert "by Oberon" not in {answer.note for answer in left}
    assert [answer.note for answer in RandomRouting()(panel(team, seed=1)[0], tasks)] != [a.note for a in routed]


def test_a_conductor_that_writes_nothing_is_random_routing_at_a_higher_cost(team):
    routed = RandomRouting()(panel(team)[0], team.tasks)
    built, engine = panel(team, GARBAGE)
    conducted = Conducted(**CONDUCTOR, pools=Pools("permuted"))(built, team.tasks)
    assert [answer.text for answer in conducted] == [answer.text for answer in routed]
    RandomRouting()(built, team.tasks)
    assert engine.usage.calls == 8  # the steps were the very calls of the other method


def test_a_recursion_beyond_the_cap_is_refused_before_anything_runs(fails):
    with fails("expected recursion from 0 to 3, got 4: correct it"):
        Conducted(**CONDUCTOR, recursion=4)
