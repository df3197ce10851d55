"""Many workflows together, against one workflow, or one call, after the other."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

from nsed_torch.agents import Agent, Decoding, Engine, Ensemble, TransformersEngine
from nsed_torch.conductor import Executor, Workflow, WorkflowJob, WorkflowStep
from nsed_torch.evaluation.measurement import Measurement, compare
from nsed_torch.evaluation.speed.plain import PlainEngine
from nsed_torch.evaluation.speed.requests import PERSONAS, give_adapters, questions, unstoppable
from nsed_torch.records import Execution, Task, Usage

WORKERS, JOBS, NEW_TOKENS = 3, 32, 24

SUBTASKS = ("List what is known.", "Work it out step by step.", "Check the replies and answer.")


def conduct_lines(engine: TransformersEngine, repeats: int, sample: int) -> list[Measurement]:
    """32 workflows of 3 steps, greedy, every response of 24 tokens; workers are adapters.

    By turns a chain, and two steps that a third one reads. `facts` tell how many of the other way's responses are ours
    to the letter, our tokens a second, and our share of the time outside the model's passes.

    Args:
        engine: what is measured; gets three adapters.
        repeats: timed rounds.
        sample: every so-manieth workflow is done the other ways and counted so many times.
    """
    names = give_adapters(engine, WORKERS)
    jobs = workflows(JOBS, names)
    few = jobs[::sample]
    runs: list[tuple[float, list[Execution]]] = []
    singly: list[Execution] = []
    plainly: list[Execution] = []

    def ours() -> None:
        start = time.perf_counter()
        executions = conduct(engine, names, jobs)
        runs.append((time.perf_counter() - start, executions))

    def one_by_one() -> None:
        singly[:] = [conduct(engine, names, [job])[0] for job in few]

    def call_by_call() -> None:
        plainly[:] = [conduct(PlainEngine(engine), names, [job])[0] for job in few]

    with unstoppable(engine):
        conduct(engine, names, jobs[:1])
        conduct(PlainEngine(engine), names, jobs[:1])
        lines = compare(
            f"conduct, {JOBS} workflows x {len(SUBTASKS)} steps x {NEW_TOKENS} tokens",
            ours=("wave by wave", ours),
            others=[("a workflow after the other", one_by_one), ("a call after the other", call_by_call)],
            scales=[len(jobs) / len(few)] * 2,
            repeats=repeats,
        )
    usage = Usage.sum(execution.usage for execution in runs[-1][1])
    facts = {
        "tokens": usage.tokens,
        "tokens_per_second": usage.tokens / statistics.median(taken for taken, _ in runs),
        "outside_models": statistics.median(1 - Usage.sum(e.usage for e in es).seconds / taken for taken, es in runs),
    }
    return [
        replace(line, facts={"same_responses": same_responses(others, runs[-1][1][::sample]), **facts})
        for line, others in zip(lines, (singly, plainly), strict=True)
    ]


def workflows(count: int, pool: Sequence[str]) -> list[WorkflowJob]:
    """Workflows of three steps, by turns chains and trees; questions all differ, and so does the order of workers."""
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


def same_responses(first: Sequence[Execution], second: Sequence[Execution]) -> float:
    """Share of responses that are equal to the letter."""
    pairs = list(zip(_responses(first), _responses(second), strict=True))
    return sum(a == b for a, b in pairs) / len(pairs)


def _responses(executions: Sequence[Execution]) -> list[str]:
    return [step.response for execution in executions for level in execution.levels for step in level.steps]
