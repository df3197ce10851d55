"""`python -m studies.routing ADAPTER [n]`: whom a Conductor asks where words that it never learned fit best.

Five kinds of questions that no lesson was about, each with a worker who says that he knows it, at every number of a
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
from nsed_torch.conductor.descriptions import GENERALIST, SPECIALISTS
from nsed_torch.config import conf_dir, instantiate
from nsed_torch.evaluation.statistics import clopper_pearson
from nsed_torch.records import Task

SEED = 12  # lessons are of 0

STRANGERS = {
    "gcd": (
        "finds the greatest common divisor of several numbers",
        "Highest common factor calculator",
        "largest integer dividing all given numbers",
        "computes GCDs",
    ),
    "leg_counting": (
        "counts the total legs of a group of animals",
        "Animal leg totals",
        "how many legs various creatures have altogether",
        "adds up legs across insects, mammals and birds",
    ),
    "caesar_cipher": (
        "decrypts Caesar cipher messages",
        "Shifted-alphabet code breaking",
        "recovers plaintext from letters rotated by a fixed shift",
        "decodes secret text encoded with a letter shift",
    ),
    "dice": (
        "computes probability of rolling at least a given total",
        "Dice roll odds",
        "chance that several dice sum to a target or more",
        "works out likelihoods for throws of multiple dice",
    ),
    "word_ladder": (
        "changes one word into another a letter at a time",
        "Word ladder puzzles",
        "finds chains of words differing by a single letter",
        "transforms a start word to an end word stepwise",
    ),
}
"""Families that no lesson was about, and what somebody who knows them says."""

NEW_WORDS = {
    "sums": (
        "adds two numbers together",
        "Basic addition of whole numbers",
        "plus-sign arithmetic problems",
        "Works out the total of two given integers",
        "simple arithmetic: a + b",
        "does quick addition exercises",
        "calculates what one number plus another equals",
        "Elementary school adding questions",
        "evaluates short addition expressions",
        "numeric calculator for adding figures",
    ),
    "siblings": (
        "works out how many brothers or sisters someone's sibling has",
        "Sibling counting riddles",
        "counts sisters and brothers from another family member's viewpoint",
        "puzzles about numbers of siblings or mutual friends",
        "Alice-style brother and sister count problems",
        "figures out how many female friends a friend has",
        "perspective-switch counting of siblings and friends by gender",
        "tells how many sisters a girl's brother has",
        "Logic questions on counts of brothers, sisters and friends",
        "head counts within sibling sets or friend circles",
    ),
    "words": (
        "reverses the order of words in a list",
        "Word list reversal",
        "puts a list of words back to front",
        "flips a sequence of words end to start",
        "lists given words from last to first",
        "backwards ordering of comma-separated words",
        "turns word lists around",
        "Rewrites several words in the opposite order",
        "inverts the sequence of listed words",
        "reads a word list in reverse",
    ),
    "relations": (
        "names how one family member is related to another",
        "Family relationship questions",
        "identifies kinship such as mother, uncle or grandfather",
        "works out what one relative is to another",
        "family tree reasoning with one-word answers",
        "determines kin terms from marriages and children",
        "says who is whose aunt, son or wife",
        "deduces relationships between people in a described family",
        "Kinship expert",
        "gives the word for a relative's role",
    ),
}
"""Descriptions of specialists. These words and those above were written by one who had not read the lessons'."""


class Case(NamedTuple):
    """A question, its pool with descriptions by number, and the number of who should be asked."""

    name: str
    task: Task
    words: tuple[str, ...]
    right: int


def strangers(n: int) -> Iterator[Case]:
    """A worker of each unknown kind beside the four specialists, at all numbers and in all its words in turn."""
    for family, words in STRANGERS.items():
        for i, task in enumerate(generated_tasks(family, n, SEED).tasks):
            place = i % 5
            pool = list(SPECIALISTS.values())
            pool.insert(place, words[i % len(words)])
            yield Case(f"never shown, {family}", task, tuple(pool), place)


def described(n: int) -> Iterator[Case]:
    """The specialists at all places in turn: in their own words, with the generalist behind them, and in new words."""
    orders = list(itertools.permutations(KINDS))
    for kind, (family, options) in KINDS.items():
        for i, task in enumerate(generated_tasks(family, n, SEED, options=options).tasks):
            order = orders[i % len(orders)]
            own = tuple(SPECIALISTS[k] for k in order)
            yield Case(f"own words, {kind}", task, own, order.index(kind))
            yield Case(f"beside the generalist, {kind}", task, (*own, GENERALIST[1]), order.index(kind))
            new = tuple(NEW_WORDS[k][i % len(NEW_WORDS[k])] for k in order)
            yield Case(f"new words, {kind}", task, new, order.index(kind))


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
    persona = OmegaConf.load(conf_dir() / "conductor" / "experts.yaml").conductor.persona
    writer = Agent("conductor", "one", persona, adapter="conductor", decoding=Decoding(224, 0.0))
    team = Ensemble({"one": engine}, [Agent(name, "one") for name in ("ann", "ben")])
    conductor = Conductor(Executor(team, prompts=Prompts(style="direct")), writer)
    cases = [*strangers(n), *described(n)]
    with torch.no_grad():
        found = asked(conductor, cases)
    for name in dict.fromkeys(name for case in cases for name in (case.name, case.name.partition(",")[0])):
        line(name, [ok for case, ok in zip(cases, found, strict=True) if f"{case.name},".startswith(f"{name},")])
    for place in range(5):
        here = [
            ok for case, ok in zip(cases, found, strict=True) if case.name.startswith("never") and case.right == place
        ]
        line(f"never shown, at number {place}", here)


def line(name: str, right: Sequence[bool]) -> None:
    """A share and its interval."""
    low, high = clopper_pearson(sum(right), len(right))
    print(f"{name}: {sum(right)} of {len(right)}, {sum(right) / len(right):.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
