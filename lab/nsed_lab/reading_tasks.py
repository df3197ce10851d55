"""Questions about texts that come in pieces: generated tasks with inputs, and which facts matter while they are read.

Hidden profiles are due to Stasser and Titus (1985), needles in haystacks to Kamradt (2023), facts that change as more
is read to bAbI (Weston et al. 2015, arXiv 1502.05698). The sentences are ours.
"""

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsed_torch.questions.generated import shares
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.questions.known import Fact
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality

PEOPLE = (
    *("Ada", "Alan", "Amos", "Anna", "Arno", "Bela", "Boris", "Carl", "Cleo", "Cora", "Dana", "Dora", "Edna", "Elsa"),
    *("Emil", "Enzo", "Eric", "Erna", "Fay", "Finn", "Flora", "Fred", "Gina", "Greta", "Gus", "Hans", "Hedy", "Hugo"),
    *("Ida", "Igor", "Ilse", "Iris", "Ivan", "Jana", "Jens", "Jill", "Jonas", "Julia", "Kai", "Karl", "Kira", "Lars"),
    *("Lea", "Leo", "Lena", "Lisa", "Luis", "Mara", "Marc", "Mia", "Milo", "Nina", "Noah", "Nora", "Olga", "Otto"),
    *("Paul", "Pia", "Rita", "Rosa", "Sven", "Tara", "Tom", "Vera"),
)
THINGS = (
    *("bag", "ball", "bell", "boat", "book", "bowl", "box", "brush", "chair", "clock", "coat", "comb", "cup", "desk"),
    *("doll", "drum", "flute", "fork", "hat", "horn", "kite", "knife", "lamp", "map", "mug", "pen", "pipe", "plate"),
    *("ring", "rope"),
)
COLOURS = ("red", "blue", "green", "black", "white", "yellow")
TOWNS = ("Rome", "Paris", "Oslo", "Cairo", "Lima", "Delhi", "Tokyo", "Dublin")
KIN = ("friend", "cousin", "boss", "neighbour", "teacher", "doctor", "sister", "brother", "aunt", "uncle", "niece")
PLACED = ("lives in", "works in", "was born in", "studied in", "was married in", "has a garden in")

LONGEST = 256
"""Pieces of a task at most."""

MOST = 1024
"""Statements of a task at most."""

PROFILE = 4
"""Facts that a hidden profile is made of."""

WHICH = {"last": ("last", -1), "first": ("first", 0), "before": ("last but one", -2)}
"""Which holder a question about hands asks for: in words, and its place."""


@dataclass(frozen=True)
class ReadingTasks(GradedTasks):
    """Tasks with inputs whose every fact is known."""

    chances: Mapping[str, float] = field(default_factory=dict)  # by task id: how often who read nothing guesses right


@dataclass(frozen=True)
class _Item:
    question: str
    answer: str
    inputs: tuple[str | dict[str, str], ...]
    facts: tuple[Fact, ...]
    chance: float


def reading_tasks(families: Mapping[str, Mapping[str, Any]], size: int = 100, seed: int = 0) -> ReadingTasks:
    """Tasks of several families in turn, out of FAMILIES; strata are their names here.

    `families` are their settings by name, in order: `uninformed` agents of a hidden profile, whose pieces are of no
    use; for the others `pieces`, and how many `statements` each has; `needles`, what is asked for; `which` of WHICH;
    `people` who swap, and `swaps` a piece. A setting `family` names the family where the name is a label. A task
    depends on label, settings, seed and its place alone. Another family, or too much for its words, is a ValueError.

    Examples:
        >>> tasks = reading_tasks({"chains": {"pieces": 2, "statements": 1}}, size=1)
        >>> tasks.tasks[0].inputs, tasks.tasks[0].target
        (("Emil's aunt is Kira.", 'Kira studied in Delhi.'), 'Delhi')
    """
    made: list[list[tuple[str, str, _Item]]] = []
    for label, family, options, count in shares(families, size):
        if family not in FAMILIES:
            raise ValueError(f"expected families out of {', '.join(FAMILIES)}, got {family!r}: choose among them")
        made.append([])
        for i in range(count):
            # Its own generator for each task, so that a larger size only adds some.
            drawn = random.Random(f"{label} {json.dumps(options, sort_keys=True)} {seed} {i}")  # noqa: S311 - no secret
            try:
                made[-1].append((label, f"{label}-{seed}-{i}", FAMILIES[family](drawn, **options)))
            except TypeError as error:
                raise ValueError(f"reading family {label!r}: {error}: correct its settings") from error
    dealt = [entry for turn in itertools.zip_longest(*made) for entry in turn if entry is not None]
    grader = AnswerGrader(Equality(False), kind="text")
    plain = {str(name): dict(options or {}) for name, options in families.items()}
    about = {"name": f"reading {', '.join(plain)}", "seed": seed, "families": plain}
    return ReadingTasks(
        tuple(Task(item.question, name, item.answer, inputs=item.inputs) for _, name, item in dealt),
        grader,
        {**grader.identity(), **about},
        {name: label for label, name, _ in dealt},
        facts={name: item.facts for _, name, item in dealt},
        chances={name: item.chance for _, name, item in dealt},
    )


