"""A head picks worker and role turn by turn, by words alone, and learns whom to ask."""

import json
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from scripted_workers import PROMPTS, Recorder, council

from nsed_torch.conductor.conductor_broker import ConductorBroker
from nsed_torch.conductor.evolution import Evolution, evolve
from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.head import PARTS, Head, load_head
from nsed_torch.conductor.head_conductor import HeadAgent, HeadConductor, accepts, conductor_of
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.reward import Rewards
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.execution import Execution
from nsed_torch.records.transcript import Task, Usage
from nsed_torch.traces.equality import Equality

pytest.importorskip("cma")

HEAD = HeadAgent("conductor", "one", prompt_price=1.0)
SKILLS = {"apple": "crimson", "brick": "emerald", "cloud": "violet", "dune": "amber"}
"""Whose description fits which question: the words say nothing of it, it is to be learned."""
TASKS = [Task(f"{kind} {i}", f"{kind}-{i}", f"right {i}") for kind in SKILLS for i in range(12)]
SETTINGS = Evolution(generations=60, population=16, questions=24, rank=6, sigma=0.3, seed=0)
ENCODER = HashedEncoder(32)


class Reader(Recorder):
    """Workers whose hidden states are bags of words, without those that all prompts have."""

    def hidden_states(self, chats, adapter=None):
        said = [chat[-1].content.split("\n\nIn one word")[0] for chat in chats]
        return ENCODER.embed(said), [len(text.split()) for text in said]


def knows(request):
    """A worker is right about the one kind that it knows."""
    question = re.search(r"(\w+) (\d+)\n", request.messages[1].content + "\n")
    kind, number = re.search(rf"\b({'|'.join(SKILLS)}) (\d+)", request.messages[-1].content).groups()
    assert question
    return f"right {number}" if request.agent.startswith(kind) else f"{request.agent} errs"


def team(write=knows, *, described=True, kinds=tuple(SKILLS), max_steps=1, head=None, pools=Pools("permuted"), **more):
    """A head's Conductor of a worker for each kind, and the engine that speaks for them."""
    engine = Reader(write)
    words = {kind: f"knows {SKILLS[kind]}" if described else "" for kind in kinds}
    agents = [Agent(kind, "one", decoding=Decoding(12, 0.0), description=words[kind]) for kind in kinds]
    executor = Executor(Ensemble({"one": engine}, agents), prompts=PROMPTS, max_steps=max_steps, **more)
    return HeadConductor(executor, HEAD, head=head, pools=pools), engine


def learn(conductor, settings=SETTINGS, tasks=TASKS, **options):
    graded = GradedTasks(tuple(tasks), AnswerGrader(Equality(False), numeric=False), {})
    return evolve(conductor, tasks, Rewards(conductor.executor, graded), settings=settings, **options)


def accuracy(head, tasks=TASKS, **options):
    done = team(head=head, **options)[0].answer(tasks)
    return sum(e.answer == e.task.target for e in done) / len(done)


@pytest.fixture(scope="module")
def learned():
    lines = []
    head = learn(team()[0], log=lambda step, record: lines.append({"step": step, **record}))
    return head, lines


def test_who_is_right_is_learned_from_descriptions(learned):
    head, lines = learned
    assert lines[0]["right"] < 0.5
    fresh = [Task(f"{kind} {i}", f"new-{kind}-{i}", f"right {i}") for kind in SKILLS for i in range(50, 60)]
    assert accuracy(head, fresh) >= 0.9


def test_without_descriptions_it_is_not_learned():
    """Pools are permuted and names no part of the state: nothing tells who is right."""
    head = learn(team(described=False)[0], replace(SETTINGS, generations=20))
    assert accuracy(head, described=False) < 0.5


