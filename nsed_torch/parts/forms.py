"""Forms in which an agent may read and write the works of rounds that are steps, so that it errs elsewhere than others.

Ours. Members of one backbone err alike, whatever they learned from: they miscount what repeats, and lose their place in
what has no names (lab/pages/steps.md). A form says the same in a way that goes wrong in another place; votes, memory
and records have the plain form.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from string import ascii_lowercase
from typing import NamedTuple

from nsed_torch.core.engine import Message
from nsed_torch.core.prompts import Prompts


class Form(NamedTuple):
    """A way to read and to write a text of the work."""

    shown: Callable[[str], str]  # what is read of a plain text
    written: Callable[[str], str]  # what is to be written for a plain text
    plain: Callable[[str], str | None]  # the plain text of what was written; None where it is not of the form


_REWRITTEN = "[AB]#|#[AB]"
"""A token of a rewriting."""


def _same(text: str) -> str:
    return text


def _turned(text: str) -> str:
    return " ".join(reversed(text.split()))


def _counted(text: str) -> str:
    def counted(run: re.Match[str]) -> str:
        one = run[1] or run[2]
        count = run[0].count(one)
        return one + (ascii_lowercase[count - 1] if count > 1 or run[3] else "")

    return re.sub(rf"(?:([0-9])\1{{0,25}}|({_REWRITTEN})(?: \2){{0,25}})(?=([a-z]?))", counted, text)


def _told(text: str) -> str:
    def told(run: re.Match[str]) -> str:
        count = ascii_lowercase.index(run[3]) + 1
        return run[1] * count if run[1] else " ".join([run[2]] * count)

    return re.sub(f"(?:([0-9])|({_REWRITTEN}))([a-z])", told, text)


def _placed(text: str) -> str:
    def placed(number: re.Match[str]) -> str:
        return "".join(f"{place}{digit}" for place, digit in zip(_places(len(number[0])), number[0], strict=True))

    return re.sub("[0-9]+", placed, text)


def _unplaced(text: str) -> str | None:
    if re.search("(?<![a-z])[0-9]", text):
        return None
    numbers = re.findall("(?:[a-z][0-9])+", text)
    if any(number[::2] != _places(len(number) // 2) for number in numbers):
        return None
    return re.sub("(?:[a-z][0-9])+", lambda number: number[0][1::2], text)


def _scanned(text: str) -> str:
    move = re.match("([a-z])[1-9] to |Answer: ", text)
    tower = re.findall("([a-z])([1-9])", text.partition(": ")[2].partition(" way ")[0])
    same = " ".join(disk + peg for disk, peg in tower if move and (not move[1] or disk < move[1]))
    return f"{same}; {text}" if same or "; " in text else text


def _unscanned(text: str) -> str:
    return text.partition("; ")[2] if "; " in text else text


def _places(count: int) -> str:
    return (ascii_lowercase * (count // len(ascii_lowercase) + 1))[:count]


FORMS: Mapping[str, Form] = {
    "plain": Form(_same, _same, _same),
    "backwards": Form(_turned, _same, _same),
    "counted": Form(_counted, _counted, _told),
    "placed": Form(_placed, _placed, _unplaced),
    "scanned": Form(_same, _scanned, _unscanned),
}
"""By name. "backwards": words are read from the last to the first, and written forwards. "counted": a digit that
repeats, or a token of a rewriting, stands once, with a letter for how often, 90007 as `90c7`, A# A# A# as `A#c`.
"placed": each digit stands behind a letter for its place, 90007 as `a9b0c0d0e7`. "scanned": before a move of a tower,
or the answer, stands where the smaller disks lie, one by one, `a3 b3; c1 to c2: ...`, so that the disk to be moved is
the first elsewhere; written, and not read."""


def form_named(name: str) -> Form:
    """A form by its name; another name is a ValueError.

    Examples:
        >>> counted, placed = form_named("counted"), form_named("placed")
        >>> counted.written("90007 + 15"), counted.plain("90c7 + 15")
        ('90c7 + 15', '90007 + 15')
        >>> placed.written("17 + 5"), placed.plain("a1c7 + a5")
        ('a1b7 + a5', None)
    """
    if name not in FORMS:
        raise ValueError(f"expected a form out of {', '.join(FORMS)}, got {name!r}: choose one of them")
    return FORMS[name]


def next_step(
    prompts: Prompts, question: str, work: Sequence[str], *, seed: int, form: str = "plain", persona: str = ""
) -> tuple[Message, ...]:
    """The chat that asks for the next step of some `work`, in a form, of who knows nothing else."""
    asked = prompts.work(question, [form_named(form).shown(text) for text in work], seed=seed)
    return prompts.propose(asked, memory=(), critiques=(), persona=persona, seed=seed)
