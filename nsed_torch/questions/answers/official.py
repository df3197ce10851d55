r"""How a benchmark itself reads and grades answers, for numbers that are to be compared with published ones.

Such rules are narrower than ours: they take the first of several letters, and find nothing without their own marks.
Each is read from the text as it stands, thoughts and run-on questions included.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from nsed_torch.records.extras import offered
from nsed_torch.records.transcript import Task


class Official(NamedTuple):
    """A benchmark's rule."""

    read: Callable[[Task, str], str | None]  # the answer that a text gives
    right: Callable[[str, Task], bool]  # whether an answer is right; the task has a target


_SAID = re.compile(r"answer is \(?([A-J])\)?")
_HEADED, _LETTER = re.compile(r"[aA]nswer:\s*([A-J])"), re.compile(r"\b[A-J]\b")
_CLOSED = re.compile(r"\s?</answer>")


def _first_letter(_: Task, text: str) -> str | None:
    """MMLU-Pro as it was graded at first: the letter behind the first "answer is", and nothing else."""
    found = _SAID.search(text)
    return found[1] if found else None


def _mmlu_pro(task: Task, text: str) -> str | None:
    """MMLU-Pro: the first "answer is", else the last "Answer:" of the first line with one, else the last letter.

    Where the benchmark draws a letter at random, this reads none.
    """
    if said := _first_letter(task, text):
        return said
    if headed := list(_HEADED.finditer(text)):
        line = text.find("\n", headed[0].start())
        return next(found[1] for found in reversed(headed) if line < 0 or found.start() < line)
    letters = _LETTER.findall(text)
    return letters[-1] if letters else None


def _tagged(_: Task, text: str) -> str | None:
    """reasoning-gym: what the last closed pair of tags holds."""
    pieces = _CLOSED.split(text)
    for piece in reversed(pieces[:-1]):
        if "<answer>" in piece:
            return piece.partition("<answer>")[2].strip() or None
    return None


def _same_text(answer: str, task: Task) -> bool:
    """The same text; a family's own scorer, which knows other solutions, belongs to tasks that are generated."""
    return answer.strip() == str(task.target).strip()


def _same_letter(answer: str, task: Task) -> bool:
    return answer == str(task.target).strip("(). ")


OFFICIAL: Mapping[str, Official] = {
    "mmlu_pro": Official(_mmlu_pro, _same_letter),
    "mmlu_pro_first": Official(_first_letter, _same_letter),
    "reasoning_gym": Official(_tagged, _same_text),
}

GROUP = "nsed_torch.readings"
"""The entry points by which an installed package adds rules, each a mapping from names to rules."""


@functools.cache
def known_readings() -> Mapping[str, Official]:
    """Ours, then those of installed packages."""
    return offered(GROUP, OFFICIAL)