def test_a_worker_whom_training_never_showed_is_known_by_its_words(learned):
    """A stranger who says that it knows what the one for apples said is asked about apples; and about nothing else."""
    head, _ = learned
    kinds = ("stranger", *(kind for kind in SKILLS if kind != "apple"))

    def asked(said):
        conductor, _ = team(kinds=kinds[1:], head=head)
        agents = [*conductor.executor.ensemble.agents, Agent("stranger", "one", description=said)]
        ensemble = Ensemble(conductor.executor.ensemble.engines, agents)
        other = HeadConductor(
            Executor(ensemble, prompts=PROMPTS, max_steps=1), HEAD, head=head, pools=Pools("permuted")
        )
        done = other.answer(TASKS)
        return [e.levels[0].steps[0].worker == "stranger" for e in done]

    ours = [task.question.startswith("apple") for task in TASKS]
    found = asked("knows crimson")
    assert sum(a == b for a, b in zip(found, ours, strict=True)) >= 0.9 * len(TASKS)
    changed = asked("knows emerald")  # as the one for bricks does: who comes first in the pool is asked
    assert not any(took for took, task in zip(changed, TASKS, strict=True) if task.question.startswith("cloud"))
    assert sum(took for took, task in zip(changed, TASKS, strict=True) if task.question.startswith("brick")) >= 3


def test_it_is_of_about_ten_thousand_numbers_on_the_small_backbone():
    draw = torch.Generator().manual_seed(0)
    head = Head.fresh(torch.randn(9, 576, generator=draw), torch.randn(5, 576, generator=draw), 8)
    assert head.vector().numel() == 9267
    assert torch.equal(head.with_vector(head.vector()).vector(), head.vector())


def test_scores_are_the_formula():
    draw = torch.Generator().manual_seed(0)
    head = Head.fresh(torch.randn(9, 5, generator=draw), torch.randn(4, 5, generator=draw), 2)
    head = head.with_vector(torch.randn(head.vector().shape, generator=draw))
    h, d = torch.randn(3, 5, generator=draw), torch.randn(4, 5, generator=draw)
    d[1] = torch.nan
    expected = torch.zeros(3, 4, 3)
    for i in range(3):
        x = head.state @ torch.nn.functional.normalize(h[i] - head.state_mean, dim=0)
        for w in range(4):
            y = head.description @ torch.nn.functional.normalize(d[w] - head.description_mean, dim=0)
            y = torch.zeros(2) if w == 1 else y
            for r in range(3):
                expected[i, w, r] = (x + head.inclined[r]) @ y + head.apt[r] @ x + head.bias[r]
    torch.testing.assert_close(head.scores(h, d), expected)


def test_a_fresh_head_asks_whose_words_are_the_questions():
    def write(request):
        return f"{request.agent} says"

    conductor, _ = team(write)
    prompts = [conductor.prompt(Task(f"{skill} {i}", f"{skill}{i}")) for skill in SKILLS.values() for i in range(3)]
    head = Head.fresh(conductor.states(prompts)[0], conductor.described(list(SKILLS)), 6)
    tasks = [Task(f"{skill} 1", skill) for skill in SKILLS.values()]
    done = team(write, head=head)[0].answer(tasks)
    assert [e.answer for e in done] == [f"{kind} says" for kind in SKILLS]


def always(*roles):
    """A head without a state or words, that prefers roles in this order."""
    bias = torch.tensor([float(-roles.index(role)) if role in roles else -9.0 for role in PARTS])
    zeros = torch.zeros(3, 1)
    return Head(torch.zeros(1, 32), torch.zeros(1, 32), zeros, zeros, bias, torch.zeros(32), torch.zeros(32))


def roles(execution):
    told = {text: role for role, text in PARTS.items()}
    return [told[step.subtask] for step in execution.levels[0].steps]


def by_role(verdict):
    def write(request):
        last = request.messages[-1].content
        return verdict if "ACCEPT" in last else "a plan" if "Do not answer" in last else "the answer"

    return write


def test_a_verifier_who_accepts_ends_it_and_the_worker_answers():
    for verdict in ("ACCEPT.", "Accepted: all is well", "The answer!"):
        conductor, _ = team(by_role(verdict), head=always("verifier", "worker"), max_steps=5)
        (execution,) = conductor.answer(TASKS[:1])
        assert roles(execution) == ["worker", "verifier"]
        assert execution.answer == "the answer"
        assert [step.aside for step in execution.levels[0].steps] == [False, True]
        assert Execution.from_line(execution.to_line(), "here") == execution


