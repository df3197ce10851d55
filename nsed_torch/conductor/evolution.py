"""A head learns: separable CMA-ES by the `cma` package, paid by what its workflows come to."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from nsed_torch.conductor.executor import WorkflowJob
from nsed_torch.conductor.head import Head
from nsed_torch.conductor.head_conductor import HeadConductor, Taken, Turns
from nsed_torch.conductor.reinforcement import Write, drawn_pools
from nsed_torch.conductor.reward import Rewards, Scored, tally
from nsed_torch.records.transcript import Task, Usage


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """How a head learns; the values are those of `conf/train_conductor.yaml`.

    Published (TRINITY, arXiv 2512.04695): separable CMA-ES over all numbers of the head. All values are ours.

    Raises:
        ValueError: if a number is out of range.
    """

    generations: int  # 0 leaves the head as it begins
    population: int  # heads per generation
    questions: int  # per generation, the same for all of its heads
    rank: int  # of the head
    sigma: float  # standard deviation of the first generation's numbers; a head's rows begin with unit length
    seed: int  # of questions, pools and heads

    def __post_init__(self) -> None:
        if self.generations < 0 or self.population < 4 or self.questions < 1 or not 0 < self.sigma < math.inf:
            raise ValueError(
                f"expected generations from 0, a population from 4, questions from 1 and sigma above 0, got {self}"
            )


def evolve(
    conductor: HeadConductor,
    tasks: Sequence[Task],
    rewards: Rewards,
    *,
    settings: Evolution,
    log: Write = lambda step, record: None,
    lines: Sequence[Mapping[str, Any]] = (),
) -> Head:
    """The mean of the last generation, from the conductor's head if it has one, else from a fresh one.

    What `log` hears of a generation holds its fitness, a mean reward for each of its heads, and that is the state: a
    run goes on from the `lines` of an earlier one by taking CMA-ES through them, which draws the same heads again. So
    it ends where a straight one does, as long as hidden states are the same, and no pickle is read. Worker calls are
    the call log's.

    Raises:
        ValueError: if `cma` is not installed, there is no task, or the lines are another run's.
        ConnectionError: if the machinery failed in every workflow of a generation.
    """
    asked = drawn_pools(conductor, tasks, max(1, settings.generations) * settings.questions, seed=settings.seed)
    begin = conductor.head or _fresh(conductor, asked, settings.rank)
    strategy = _strategy(begin, settings)
    for number, line in enumerate(lines, start=1):
        if line["step"] != number or len(line["fitness"]) != settings.population:
            got = f"{line['step']} with {len(line['fitness'])}"
            raise ValueError(
                f"expected generation {number} with {settings.population} heads in the log, got {got}: train anew"
            )
        strategy.tell(strategy.ask(), [-value for value in line["fitness"]])
    known: dict[tuple[str, Taken], Scored] = {}
    for step in range(len(lines), settings.generations):
        began, vectors = time.perf_counter(), strategy.ask()
        mine = asked[step * settings.questions : (step + 1) * settings.questions]
        heads = [begin.with_vector(vector) for vector in vectors]
        # Question by question, so that those of one are a group of the tally.
        grown = conductor.grow([Turns(task, pool, head) for task, pool in mine for head in heads])
        new = {(one.task.id, one.taken): one for one in grown if (one.task.id, one.taken) not in known}
        found = rewards.executed([WorkflowJob(one.task, one.workflow(), one.pool) for one in new.values()])
        now = known | dict(zip(new, found, strict=True))
        scored = [now[one.task.id, one.taken] for one in grown]
        known |= {key: now[key] for key in new if now[key].reward is not None}  # what failed may work the next time
        fitness = _fitness(scored, len(heads))
        strategy.tell(vectors, [-value for value in fitness])
        picks = [role for one in grown for _, role in one.taken]
        record = tally(scored, len(heads)) | {
            "roles": {role: picks.count(role) / len(picks) for role in sorted(set(picks))},
            "policy_tokens": Usage.sum(one.usage for one in grown).tokens,
            "sigma": float(strategy.sigma),
            "seconds": round(time.perf_counter() - began, 2),
            "fitness": fitness,
        }
        log(step + 1, record)
    return begin.with_vector(np.asarray(strategy.mean))


def _fresh(conductor: HeadConductor, asked: Sequence[tuple[Task, tuple[str, ...]]], rank: int) -> Head:
    """A head to begin with, by questions and the workers that their pools hold."""
    prompts = [conductor.prompt(task) for task, _ in asked]
    workers = sorted({name for _, pool in asked for name in pool})
    return Head.fresh(conductor.states(prompts)[0], conductor.described(workers), rank)


def _strategy(begin: Head, settings: Evolution) -> Any:
    """CMA-ES whose numbers come from a generator of its own, so that nothing else that draws disturbs them."""
    try:
        import cma  # noqa: PLC0415 - slow, and an extra
    except ImportError as error:
        raise ValueError(f"expected cma, got {error}: pip install nsed_torch[conductor]") from error
    draw = np.random.default_rng(settings.seed)
    options = {
        "CMA_diagonal": True,
        "popsize": settings.population,
        "randn": lambda *shape: draw.standard_normal(shape),
        "seed": math.nan,  # the generator's business: no global one is set
        "verbose": -9,
        "verb_log": 0,
    }
    return cma.CMAEvolutionStrategy(begin.vector().numpy(), settings.sigma, options)


def _fitness(scored: Sequence[Scored], heads: int) -> list[float]:
    """Each head's mean reward; where the machinery failed in all of its workflows, the mean of the others' is known."""
    known = [one.reward for one in scored if one.reward is not None]
    if not known:
        raise ConnectionError("expected rewards, got a generation whose workflows all failed: see to the engines")
    found = [[one.reward for one in scored[i::heads] if one.reward is not None] for i in range(heads)]
    return [fmean(values or known) for values in found]
