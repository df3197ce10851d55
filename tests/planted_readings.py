"""Recorded readings whose notes are scripted: every fact is noted, and beside it what nobody will ask for."""

import random
import re

from team_traces import trace, turn

from nsed_lab.reading_tasks import reading_tasks
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.records.trace import TraceWriter
from nsed_torch.traces.load import load_traces

FAMILIES = {
    "needles": {"needles": 2},
    "last": {"family": "hands", "which": "last", "moves": 4},
    "chains": {},
}
DIM = 256


def reading_of(pieces, size, *, families=None, seed=0):
    """Tasks of so many pieces, four statements each."""
    chosen = FAMILIES if families is None else families
    return reading_tasks({k: {**v, "pieces": pieces, "statements": 4} for k, v in chosen.items()}, size=size, seed=seed)


def planted_traces(graded, *, agents=2, noise=1.0, seed=0):
    """Their deliberations: in each round some agent notes the fact that the piece tells, if any.

    The others note something else, each with chance `noise`. Judges like facts a little better.
    """
    draw = random.Random(seed)
    transcripts = []
    for task in graded.tasks:
        turns = [_turn(draw, graded, task, index, agents, noise) for index in range(1, len(task.inputs) + 1)]
        done = turn(["done"] * agents, ratings=[[None] * agents] * agents)
        made = trace(task.id, *turns, done, backbones="x" * agents).transcript
        transcripts.append(type(made)(**{**vars(made), "task": task}))
    return graded.traces(transcripts)


def planted_readings(folder, graded, *, encoder=None, **options):
    """The same as episodes, by way of a folder."""
    writer = TraceWriter(folder)
    writer.add(planted_traces(graded, **options))
    writer.finish((encoder or HashedEncoder(DIM)).embed)
    return load_traces(folder, reading=True)


def _turn(draw, graded, task, index, agents, noise):
    told = graded.told(task, index, None)
    others = [said.strip() for said in re.findall(r"[^.]+\.", task.inputs[index - 1]) if said.strip() not in told]
    texts = [
        text for text in (*told, *draw.sample(others, agents - len(told))) if text in told or draw.random() < noise
    ]
    texts = draw.sample([*texts, *[""] * (agents - len(texts))], agents)
    liked = [draw.gauss(0.3 if text in told else 0.0, 0.2) for text in texts]
    ratings = [
        [
            None if i == j or not text else max(-1.0, min(1.0, liked[j] + draw.gauss(0, 0.1)))
            for j, text in enumerate(texts)
        ]
        for i in range(agents)
    ]
    return turn([None] * agents, None, ratings, texts=texts)
