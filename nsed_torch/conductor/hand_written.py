"""Workflows written by hand: the most that a Conductor could come to on composite questions, and lessons from them."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from nsed_torch.agents import Message
from nsed_torch.agents.requests import call_seed
from nsed_torch.benchmarks import mixed_tasks
from nsed_torch.benchmarks.composite import ALONE, KINDS, CompositeTasks, Hop
from nsed_torch.conductor.policy import Conductor
from nsed_torch.conductor.workflow import Workflow, WorkflowStep
from nsed_torch.records import Task

GENERALIST = ("generalist", "adds, counts siblings and friends, writes words backwards, knows families")
SPECIALISTS = {
    "sums": "adds two small numbers",
    "siblings": "counts brothers, sisters and friends",
    "words": "writes words backwards",
    "relations": "tells who is what to whom in a family",
}
"""What the experts say of themselves, by the kind of hop they know."""

OTHER_WORDS = {
    "sums": ("does additions", "works out what two numbers come to together", "is good at plus"),
    "siblings": ("knows how many siblings or friends somebody has", "tells the number of sisters and brothers"),
    "words": ("turns the order of words around", "reverses lists of words", "says words from the last to the first"),
    "relations": ("knows how relatives are called", "says how people of a family are related", "knows kinship"),
}
"""The same in words that no expert uses, so that it is a description that is learned and not a worker."""

OTHERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "lcm": ({}, ("finds the least common multiple", "looks for the smallest number that two others divide")),
    "letter_counting": ({}, ("counts how often a letter comes", "knows how many times a letter is in a text")),
    "prime_factorization": ({}, ("finds prime factors", "takes numbers apart into primes")),
    "spell_backward": ({}, ("spells a word from its end", "writes the letters of a word backwards")),
    "calendar_arithmetic": ({}, ("knows dates and weekdays", "reads the calendar")),
    "base_conversion": ({}, ("converts numbers to another base", "knows binary and hexadecimal")),
    "simple_equations": ({}, ("solves equations", "finds the unknown of an equation")),
    "count_primes": ({}, ("counts prime numbers", "knows how many primes lie between two numbers")),
    "fraction_simplification": ({}, ("simplifies fractions", "brings fractions to their lowest terms")),
    "products": ({}, ("multiplies", "works out products of two numbers")),
    "sentence_reordering": ({}, ("brings the words of a sentence into order", "mends mixed up sentences")),
    "complex_arithmetic": ({}, ("reckons with complex numbers", "knows the imaginary unit")),
    "count_bits": ({}, ("counts bits that are 1", "looks at the bits of a number")),
    "syllogism": ({}, ("says whether a conclusion follows", "checks arguments in logic")),
    "time_intervals": ({}, ("finds how much time has passed", "works out durations")),
}
"""Families of reasoning-gym that no expert knows, with their settings and what somebody who does would say."""

LARGEST = 5
"""Workers of a lesson's pool at most."""


def best_workflow(hops: Sequence[Hop], pool: Sequence[str]) -> Workflow:
    """A step a hop, each by the worker who knows its kind, and with the earlier ones to read where it needs them.

    `pool` holds the workers' names or their descriptions in the order of their numbers. Where the specialist of a kind
    is not in it, the generalist is asked.

    Raises:
        ValueError: for a kind that nobody in the pool knows.
    """
    return Workflow(
        tuple(WorkflowStep(_who(hop.kind, pool), hop.subtask.strip(), "all" if hop.reads else ()) for hop in hops)
    )


def lessons_by_hand(
    conductor: Conductor, graded: CompositeTasks, count: int, *, others: float = 0.25, seed: int = 0
) -> list[tuple[tuple[Message, ...], str]]:
    """What the Conductor is asked about tasks, and the best workflow for each, behind a line a step on whom it asks.

    A pool has whom the workflow needs, and others, two to five in all, in any order, but nobody whom the Conductor's
    own pools leave out. Half of them are described in `OTHER_WORDS`. A share of `others` are questions of `OTHERS`, so
    that to find the description that fits is learned from nineteen kinds of questions and not from four. All is ours.

    Raises:
        ValueError: for a count below 1, a share out of range, or fewer tasks than are wanted.
    """
    strange = round(count * others)
    if count < 1 or not 0 <= others <= 1 or count - strange > len(graded.tasks):
        raise ValueError(
            f"expected lessons from 1, others from 0 to 1 and a task for each lesson, got {count}, {others} and "
            f"{len(graded.tasks)} tasks: lower warm.lessons or raise tasks.size"
        )
    asked = [(task, graded.hops[task.id]) for task in graded.tasks[: count - strange]]
    asked += _strange(strange, seed)
    random.Random(seed).shuffle(asked)  # noqa: S311 - variety, not secrecy
    return [_lesson(conductor, task, hops, seed) for task, hops in asked if _allowed(conductor, hops)]


def _strange(count: int, seed: int) -> Iterator[tuple[Task, tuple[Hop, ...]]]:
    """Questions that one of `OTHERS` answers alone."""
    if count:
        families = {name: settings for name, (settings, _) in OTHERS.items()}
        graded = mixed_tasks(families, max(count, len(families)), seed)
        for task in graded.tasks[:count]:
            yield task, (Hop(graded.strata[task.id], ALONE, task.target or ""),)


def _lesson(conductor: Conductor, task: Task, hops: Sequence[Hop], seed: int) -> tuple[tuple[Message, ...], str]:
    draw = random.Random(call_seed(seed, task.id, "lesson by hand"))  # noqa: S311 - variety, not secrecy
    pool = list(dict.fromkeys(hop.kind for hop in hops))
    more = [kind for kind in (*KINDS, *OTHERS) if kind not in pool and _allowed(conductor, [Hop(kind, "", "")])]
    weights = [4 if kind in KINDS else 1 for kind in more]  # the experts are those it will meet
    size = draw.randint(max(2, len(pool)), LARGEST)
    while len(pool) < size:
        (kind,) = draw.choices(more, weights)
        pool += [kind] if kind not in pool else []
    draw.shuffle(pool)
    words = [draw.choice(_words(kind)) for kind in pool]
    flow, executor = best_workflow(hops, pool), conductor.executor
    thoughts = [f"{words[step.worker]}: model {step.worker}\n" for step in flow.steps]
    asked = executor.prompts.conduct(
        task.question, workers=words, max_steps=executor.max_steps, previous=None, seed=call_seed(seed, task.id)
    )
    return asked, "".join(thoughts) + flow.render()


def _words(kind: str) -> Sequence[str]:
    """Descriptions to draw from; half of the draws of an expert are its own."""
    return OTHERS[kind][1] if kind in OTHERS else [*OTHER_WORDS[kind], *[SPECIALISTS[kind]] * len(OTHER_WORDS[kind])]


def _allowed(conductor: Conductor, hops: Sequence[Hop]) -> bool:
    return not {hop.kind for hop in hops} & set(conductor.pools.without)


def _who(kind: str, pool: Sequence[str]) -> int:
    """The number of the worker who knows a kind."""
    for called in ((kind, SPECIALISTS.get(kind, kind)), GENERALIST):
        for number, worker in enumerate(pool):
            if worker in called:
                return number
    raise ValueError(
        f"expected {kind!r} or 'generalist' in a pool for hops of that kind, got {', '.join(pool)}: add one of them"
    )
