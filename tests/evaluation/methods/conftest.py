"""A panel without models: every text and every rating is a function of its call, and every call is kept."""

import random
import re
from types import SimpleNamespace

import pytest

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import Decoding, GenerateRequest, LikelihoodRequest
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.methods.method import Panel
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.transcript import Task, Usage
from nsed_torch.traces.equality import Equality

NAMES = ("Zebulon", "Quillfeather", "Oberon")
PROMPTS = Prompts()
KINDS = {PROMPTS.fingerprint(kind): kind for kind in ("propose", "correct", "aggregate", "debate", "rate")}
FENCED = re.compile(r"<text-([0-9a-f]+)>\n(.*?)\n</text-\1>", re.DOTALL)
TASKS = [Task(f"How much is question number {c}?", c, target="secret") for c in "abcd"]


class Recorder(ScriptedEngine):
    """Keeps every request with its result."""

    def __init__(self, write, judge):
        super().__init__(write, judge)
        self.generated, self.rated = [], []

    def generate(self, requests):
        results = super().generate(requests)
        self.generated += zip(requests, results, strict=True)
        return results

    def rate(self, requests):
        results = super().rate(requests)
        self.rated += zip(requests, results, strict=True)
        return results

    def measure(self, requests):
        results = super().measure(requests)
        self.rated += zip(requests, results, strict=True)
        return results

    @property
    def requests(self):
        """All requests, those that write first."""
        return [request for request, _ in [*self.generated, *self.rated]]

    @property
    def usage(self):
        """What all calls cost, free of charge."""
        wrote = [Usage(1, g.prompt_tokens, g.completion_tokens) for _, g in self.generated]
        return Usage.sum(wrote + [Usage(1, r.prompt_tokens, 0) for _, r in self.rated])


def kind(request):
    """The template of a request."""
    return KINDS[request.template]


def fenced(request):
    """The model-written texts in a prompt, in their order."""
    return [text for message in request.messages for _, text in FENCED.findall(message.content)]


def judged(request, candidate):
    """The text that a judge is asked about, whether it is listed above, stands alone or is its own answer."""
    if isinstance(request, LikelihoodRequest):
        return candidate
    whole = request.messages[-1].content + candidate
    label = re.findall(r"Candidate_[A-Z]+", whole)[-1]
    return re.search(rf"{label}\b[^<]*<text-([0-9a-f]+)>\n(.*?)\n</text-\1>", whole, re.DOTALL)[2]


def drawn(request):
    """A few words and a small number drawn from the call's seed; one text in ten is empty."""
    draw = random.Random(request.seed)
    words = " ".join(draw.choices(["red", "blue", "so", "thus"], k=draw.randint(1, 12)))
    return "" if draw.random() < 0.1 else f"{words}. The answer is {draw.randint(1, 3)}"


def rated(request, candidate):
    """A rating drawn from judge and text; one in ten is missing."""
    draw = random.Random(f"{request.agent} {judged(request, candidate)}")
    return None if draw.random() < 0.1 else draw.randint(-10, 10) / 10


def says(**texts):
    """Agents that say their texts one after the other; Z, Q and O stand for the names."""
    left = {name: iter(texts.get(name[0], ())) for name in NAMES}
    return lambda request: next(left[request.agent])


def build(write=drawn, judge=rated, *, temperatures=(1.0, 1.0, 1.0), prices=(0.0, 0.0), rating=None, **panel):
    """A panel of three scripted agents, and the engine that speaks for them."""
    engine = Recorder(write, judge)
    agents = [
        Agent(
            name,
            "scripted",
            persona=f"You are voice {i}.",
            decoding=Decoding(max_new_tokens=32, temperature=temperatures[i]),
            prompt_price=prices[0],
            completion_price=prices[1],
        )
        for i, name in enumerate(NAMES)
    ]
    rules = {
        "rating": rating or VerdictRating(listed=False),
        "grader": AnswerGrader(Equality(math_verify=False), kind="number"),
    }
    return Panel(Ensemble({"scripted": engine}, agents), PROMPTS, **rules, **panel), engine


@pytest.fixture(scope="session")
def team():
    """The parts above, for tests cannot import this file."""
    return SimpleNamespace(
        build=build,
        says=says,
        kind=kind,
        fenced=fenced,
        judged=judged,
        names=NAMES,
        tasks=TASKS,
        writes=lambda request: isinstance(request, GenerateRequest),
    )


@pytest.fixture(scope="session")
def fails():
    """Expects an error of exactly this text."""
    return lambda text: pytest.raises(ValueError, match=f"^{re.escape(text)}$")
