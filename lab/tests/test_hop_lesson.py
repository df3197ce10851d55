"""What workers of workflows learn from, and what they are tested on."""

import dataclasses
import json

import pytest

from nsed_lab.composite import KINDS, composite_tasks
from nsed_lab.hand_written import best_workflow
from nsed_torch.conductor.executor import Executor, WorkflowJob
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import Generation
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality
from nsed_torch.tuning.hop_lesson import HopLesson
from nsed_torch.tuning.lessons import AnswerLesson

pytest.importorskip("reasoning_gym", reason="the extra `bench` is not installed")

PROMPTS = Prompts(style="direct")
TRAIN, HELD_OUT = composite_tasks(60, 0, singles=0.1), composite_tasks(20, 1, singles=0)


def tasks(*numbers):
    found = tuple(Task(f"How much is {n} + {n}?", f"t{n}", str(2 * n)) for n in numbers)
    return GradedTasks(found, AnswerGrader(Equality(False)), {"name": "toy"})


def lesson(kinds=tuple(KINDS), step_share=0.5, answers=range(200), train=TRAIN, held_out=HELD_OUT):
    alone = AnswerLesson(tasks(*answers), tasks(999), PROMPTS, memory_share=0, max_new_tokens=2)
    return HopLesson(alone, train, held_out, kinds, step_share)


def test_an_example_is_what_a_worker_reads_when_the_best_workflow_runs():
    """Every call of every workflow that is right throughout, and nothing else."""
    known = {e.messages: e.reply for e in lesson(step_share=1.0, answers=range(400)).examples()}
    asked = set()

    def write(request):
        asked.add(request.messages)
        return known.get(request.messages, "?")

    ensemble = Ensemble(
        {"one": ScriptedEngine(write, lambda request, candidate: 0.0)}, [Agent(k, "one") for k in KINDS]
    )
    composite = [task for task in TRAIN.tasks if len(TRAIN.hops[task.id]) > 1]
    jobs = [WorkflowJob(t, best_workflow(TRAIN.hops[t.id], tuple(KINDS)), tuple(KINDS)) for t in composite]
    done = Executor(ensemble, prompts=PROMPTS).run(jobs)
    assert [execution.answer for execution in done] == [task.target for task in composite]
    assert asked == set(known)


@pytest.mark.parametrize("kinds", [("sums",), ("relations", "words")])
def test_a_share_of_the_examples_is_hops_of_the_own_kinds(kinds):
    examples = lesson(kinds, 0.25).examples()
    assert len(examples) == 200
    plain = lesson(kinds).answers.examples()
    assert examples[:150] == plain[:150]
    hops = [h for t in TRAIN.tasks for h in TRAIN.hops[t.id] if h.kind in kinds and len(TRAIN.hops[t.id]) > 1]
    for example in examples[150:]:
        text = example.messages[-1].content
        assert any(h.subtask in text and h.reply == example.reply for h in hops)


def test_few_hops_come_again():
    few = dataclasses.replace(TRAIN, tasks=TRAIN.tasks[:4])
    examples = lesson(("sums",), 0.5, train=few).examples()
    assert len(examples) == 200
    assert len({e.messages for e in examples[100:]}) < 10


def test_no_held_out_question_is_learned_from():
    both = dataclasses.replace(TRAIN, tasks=(*HELD_OUT.tasks, *TRAIN.tasks), hops={**HELD_OUT.hops, **TRAIN.hops})
    assert lesson(train=both).examples() == lesson().examples()
    with pytest.raises(ValueError, match=r"got 0.5, 0 and 48 of sums, siblings, words, relations: name families"):
        lesson(train=HELD_OUT)


@pytest.mark.parametrize(("kinds", "share", "said"), [((), 0.5, "0 and 0 of no kind"), (("sums",), 1.5, "got 1.5")])
def test_a_lesson_without_hops_is_refused(kinds, share, said):
    with pytest.raises(ValueError, match=said):
        lesson(kinds, share)


def test_hops_are_strata_of_their_own(toy):
    learned, engine = lesson(("sums", "words")), toy.engine()
    right = {e.messages: e.reply for e in lesson(("sums", "words"), 1.0, train=HELD_OUT, held_out=TRAIN).examples()}
    asked = []

    def oracle(requests):
        asked.extend(requests)
        return [Generation(f"It is {said}." if said.isdigit() else said, 1, 1) for said in map(answer, requests)]

    def answer(request):
        said = right.get(request.messages, "1998")
        return "cat, dog" if ", " in said and "above" not in request.messages[-1].content else said

    engine.generate = oracle
    scores = learned.scores(engine, "adapter")
    count = {kind: sum(h.kind == kind for t in HELD_OUT.tasks for h in HELD_OUT.hops[t.id]) for kind in KINDS}
    assert {name: len(of) for name, of in scores.items()} == {
        "all": 1,
        "hop: sums": count["sums"],
        "hop: words": count["words"],
    }
    assert all(scores["hop: sums"])
    assert sum(scores["hop: words"]) == sum(
        h.kind == "words" and h.reads for t in HELD_OUT.tasks for h in HELD_OUT.hops[t.id]
    )
    assert {request.template for request in asked[1:]} == {PROMPTS.fingerprint("step")}
    assert {request.adapter for request in asked} == {"adapter"}


def test_its_identity_is_json():
    identity = lesson(("sums",)).identity()
    assert json.loads(json.dumps(identity)) == identity
    assert identity["hops"]["kinds"] == ["sums"]
    assert identity["hops"]["tasks"]["seed"] == 0
