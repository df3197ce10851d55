r"""Kinds of answers: what a task asks for, and how an answer of each kind is read out of a text."""

import itertools
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

from nsed_torch.questions.answers.evidence import (
    Evidence,
    bare,
    evidence,
    first_sentence,
    last_line,
    own_turn,
    readable,
    refuses,
)
from nsed_torch.questions.answers.letters import chosen_letter, options_in
from nsed_torch.traces.canonical import canonical, unit

Kind = Literal["number", "formula", "letter", "text", "list"]
KINDS: tuple[Kind, ...] = get_args(Kind)

LONGEST_LINE = 15
"""Words of a last line that is an answer where none is marked; a longer one is prose."""

_OPTION = re.compile(r"(?<![A-Za-z])[([]?([A-Ja-j])[).:\]](?=\s)")
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_NUMBER = re.compile(rf"(?<![\w.])(?:(?<![\w)\]}}])[-+\u2212])?{_DIGITS}(?:/[0-9]+|[eE][-+]?[0-9]{{1,3}}(?!\w))?")
_IN_PHRASE = re.compile(
    rf"(?<![\w\\^{{(/*.])(?:(?<![0-9)])[-+\u2212]\s?)?(?:\\?\$|\u20ac|\xa3)?(?:[0-9]+\s+[0-9]+/[0-9]+|{_DIGITS}(?:/[0-9]+|[eE][-+]?[0-9]{{1,3}})?)"
    r"(?:\\?%|\s?(?:thousand|million|billion|trillion)\b)?(?![\\^_*/(=]|[.,]?[0-9]|[a-zA-Z](?![a-zA-Z]))"
)
_MATH = re.compile(r"\$\$?([^$\n]{1,200})\$\$?|\\\((.{1,200}?)\\\)|\\\[(.{1,200}?)\\\]", re.DOTALL)
_FORMULA = re.compile(
    r"\\[a-zA-Z]|[\^=<>\u2264\u2265\u221a\u221e\u03c0\xb1|{}]|[0-9a-z)]\s*[-+*/]\s*[0-9a-z(]|[0-9][a-z]\b|^[-+]?[a-z]$|^[(\[].*,.*[)\]]$"
)
_PROSE = re.compile(
    r"(?<![\\a-zA-Z])(?!(?:sqrt|sin|cos|tan|log|ln|exp|pi|or|and|in)\b)[a-zA-Z\xe0-\u02ff]{3,}|[\u0400-\uffdc]"
)
# Spaces are looked at from the first of a run alone, or a long one would be tried from each of its places.
_ASIDE = re.compile(
    r"(?:(?<!\s)\s+)?(?:\([^()]*\)|,\s*(?:not|which|because|since|where|who|according|rather)\b.*|,\s*(?:the|an?|as|so)\s[^,]*"
    r"|\s(?:because|since)\b.*|\s[\u2013\u2014-]\s.*)\s*$",
    re.IGNORECASE | re.DOTALL,
)
_COPULA = re.compile(r"(?:.*\b(?:is|are|was|were|equals|called|named)\b|^[^\W\d_][^:=0-9]{0,80}:)\s+(\S.*)", re.DOTALL)
_SEPARATOR = re.compile(r"(?:(?<!\s)\s+)?(?:,|;|\s(?:and|then|or)\s|->|\u2192|>|\n)\s*(?:and\s+|then\s+)?")


class Extracted(NamedTuple):
    """The final answer of a text, and what it was read from."""

    answer: str | None  # None where no answer could be read, which is another thing than a wrong one
    mark: str = ""  # as in `Evidence`, or "choice", "line", "whole text", "last number", "formula", "last line"


def guessed(target: str, question: str = "") -> Kind:
    r"""The kind of answers that a target calls for.

    Examples:
        >>> [guessed(target) for target in ("42", r"\frac{\\pi}{2}", "star, moon, sun", "Paris")]
        ['number', 'formula', 'list', 'text']
        >>> guessed("B", "Which one? A) left B) right")
        'letter'
    """
    said = target.strip()
    if re.fullmatch(r"\(?[A-Z]\)?\.?", said) and (options_in(question) or _OPTION.search(question)):
        return "letter"
    if isinstance(canonical(said), Fraction):
        return "number"
    prose = _PROSE.search(re.sub(r"\\[a-zA-Z]+(?:\{[^{}]*\})?", " ", said))
    if _FORMULA.search(said) and not prose:
        return "formula"
    parts = _SEPARATOR.split(said.strip("[](){}"))
    if len(parts) > 1 and ("," in said or ";" in said or "\n" in said) and all(0 < len(p.split()) <= 4 for p in parts):
        return "list"
    return "text"


def read(text: str, kind: Kind | None = None, options: Sequence[str] = ()) -> Extracted:
    r"""The final answer that a text gives, and by which evidence.

    Thoughts, and what follows behind the beginning of another question, are no part of it. First come the passages
    that mark an answer (`evidence`). Where there is none, a number is the last of the text, a formula its last
    mathematics, and words are a last line that is short. A refusal is no answer.

    Args:
        text: as the model wrote it.
        kind: what is asked for; None reads marks and numbers.
        options: what the letters A, B, ... stand for; without any, of a letter, A to J are options.
    """
    whole = readable(text)
    if kind == "letter":
        return Extracted(*chosen_letter(whole, options or ("",) * 10))
    said = list(itertools.islice(evidence(whole), 50))
    if kind in {"number", None}:
        return _number(whole, said)
    if kind == "formula":
        return _formula(whole, said)
    for found in said:
        if answer := _worded(found, kind):
            return Extracted(answer, found.mark)
    return _line(own_turn(whole), kind)