def test_without_acceptance_it_goes_on_to_the_cap():
    conductor, _ = team(by_role("It is unacceptable"), head=always("verifier", "worker"), max_steps=4)
    (execution,) = conductor.answer(TASKS[:1])
    assert roles(execution) == ["worker", "verifier", "verifier", "verifier"]
    assert execution.answer == "the answer"
    assert [step.visible for step in execution.levels[0].steps] == [[], [0], [0, 1], [0, 1, 2]]


def test_thinkers_come_first_and_the_last_turn_is_a_workers():
    conductor, engine = team(by_role("ACCEPT"), head=always("thinker", "verifier"), max_steps=3)
    (execution,) = conductor.answer(TASKS[:1])
    assert roles(execution) == ["thinker", "thinker", "worker"]
    assert execution.answer == "the answer"
    assert "a plan" in [m.content for m in engine.asked[-1].messages if m.role == "assistant"]
    assert (
        "thinker: a plan"
        in conductor.prompt(TASKS[0], tuple(zip(["apple"] * 2, roles(execution), strict=False)))[1].content
    )


def test_a_lone_worker_is_asked_the_bare_question():
    conductor, engine = team(head=always("worker"))
    conductor.answer(TASKS[:1])
    assert {request.template for request in engine.asked} == {PROMPTS.fingerprint("propose")}


@pytest.mark.parametrize(
    ("verdict", "answer", "found"),
    [("ACCEPT", "x", True), ("accept it", "", True), ("17.", "17", True), ("", "", False), ("I accept", "x", False)],
)
def test_what_accepts(verdict, answer, found):
    assert accepts(verdict, answer) is found


def test_other_tasks_and_their_order_change_nothing(learned):
    def run(tasks):
        return team(head=learned[0], max_steps=3)[0].answer(tasks)

    together = run(TASKS[::5])
    assert run(TASKS[::-5][::-1][:0]) == []
    assert run(TASKS[::5][::-1]) == together[::-1]
    assert run(TASKS[5:6]) == [together[1]]


def test_every_call_is_made_once_and_every_token_counted():
    conductor, engine = team(by_role("no"), head=always("verifier", "worker"), max_steps=4)
    (execution,) = conductor.answer(TASKS[:1])
    assert len(engine.asked) == len(set(engine.asked)) == 4
    plan = execution.levels[0].plan
    assert plan.text.splitlines()[0].startswith("worker: model ")
    assert (plan.usage.calls, plan.usage.completion_tokens) == (4, 0)
    assert execution.usage == plan.usage + Usage.sum(step.usage for step in execution.levels[0].steps)
    (again,) = conductor.plan(TASKS[:1], [conductor.pool(TASKS[0])])
    assert again.asked == Usage.sum(step.usage for step in execution.levels[0].steps)


def test_a_resumed_training_ends_where_a_straight_one_does():
    settings, lines, again = replace(SETTINGS, generations=4, population=8, questions=6), [], []
    straight = learn(team()[0], settings, log=lambda step, record: lines.append({"step": step, **record}))
    kept = json.loads(json.dumps(lines[:2]))  # as a log gives it back
    resumed = learn(team()[0], settings, lines=kept, log=lambda *line: again.append(line))
    assert torch.equal(straight.vector(), resumed.vector())
    assert [step for step, _ in again] == [3, 4]
    assert [record["fitness"] for _, record in again] == [line["fitness"] for line in lines[2:]]
    with pytest.raises(ValueError, match="expected generation 1 with 8 heads in the log, got 2 with 8"):
        learn(team()[0], settings, lines=lines[1:2])


