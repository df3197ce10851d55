"""A whole deliberation, against the same protocol with one model call after the other."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from nsed_torch.agents import Agent, Decoding, Engine, Ensemble, HashedEncoder, TransformersEngine
from nsed_torch.deliberation import MacroRNN, MacroRNNCell
from nsed_torch.evaluation.measurement import Measurement, compare
from nsed_torch.evaluation.speed.plain import PlainEngine
from nsed_torch.evaluation.speed.requests import PERSONAS, questions, unstoppable
from nsed_torch.nn import ConsensusCell, FixedHalting
from nsed_torch.records import Task, Transcript, Usage

AGENTS, ROUNDS, TASKS, NEW_TOKENS = 3, 3, 16, 24


def whole_lines(engine: TransformersEngine, repeats: int, sample: int) -> list[Measurement]:
    """3 agents, 3 rounds, 16 tasks, greedy, every answer of 24 tokens.

    The plain way goes task by task, agent by agent, candidate by candidate. `facts` tell how many of its proposals
    are ours to the letter, our tokens a second, and our share of the time outside the model's passes.

    Args:
        engine: what is measured.
        repeats: timed rounds.
        sample: every so-manieth task is done the plain way and counted so many times.
    """
    tasks = [Task(question, f"t{i}") for i, question in enumerate(questions(TASKS))]
    few = tasks[::sample]
    runs: list[tuple[float, list[Transcript]]] = []
    apart: list[Transcript] = []

    def ours() -> None:
        start = time.perf_counter()
        transcripts = deliberate(engine, tasks)
        runs.append((time.perf_counter() - start, transcripts))

    def plainly() -> None:
        apart[:] = [deliberate(PlainEngine(engine), [task])[0] for task in few]

    with unstoppable(engine):
        deliberate(engine, tasks[:1])
        lines = compare(
            f"deliberate, {AGENTS} agents x {ROUNDS} rounds x {TASKS} tasks x {NEW_TOKENS} tokens",
            ours=("phase by phase", ours),
            others=[("one call after the other", plainly)],
            scales=[len(tasks) / len(few)],
            repeats=repeats,
        )
    usage = Usage.sum(record.usage for transcript in runs[-1][1] for record in transcript.rounds)
    seconds = statistics.median(taken for taken, _ in runs)
    facts = {
        "same_proposals": same_proposals(apart, runs[-1][1][::sample]),
        "tokens": usage.prompt_tokens + usage.completion_tokens,
        "tokens_per_second": (usage.prompt_tokens + usage.completion_tokens) / seconds,
        "outside_models": statistics.median(outside(taken, transcripts) for taken, transcripts in runs),
    }
    return [replace(line, facts=facts) for line in lines]


def deliberate(engine: Engine, tasks: Sequence[Task]) -> list[Transcript]:
    """A run of the published protocol with a hashed encoder, so that one model does all the work."""
    decoding = Decoding(max_new_tokens=NEW_TOKENS, temperature=0)
    agents = [Agent(f"agent{i}", "one", PERSONAS[i], decoding) for i in range(AGENTS)]
    encoder = HashedEncoder()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        consensus = ConsensusCell(encoder.dim, AGENTS)
    # Twice as exact as its inputs, so that only the model's own rounding can tell two ways apart.
    cell = MacroRNNCell(Ensemble({"one": engine}, agents), encoder, consensus.double())
    with torch.no_grad():
        return list(MacroRNN(cell, halting=FixedHalting(ROUNDS))(tasks).transcripts)


def same_proposals(first: Sequence[Transcript], second: Sequence[Transcript]) -> float:
    """Share of proposals that are equal to the letter."""
    pairs = list(zip(_texts(first), _texts(second), strict=True))
    return sum(a == b for a, b in pairs) / len(pairs)


def outside(seconds: float, transcripts: Sequence[Transcript]) -> float:
    """Share of the time in which no model computed."""
    return 1 - sum(record.usage.seconds for t in transcripts for record in t.rounds) / seconds


def _texts(transcripts: Sequence[Transcript]) -> list[str]:
    return [proposal.text for t in transcripts for record in t.rounds for proposal in record.proposals]
