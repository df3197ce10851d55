"""`python -m nsed_lab.studies.routing ADAPTER [n] [OVERRIDE...]`: whom a Conductor asks where unlearned words fit best.

Eight kinds of questions that no lesson was about, each with a worker who says that he knows it, at every number of a
pool with the four specialists, and in a pool of five that no lesson knew; and questions of the specialists' own, with
their descriptions in words of no lesson. Beside it whom the workflow would ask as it is written, without a look at
whose description is `nearer`, and whom the encoder would ask, which takes the nearest description.
"""

import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from hydra import compose
from omegaconf import OmegaConf

from nsed_lab.composite import KINDS
from nsed_lab.descriptions import GENERALIST, SPECIALISTS
from nsed_torch.app.config.hydra_node import composing
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.policy import Conductor, WorkflowPlan
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.prompts import Prompts
from nsed_torch.evaluation.statistics import clopper_pearson
from nsed_torch.questions.generated import generated_tasks
from nsed_torch.records.transcript import Task

SEED = 17  # lessons are of 0

STRANGERS = {
    "gcd": (
        "greatest common divisor solver",
        "finds the biggest number that divides all of them",
        "highest common factor of a few integers",
        "Euclidean algorithm on integer lists",
        "computes GCDs",
    ),
    "leg_counting": (
        "counts animal legs",
        "total legs across a mixed bunch of creatures",
        "how many legs does this zoo have",
        "leg tally for lists of animals and insects",
        "knows each species' limb count and adds them up",
    ),
    "caesar_cipher": (
        "Caesar cipher decryption",
        "cracks shifted-alphabet messages",
        "undoes letter rotation to recover plain English",
        "decoder for ROT-style secret text",
        "turns scrambled ciphertext back into a readable sentence",
    ),
    "dice": (
        "dice roll probabilities",
        "odds of hitting a target total with several dice",
        "chance that 1d20 plus friends reaches N",
        "works out tabletop rolling odds as fractions",
        "tail probability for sums of polyhedral dice",
    ),
    "word_ladder": (
        "word ladder puzzles",
        "gets from one word to another, swapping single letters",
        "COLD to WARM style chains",
        "shortest path between words, one letter per step",
        "Doublets solver, Lewis Carroll's game",
    ),
    "group_anagrams": (
        "anagram grouping",
        "clusters words that share the same letters",
        "sorts a word list into sets of anagrams",
        "finds which words are just scrambled versions of each other",
        "partitions strings into letter-multiset equivalence classes",
    ),
    "knights_knaves": (
        "truth-teller and liar puzzles",
        "works out who's lying and who's honest",
        "knights and knaves logic solver",
        "deduces each islander's identity from their statements",
        "propositional reasoning over self-referential truth claims",
    ),
    "jugs": (
        "water jug puzzles",
        "measures an exact amount by filling, emptying and pouring",
        "I figure out the pouring steps with odd-sized containers",
        "state-space search for liquid measuring problems",
        "plans jug moves to reach a target volume",
    ),
}
"""Families that no lesson was about, and what somebody who knows them says."""

