"""Whole deliberations and many workflows, against one model call after the other."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import torch

from bench.plain import PlainEngine
from bench.requests import PERSONAS, give_adapters, questions, unstoppable
from bench.timing import Measurement, compare, seconds
from nsed_torch.conductor.executor import Executor, WorkflowJob
from nsed_torch.conductor.workflow import Workflow, WorkflowStep
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding, Engine
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell, Observer
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.execution import Execution
from nsed_torch.records.transcript import Task, Transcript, Usage

AGENTS, ROUNDS, TASKS, NEW_TOKENS = 3, 3, 16, 24
WORKERS, JOBS = 3, 32

SUBTASKS = ("List what is known.", "Work it out step by step.", "Check the replies and answer.")


def whole_lines(engine: TransformersEngine, repeats: int, sample: int) -> list[Measurement]:
    """3 agents, 3 rounds, 16 tasks, greedy, every answer of 24 tokens.

    The plain way goes task by task, agent by agent, candidate by candidate; it does each `sample`-th task, counted so
    many times. The facts say how many of its proposals are ours to the letter, our tokens per second, and our share
    of the time outside the model's passes.
    """
    tasks = [Task(question, f"t{i}") for i, question in enumerate(questions(TASKS))]
    few = tasks[::sample]
    with unstoppable(engine):
        deliberate(engine, tasks[:1])
        ours = Runs(lambda: deliberate(engine, tasks))
        plain = Runs(lambda: [deliberate(PlainEngine(engine), [task])[0] for task in few])
        (line,) = compare(
            f"deliberate, {AGENTS} agents x {ROUNDS} rounds x {TASKS} tasks x {NEW_TOKENS} tokens",
            ours=("phase by phase", ours),
            others=[("one call after the other", plain)],
            scales=[len(tasks) / len(few)],
            repeats=repeats,
        )
    facts = {"same_proposals": same(proposals(plain.last), proposals(ours.last[::sample])), **ours.facts()}
    return [replace(line, facts=facts)]


def conduct_lines(engine: TransformersEngine, repeats: int, sample: int) -> list[Measurement]:
    """32 workflows of 3 steps, greedy, every response of 24 tokens; workers are adapters, which the engine gets.

    By turns a chain, and two steps that a third one reads. The facts are those of `whole_lines`, of responses.
    """
    names = give_adapters(engine, WORKERS)
    jobs = workflows(JOBS, names)
    few = jobs[::sample]
    with unstoppable(engine):
        conduct(engine, names, jobs[:1])
        conduct(PlainEngine(engine), names, jobs[:1])
        ours = Runs(lambda: conduct(engine, names, jobs))
        singly = Runs(lambda: [conduct(engine, names, [job])[0] for job in few])
        plainly = Runs(lambda: [conduct(PlainEngine(engine), names, [job])[0] for job in few])
        lines = compare(
            f"conduct, {JOBS} workflows x {len(SUBTASKS)} steps x {NEW_TOKENS} tokens",
            ours=("wave by wave", ours),
            others=[("a workflow after the other", singly), ("a call after the other", plainly)],
            scales=[len(jobs) / len(few)] * 2,
            repeats=repeats,
        )
    mine = responses(ours.last[::sample])
    return [
        replace(line, facts={"same_responses": same(responses(others.last), mine), **ours.facts()})
        for line, others in zip(lines, (singly, plainly), strict=True)
    ]


class Runs:
    """A way of doing the work that notes how long each run took and what came of it."""

    def __init__(self, work: Callable[[], Sequence[Any]]) -> None:
        self.work = work
        self.last: Sequence[Any] = ()
        self.times: list[tuple[float, Usage]] = []

    def __call__(self) -> None:
        """Do it once."""
        taken = seconds(self._run)
        self.times.append((taken, Usage.sum(usage(one) for one in self.last)))

    def _run(self) -> None:
        self.last = self.work()

    def facts(self) -> dict[str, float]:
        """Tokens of the last run, tokens per second, share of the time in which no model computed (medians)."""
        tokens = self.times[-1][1].tokens
        return {
            "tokens": tokens,
            "tokens_per_second": tokens / statistics.median(taken for taken, _ in self.times),
            "outside_models": statistics.median(1 - used.seconds / taken for taken, used in self.times),
        }


def deliberate(
    engine: Engine,
    tasks: Sequence[Task],
    *,
    agents: int | None = None,
    rounds: int | None = None,
    decoding: Decoding | None = None,
    observer: Observer | None = None,
) -> list[Transcript]:
    """A run of the published protocol with a hashed encoder, so that one model does all the work."""
    decoding = decoding or Decoding(max_new_tokens=NEW_TOKENS, temperature=0)
    personas = islice(cycle(PERSONAS), agents or AGENTS)
    members = [Agent(f"agent{i}", "one", persona, decoding) for i, persona in enumerate(personas)]
    encoder = HashedEncoder()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        consensus = ConsensusCell(encoder.dim, len(members))
    # Twice as exact as its inputs, so that only the model's own rounding can tell two ways apart.
    cell = MacroRNNCell(Ensemble({"one": engine}, members), encoder, consensus.double())
    with torch.no_grad():
        return list(MacroRNN(cell, halting=FixedHalting(rounds or ROUNDS))(tasks, observer=observer).transcripts)


def workflows(count: int, pool: Sequence[str]) -> list[WorkflowJob]:
    """Workflows of three steps, by turns trees and chains; questions all differ, and so does the order of workers."""
    jobs = []
    for i, question in enumerate(questions(count)):
        reads: list[tuple[int, ...]] = [(), (0,) if i % 2 else (), (0, 1)]
        steps = [WorkflowStep((i + k) % len(pool), text, reads[k]) for k, text in enumerate(SUBTASKS)]
        jobs.append(WorkflowJob(Task(question, f"t{i}"), Workflow(tuple(steps)), tuple(pool)))
    return jobs


def conduct(engine: Engine, names: Sequence[str], jobs: Sequence[WorkflowJob]) -> list[Execution]:
    """Run workflows on agents that are adapters of an engine, with a call log of their own."""
    decoding = Decoding(max_new_tokens=NEW_TOKENS, temperature=0)
    agents = [Agent(name, "one", PERSONAS[i], decoding, name) for i, name in enumerate(names)]
    return Executor(Ensemble({"one": engine}, agents)).run(jobs)


def usage(one: Transcript | Execution) -> Usage:
    """What all calls of a deliberation or a workflow took."""
    return one.usage if isinstance(one, Execution) else Usage.sum(record.usage for record in one.rounds)


def same(first: Sequence[str], second: Sequence[str]) -> float:
    """Share of texts that are equal to the letter."""
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first)


def proposals(transcripts: Sequence[Transcript]) -> list[str]:
    """All texts of deliberations."""
    return [proposal.text for t in transcripts for record in t.rounds for proposal in record.proposals]


def responses(executions: Sequence[Execution]) -> list[str]:
    """All texts of workflows."""
    return [step.response for execution in executions for level in execution.levels for step in level.steps]
