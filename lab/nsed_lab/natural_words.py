"""Questions of several hops in many wordings: what `composite` asks in ten templates, said as people say it.

A wording is put together from phrases in a file of `wordings/`: frames, subjects and verbs, times and places, names,
numbers in digits or words, sentences that have nothing to do with it. The hops stay in the words that workers know, so
a workflow by hand says what a Conductor has to make of a wording. Their subtasks refer to earlier replies. `lessons`
and `test` share no phrase.
"""

import functools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nsed_lab.composite import TEMPLATES, CompositeGrader, composite_tasks, places, referring
from nsed_torch.questions.generated import TRIES, canonical_question
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.known import Hop
from nsed_torch.records.files import read_json
from nsed_torch.records.transcript import Task

WORDINGS = ("lessons", "test")

IN_WORDS = 0.3
"""Share of the questions whose numbers are in words; in as many again each number is drawn to be so or not."""

_SMALL: tuple[str, ...] = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_SMALL += ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_MANNER = "Respond only with the word that describes their relationship."

Drawn = tuple[str, tuple[Hop, ...]]


def natural_tasks(
    size: int = 100,
    seed: int = 0,
    *,
    wordings: str = "test",
    singles: float = 0.25,
    plain: float = 0.0,
    unlike: Mapping[int, int] | None = None,
) -> GradedTasks:
    """Tasks of two and three hops in many wordings, the templates' kinds in turn, and a share of `singles`.

    A share `plain` is in the templates' own words. `unlike` leaves out what the same settings ask at other seeds: seed
    -> how many of its first tasks. No question comes twice.

    Raises:
        ValueError: for unknown wordings, a size below 1 or a share out of range.

    Examples:
        >>> tasks = natural_tasks(3, seed=5)
        >>> [hop.subtask for hop in tasks.hops[tasks.tasks[2].id]][1:]
        ['Calculate {0} + 34.']
    """
    if wordings not in WORDINGS or size < 1 or not (0 <= singles <= 1 and 0 <= plain < 1):
        raise ValueError(
            f"expected wordings out of {', '.join(WORDINGS)}, a size from 1, singles from 0 to 1 and plain below 1, "
            f"got {wordings!r}, {size}, {singles}, {plain}: correct them"
        )
    said, seen = Wording.load(wordings), set()
    for other, most in (unlike or {}).items():
        found = natural_tasks(most, other, wordings=wordings, singles=singles)
        seen |= {canonical_question(task.question) for task in found.tasks}
    about = {"name": "natural words", "seed": seed, "wordings": wordings, "singles": singles, "plain": plain}
    about["unlike"] = {str(other): most for other, most in (unlike or {}).items()}
    tasks, hops, strata = [], {}, {}
    in_templates = round(size * plain)
    if in_templates:
        others = composite_tasks(in_templates, seed, singles=singles)
        tasks, strata = list(others.tasks), dict(others.strata)
        hops = {one: referring(parts) for one, parts in others.hops.items()}
    for stratum, number in places(size - in_templates, singles, list(TEMPLATES)):
        question, parts = _fresh(said, stratum, f"{wordings} {seed} {stratum} {number}", seen)
        task = Task(question, f"{wordings}-{stratum}-{seed}-{number}", parts[-1].reply)
        tasks.append(task)
        hops[task.id], strata[task.id] = parts, stratum
    random.Random(seed).shuffle(tasks)  # noqa: S311 - variety, not secrecy
    grader = CompositeGrader(hops=hops)
    return GradedTasks(tuple(tasks), grader, {**grader.identity(), **about}, strata, hops=hops)


def _fresh(said: "Wording", stratum: str, place: str, seen: set[str]) -> Drawn:
    """A question that has not been seen, with its hops."""
    for attempt in range(TRIES * 10):
        speaker = Speaker(said, random.Random(f"natural {place} {attempt}"))  # noqa: S311 - variety, not secrecy
        parts, hops = KINDS_IN_WORDS[stratum](speaker)
        question = speaker.whole(parts)
        if (plain := canonical_question(question)) not in seen:
            seen.add(plain)
            return question, referring(hops)
    raise ValueError(f"expected another question at {place!r}, got none: lower the size")


