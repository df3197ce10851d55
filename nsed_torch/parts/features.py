"""Proposals in numbers, for `parts.reading.Reading`: how a text is written, what it answers, which option that is."""

import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.core.inputs import sentences

LETTERS = "ABCDEFGHIJ"

Embed = Callable[[Sequence[str]], Float[Tensor, "text dim"]]
"""From texts to unit vectors, such as an encoder's `embed`."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "text": (
        *("stated", "changed", "clean_end", "length", "ending", "equations", "digits", "number_end"),
        *("hedges", "letters", "compression"),
    ),
    "support": (
        *("own_words", "own_words_end", "own_quote", "own_quote_end", "own_number"),
        *("others_words", "others_quote", "others_number"),
    ),
    "answer": (
        *("silent_same", "silent_holds", "others_hold", "whole_length"),
        *("answer_length", "answer_number", "answer_asked", "answer_lines", "answer_alone"),
    ),
    "letter": tuple(f"letter_{letter}" for letter in LETTERS),
    "option": ("option_number", "option_middle", "option_largest", "option_smallest", "option_length"),
    "meaning": ("near_question", "near_options"),
}
"""Names of features by group.

text: whether the answer is stated in words ("the answer is ..."), more than one, at the end; log lengths of the text
before that and of its last sentence; log count of equations, share of digits, a number in the last sentence; log counts
of hedging words and of different letters named; how well it compresses (repetition).
support: share of its own option's distinctive words in the text and in its last sentences, whether these quote the
option, whether the last number is the option's; the means of the same over the others' texts.
answer: for answers of any form, white space and marks aside: whether a text that comes to no answer is this one, or
holds it; whether one that comes to another holds it; log length of the whole text, however much of it was kept; log
length of the answer, whether it is a number, stands in the question, log count of its line breaks, whether the text
says nothing else.
letter: which option it is. option: what kind: a number, how near the middle of the numbers on offer, the largest, the
smallest; log length against the mean option. meaning: cosine of the option's embedding with the question's, against the
mean option; and with the mean of the other options. The last three groups read the test's construction rather than the
text.
"""

_OPTION = re.compile(r"^\(?([A-J])[.)][ \t]*(.*?)\s*$", re.MULTILINE)
_INLINE = re.compile(r"(?:^|[\s:,;.])\(?([A-J])\)[ \t]*(.*?)(?=[,;]?\s+\(?[A-J]\)|\s*$)", re.DOTALL)
_STATED = re.compile(r"answer\s*(?:is|would be|must be)?:?\s*\(?\**([A-J])\b", re.IGNORECASE)
_NAMED = re.compile(r"\(([A-J])\)|\b[Oo]ption ([A-J])\b|\b[Aa]nswer:? ([A-J])\b")
_HEDGE = re.compile(
    r"\b(?:however|closest|approximately|cannot|assum\w+|likely|may|might|could|unclear"
    r"|not (?:given|enough|sufficient))\b",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(r"(?:\b(?:so|therefore|thus|hence|since)\b,?\s*)?\bthe(?: \w+)?\s*$")
_WORD = re.compile(r"[a-z]{2,}|\d+(?:\.\d+)?")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MARKS = re.compile(r"[\s\"'`*$]+")
_COMMON = frozenset(  # words that tell no option from another
    {"the", "an", "of", "to", "in", "is", "and", "or", "that", "for", "by", "with", "as", "on", "it", "be", "are"}
    | {"this", "at", "from", "which", "was", "not", "has", "have"}
)
_LONGEST = 6000
"""Characters of a text that are read, so that no text makes this slow."""


class Passage(NamedTuple):
    """What is read of an option, whose words are those that not all options share, or of a proposal."""

    text: str
    words: frozenset[str]
    number: float | None
    end: str = ""  # the last sentences of a proposal


def options(question: str) -> dict[str, Passage]:
    """The options listed in a question, by letter. Empty where there are none.

    They are lines such as "A. ..." or "(B) ...", or stand in one line: "A) ..., B) ...".
    """
    found = _OPTION.findall(question[-4 * _LONGEST :])
    if len(found) < 2:
        found = _INLINE.findall(question[-4 * _LONGEST :])
        if [letter for letter, _ in found] != list(LETTERS[: len(found)]):
            return {}
    texts = {letter: " ".join(text.lower().split()) for letter, text in found}
    if len(texts) < 2:
        return {}
    words = {letter: _words(text) for letter, text in texts.items()}
    shared = frozenset.intersection(*words.values())
    return {letter: Passage(text, words[letter] - shared, _number(text)) for letter, text in texts.items()}


def proposal_features(
    question: str,
    texts: Sequence[str],
    answers: Sequence[str | None],
    groups: Sequence[str],
    embed: Embed | None = None,
    lengths: Sequence[float] | None = None,
) -> list[list[float]]:
    r"""Features of the proposals to one question, one row per proposal; NaN for what is not known, or an empty text.

    `texts` are proposals, `answers` what each comes to, None for none, `groups` out of `GROUPS`. The group "meaning"
    needs `embed`, unit vectors of texts, which is given all `meaningful` texts at once. `lengths` are those of whole
    texts in characters, where what was kept is a part.

    Examples:
        >>> question = "How many legs has a spider?\nA. 6\nB. 8"
        >>> rows = proposal_features(question, ["Eight, 8. The answer is (B).", ""], ["B", None], ["text"])
        >>> rows[0][:3], math.isnan(rows[1][0])
        ([1.0, 0.0, 1.0], True)
    """
    feature_names(groups)
    if "meaning" in groups and embed is None:
        raise ValueError("features: expected an encoder for the group meaning, got none: pass embed")
    known, letters = options(question), letters_of(answers)
    meaning = _meaning(question, known, embed) if embed and "meaning" in groups else {}
    read = [_read(text) for text in texts]
    answered = _of_answers(question, texts, answers, lengths) if "answer" in groups else []
    makers: dict[str, Callable[[int], list[float]]] = {
        "text": lambda i: _of_text(texts[i], read[i], letters[i]),
        "support": lambda i: _of_support(i, read, known.get(letters[i] or "")),
        "answer": lambda i: answered[i],
        "letter": lambda i: [float(letters[i] == letter) for letter in LETTERS] if letters[i] else [],
        "option": lambda i: _of_option(known, letters[i]),
        "meaning": lambda i: meaning.get(letters[i] or "", []),
    }
    rows = []
    for i, text in enumerate(texts):
        # A maker has nothing to say where the option is not known.
        made = [(makers[group](i) if text else []) or [math.nan] * len(GROUPS[group]) for group in groups]
        rows.append([value for part in made for value in part])
    return rows


def meaningful(question: str) -> list[str]:
    """What the group "meaning" embeds: the question before its options, then the options. Empty without options."""
    first = _OPTION.search(question[-4 * _LONGEST :])
    known = options(question)
    if not known or first is None:
        return []
    stem = question[-4 * _LONGEST :][: first.start()].strip()
    return [stem[-_LONGEST:], *(option.text[:_LONGEST] for option in known.values())]


def feature_names(groups: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns that `proposal_features` returns for some groups; an unknown group is a ValueError."""
    if unknown := [group for group in groups if group not in GROUPS]:
        raise ValueError(f"features: expected groups out of {', '.join(GROUPS)}, got {', '.join(unknown)}")
    return tuple(name for group in groups for name in GROUPS[group])


