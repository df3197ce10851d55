"""Questions that several kinds of knowledge answer one after the other, with what each of them is to say.

A part of a question, a hop, is of a kind that one of the shipped experts learned. Hops are made of items of
reasoning-gym's families: where a hop reads an earlier one, an item is looked for whose number is that one's answer, and
a list to be reversed gets the earlier answer at its end. How they are put together is ours.
"""

import importlib.metadata
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

from nsed_torch.questions.answers.kinds import Kind
from nsed_torch.questions.generated import APART, TRIES, canonical_question, gym_dataset, known_questions
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader, question_id
from nsed_torch.questions.known import Hop
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality

_ADDITION = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2, "operators": ["+"]}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "sums": ("basic_arithmetic", {**_ADDITION, "allow_parentheses": False}),
    "siblings": ("aiw", {"task_type_weights": [0.5, 0.5, 0.0], "max_entities": 9}),
    "words": ("word_sequence_reversal", {"min_words": 3, "max_words": 4}),
    "relations": ("family_relationships", {"min_family_size": 3, "max_family_size": 4}),
}
"""The families that the specialists of `ensemble=experts` learned, with their settings, by the specialists' names."""

SUMS = 10_000
"""Sums of a seed among which one is looked for that goes on from a number."""

ALONE = "Answer the question."
"""The subtask of a hop that is the whole question."""

_ABOVE = (
    (r"Add (\d+) to the (?:last )?number above\.", r"Calculate {last} + \1."),
    (r"Add the two numbers above\.", "Calculate {0} + {1}."),
    (r", and at its end the (?:last )?(?:number|word) above", ", {last}"),
    (r"as many (.+?) as the number above says", r"{last} \1"),
    (r"the first name above", "{last first}"),
    (r"the last name above", "{last last}"),
)
"""What a hop says of those before it, and how it refers to them instead."""

_COUNTED = re.compile(r"([0-9]+) (sisters|female friends)")  # what the answer of an `aiw` item follows from
_LISTED = "Give a comma-separated list with a space after the comma."


@dataclass(frozen=True)
class CompositeGrader(AnswerGrader):
    """Right if equal to the target: a number, or words in their order, by what the last hop is about."""

    equality: Equality = field(default_factory=lambda: Equality(math_verify=False))  # a list is no formula
    hops: Mapping[str, tuple[Hop, ...]] = field(default_factory=dict)  # by task id

    def kind_of(self, task: Task) -> Kind:
        """A number or words."""
        return "number" if self.hops[question_id(task)][-1].kind in {"sums", "siblings"} else "text"