@dataclass(frozen=True)
class Wording:
    """Phrases by what they are for; `[a|b]` in a phrase is one of several ways to go on."""

    phrases: Mapping[str, Any]

    @classmethod
    @functools.cache
    def load(cls, name: str) -> "Wording":
        """Those of a file of `wordings/`."""
        return cls(read_json(Path(__file__).parent / "wordings" / f"{name}.json"))

    def frames(self) -> set[str]:
        """All phrases with their ways to go on told apart, without what is filled in."""
        found = set()
        for value in self.phrases.values():
            for phrase in value:
                texts = (
                    phrase.values() if isinstance(phrase, dict) else phrase if isinstance(phrase, list) else [phrase]
                )
                found |= {" ".join(way.split()) for text in texts for way in ways(text)}
        return {way for way in found if re.search(r"[a-z]", re.sub(r"\{\w+\}", "", way))}


def ways(text: str) -> list[str]:
    """A phrase in all ways that it may go."""
    if (choice := re.search(r"\[([^\[\]]*)\]", text)) is None:
        return [text]
    return [way for one in choice[1].split("|") for way in ways(text[: choice.start()] + one + text[choice.end() :])]


@dataclass
class Speaker:
    """Draws the phrases of one question and fills them in, each name once."""

    said: Wording
    draw: random.Random
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        turn = self.draw.random()
        self.in_words = 1.0 if turn < IN_WORDS else 0.5 if turn < 2 * IN_WORDS else 0.0

    def one(self, kind: str) -> Any:
        """A phrase of a kind."""
        return self.draw.choice(self.said.phrases[kind])

    def says(self, kind: str, **filled: object) -> str:
        """A phrase of a kind, one of its ways, filled in."""
        return self.fill(self.one(kind), **filled)

    def fill(self, phrase: str, **filled: object) -> str:
        """A phrase, one of its ways, filled in; numbers as this question says them."""
        return self.said_as(self.draw.choice(ways(phrase)), **filled)

    def said_as(self, way: str, **filled: object) -> str:
        """One way to say a phrase, filled in."""
        shown = {k: self.number(v) if isinstance(v, int) else v for k, v in filled.items()}
        return way.format_map(shown)

    def number(self, value: int) -> str:
        """Digits or words."""
        return words_of(value) if value < 200 and self.draw.random() < self.in_words else str(value)

    def name(self, kind: str) -> str:
        """Somebody who has not been named."""
        left: list[str] = [name for name in self.said.phrases[kind] if name not in self.used]
        self.used.add(chosen := self.draw.choice(left))
        return chosen

    def whole(self, parts: Sequence[str]) -> str:
        """The parts as one text, sometimes with what has nothing to do with it in between."""
        sentences = [part for part in parts if part]
        if self.draw.random() < 0.2:
            sentences.insert(self.draw.randrange(len(sentences)), self.one("chatter"))
        text = " ".join(sentences)
        return f"{self.one('please')}{_capital(text)}"

    def listed(self, words: Sequence[str]) -> str:
        """A list as people say it."""
        if self.draw.random() < 0.3:
            return f"{', '.join(words[:-1])} and {words[-1]}"
        return ", ".join(words)


