"""The requests that are timed, and an engine that answers them at full length."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from nsed_torch.core.engine import Decoding, GenerateRequest, RateRequest, RatingScale, call_seed
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.adapters import adapter_parameters, add_adapter
from nsed_torch.engines.transformers_engine import TransformersEngine

PERSONAS = (
    "You work out the answer step by step.",
    "You doubt the first idea.",
    "You explain in plain words.",
    "You check every number twice.",
)
CANDIDATE = "First add the tens, then the ones, then carry what is left over: that gives {}."
PREFIX = 600
"""Tokens in front of the candidates of a rating request, at least."""


def questions(count: int) -> list[str]:
    """Short questions that all differ."""
    return [f"What is {17 + 3 * i} plus {29 + 7 * i}, and how did you get it?" for i in range(count)]


def give_adapters(engine: TransformersEngine, count: int) -> list[str]:
    """Names of LoRA adapters of rank 8 that change what the model says, held as loaded ones are; made where missing."""
    names = [f"agent{i}" for i in range(count)]
    for i, name in enumerate(names):
        if name in engine.adapters:
            continue
        add_adapter(engine, name, seed=i)
        generator = torch.Generator().manual_seed(i)
        for key, weight in adapter_parameters(engine, name).items():
            weight.requires_grad_(False)
            if "lora_B" in key:  # zero in a fresh adapter, which would then say nothing
                weight.copy_(torch.randn(weight.shape, generator=generator).to(weight) * 0.02)
            weight.data = weight.data.to(engine.model.dtype)
    return names


def propose_requests(tasks: int, adapters: Sequence[str | None], decoding: Decoding) -> list[GenerateRequest]:
    """One request per agent and task, agent by agent; each agent is an adapter, or none, and a persona."""
    prompts = Prompts()
    return [
        GenerateRequest(
            agent=f"agent{i}",
            messages=prompts.propose(question, memory=(), critiques=(), persona=PERSONAS[i % len(PERSONAS)], seed=task),
            decoding=decoding,
            seed=call_seed(0, i, task),
            adapter=adapter,
        )
        for i, adapter in enumerate(adapters)
        for task, question in enumerate(questions(tasks))
    ]


def rate_requests(
    engine: TransformersEngine, tasks: int, candidates: int, adapters: Sequence[str | None], scale: RatingScale
) -> list[RateRequest]:
    """One request per judge and task; each judge is an adapter, or a persona where adapters are None."""
    prompts, requests = Prompts(), []
    for i, adapter in enumerate(adapters):
        for task, question in enumerate(questions(tasks)):
            messages, shown = prompts.judge(
                "rate",
                _long(engine, question, task),
                candidates=[CANDIDATE.format(46 + task + j) for j in range(candidates)],
                listed=False,
                persona=PERSONAS[i % len(PERSONAS)],
                seed=call_seed(0, i, task),
                labels=scale.labels,
            )
            requests.append(RateRequest(f"agent{i}", messages, shown, scale, adapter=adapter))
    return requests


@contextmanager
def unstoppable(engine: TransformersEngine) -> Iterator[None]:
    """While open, every answer takes all the tokens it may."""
    stop_ids, engine.stop_ids = engine.stop_ids, []
    try:
        yield
    finally:
        engine.stop_ids = stop_ids


def _long(engine: TransformersEngine, question: str, task: int) -> str:
    """A question behind so many facts that the prompt's shared part has `PREFIX` tokens."""
    facts = ""
    while engine.count_tokens(facts) < PREFIX:
        number = len(facts)
        facts += f"Box {number % 89} of shelf {task} holds {number * 7 % 97} red and {number * 5 % 83} blue marbles. "
    return facts + question