def people_in(text: str) -> set[str]:
    """Whom a text names."""
    return set(PEOPLE) & set(re.findall(r"\w+", text))


def _hidden_profile(draw: random.Random, *, uninformed: int = 0, statements: int = 1) -> _Item:
    """Each of four agents knows one of five boxes to be empty, so that all four together know which is not."""
    _check(uninformed=(uninformed, 0, 8), statements=(statements, 1, 8))
    boxes = draw.sample(COLOURS, PROFILE + 1)
    hidden, *empty = draw.sample(boxes, len(boxes))
    places = draw.sample(range(PROFILE + uninformed), PROFILE)
    said = {str(place): f"The {colour} box is empty." for place, colour in zip(places, empty, strict=True)}
    others = _belongings(draw, (PROFILE + uninformed) * statements, spared=set())
    piece = {}
    for place in map(str, range(PROFILE + uninformed)):
        own = [said[place]] if place in said else [next(others)]
        own += itertools.islice(others, statements - 1)
        piece[place] = " ".join(draw.sample(own, len(own)))
    listed = f"{', '.join(boxes[:-1])} and {boxes[-1]}"
    question = (
        f"One of five boxes, {listed}, holds a coin; the others are empty. Which one? Answer with its colour alone."
    )
    facts = tuple(Fact(text, 1, reader=place) for place, text in sorted(said.items(), key=lambda fact: int(fact[0])))
    return _Item(question, hidden, (piece,), facts, 1 / len(boxes))