def composite_tasks(
    size: int = 100,
    seed: int = 0,
    *,
    singles: float = 0.25,
    templates: Sequence[str] | None = None,
    unlike: Mapping[int, int] | None = None,
    learned: Mapping[int, int] | None = None,
) -> GradedTasks:
    """Tasks of two and three hops, the templates in turn, and a share of `singles`, the kinds in turn.

    `templates` are some of `TEMPLATES`; None takes all. Strata are the templates, or the kinds of single ones. A task
    depends on seed, settings and its place, so a larger size only adds tasks, and no question comes twice, not even
    with the numbers of a sum in another order. `unlike` leaves out what the same settings ask at other seeds: seed ->
    how many of its first tasks; `learned` what is asked alone in the first tasks of a kind's own family, from which
    specialists learn.

    Raises:
        ValueError: for a size below 1, a share out of range, an unknown template, or too few different questions.

    Examples:
        >>> tasks = composite_tasks(1, templates=["sum_of_three"])
        >>> tasks.tasks[0].question
        'Calculate 2 + 5 + 4.'
        >>> [(hop.kind, hop.subtask, hop.reply) for hop in tasks.hops[tasks.tasks[0].id]]
        [('sums', 'Calculate 2 + 5.', '7'), ('sums', 'Add 4 to the number above.', '11')]
    """
    names = list(TEMPLATES if templates is None else templates)
    if unknown := [name for name in names if name not in TEMPLATES]:
        raise ValueError(f"expected templates out of {', '.join(TEMPLATES)}, got {unknown[0]!r}: correct the name")
    if size < 1 or not 0 <= singles <= 1 or not names:
        raise ValueError(
            f"expected a size from 1, singles from 0 to 1 and a template or more, got {size}, {singles}, {names}"
        )
    others = {other: most for other, most in (unlike or {}).items() if other != seed}
    seen = set()
    for other, most in others.items():
        found = composite_tasks(most, other, singles=singles, templates=names)
        seen |= {canonical_question(task.question) for task in found.tasks}
    for family, options in KINDS.values():
        seen |= known_questions(family, learned or {}, options)
    items = _Items(seed)
    tasks, hops, strata = [], {}, {}
    for stratum, number in places(size, singles, names):
        question, parts = _fresh(items, stratum, number, seen)
        task = Task(question, f"{stratum}-{seed}-{number}", parts[-1].reply)
        tasks.append(task)
        hops[task.id], strata[task.id] = parts, stratum
    grader = CompositeGrader(hops=hops)
    about: dict[str, Any] = {"name": "composite", "seed": seed, "singles": singles, "templates": names}
    about["unlike"] = {str(other): most for other, most in others.items()}
    about |= {"learned": {str(other): most for other, most in learned.items()}} if learned else {}
    about["items"] = f"reasoning_gym {importlib.metadata.version('reasoning-gym')}"
    return GradedTasks(tuple(tasks), grader, {**grader.identity(), **about}, strata, hops=hops)


def places(size: int, singles: float, templates: Sequence[str]) -> list[tuple[str, int]]:
    """The stratum of every place, and how many of that stratum come before it."""
    turns = {True: itertools.cycle(KINDS), False: itertools.cycle(templates)}
    before: Counter[str] = Counter()
    places = []
    for place in range(size):
        stratum = next(turns[int((place + 1) * singles) > int(place * singles)])
        places.append((stratum, before[stratum]))
        before[stratum] += 1
    return places


def _fresh(items: "_Items", stratum: str, number: int, seen: set[str]) -> tuple[str, tuple[Hop, ...]]:
    """A question that has not been seen, with its hops."""
    for attempt in range(TRIES * 10):
        draw = random.Random(f"{items.seed} {stratum} {number} {attempt}")  # noqa: S311 - variety, not secrecy
        try:
            question, hops = TEMPLATES[stratum](items, draw) if stratum in TEMPLATES else _alone(items, stratum, draw)
        except _NoItemError:
            continue
        if (plain := canonical_question(question)) not in seen:
            seen.add(plain)
            return question, hops
    raise ValueError(f"expected more than {number} different questions of {stratum!r}, got no other: lower the size")


class _NoItemError(LookupError):
    """No sum goes with what was drawn before."""


class _Sum(NamedTuple):
    first: int
    second: int
    total: int