def _number(text: str, said: Sequence[Evidence]) -> Extracted:
    for found in said:
        if answer := number_in(found.answer):
            return Extracted(answer, found.mark)
    # What is marked and holds no number is what the text answers.
    if said and len(said[0].answer) <= 80:
        return Extracted(said[0].answer, said[0].mark)
    if re.fullmatch(r"[-+$\u20ac\u00a3]?\s*[0-9.,]+[^=]{0,20}", whole := bare(own_turn(text))) and unit(whole):
        return Extracted(whole, "whole text")  # with its unit
    numbers = _NUMBER.findall(own_turn(text))
    return Extracted(numbers[-1], "last number") if numbers else Extracted(None)


def number_in(phrase: str) -> str | None:
    """The number that a passage gives: all of it, else what its last equation comes to, else the first it names."""
    if isinstance(canonical(phrase), Fraction):
        return phrase
    phrase = re.sub(r"\*\*|__|`", "", phrase)
    short = _ASIDE.sub("", phrase)
    ends = re.split(r"(?<![<>!])=|\u2248|\\approx|\bequals\b", short)
    for piece in (
        short,
        ends[-1],
        re.sub(
            r"^(?:about|approximately|around|roughly|exactly|only|just|simply|now|clearly|~)\s*",
            "",
            short,
            flags=re.IGNORECASE,
        ),
    ):
        if piece.strip() and isinstance(canonical(bare(piece)), Fraction):
            return bare(piece)
    if not _PROSE.search(re.sub(r"\\[a-zA-Z]+", " ", short)) or re.search(r"\bbetween\b", short):
        return None
    found = _IN_PHRASE.search(re.sub(r"\bnot\s+[-0-9.,/]+", "", ends[-1] if _IN_PHRASE.search(ends[-1]) else short))
    return found[0].strip() if found else None


def _formula(text: str, said: Sequence[Evidence]) -> Extracted:
    boxed = [found.answer for found in said if found.mark == "box"]
    for found in said:
        whole = found.answer
        if found.mark == "sentence" and len(maths := _maths(whole)) == 1:
            whole = maths[0]
        if found.mark == "box" and (several := _several(text, boxed)):
            whole = several
        if len(whole) <= 400:
            return Extracted(whole, found.mark)
    text = own_turn(text)
    if maths := _maths(text):
        return Extracted(maths[-1].strip(), "formula")
    line = last_line(text) or ""
    if line and _FORMULA.search(line) and not _PROSE.search(re.sub(r"\\[a-zA-Z]+", " ", line)):
        return Extracted(line, "last line")
    numbers = _NUMBER.findall(text)
    return Extracted(numbers[-1], "last number") if numbers else Extracted(None)


def _maths(text: str) -> list[str]:
    """What stands between marks of mathematics."""
    return [held for found in _MATH.findall(text) if (held := next(filter(None, found), ""))]


def _several(text: str, boxed: Sequence[str]) -> str:
    """The last boxes as one list where nothing but a comma or a word stands between them; "" for one alone."""
    joined = [boxed[0]] if boxed else []
    for one in boxed[1:]:
        between = (
            rf"\{{{re.escape(one)}\}}\s*\$?\s*(?:,|and|or|,\s*(?:and|or))\s*\$?\s*\\boxed\s*\{{{re.escape(joined[0])}"
        )
        if not re.search(between, text):
            break
        joined.insert(0, one)
    return ", ".join(joined) if len(joined) > 1 else ""


def _worded(found: Evidence, kind: Kind) -> str:
    """Words that a passage gives, without what explains them."""
    if found.mark not in {"sentence", "heading"}:
        return found.answer
    answer = _without_aside(found.answer, kind)
    return bare(answer.strip().rstrip(":")) or found.answer


def _without_aside(answer: str, kind: Kind) -> str:
    """Words without what explains them; a list keeps all of its parts."""
    parts = answer.split(",")
    listed = kind == "list" or (len(parts) > 2 and all(len(part.split()) <= 2 for part in parts))
    return answer if listed else _ASIDE.sub("", answer)


def _line(text: str, kind: Kind) -> Extracted:
    """The last line, where it is short enough to be an answer, or what its sentence says that something is."""
    line = last_line(text)
    if line is None or refuses(line) or refuses(text.strip()):
        return Extracted(None)
    sentence = first_sentence(line)
    copula = _COPULA.fullmatch(sentence) if len(sentence) < 400 else None
    if copula and refuses(copula[1]):
        return Extracted(None)
    if copula and not re.match(r"(?:not|n't)\b", copula[1]):
        return Extracted(bare(_without_aside(copula[1], kind)) or line, "last line")
    return (
        Extracted(line, "last line")
        if len(re.findall(r"[^\W\d]{2,}", line)) <= LONGEST_LINE or kind == "list"
        else Extracted(None)
    )