def _needles(
    draw: random.Random, *, pieces: int = 16, statements: int = 4, needles: int = 2, near: float = 0.0
) -> _Item:
    """A few belongings among many, a share of which are of the people, or such things, that are asked about."""
    _check(pieces=(pieces, 1, LONGEST), needles=(needles, 1, pieces))
    _check(statements=(statements, 1, MOST // pieces))
    owners, things = draw.sample(PEOPLE, needles), draw.choices(THINGS, k=needles)
    colours = draw.choices(COLOURS, k=needles)
    wanted = [f"{p}'s {t} is {c}." for p, t, c in zip(owners, things, colours, strict=True)]
    where = sorted(draw.sample(range(pieces), needles))
    order = draw.sample(range(needles), needles)  # asked in another order than told
    told = {piece: wanted[i] for piece, i in zip(where, order, strict=True)}
    spared = set(zip(owners, things, strict=True))
    others = _belongings(draw, pieces * statements, spared, _near(near, pieces * statements))
    named = [f"{p}'s {t}" for p, t in zip(owners, things, strict=True)]
    if needles == 1:
        question = f"What colour is {named[0]}? Answer with the colour alone."
    else:
        listed = f"{', '.join(named[:-1])} and {named[-1]}"
        question = f"What colours are {listed}? Answer with the colours alone, in this order, with commas."
    inputs, facts = _written(draw, told, others, pieces, statements)
    return _Item(question, ", ".join(colours), inputs, facts, len(COLOURS) ** -needles)


def _hands(draw: random.Random, *, pieces: int = 16, statements: int = 4, which: str = "last", moves: int = 4) -> _Item:
    """A thing that changes hands, among others that do; every statement says when."""
    _check(pieces=(pieces, 2, LONGEST), moves=(moves, 2, pieces))
    _check(statements=(statements, 1, min(MOST // pieces, len(THINGS) - 1)))
    if which not in WHICH:
        raise ValueError(f"which: expected one of {', '.join(WHICH)}, got {which!r}")
    thing, *others = draw.sample(THINGS, len(THINGS))
    # Few people, so that chance is known and a name alone gives nothing away.
    people = draw.sample(PEOPLE, 8)
    holders = [draw.choice(people)]
    while len(holders) < moves:
        holders.append(draw.choice([person for person in people if person not in holders[-2:]]))
    where = sorted(draw.sample(range(pieces), moves))

    def moved(piece: int, what: str, who: str) -> str:
        return f"On day {piece + 1}, {who} gets the {what}."

    told = {piece: moved(piece, thing, holder) for piece, holder in zip(where, holders, strict=True)}
    rest = [
        moved(piece, what, draw.choice(people)) for piece in range(pieces) for what in draw.sample(others, statements)
    ]
    inputs, facts = _written(draw, told, iter(rest), pieces, statements)
    when, place = WHICH[which]
    question = f"Who gets the {thing} {when}? Answer with one name out of {', '.join(sorted(people))}."
    if which == "first":
        facts = facts[:1]
    else:  # a fact is of no use once so many newer ones are known
        newer = -place
        ends = [*(fact.piece for fact in facts[newer:]), *[None] * newer]
        facts = tuple(Fact(fact.text, fact.piece, end) for fact, end in zip(facts, ends, strict=True))
    return _Item(question, holders[place], inputs, facts, 1 / len(people))


def _chains(draw: random.Random, *, pieces: int = 16, statements: int = 4, near: float = 0.0) -> _Item:
    """Where somebody's relation lives: the relation is named in the first quarter, the town in the last.

    A share of the other statements are of these two people, or of such a relation or such a place of others.
    """
    _check(pieces=(pieces, 2, LONGEST))
    _check(statements=(statements, 1, MOST // pieces))
    start, middle = draw.sample(PEOPLE, 2)
    kin, placed, town = draw.choice(KIN), draw.choice(PLACED), draw.choice(TOWNS)
    quarter = max(pieces // 4, 1)
    told = {
        draw.randrange(quarter): f"{start}'s {kin} is {middle}.",
        draw.randrange(pieces - quarter, pieces): f"{middle} {placed} {town}.",
    }
    pairs = [
        (who, what) for who in PEOPLE for what in (*KIN, *PLACED) if (who, what) not in {(start, kin), (middle, placed)}
    ]
    others = (
        f"{who}'s {what} is {draw.choice([p for p in PEOPLE if p != who])}."
        if what in KIN
        else f"{who} {what} {draw.choice(TOWNS)}."
        for who, what in _drawn(
            draw, pairs, pieces * statements, {start, middle, kin, placed}, _near(near, pieces * statements)
        )
    )
    inputs, facts = _written(draw, told, others, pieces, statements)
    question = (
        f"Think of {start}'s {kin}: which town is it that this person {placed}? Answer with the name of the town alone."
    )
    return _Item(question, town, inputs, facts, 1 / len(TOWNS))


def _swaps(draw: random.Random, *, pieces: int = 16, people: int = 3, swaps: int = 1) -> _Item:
    """Who holds which colour after swaps: a piece means nothing to who does not know what was before it."""
    _check(pieces=(pieces, 2, LONGEST), people=(people, 2, len(COLOURS)), swaps=(swaps, 1, MOST // pieces))
    names, colours = draw.sample(PEOPLE, people), draw.sample(COLOURS, people)

    def held(day: int) -> str:
        return f"Day {day}: {', '.join(f'{name} {colour}' for name, colour in zip(names, colours, strict=True))}."

    inputs = [held(1)]
    facts = [Fact(held(1), 1, until=2)]
    for day in range(2, pieces + 1):
        told = []
        for _ in range(swaps):
            i, j = draw.sample(range(people), 2)
            colours[i], colours[j] = colours[j], colours[i]
            told.append(f"{names[i]} and {names[j]} swap")
        inputs.append(f"On day {day}, {', then '.join(told)}.")
        facts.append(Fact(held(day), day, until=day + 1 if day < pieces else None))
    asked = draw.randrange(people)
    question = (
        f"{', '.join(names[:-1])} and {names[-1]} have a ball each and swap now and then. Note who has which "
        f"colour. Which colour does {names[asked]} have in the end? Answer with the colour alone."
    )
    return _Item(question, colours[asked], tuple(inputs), tuple(facts), 1 / people)


FAMILIES: dict[str, Callable[..., _Item]] = {
    "hidden_profile": _hidden_profile,
    "needles": _needles,
    "hands": _hands,
    "chains": _chains,
    "swaps": _swaps,
}
"""How a family's tasks are made."""


def _belongings(draw: random.Random, count: int, spared: set[tuple[str, str]], near: int = 0) -> Iterator[str]:
    """So many statements that differ in what they are about, none about what is spared, some of them `near` it."""
    pairs = [(who, what) for who in PEOPLE for what in THINGS if (who, what) not in spared]
    about = {name for pair in spared for name in pair}
    return iter([f"{who}'s {what} is {draw.choice(COLOURS)}." for who, what in _drawn(draw, pairs, count, about, near)])


def _drawn(
    draw: random.Random, pairs: Sequence[tuple[str, str]], count: int, about: set[str], near: int
) -> list[tuple[str, str]]:
    """So many pairs, `near` of them with a name of those as far as there are such, more where others are too few."""
    if not near:
        return draw.sample(pairs, count)
    close = [pair for pair in pairs if about & set(pair)]
    far = [pair for pair in pairs if not about & set(pair)]
    wanted = min(max(near, count - len(far)), len(close))
    return draw.sample([*draw.sample(close, wanted), *draw.sample(far, count - wanted)], count)


def _near(share: object, count: int) -> int:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"near: expected a share in [0, 1], got {share!r}: correct it")
    return round(share * count)


def _written(
    draw: random.Random, told: Mapping[int, str], others: Iterator[str], pieces: int, statements: int
) -> tuple[tuple[str, ...], tuple[Fact, ...]]:
    """Pieces in which what is `told`, by piece from 0, stands somewhere among others; and the facts."""
    texts = []
    for piece in range(pieces):
        lines = list(itertools.islice(others, statements))
        if piece in told:
            lines[draw.randrange(statements)] = told[piece]
        texts.append(" ".join(lines))
    return tuple(texts), tuple(Fact(told[piece], piece + 1) for piece in sorted(told))


def _check(**settings: tuple[int, int, int]) -> None:
    for name, (value, least, most) in settings.items():
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name}: expected a whole number from {least} to {most}, got {value!r}: correct it")