class _Items:
    """The items of all families at a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._sets = {kind: gym_dataset(family, APART, seed, options) for kind, (family, options) in KINDS.items()}

    def drawn(self, kind: str, draw: random.Random) -> tuple[str, str]:
        """Any question of a kind, and its answer."""
        entry = self._sets[kind][draw.randrange(APART)]
        return entry["question"], str(entry["answer"])

    def words(self, draw: random.Random) -> tuple[str, str]:
        """Three different words as a list, and the list reversed; a number or a name would only confuse."""
        while True:
            words = self._sets["words"][draw.randrange(APART)]["metadata"]["words"][:3]
            if all(word.isalpha() and word.islower() for word in words) and len(set(words)) == 3:
                return ", ".join(words), ", ".join(reversed(words))

    def sum(self, draw: random.Random, fits: Callable[[_Sum], bool], first: int | None = None) -> _Sum:
        """A sum that fits, of those that begin with a number if there is one."""
        if found := [s for s in self._sums if (first is None or s.first == first) and fits(s)]:
            return draw.choice(found)
        raise _NoItemError

    def after(self, number: int, draw: random.Random, most: int = 1000) -> _Sum:
        """A sum that goes on from a number and changes it, so that who leaves it out is wrong."""
        return self.sum(draw, lambda s: s.second > 0 and s.total <= most, number)

    @cached_property
    def _sums(self) -> list[_Sum]:
        entries = (self._sets["sums"][i] for i in range(SUMS))
        pairs = ((entry, entry["metadata"]["expression"].split(" + ")) for entry in entries)
        return [_Sum(int(first), int(second), int(entry["answer"])) for entry, (first, second) in pairs]


class _Relation(NamedTuple):
    """Who is what to whom."""

    question: str  # the family's own
    story: str  # of whom it tells
    asked: str  # the question by itself
    manner: str  # how to answer
    people: tuple[str, ...]  # all of them
    pair: tuple[str, str]  # those of the question
    answer: str

    @classmethod
    def drawn(cls, items: _Items, draw: random.Random) -> "_Relation":
        question, answer = items.drawn("relations", draw)
        story, asked, manner = re.fullmatch(r"(.+)\n\n([^?]+\?) (.+)", question, re.DOTALL).groups()  # type: ignore[union-attr]
        people = dict.fromkeys(name for name in re.findall(r"[A-Z]\w+", story) if name != "They")
        one, other = (name for name in re.findall(r"[A-Z]\w+", asked)[1:] if name in people)
        return cls(question, story, asked, manner, tuple(people), (one, other), answer)

    def of_list(self, draw: random.Random) -> tuple[str, str]:
        """The people as a list, and the list reversed, which begins with the first and ends with the last asked for."""
        between = [name for name in self.people if name not in self.pair]
        draw.shuffle(between)
        names = [self.pair[0], *between, self.pair[1]]
        return ", ".join(reversed(names)), ", ".join(names)

    def asked_of(self, first: str, last: str) -> str:
        """The question about somebody else."""
        called = dict(zip(self.pair, (first, last), strict=True))
        return re.sub(r"[A-Z]\w+", lambda name: called.get(name[0], name[0]), self.asked)


_Drawn = tuple[str, tuple[Hop, ...]]


def _alone(items: _Items, kind: str, draw: random.Random) -> _Drawn:
    """One hop: the family's own question."""
    question, answer = items.drawn(kind, draw)
    return question, (Hop(kind, ALONE, answer),)


def _siblings_sum(items: _Items, draw: random.Random) -> _Drawn:
    """Count, then add."""
    counted, many = items.drawn("siblings", draw)
    further = items.after(int(many), draw)
    return f"{counted} Add {further.second} to that number.", (Hop("siblings", counted, many), _added(further))


def _sum_siblings(items: _Items, draw: random.Random) -> _Drawn:
    """Add, then count."""
    counted, many = items.drawn("siblings", draw)
    number, who = _COUNTED.search(counted).groups()  # type: ignore[union-attr]
    before = items.sum(draw, lambda s: s.total == int(number))
    question = _COUNTED.sub(rf"{before.first} + {before.second} \2", counted)
    subtask = _COUNTED.sub(f"as many {who} as the number above says", counted)
    return question, (_calculated(before), Hop("siblings", subtask, many, reads=True))


def _siblings_siblings_sum(items: _Items, draw: random.Random) -> _Drawn:
    """Count twice, each without the other, then add."""
    (one, first), (other, second) = (items.drawn("siblings", draw) for _ in range(2))
    both = items.sum(draw, lambda s: s.second == int(second), int(first))
    last = Hop("sums", "Add the two numbers above.", str(both.total), reads=True)
    hops = Hop("siblings", one, first), Hop("siblings", other, second), last
    return f"{one} {other} How much are both numbers together?", hops


