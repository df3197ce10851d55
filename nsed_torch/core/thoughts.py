"""Thoughts that a model writes before its answer: nobody else reads them, and nobody grades them."""

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

MARKS = (
    ("<think>", "</think>"),  # DeepSeek R1, Qwen3, SmolLM3, GLM and most others
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),  # Magistral
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),  # Kimi
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
)
"""What opens and what closes thoughts, for the families that are known."""


class Parted(NamedTuple):
    """A model's text in two: what it thought, and what it says."""

    thoughts: str
    answer: str  # "" where the thoughts never ended


def part_thoughts(text: str, marks: Sequence[str] | None = None, *, opened: bool = False) -> Parted:
    """Part a model's thoughts from its answer.

    Every stretch between two marks is a thought. So is all that stands before a closing mark that nothing opens, for
    some chat templates open the thoughts themselves. So is all that stands behind an opening mark that nothing closes.
    The answer is what stands behind the last thought, or, where nothing does, what stands before and between.

    Args:
        text: as the model wrote it.
        marks: what opens and what closes thoughts; None for those of the known families, in any case of letters. An
            empty first one says that the prompt opens them.
        opened: whether the prompt ended in an opening mark, so that a text without a closing one is all thought.

    Returns:
        Both parts without blanks around them; a text without marks is all answer.

    Examples:
        >>> part_thoughts("<think>17 is odd.</think> It is 17.")
        Parted(thoughts='17 is odd.', answer='It is 17.')
        >>> part_thoughts("17 is odd.</think>It is 17.").answer
        'It is 17.'
        >>> part_thoughts("<think>Let me try 12").answer
        ''
    """
    thoughts: list[str] = []
    earlier: list[str] = []  # what was said before the last thought
    said: list[str] = []
    start, inside = 0, opened or bool(marks and not marks[0])
    for mark in _pattern(tuple(marks or ())).finditer(text):
        part, start = text[start : mark.start()], mark.end()
        if mark.lastgroup == "opening":
            (thoughts if inside else said).append(part)
        elif inside:
            thoughts, earlier, said = [*thoughts, part], [*earlier, *said], []
        else:
            thoughts, earlier, said = [*thoughts, *earlier, *said, part], [], []
        inside = mark.lastgroup == "opening"
    (thoughts if inside else said).append(text[start:])
    return Parted(_joined(thoughts), _joined(said) or _joined(earlier))


def unanswered(parted: Parted, allowed: int, *, cut: bool) -> tuple[str, ...]:
    """What to note of a text that is all thought, `cut` off at its allowance of tokens or ended by the model."""
    if not parted.thoughts or parted.answer:
        return ()
    spent = f"took the whole allowance of {allowed} tokens: raise max_new_tokens"
    return (f"thinking {spent if cut else 'was all that the model wrote'}",)


@cache
def _pattern(marks: tuple[str, ...]) -> re.Pattern[str]:
    pairs = (marks,) if marks else MARKS
    opening, closing = ("|".join(re.escape(pair[side]) or "(?!)" for pair in pairs) for side in (0, 1))
    return re.compile(f"(?P<closing>{closing})|(?P<opening>{opening})", 0 if marks else re.IGNORECASE)


def _joined(parts: Sequence[str]) -> str:
    return "\n".join(part.strip() for part in parts if part.strip())