def words_of(number: int) -> str:
    """A number below 200 in words."""
    if number >= 100:
        return f"one hundred{f' and {words_of(number % 100)}' if number % 100 else ''}"
    if number < len(_SMALL):
        return _SMALL[number]
    return _TENS[number // 10 - 2] + (f"-{_SMALL[number % 10]}" if number % 10 else "")


def _addends(draw: random.Random, count: int) -> list[int]:
    """Numbers of a story; none is added to a number of three digits, which no specialist knows."""
    while True:
        numbers = [draw.randint(2, 9) if draw.random() < 0.35 else draw.randint(10, 69) for _ in range(count)]
        if sum(numbers[:-1]) < 100:
            return numbers


def _story(speaker: Speaker, numbers: Sequence[int]) -> str:
    """Numbers that come together, told."""
    phrases, draw = speaker.said.phrases, speaker.draw
    frame = speaker.one("stories")
    trades = [t.split("|") for t in phrases["trades"]]
    if frame.get("passive"):
        trades = [t for t in trades if " " not in t[2]]
    who, whom, did, do, things, *done = draw.choice(trades)
    went, go, far = speaker.one("lengths").split("|")
    woman = draw.random() < 0.5
    first = speaker.name("women" if woman else "men")
    he, his = ("she", "her") if woman else ("he", "his")
    when, where, goods = speaker.one("whens"), speaker.one("places"), speaker.one("goods")
    always = {"who": who, "whom": whom, "did": did, "do": do, "things": things, "stuff": speaker.one("things")}
    always["done"] = done[0] if done else did
    always |= {"he": he, "his": his, "went": went, "go": go, "far": far, "unit": speaker.one("units")}
    told = []
    for k, number in enumerate(numbers):
        name = first if k == 0 else speaker.name(draw.choice(["women", "men"]))
        own = {"name": name, "when": when[k], "place": where[k], "good": goods[k], "gain": speaker.one("gains")}
        own |= {"When": _capital(when[k]), "Good": _capital(goods[k]), "Then": speaker.one("then"), "n": number}
        told.append(speaker.fill(frame["first" if k == 0 else "more"], **always, **own))
    join, last = frame.get("join", ", "), frame.get("final", frame.get("join", " and "))
    text = join.join(told[:-1]) + last + told[-1] + speaker.fill(frame.get("end", "."), **always)
    return f"{text} {speaker.fill(frame['ask'], **always, name=first)}".strip()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sums(numbers: Sequence[int]) -> tuple[Hop, ...]:
    """Each addition after the one before."""
    hops = [Hop("sums", f"Calculate {numbers[0]} + {numbers[1]}.", str(sum(numbers[:2])))]
    for k, number in enumerate(numbers[2:], start=3):
        what = "number" if k == 3 else "last number"
        hops.append(Hop("sums", f"Add {number} to the {what} above.", str(sum(numbers[:k])), reads=True))
    return tuple(hops)


def _summed(speaker: Speaker, count: int) -> tuple[list[str], tuple[Hop, ...]]:
    numbers = _addends(speaker.draw, count)
    return [_story(speaker, numbers)], _sums(numbers)


def _counted(speaker: Speaker, parts: tuple[int, int] | None = None) -> tuple[list[str], Hop]:
    """Siblings or friends who are counted from another; `parts` are what the number to count from is the sum of."""
    draw = speaker.draw
    friends = draw.random() < 0.35
    woman = friends or draw.random() < 0.7
    name = speaker.name("women" if woman else "men")
    other, same = draw.randint(1, 9), sum(parts) if parts else draw.randint(1, 9)
    sames, others = ("sister", "brother") if woman else ("brother", "sister")
    she, her, hers = ("she", "her", "hers") if woman else ("he", "his", "his")
    shown: dict[str, str | int] = {"name": name, "she": she, "She": _capital(she), "her": her, "hers": hers}
    shown |= {"a": parts[0], "b": parts[1]} if parts else {}
    many = "as many {} as the number above says".format("female friends" if friends else f"{sames}s")
    if friends:
        other, same = max(other, 2), max(same, 2)
        mate = speaker.name("men")
        way = draw.choice(ways(speaker.one("friend_sums" if parts else "friends")))
        told = speaker.said_as(way, **shown, n=other, m=same)
        asked = speaker.says("friend_asks", **shown, mate=mate)
        has = _has(name, she, f"{other} male friends", many if parts else f"{same} female friends", way)
        rule = "They all are friends with each other and have no other friends aside."
        ask = f"How many female friends does {mate}, a male friend of {name}, have?"
        return [told, asked], Hop("siblings", f"{has} {rule} {ask}", str(same + 1), reads=parts is not None)
    n_others = f"{speaker.number(other)} {others}{'s' * (other > 1)}"
    m_sames = f"{speaker.number(same)} {sames}{'s' * (same > 1)}"
    way = draw.choice(ways(speaker.one("sibling_sums" if parts else "siblings")))
    told = speaker.said_as(
        way,
        **shown,
        n=other,
        n_others=n_others,
        m_sames=m_sames,
        sames=f"{sames}s",
        others=f"{others}s",
    )
    asked = speaker.says("sibling_asks", **shown, sames=f"{sames}s", others=f"{others}s", other=others)
    has = _has(name, she, f"{other} {others}s", many if parts else f"{same} {sames}s", way)
    ask = f"How many {sames}s does {name}'s {others} have?"
    return [_capital(told), asked], Hop("siblings", f"{has} {ask}", str(same + 1), reads=parts is not None)


def _has(name: str, she: str, others: str, sames: str, way: str) -> str:
    """Whom somebody has, in the order of the question, so that who writes it down has nothing to turn round."""
    places = [re.search(rf"{{({names})\b", way) for names in ("n|n_others", "m|m_sames|a|b")]
    turned = all(places) and places[0].start() > places[1].start()
    first, second = (sames, others) if turned else (others, sames)
    return f"{name} has {first} and {she} also has {second}."


def _siblings_sum(speaker: Speaker) -> tuple[list[str], tuple[Hop, ...]]:
    told, counted = _counted(speaker)
    (number,) = _addends(speaker.draw, 1)
    total = Hop("sums", f"Add {number} to the number above.", str(int(counted.reply) + number), reads=True)
    return [*told, speaker.says("add", n=number)], (counted, total)


def _sum_siblings(speaker: Speaker) -> tuple[list[str], tuple[Hop, ...]]:
    parts = speaker.draw.randint(2, 6), speaker.draw.randint(2, 6)
    told, counted = _counted(speaker, parts)
    return told, (*_sums(parts), counted)


def _both_siblings(speaker: Speaker) -> tuple[list[str], tuple[Hop, ...]]:
    (one, first), (other, second) = _counted(speaker), _counted(speaker)
    both = str(int(first.reply) + int(second.reply))
    last = Hop("sums", "Add the two numbers above.", both, reads=True)
    return [*one, *other, speaker.says("both")], (first, second, last)


def _words(speaker: Speaker, count: int) -> list[str]:
    return [speaker.name("nouns") for _ in range(count)]


def _then_words(
    speaker: Speaker, begin: Callable[[Speaker], tuple[list[str], tuple[Hop, ...]]], above: str
) -> tuple[list[str], tuple[Hop, ...]]:
    """Something first, then its answer at the end of a list that is reversed."""
    told, hops = begin(speaker)
    words = _words(speaker, 3)
    it = speaker.one("it_word" if "word" in above else "it_number")
    further = speaker.says("words_and", it=it, list=speaker.listed(words))
    subtask = f"Reverse this list of words: {', '.join(words)}, and at its end the {above}"
    reply = ", ".join([hops[-1].reply, *reversed(words)])
    return [*told, further, speaker.one("listed")], (*hops, Hop("words", subtask, reply, reads=True))


@dataclass(frozen=True)
class _Family:
    told: list[str]  # as people say it
    story: str  # as the worker knows it
    people: list[str]
    one: str
    other: str
    answer: str

    @classmethod
    def drawn(cls, speaker: Speaker) -> "_Family":
        """Parents and a child, perhaps with somebody the child married, and two of them."""
        draw = speaker.draw
        h, w = speaker.name("men"), speaker.name("women")
        girl, large = draw.random() < 0.3, draw.random() < 0.5
        c = speaker.name("women" if girl else "men")
        called = {"h": h, "w": w, "c": c, "son": "daughter" if girl else "son", "wife": "husband" if girl else "wife"}
        kin = {(h, w): "husband", (w, h): "wife", (h, c): "father", (w, c): "mother"}
        kin |= {(c, h): called["son"], (c, w): called["son"]}
        told = [speaker.says(part, **called) for part in ("married", "child")]
        story, people = f"{h} is married to {w}. They have a child called {c}.", [h, w, c]
        if large:
            people.append(s := speaker.name("men" if girl else "women"))
            told.append(speaker.says("spouse", **called, s=s))
            story += f" {c} is married to {s}."
            kin |= {(h, s): "father-in-law", (w, s): "mother-in-law"}
            kin |= {(c, s): "wife" if girl else "husband", (s, c): called["wife"]}
        (one, other), answer = draw.choice(list(kin.items()))
        return cls(told, story, people, one, other, answer)

    def asked(self, one: str, other: str, *, reads: bool = False) -> Hop:
        """What the one is to the other."""
        return Hop("relations", f"{self.story}\n\nWhat is {one} to {other}? {_MANNER}", self.answer, reads=reads)


def _one_relation(speaker: Speaker) -> tuple[list[str], tuple[Hop, ...]]:
    family = _Family.drawn(speaker)
    asked = speaker.says("related", a=family.one, b=family.other)
    return [*family.told, asked, speaker.one("manner")], (family.asked(family.one, family.other),)


def _words_relations(speaker: Speaker) -> tuple[list[str], tuple[Hop, ...]]:
    """Reverse a list of names, then say what its first is to its last."""
    family = _Family.drawn(speaker)
    between = [name for name in family.people if name not in (family.one, family.other)]
    speaker.draw.shuffle(between)
    names = [family.other, *between, family.one]
    turned = ", ".join(reversed(names))
    first = Hop("words", f"Reverse this list of words: {', '.join(names)}", turned)
    last = family.asked("the first name above", "the last name above", reads=True)
    one, other = speaker.one("ends").split("|")
    told = [*family.told, speaker.says("names", list=speaker.listed(names)), speaker.says("related", a=one, b=other)]
    return [*map(_capital, told), speaker.one("manner")], (first, last)


def _one_list(speaker: Speaker) -> tuple[list[str], tuple[Hop, ...]]:
    words = _words(speaker, speaker.draw.randint(3, 4))
    hop = Hop("words", f"Reverse this list of words: {', '.join(words)}", ", ".join(reversed(words)))
    return [speaker.says("words", list=speaker.listed(words)), speaker.one("listed")], (hop,)


def _one_count(speaker: Speaker) -> tuple[list[str], tuple[Hop, ...]]:
    told, hop = _counted(speaker)
    return told, (hop,)


def _sum_of(count: int) -> Callable[[Speaker], tuple[list[str], tuple[Hop, ...]]]:
    return functools.partial(_summed, count=count)


KINDS_IN_WORDS: dict[str, Callable[[Speaker], tuple[list[str], tuple[Hop, ...]]]] = {
    "siblings_sum": _siblings_sum,
    "relations_words": functools.partial(_then_words, begin=_one_relation, above="word above"),
    "sum_of_three": _sum_of(3),
    "words_relations": _words_relations,
    "siblings_sum_words": functools.partial(_then_words, begin=_siblings_sum, above="last number above"),
    "sum_siblings": _sum_siblings,
    "sum_of_four": _sum_of(4),
    "sum_words": functools.partial(_then_words, begin=_sum_of(2), above="number above"),
    "siblings_siblings_sum": _both_siblings,
    "words_relations_words": functools.partial(_then_words, begin=_words_relations, above="last word above"),
    "sums": _sum_of(2),
    "siblings": _one_count,
    "words": _one_list,
    "relations": _one_relation,
}
"""What says a question of a template, or of a kind alone."""


_DIGITS = {words_of(number): str(number) for number in range(200)}
_SPELLED = re.compile(rf"\b(?:{'|'.join(sorted(_DIGITS, key=len, reverse=True))})\b", re.IGNORECASE)
_LIST = re.compile(r"\b(\w+(?:, \w+)+(?:,? and \w+)?)\b")
_TURNED = re.compile(
    r"revers|opposite|backward|around|other way|last to the first|from its end|back to front", re.IGNORECASE
)
_KIN = re.compile(r"\b(?:married|husband|wife|son|daughter|parents)\b")


def planned_by_rules(question: str) -> tuple[Hop, ...]:
    """Hops as regular expressions read them off a question: what a plan without a model comes to; replies unknown.

    The expressions were written against the wordings of lessons.
    """
    text = _SPELLED.sub(lambda word: _DIGITS[word[0].lower()], question)
    turned = _TURNED.search(text)
    lists = [re.sub(r",? and ", ", ", found) for found in _LIST.findall(text)] if turned else []
    lists = [found for found in lists if not re.search(r"\d", found)]
    hops: list[Hop] = []
    if people := re.search(r"([A-Z]\w+)\b.*?\b(brothers?|sisters?|female)\b", text):
        told = re.split(r"(?<=\?) ", text[people.start() :])
        hops += [Hop("siblings", part, "") for part in told if re.search(r"brother|sister|female", part)]
        numbers = re.findall(r"\b\d+\b", told[-1]) if len(told) > 1 else []
        hops += [Hop("sums", f"Calculate {{0}} + {n}.", "", reads=True) for n in numbers]
        if len(hops) == 2 and not numbers and len(told) > 2:
            hops.append(Hop("sums", "Calculate {0} + {1}.", "", reads=True))
    elif _KIN.search(text):
        hops.append(Hop("relations", text.partition("?")[0] + "?", ""))
    elif len(numbers := re.findall(r"\b\d+\b", text)) > 1:
        hops.append(Hop("sums", f"Calculate {numbers[0]} + {numbers[1]}.", ""))
        hops += [Hop("sums", f"Calculate {{{k}}} + {n}.", "", reads=True) for k, n in enumerate(numbers[2:])]
    if lists:
        end = f", {{{len(hops) - 1}}}" if hops else ""
        hops.append(Hop("words", f"Reverse this list of words: {lists[-1]}{end}", "", reads=bool(hops)))
    return tuple(hops[:5]) or (Hop("sums", question, ""),)