def _sums(items: _Items, draw: random.Random, *, count: int) -> _Drawn:
    """Sums, each going on from the one before; none from a number of three digits, which no specialist knows."""
    sums = [items.sum(draw, lambda s: s.total < 100)]
    while len(sums) < count:
        sums.append(items.after(sums[-1].total, draw, most=1000 if len(sums) == count - 1 else 99))
    first, second, *others = sums
    hops = _calculated(first), _added(second), *(_added(further, "last number") for further in others)
    return f"Calculate {' + '.join(map(str, (first.first, *(s.second for s in sums))))}.", hops


def _one_sum(items: _Items, draw: random.Random) -> _Drawn:
    """Add."""
    calculated = _calculated(items.sum(draw, lambda s: True))
    return calculated.subtask, (calculated,)


def _one_relation(items: _Items, draw: random.Random) -> _Drawn:
    """Who is what."""
    family = _Relation.drawn(items, draw)
    return f"{family.story} {family.asked}", (Hop("relations", family.question, family.answer),)


def _words_relations(items: _Items, draw: random.Random) -> _Drawn:
    """Reverse a list of names, then say what its first is to its last."""
    family = _Relation.drawn(items, draw)
    names, turned = family.of_list(draw)
    asked = family.asked_of("the first of the new list", "the last")
    further = family.asked_of("the first name above", "the last name above")
    first = Hop("words", f"Reverse this list of words: {names}", turned)
    last = Hop("relations", f"{family.story}\n\n{further} {family.manner}", family.answer, reads=True)
    return f"{family.story} Reverse this list of names: {names}. {asked} {family.manner}", (first, last)


def _then_words(
    items: _Items, draw: random.Random, *, start: Callable[[_Items, random.Random], _Drawn], what: str, above: str
) -> _Drawn:
    """Something first, then reverse a list with its answer at the end."""
    question, hops = start(items, draw)
    words, turned = items.words(draw)
    further = f"Put {what} at the end of this list of words and reverse the list: {words}. {_LISTED}"
    subtask = f"Reverse this list of words: {words}, and at its end the {above}"
    return f"{question} {further}", (*hops, Hop("words", subtask, f"{hops[-1].reply}, {turned}", reads=True))


def _calculated(asked: _Sum) -> Hop:
    """The first of several sums."""
    return Hop("sums", f"Calculate {asked.first} + {asked.second}.", str(asked.total))


def _added(further: _Sum, what: str = "number") -> Hop:
    """A sum that goes on from the hop before."""
    return Hop("sums", f"Add {further.second} to the {what} above.", str(further.total), reads=True)


def referring(hops: Sequence[Hop]) -> tuple[Hop, ...]:
    """Hops whose subtasks refer to earlier replies and need no question beside them (`conductor.references`)."""
    changed = []
    for place, hop in enumerate(hops):
        subtask = hop.subtask
        for words, reference in _ABOVE:
            subtask = re.sub(words, reference.replace("{last", f"{{{place - 1}"), subtask)
        changed.append(hop._replace(subtask=subtask))
    return tuple(changed)


TEMPLATES: dict[str, Callable[[_Items, random.Random], _Drawn]] = {
    "siblings_sum": _siblings_sum,
    "relations_words": partial(_then_words, start=_one_relation, what="that word", above="word above"),
    "sum_of_three": partial(_sums, count=2),
    "words_relations": _words_relations,
    "siblings_sum_words": partial(_then_words, start=_siblings_sum, what="the sum", above="last number above"),
    "sum_siblings": _sum_siblings,
    "sum_of_four": partial(_sums, count=3),
    "sum_words": partial(_then_words, start=_one_sum, what="that number", above="number above"),
    "siblings_siblings_sum": _siblings_siblings_sum,
    "words_relations_words": partial(_then_words, start=_words_relations, what="that word", above="last word above"),
}
"""What questions are made of, by the kinds of their hops."""
