r"""Multiple choice: options in an order of their own, and the letter that an answer names."""

import itertools
import random
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nsed_torch.benchmarks.final_answer import boxes
from nsed_torch.data.canonical import canonical, unwrapped
from nsed_torch.records import Task, Verdict

LETTERS = string.ascii_uppercase

# The line after "answer is" or "Option:", also from within another such line.
_SAID = re.compile(
    r"\b(?:answer|option|choice)[*_\s]*(?:\bis\b|\b(?:would|will|must|should)\s+be\b|:)[*_:\s]*(?=([^\n]+))",
    re.IGNORECASE,
)
_LINE = re.compile(r"^[ \t>*_#$-]*([(\[]?[A-Z][)\].:]*)[ \t*_$]*$", re.MULTILINE)
_LABEL = re.compile(r"^[ \t>*_-]*[(\[]?([A-Z])[)\].:]", re.MULTILINE)
_LEAD = re.compile(r"^(?:the\s+)?(?:(?:right|correct)\s+)?(?:option|choice|letter)\s+", re.IGNORECASE)
_WORDING = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf)\{([^{}]*)\}")
_LONE = re.compile(r"[(\[]?\s*([A-Za-z])\s*[)\]]?[.:]?")
_SENTENCE_END = re.compile(r"[.;!?]\s")
# A letter in front of more words: marked off, or followed by a word that no article has behind it; "A or B" names none.
_FRONT = re.compile(
    r"[(\[]?([A-Z])"
    r"(?:[)\].:]+(?=\s|$)|(?=[,;]|\s*$)|(?=\s+(?:[-\u2013\u2014]\s|\())|(?=\s+is\s+(?:the\s+)?(?:right|correct|best|answer)\b)"
    r"|(?=\s+(?:because|since|as|which|where|that|with|from|in|for|by|and|but|not|if|when|given|due)\b))"
    r"(?!\s*(?:,|/|&|or\b|and\b)\s*[(\[]?[A-HJ-Z][)\]]?(?![\w'\u2019]))"
)


def shuffled(options: Sequence[str], right: int, seed: int, name: str) -> tuple[tuple[str, ...], str]:
    """Options in an order that depends on seed and task id alone.

    Args:
        options: as the data has them.
        right: index of the right one.
        seed: another seed, another order.
        name: the task's id.

    Returns:
        The options in their new order, and the letter of the right one.
    """
    order = list(range(len(options)))
    random.Random(f"{seed}\x1f{name}").shuffle(order)  # noqa: S311 - fairness, not secrecy
    return tuple(options[i] for i in order), LETTERS[order.index(right)]


def listed(options: Sequence[str]) -> str:
    """Options as agents see them, `A) ...` a line."""
    return "\n".join(f"{letter}) {option}" for letter, option in zip(LETTERS, options, strict=False))


def chosen_letter(text: str, options: Sequence[str]) -> str | None:
    r"""The option that a text names, as its letter.

    The first of these that there is, of several the last: what `\boxed{...}` holds; what follows "answer is" or
    "Option:"; a line that is a letter. Each may name a letter, `B`, `(B)`, `B) ...`, or be an option's full text. Then
    the text itself, if it begins with a letter that is no word (and is no list of options); then its last line, if it
    is an option's full text. The article in "A man" is no answer, and a letter beyond the options is none. Our reading
    of how models name options.

    Args:
        text: a model's.
        options: in the order in which they were listed, from A.

    Returns:
        A capital letter; None where the text names none or no single one.
    """
    whole = text.strip()
    stated = itertools.chain(boxes(text), reversed(_SAID.findall(text)), reversed(_LINE.findall(text)))
    letter = next((found for said in stated if (found := _named(said, options))), "")
    if not letter and len(set(_LABEL.findall(whole))) < 2:
        letter = _named(whole, options)
    letter = letter or _same(whole.rpartition("\n")[2], options)
    return letter if letter and letter in LETTERS[: len(options)] else None


def _named(said: str, options: Sequence[str]) -> str:
    """The letter that a statement names; "" for none, and a letter beyond the options where it is all that is said."""
    said = _LEAD.sub("", _bare(said))
    letters = LETTERS[: len(options)]
    lone, front = _LONE.fullmatch(said), _FRONT.match(said)
    if lone and lone[1].upper() in letters:
        return lone[1].upper()
    if same := _same(said, options) or _same(_SENTENCE_END.split(said, maxsplit=1)[0], options):
        return same
    if lone:
        return lone[1].upper()
    return front[1] if front and front[1] in letters else ""


def _same(said: str, options: Sequence[str]) -> str:
    """The letter of the only option whose full text this is."""
    text = canonical(_bare(said))
    found = [letter for letter, option in zip(LETTERS, options, strict=False) if canonical(option) == text]
    return found[0] if len(found) == 1 and text != "" else ""


def _bare(said: str) -> str:
    """Without marks of emphasis, LaTeX's words for text, math delimiters, quotes and a final period."""
    return unwrapped(_WORDING.sub(r"\1", said).replace("*", "").strip().strip("_").strip())


@dataclass(frozen=True)
class ChoiceGrader:
    """Right if the letter of the right option is named; the task's target is that letter.

    Args:
        options: id of the question -> its options, in the order in which they were listed.
    """

    options: Mapping[str, tuple[str, ...]]

    def extract(self, task: Task, text: str) -> str | None:
        """As `chosen_letter`."""
        return chosen_letter(text, self.options[task.id.partition("~")[0]])

    def classes(self, task: Task, answers: Sequence[str | None]) -> list[int]:
        """Equal letters are equal."""
        numbers: dict[str, int] = {}
        return [-1 if answer is None else numbers.setdefault(answer, len(numbers)) for answer in answers]

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """Compare each letter with its task's target.

        Raises:
            ValueError: if a task has no target.
        """
        if missing := [task.id for task, _ in pairs if task.target is None]:
            raise ValueError(f"expected the letter of the right option as target of {missing[0]!r}, got none")
        return [Verdict.RIGHT if answer == task.target else Verdict.WRONG for task, answer in pairs]

    def identity(self) -> dict[str, Any]:
        """The rule."""
        return {"rule": "letter of an option"}