NEW_WORDS = {
    "sums": (
        "basic addition",
        "does plus problems",
        "integer sums below a hundred or so",
        "a + b for little whole numbers",
        "first-grade adding up",
        "gives the total of a pair of integers",
        "simple arithmetic, only the plus sign",
        "what's 17 plus 25? ask me",
        "two-operand addition of short non-negative integers",
    ),
    "siblings": (
        "counts brothers and sisters",
        "how many sisters does her brother have",
        "sibling riddles",
        "Alice-in-Wonderland style sibling counting",
        "number of siblings seen from someone else's side",
        "figures out who has how many brothers",
        "perspective-shift puzzles about brothers, sisters and friends",
        "tells how many male or female friends somebody has",
        "brother/sister headcount, remembering to include the person",
        "small trick questions on sibling and friend numbers",
    ),
    "words": (
        "reverses the order of words",
        "flips a word list back to front",
        "writes the words last to first",
        "word sequence reversal",
        "reads a comma-separated list backwards",
        "takes cat, dog, sun and returns sun, dog, cat",
        "list inverter for plain words",
        "puts the final word first and so on",
        "backwards word lists",
        "reorders tokens in reverse, leaving spelling intact",
    ),
    "relations": (
        "family relationships",
        "says how two relatives are connected",
        "kinship question answering",
        "mother, uncle, grandson: names the relation",
        "what is Anna to Eve",
        "works out who is whose aunt or cousin",
        "family tree reasoning",
        "infers kin terms from marriages and children",
        "picks the right word for a relative",
        "tells you if someone's a father-in-law or a grandfather",
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
    """A worker of each unknown kind at all numbers and in all its words: beside the specialists, and among others."""
    families = list(STRANGERS)
    for family, words in STRANGERS.items():
        for i, task in enumerate(generated_tasks(family, n, SEED).tasks):
            place = i % 5
            said = words[i // 5 % len(words)]
            pool = list(SPECIALISTS.values())
            pool.insert(place, said)
            yield Case(f"never shown, {family}", task, tuple(pool), place)
            strange = random.Random(f"{family} {i}").sample([f for f in families if f != family], 4)  # noqa: S311
            pool = [STRANGERS[other][i % 5] for other in strange]
            pool.insert(place, said)
            yield Case(f"among strangers, {family}", task, tuple(pool), place)


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


def asked(conductor: Conductor, cases: Sequence[Case]) -> tuple[list[bool], list[bool], list[bool]]:
    """Whether every step of a case's workflow asks who should be asked, so before the nearest is, and the nearest."""
    conductor.descriptions = {words: words for case in cases for words in case.words}
    orders = [conductor.nearest(case.task.question, case.words) for case in cases]
    pools = [[case.words[place] for place in order] for case, order in zip(cases, orders, strict=True)]
    nearer, conductor.nearer = conductor.nearer, None
    plans = conductor.plan([case.task for case in cases], pools)
    conductor.nearer = nearer
    last = [conductor.to_the_nearest(case.task, *one) for case, *one in zip(cases, pools, plans, strict=True)]

    def right(plan: WorkflowPlan, order: Sequence[int], case: Case) -> bool:
        return not plan.record.fallback and {order[step.worker] for step in plan.workflow.steps} == {case.right}

    told = zip(plans, last, orders, cases, strict=True)
    rows = [(right(b, order, case), right(a, order, case), order[0] == case.right) for a, b, order, case in told]
    found, written, nearest = map(list, zip(*rows, strict=True))
    return found, written, nearest


def main(adapter: str, n: int = 100, *overrides: str) -> None:
    """Ask, and print a line for each kind of case; further overrides are those of `conductor=experts`."""
    backbone = OmegaConf.load(conf_dir() / "backbone" / "smollm2_135m_instruct.yaml")
    engine = instantiate(backbone, quantization="none", adapters={"conductor": adapter})
    with composing():
        writer = instantiate(compose("conduct", overrides=["conductor=experts", *overrides]).conductor)
    team = Ensemble({writer.backbone: engine}, [Agent(name, writer.backbone) for name in ("ann", "ben")])
    conductor = Conductor(Executor(team, prompts=Prompts(style="direct")), writer)
    cases = [*strangers(n), *described(n)]
    with torch.no_grad():
        shares = asked(conductor, cases)
    for name in dict.fromkeys(name for case in cases for name in (case.name, case.name.partition(",")[0])):
        places = [i for i, case in enumerate(cases) if f"{case.name},".startswith(f"{name},")]
        line(name, *([row[i] for i in places] for row in shares))
    for place in range(5):
        here = [i for i, case in enumerate(cases) if case.name.startswith("never") and case.right == place]
        line(f"never shown, at number {place}", *([row[i] for i in here] for row in shares))


def line(name: str, right: Sequence[bool], written: Sequence[bool], nearest: Sequence[bool]) -> None:
    """Three shares with their intervals: whom the Conductor asks, whom its text would, whom the encoder would."""
    said = ("", "as written ", "the encoder alone ")
    parts = []
    for words, hits in zip(said, (right, written, nearest), strict=True):
        low, high = clopper_pearson(sum(hits), len(hits))
        parts.append(f"{words}{sum(hits)} of {len(hits)}, {sum(hits) / len(hits):.3f} [{low:.3f}, {high:.3f}]")
    print(f"{name}: {'; '.join(parts)}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]), *sys.argv[3:])