def groups_of(names: Sequence[str]) -> tuple[str, ...]:
    """The groups whose features these names are, in the order of the names; part of a group is a ValueError."""
    groups = tuple(dict.fromkeys(group for name in names for group, members in GROUPS.items() if name in members))
    if feature_names(groups) != tuple(names):
        raise ValueError(f"features: expected those of whole groups out of {', '.join(GROUPS)}, got {list(names)}")
    return groups


def letters_of(answers: Sequence[str | None]) -> list[str | None]:
    """Which answers are letters of options; None for any other."""
    return [answer.strip() if answer is not None and answer.strip() in list(LETTERS) else None for answer in answers]


def _read(text: str) -> Passage:
    """The text up to where it first states an answer, for what it says there it says of any answer."""
    stated = _STATED.search(text[:_LONGEST])
    body = _LEAD_IN.sub("", text[: stated.start() if stated else _LONGEST].lower())
    end = " ".join(sentences(body)[-2:])
    return Passage(" ".join(body.split()), _words(body), _number(end, last=True), end)


def _of_text(text: str, read: Passage, letter: str | None) -> list[float]:
    text = text[:_LONGEST]
    stated = list(_STATED.finditer(text))
    named = {next(filter(None, groups)) for groups in _NAMED.findall(text)}
    body = read.text
    data = body[:2000].encode()
    last = "".join(sentences(read.end)[-1:])
    return [
        float(any(found[1].upper() == letter for found in stated)),
        float(len({found[1].upper() for found in stated}) > 1),
        float(bool(stated) and len(text) - stated[-1].end() < 5),
        math.log(20 + len(body)),
        math.log1p(len(last)),
        math.log1p(body.count("=")),
        sum(map(str.isdigit, body)) / (20 + len(body)),
        float(bool(_NUMBER.search(last))),
        math.log1p(len(_HEDGE.findall(body))),
        math.log1p(len(named)),
        len(zlib.compress(data, 1)) / (40 + len(data)),
    ]