def test_what_the_machinery_spoiled_is_no_fitness():
    def write(request):
        if request.agent == "apple":
            raise RuntimeError("broken")
        return knows(request)

    lines, few = [], replace(SETTINGS, generations=2, population=8, questions=6)
    learn(team(write)[0], few, log=lambda step, record: lines.append(record))
    assert all(0 < line["masked"] < 1 for line in lines)
    assert all(0.5 <= value <= 1 for line in lines for value in line["fitness"])

    def down(request):
        raise RuntimeError("broken")

    with pytest.raises(ConnectionError, match="workflows all failed"):
        learn(team(down)[0], replace(few, questions=1))


def test_it_comes_back_as_it_was(learned, tmp_path):
    head, _ = learned
    head.save(tmp_path / "head", backbone={"name": "scripted", "adapter": None}, card="# Card\n")
    found = load_head(tmp_path / "head", {"name": "scripted", "adapter": None})
    assert torch.equal(found.vector(), head.vector())
    agent = replace(HEAD, weights=str(tmp_path / "head"))
    one, _ = team(head=head)
    other = conductor_of(one.executor, agent, pools=one.pools)
    assert isinstance(other, HeadConductor)
    assert other.answer(TASKS[::7]) == one.answer(TASKS[::7])


def test_bad_files_are_one_clear_line(learned, tmp_path):
    folder = tmp_path / "head"

    def refused(line):
        with pytest.raises(ValueError, match=line) as caught:
            load_head(folder, {"name": "scripted", "adapter": None})
        assert "\n" not in str(caught.value)

    refused("there is no such file")
    learned[0].save(folder, backbone={"name": "other"}, card="")
    refused("expected a backbone with name 'other', which the head reads, got 'scripted'")
    learned[0].save(folder, backbone={"name": "scripted"}, card="")
    tensors = load_file(folder / "head.safetensors")
    for wrong in (tensors["bias"][:2], tensors["bias"].double(), tensors["bias"] * torch.nan):
        save_file(tensors | {"bias": wrong}, folder / "head.safetensors")
        refused(r"expected bias of \[3\] finite float32 numbers")
    (folder / "head.safetensors").write_bytes(b"pickle")
    refused(r"head.safetensors: cannot be read")
    (folder / "head.json").write_text("[]")
    refused("expected a head of this version, got something else")


def test_what_cannot_be_is_refused_in_one_line(learned):
    bare = team()[0]
    with pytest.raises(ValueError, match=r"expected the folder of a trained head, got none: pass conductor.weights"):
        bare.answer(TASKS[:1])
    with pytest.raises(ValueError, match="expected no recursion of a head"):
        team(head=learned[0])[0].answer(TASKS[:1], recursion=1)
    other = Head.fresh(torch.eye(7), torch.eye(7), 2)
    with pytest.raises(ValueError, match="expected hidden states of 7 numbers, got 32"):
        team(head=other)[0].answer(TASKS[:1])
    with pytest.raises(ValueError, match="expected a rank from 1 to 7, got 8"):
        Head.fresh(torch.eye(7), torch.eye(7), 8)
    with pytest.raises(ValueError, match=r"expected a model in this process.*got ScriptedEngine"):
        ScriptedEngine(knows, lambda request, text: None).hidden_states([])
    for wrong in ({"population": 3}, {"questions": 0}, {"sigma": 0.0}, {"generations": -1}):
        with pytest.raises(ValueError, match="expected generations from 0"):
            replace(SETTINGS, **wrong)


def test_as_a_broker_it_names_a_team_and_is_charged_for_whom_it_asked(tmp_path):
    always("verifier", "worker").save(tmp_path, backbone={}, card="")
    conductor, engine = team(by_role("no"), max_steps=3)
    rnn = council(
        conductor.executor, broker=ConductorBroker(replace(HEAD, weights=str(tmp_path)), max_steps=3), agents=4
    )
    (transcript,) = rnn(TASKS[:1]).transcripts
    assert transcript.rounds[0].proposers == ["apple"]
    assert transcript.rounds[0].notes[0].startswith("team of the Conductor: proposers apple; judges apple")
    assert transcript.rounds[0].usage.calls > 3 + 3
    assert len(engine.asked) == len(set(engine.asked))
