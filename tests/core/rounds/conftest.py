"""A team without models: every text and every rating is a function of its call, and every request is kept."""

import dataclasses
import random
import re
import time
from types import SimpleNamespace

import pytest

from nsed_torch.app.build import consensus_cell
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding, LikelihoodRequest
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine

NAMES = ("Zebulon", "Quillfeather", "Oberon", "Mirabel", "Hieronymus")
WORDS = ["red", "blue", "seven", "eleven", "because", "therefore", "larger", "smaller", "left", "right", "one", "two"]
FENCED = re.compile(r"<text-([0-9a-f]+)>\n(.*?)\n</text-\1>", re.DOTALL)


class Recorder(ScriptedEngine):
    """Keeps every request, and takes a different time for each, as real models do."""

    def __init__(self, write, judge, **options):
        super().__init__(write, judge, **options)
        self.generated, self.rated, self.measured = [], [], []

    def generate(self, requests):
        assert len(requests) <= self.max_batch
        self.generated += requests
        return [dataclasses.replace(g, seconds=time.perf_counter()) for g in super().generate(requests)]

    def rate(self, requests):
        assert len(requests) <= self.max_batch
        self.rated += requests
        return [dataclasses.replace(r, seconds=time.perf_counter()) for r in super().rate(requests)]

    def measure(self, requests):
        assert len(requests) <= self.max_batch
        self.measured += requests
        return [dataclasses.replace(r, seconds=time.perf_counter()) for r in super().measure(requests)]


def fenced(text):
    """The model-written texts in a prompt, in their order."""
    return [found[1] for found in FENCED.findall(text)]


def judged(request, candidate=""):
    """The text that a judge is asked about, whether it is listed above, stands alone or is its own answer."""
    if isinstance(request, LikelihoodRequest):
        return candidate
    whole = request.messages[-1].content + candidate
    label = re.findall(r"Candidate_[A-Z]+", whole)[-1]
    return re.search(rf"{label}\b[^<]*<text-([0-9a-f]+)>\n(.*?)\n</text-\1>", whole, re.DOTALL)[2]


def write(request):
    """Some words drawn from the call's seed; one answer in ten is empty."""
    draw = random.Random(request.seed)
    return "" if draw.random() < 0.1 else f"#{request.seed} " + " ".join(draw.choices(WORDS, k=draw.randint(1, 20)))


def judge(request, candidate):
    """A rating on a grid of hundredths, drawn from judge and text; one in ten is missing."""
    draw = random.Random(f"{request.agent} {judged(request, candidate)}")
    return None if draw.random() < 0.1 else draw.randint(-100, 100) / 100


def build(
    agents=4,
    *,
    write=write,
    judge=judge,
    max_batch=32,
    engine=None,
    engines=None,
    backbones=None,
    max_new_tokens=64,
    temperature=0.7,
    prices=(0.0, 0.0),
    call_log=None,
    slots=4,
    rounds=3,
    halting=None,
    broker=None,
    forms=None,
    **cell,
):
    """A recurrent network of scripted agents, and the engine that speaks for them."""
    engine = engine or Recorder(write, judge, max_batch=max_batch)
    members = [
        Agent(
            name,
            backbones[i] if backbones else "scripted",
            persona=f"You are voice {i}.",
            decoding=Decoding(max_new_tokens=max_new_tokens, temperature=temperature),
            prompt_price=prices[0],
            completion_price=prices[1],
            form=(forms or {}).get(name, "plain"),
        )
        for i, name in enumerate(NAMES[:agents])
    ]
    encoder = HashedEncoder(16)
    held = {field.name: cell.pop(field.name) for field in dataclasses.fields(Protocol) if field.name in cell}
    macro_cell = MacroRNNCell(
        Ensemble(engines or {"scripted": engine}, members, call_log=call_log),
        encoder,
        consensus_cell(dim=encoder.dim, agents=agents, slots=slots),
        protocol=Protocol(**held),
        **cell,
    )
    return MacroRNN(macro_cell, halting=halting or FixedHalting(rounds), broker=broker), engine


@pytest.fixture(scope="session")
def scripted():
    """The parts above, for tests cannot import this file."""
    return SimpleNamespace(
        build=build, fenced=fenced, judged=judged, write=write, judge=judge, Recorder=Recorder, NAMES=NAMES
    )
