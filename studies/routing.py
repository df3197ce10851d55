"""`python -m studies.routing ADAPTER [n]`: whom a Conductor asks where words that it never learned fit best.

Three kinds of questions that no lesson was about, each with a worker who says that he knows it, at every number of a
pool with the four specialists; and questions of the specialists' own, with their descriptions in words of no lesson.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from omegaconf import OmegaConf

from nsed_torch.agents import Agent, Decoding, Ensemble, Prompts
from nsed_torch.benchmarks import generated_tasks
from nsed_torch.benchmarks.composite import KINDS
from nsed_torch.conductor import Conductor, Executor
from nsed_torch.conductor.hand_written import SPECIALISTS
from nsed_torch.config import conf_dir, instantiate
from nsed_torch.evaluation.statistics import clopper_pearson
from nsed_torch.records import Task

SEED = 9  # lessons are of 0

STRANGERS = {
    "gcd": "finds the greatest common divisor",
    "leg_counting": "counts the legs of animals",
    "caesar_cipher": "deciphers secret writing",
}
"""Families that no lesson was about, and what somebody who knows them says."""

NEW_WORDS = {
    "sums": "puts two figures together into one",
    "siblings": "says how large a circle of sisters, brothers or friends is",
    "words": "flips a sequence of words",
    "relations": "names the tie between two relatives",
}
"""Descriptions of specialists that no lesson had."""


class Case(NamedTuple):
    """A question, its pool with descriptions by number, and the number of who should be asked."""

    name: str
    task: Task
    words: tuple[str, ...]
    right: int


def strangers(n: int) -> Iterator[Case]:
    """A worker of each unknown kind beside the four specialists, at all numbers in turn."""
    for family, words in STRANGERS.items():
        for i, task in enumerate(generated_tasks(family, n, SEED).tasks):
            place = i % 5
            pool = list(SPECIALISTS.values())
            pool.insert(place, words)
            yield Case(f"never shown, {family}, number {place}", task, tuple(pool), place)


def described(n: int) -> Iterator[Case]:
    """The specialists at all places in turn, in their own words and in words of no lesson."""
    orders = list(itertools.permutations(KINDS))
    for kind, (family, options) in KINDS.items():
        for i, task in enumerate(generated_tasks(family, n, SEED, options=options).tasks):
            order = orders[i % len(orders)]
            yield Case(f"own words, {kind}", task, tuple(SPECIALISTS[k] for k in order), order.index(kind))
            yield Case(f"new words, {kind}", task, tuple(NEW_WORDS[k] for k in order), order.index(kind))


def asked(conductor: Conductor, cases: Sequence[Case]) -> list[bool]:
    """Whether every step of a case's workflow asks who should be asked."""
    conductor.descriptions = {words: words for case in cases for words in case.words}
    plans = conductor.plan([case.task for case in cases], [case.words for case in cases])
    return [
        not plan.record.fallback and {step.worker for step in plan.workflow.steps} == {case.right}
        for plan, case in zip(plans, cases, strict=True)
    ]


def main(adapter: str, n: int = 100) -> None:
    """Ask, and print a line for each kind of case."""
    backbone = OmegaConf.load(conf_dir() / "backbone" / "smollm2_135m_instruct.yaml")
    engine = instantiate(backbone, quantization="none", adapters={"conductor": adapter})
    writer = Agent("conductor", "one", adapter="conductor", decoding=Decoding(224, 0.0))
    team = Ensemble({"one": engine}, [Agent(name, "one") for name in ("ann", "ben")])
    conductor = Conductor(Executor(team, prompts=Prompts(style="direct")), writer)
    cases = [*strangers(n), *described(n)]
    with torch.no_grad():
        found = asked(conductor, cases)
    names = list(dict.fromkeys(case.name for case in cases))
    for name in [*names, *(f"never shown, {family}" for family in STRANGERS), "never shown", "own words", "new words"]:
        right = [ok for case, ok in zip(cases, found, strict=True) if f"{case.name},".startswith(f"{name},")]
        low, high = clopper_pearson(sum(right), len(right))
        print(f"{name}: {sum(right)} of {len(right)}, {sum(right) / len(right):.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