def _of_support(i: int, read: Sequence[Passage], option: Passage | None) -> list[float]:
    if option is None:
        return []
    own = read[i]
    others = [_for_option(other, option) for j, other in enumerate(read) if j != i and other.text]
    means = [sum(column) / len(others) for column in zip(*others, strict=True)] if others else [0.0] * 3
    words, quote, number = _for_option(own, option)
    quoted_end = float(len(option.text) > 2 and option.text in own.end)
    return [words, _share(option.words, _words(own.end)), quote, quoted_end, number, *means]


def _of_answers(
    question: str, texts: Sequence[str], answers: Sequence[str | None], lengths: Sequence[float] | None
) -> list[list[float]]:
    """The group "answer" of every proposal; empty where it comes to none."""
    asked, told = _bare(question[-4 * _LONGEST :]), [_bare(text[-_LONGEST:]) for text in texts]
    came = [_bare(answer or "") for answer in answers]
    rows: list[list[float]] = []
    for i, (text, answer, own) in enumerate(zip(texts, answers, came, strict=True)):
        if answer is None or not own:
            rows.append([])
            continue
        silent = [told[j] for j, other in enumerate(came) if not other]
        others = [told[j] for j, other in enumerate(came) if other and other != own]
        whole = len(text) if lengths is None else lengths[i]
        rows.append(
            [
                float(own in silent),
                float(any(own in other for other in silent)),
                float(len(own) > 2 and any(own in other for other in others)),
                math.log(20 + whole),
                math.log1p(len(own)),
                float(bool(_NUMBER.fullmatch(answer.strip()))),
                float(len(own) > 3 and own in asked),
                math.log1p(answer.strip().count("\n")),
                float(whole <= len(answer) + 40),
            ]
        )
    return rows


def _bare(text: str) -> str:
    return _MARKS.sub("", text.lower())


def _for_option(read: Passage, option: Passage) -> tuple[float, float, float]:
    """Share of the option's words in a text, whether it quotes the option, whether it ends with the option's number."""
    close = read.number is not None and option.number is not None and _close(read.number, option.number)
    return _share(option.words, read.words), float(len(option.text) > 2 and option.text in read.text), float(close)


def _of_option(known: Mapping[str, Passage], letter: str | None) -> list[float]:
    option = known.get(letter or "")
    if option is None:
        return []
    length = math.log(3 + len(option.text)) - sum(math.log(3 + len(o.text)) for o in known.values()) / len(known)
    numbers = sorted(o.number for o in known.values() if o.number is not None and len(o.text) < 40)
    if option.number is None or len(numbers) < 3:
        return [float(option.number is not None), 0.0, 0.0, 0.0, length]
    below, equal = sum(n < option.number for n in numbers), numbers.count(option.number)
    place = (below + (equal - 1) / 2) / (len(numbers) - 1)
    largest, smallest = float(option.number == numbers[-1]), float(option.number == numbers[0])
    return [1.0, 1 - 2 * abs(place - 0.5), largest, smallest, length]


def _meaning(question: str, known: Mapping[str, Passage], embed: Embed) -> dict[str, list[float]]:
    """Features of every option, by letter."""
    texts = meaningful(question)
    if not texts:
        return {}
    stem, *rows = embed(texts).double()
    table = torch.stack(rows)
    near = table @ stem
    others = (table.sum(0) - table) / (len(table) - 1)
    typical = torch.nn.functional.cosine_similarity(table, others, dim=-1)
    return dict(zip(known, torch.stack([near - near.mean(), typical], -1).tolist(), strict=True))


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text)) - _COMMON


def _share(words: frozenset[str], among: frozenset[str]) -> float:
    return len(words & among) / len(words) if words else 0.0


def _number(text: str, *, last: bool = False) -> float | None:
    found = _NUMBER.findall(text)
    if not found:
        return None
    value = float(found[-1 if last else 0].replace(",", ""))
    return value if math.isfinite(value) else None


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=0.01, abs_tol=1e-12)
