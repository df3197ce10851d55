r"""The final answer in a model's text, and whether it is right."""

import itertools
import re
from collections.abc import Iterator

from nsed_torch.data.equality import Equality

_BRACES = re.compile(r"\\boxed\s*\{|\\?[{}]")
_SAID = re.compile(r"\banswer[*_\s]*(?:\bis\b|:)[*_:\s]*([^\n]+)", re.IGNORECASE)
_HASHED = re.compile(r"####[^\S\n]*([^\n]+)")
_SENTENCE_END = re.compile(r"[.;!?]\s")
_NUMBER = re.compile(
    r"(?<![\w.])(?:(?<![\w)\]}])[-+\u2212])?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:/[0-9]+)?"
)


def final_answer(text: str) -> str | None:
    r"""The answer that a text ends with.

    The first of these that there is, of several the last: what `\boxed{...}` holds, braces balanced; the sentence after
    "Answer:" or "answer is", on the same line or the next; the line after `####`; a number. Our reading of how
    benchmarks have models say it.

    Args:
        text: a model's.

    Returns:
        The answer as it is written, for `Equality` to compare; None where there is none.
    """
    return marked_answer(text) or next(reversed(_NUMBER.findall(text)), None)


def marked_answer(text: str) -> str | None:
    """The answer that a text marks as such: `final_answer` without the numbers."""
    said = (_SENTENCE_END.split(found, maxsplit=1)[0] for found in reversed(_SAID.findall(text)))
    candidates = itertools.chain(boxes(text), said, reversed(_HASHED.findall(text)))
    return next((answer for candidate in candidates if (answer := _bare(candidate))), None)


def last_line(text: str) -> str | None:
    """The last line that says anything, without marks of emphasis and a final period."""
    return next((answer for line in reversed(text.splitlines()) if (answer := _bare(line))), None)


def grade(answer: str | None, gold: str | None, equality: Equality) -> bool:
    """Whether an answer equals the gold answer; no answer is never right.

    Args:
        answer: from `final_answer`.
        gold: the task's target.
        equality: when answers are the same.

    Raises:
        ValueError: if there is no gold answer.
    """
    if gold is None:
        raise ValueError("expected a gold answer to grade by, got none: give the task a target")
    return answer is not None and equality.equal(answer, gold)


def boxes(text: str) -> Iterator[str]:
    r"""What every closed `\boxed{...}` holds, in one pass; the one that opens last comes first."""
    opened: list[int] = []  # where boxes begin; -1 for a brace of their own
    closed: list[tuple[int, int]] = []
    for mark in _BRACES.finditer(text):
        if mark[0] == "}":
            start = opened.pop() if opened else -1
            if start >= 0:
                closed.append((start, mark.start()))
        elif mark[0] not in (r"\{", r"\}"):
            opened.append(-1 if mark[0] == "{" else mark.end())
    for start, end in sorted(closed, reverse=True):
        yield text[start:end]


def _bare(answer: str) -> str:
    """Without blanks, marks of emphasis and a final period around it."""
    return answer.strip().strip("*_").strip().removesuffix(".").strip("*_ ")
