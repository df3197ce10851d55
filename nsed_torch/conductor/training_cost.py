"""What a training would take, before any weights are loaded."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from nsed_torch.agents import Agent
from nsed_torch.conductor.grpo import GRPO
from nsed_torch.conductor.reinforcement import TrainingQuestion

LETTERS = 4  # per token, about


class TrainingCost(NamedTuple):
    """What a part of a run takes."""

    tokens: float  # read and written
    hours: float  # at given speeds
    price: float = 0.0  # US$ at the workers' own prices, without what the call log saves


def training_cost(
    asked: Sequence[TrainingQuestion],
    workers: Sequence[Agent],
    settings: GRPO,
    *,
    text_tokens: int,
    steps: float,
    speeds: Mapping[str, float],
) -> dict[str, TrainingCost]:
    """Tokens, hours and price of a training, estimated: "policy writes", "policy learns", "workers", and "all".

    A prompt of c characters counts as c / 4 tokens. Packed, the engine reads it once a group when texts are written,
    and once a chunk when they are learned from; otherwise once a text. A step of a workflow reads the question and
    half of the answers before it, and fills its worker's allowance, all workers alike. Equal calls are made once but
    counted each time, so a Conductor that repeats itself costs less. `text_tokens` of a Conductor's text and `steps` of
    a workflow (about 3 as published) are means; `speeds` are tokens per second: "read" of prompts, "written" of many
    answers at a time, "learned" in both passes.
    """
    texts = len(asked) * settings.rollouts
    prompt = fmean(sum(len(m.content) for m in one.messages) for one in asked) / LETTERS
    passes = texts / settings.chunk * min(settings.chunk, settings.questions) if settings.packed else texts
    read = prompt * (len(asked) if settings.packed else texts)
    written = float(texts * text_tokens)
    learned = prompt * passes + written
    question = fmean(len(one.task.question) for one in asked) / LETTERS
    answer = fmean(worker.decoding.max_new_tokens for worker in workers)
    calls = texts * steps
    heard = calls * (question + answer * (steps - 1) / 4)
    price = [(w.prompt_price * heard + w.completion_price * calls * answer) / 1e6 for w in workers]
    costs = {
        "policy writes": TrainingCost(read + written, (read / speeds["read"] + written / speeds["written"]) / 3600),
        "policy learns": TrainingCost(learned, learned / speeds["learned"] / 3600),
        "workers": TrainingCost(
            heard + calls * answer,
            (heard / speeds["read"] + calls * answer / speeds["written"]) / 3600,
            fmean(price),
        ),
    }
    return {**costs, "all": TrainingCost(*map(sum, zip(*costs.values(), strict=True)))}
