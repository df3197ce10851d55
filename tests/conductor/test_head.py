"""A head picks worker and role turn by turn, by words alone, and learns whom to ask."""

import re

import pytest
from scripted_workers import PROMPTS, Recorder

from nsed_torch.agents import Agent, Decoding, Ensemble, HashedEncoder
from nsed_torch.benchmarks import AnswerGrader, GradedTasks
from nsed_torch.conductor import Executor, HeadAgent, HeadConductor, Pools
from nsed_torch.conductor.evolution import Evolution, evolve
from nsed_torch.conductor.reward import Rewards
from nsed_torch.data import Equality
from nsed_torch.records import Task

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
