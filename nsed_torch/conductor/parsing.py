r"""From a Conductor's text to a workflow: strict for training, repairing for answering.

A text holds reasoning, then three Python lists of equal length, here with every access entry there is:

    model_id = [0, 2, 1, 0]
    subtasks = ["Solve it.", "Solve it another way.", "Compare both.", "Write the answer."]
    access_list = [[], [], [0, 1], "all"]

**Labels.** `model_id`, `subtasks` and `access_list`, in this order and with no other list of these names between them.
In any case, singular or plural, with a blank, a hyphen or nothing for the underscore; `*`, a backquote or a quote
may stand directly behind a label, as in bold type and JSON. Then `=` or `:`, then the bracket.

**Which lists.** The last three complete ones behind the last closing think tag. A list is complete where its brackets
close. Brackets, labels, tags and `#` inside strings are text, and comments are left out. As in Python a string ends on
its line, unless its quotes are threefold; outside of strings there is nothing but words, numbers, commas and brackets.
Smart quotes are quotes where a string may begin and text anywhere else. Code fences around lists make no difference.

**Access.** `"all"` (any case), `["all"]`, `[]`, or a list of numbers of steps before, from 0.

Values are read by `ast.literal_eval`: nothing is evaluated. Time is linear in the text. Published: the lists, "all", []
and indices. What independent re-implementations do: case, `=` or `:`, brackets, smart quotes, think tags. Our
decisions: reasons, repairs, variants of labels.
"""

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from nsed_torch.conductor.workflow import Reason, Workflow, WorkflowError, WorkflowStep, check, step_fault

MAX_CHARS = 100_000  # the longest text that is read, reasoning included

_LABELS = ("model_id", "subtasks", "access_list")
_EVENT = re.compile(
    r"(?<!\w)(?:(model[_ -]?ids?)|(sub[_ -]?tasks?)|(access[_ -]?lists?))[\"'`*]{0,3}\s*[=:]\s*(?=\[)"
    r"|</(?:think|thinking|thought|reasoning)>",
    re.IGNORECASE,
)
_ESCAPE = re.compile(r"(\\[\s\S])|\"")
# What may open, end or break a list. Inside a word U+2019 is an apostrophe.
_MARK = re.compile(r"\\(?:\r\n|[\s\S])|\"\"\"|'''|[\r\n]|[^\w\s,.\-\u2019]|(?<!\w)\u2019|\u2019(?!\w)")
_SMART = ("\u201c", "\u201d", "\u2018", "\u2019")
_QUOTES = ('"', "'", '"""', "'''", *_SMART)
_KINDS = {"\u201d": "\u201c", "\u2019": "\u2018", "\r": "\n"}  # marks that mean the same as others


class Repaired(NamedTuple):
    """A valid workflow, and what had to be mended: each reason once, in the order found. No reason: nothing."""

    workflow: Workflow
    reasons: tuple[Reason, ...]


def parse(text: str, *, workers: int, max_steps: int = 5, allow_empty: bool = False) -> Workflow:
    """The workflow in a text for a pool of so many workers, where it is valid as it stands: for training.

    With `allow_empty` three empty lists are valid, which accept the previous answer. 5 steps at most are published.

    Raises:
        WorkflowError: if there is none, and nothing else whatever the text.
    """
    if len(text) > MAX_CHARS:
        raise WorkflowError(
            Reason.TOO_LONG, f"expected a text of at most {MAX_CHARS} characters, got {len(text)}: write less"
        )
    lists = _read(text)
    lengths = [len(values) for values in lists]
    if len(set(lengths)) > 1:
        raise WorkflowError(
            Reason.UNEQUAL_LENGTHS,
            "expected lists of equal length, got "
            + ", ".join(f"{n} in {label}" for label, n in zip(_LABELS, lengths, strict=True))
            + ": write one entry a step in each",
        )
    workflow = _workflow(lists)
    check(workflow, workers=workers, max_steps=max_steps, allow_empty=allow_empty)
    return workflow


def repair(text: str, *, workers: int, max_steps: int = 5, allow_empty: bool = False) -> Repaired:
    """The workflow in a text, mended where its lists can be read at all: for answering.

    Of a text too long the end is read. Lists are cut to the shortest, then to `max_steps`. Steps without a usable
    worker or subtask are dropped, and later ones renumbered; what cannot be read in an access entry is dropped from
    it. A valid text gives what `parse` gives and no reasons. Otherwise the first reason is the one that `parse` raises.
    A workflow whose steps were all dropped is never valid.

    Raises:
        WorkflowError: if no step is left, and nothing else whatever the text.
    """
    lists = _read(text[-MAX_CHARS:])
    written = _workflow(lists).steps
    reasons = [Reason.TOO_LONG] if len(text) > MAX_CHARS else []
    if any(len(values) != len(written) for values in lists):
        reasons.append(Reason.UNEQUAL_LENGTHS)
    if len(written) > max_steps:
        reasons.append(Reason.TOO_MANY_STEPS)
    steps: list[WorkflowStep] = []
    places: dict[int, int] = {}  # from the number that a step was written under to its own
    for k, step in enumerate(written[:max_steps]):
        fault = step_fault(step, k, workers=workers)
        if fault:
            reasons.append(fault.reason)
        if fault is None or fault.reason in (Reason.BAD_ACCESS, Reason.FORWARD_REFERENCE):
            steps.append(replace(step, access=_readable(step.access, places)))
            places[k] = len(places)
    if not steps and (any(lists) or not allow_empty):
        reason = next(iter(reasons), Reason.NO_STEPS)
        raise WorkflowError(reason, f"expected a step that can be executed, got none ({reason}): ask for another text")
    return Repaired(Workflow(tuple(steps)), tuple(dict.fromkeys(reasons)))


def _readable(access: Any, places: dict[int, int]) -> Literal["all"] | tuple[int, ...]:
    """What an access entry says of the earlier steps that are left."""
    entries = access if isinstance(access, tuple) else (access,)
    if any(_is_all(entry) for entry in entries):
        return "all"
    return tuple(places[i] for i in entries if type(i) is int and i in places)


def _workflow(lists: Sequence[list[Any]]) -> Workflow:
    """Steps of what the lists say, unchecked, as many as the shortest has."""
    rows = zip(*lists, strict=False)
    return Workflow(tuple(WorkflowStep(worker, subtask, _access(entry)) for worker, subtask, entry in rows))


def _access(entry: Any) -> Any:
    """An entry of access_list as a step holds it; what means nothing stays as it is, for `check` to name."""
    if _is_all(entry) or (isinstance(entry, list) and len(entry) == 1 and _is_all(entry[0])):
        return "all"
    return tuple(entry) if isinstance(entry, list) else entry


def _is_all(entry: Any) -> bool:
    return isinstance(entry, str) and entry.lower() == "all"


def _read(text: str) -> list[list[Any]]:
    """The values of the last three complete lists."""
    ends = _ends(text)
    found: list[tuple[int, int]] = []  # which label, where its list begins
    last: list[tuple[int, int]] = []
    behind, broken = 0, False
    for event in _EVENT.finditer(text):
        if event.start() < behind:
            continue  # text inside a list
        if event.lastindex is None:
            found, last, broken = [], [], False
        elif event.end() not in ends:
            broken = True
        else:
            behind = ends[event.end()]
            found.append((event.lastindex, event.end()))
            last = found[-3:] if [label for label, _ in found[-3:]] == [1, 2, 3] else last
    if not last:
        reason = Reason.BROKEN_LIST if broken else Reason.NO_LISTS
        got = "a list that does not end or holds what no literal does" if broken else "no such three"
        raise WorkflowError(
            reason, f"expected complete lists {', '.join(_LABELS)}, got {got}: write them last, in this order"
        )
    return [_literal(_source(text, start, ends), _LABELS[label - 1]) for label, start in last]


def _ends(text: str) -> dict[int, int]:
    """Where lists, strings and comments that open in a text end: from the place of each to the place behind it.

    Whether a place lies inside a string depends on where one began to read. From right to left each mark knows
    what a reader who stands before it, outside of strings, would meet: one pass answers for every bracket.
    """
    marks = list(_MARK.finditer(text))
    closer = [-1] * (len(marks) + 1)  # the mark that closes the reader's list
    nearest: dict[str, int] = {}  # the next mark of each kind
    ends: dict[int, int] = {}
    for j in reversed(range(len(marks))):
        mark = marks[j][0]
        kind = _KINDS.get(mark, mark)
        last = -1  # the mark that ends what this one opens; none if a list of literals cannot hold it
        if kind == "]":
            closer[j] = j
        elif kind == "[":
            last = closer[j + 1]
        elif kind == "\n":
            closer[j] = closer[j + 1]
        elif kind in _QUOTES:
            last = nearest.get(kind, -1)
            last = last if len(kind) > 1 or last < nearest.get("\n", len(marks)) else -1
        elif kind == "#":
            last = nearest.get("\n", -1)
        if last >= 0:
            ends[marks[j].start()] = marks[last].end()
            closer[j] = closer[last + 1]
        nearest[kind] = j
    return ends


def _source(text: str, start: int, ends: Mapping[int, int]) -> str:
    """The list that opens at a place, with straight quotes around every string."""
    parts, copied, at = [], start, start
    for mark in _MARK.finditer(text, start, ends[start]):
        place = mark.start()
        if place < at or mark[0] == "[":
            continue
        at = ends.get(place, at)
        if mark[0] in _SMART:
            inside = _ESCAPE.sub(lambda part: part[1] or r"\"", text[place + 1 : at - 1])
            parts += [text[copied:place], f'"{inside}"']
            copied = at
    return "".join([*parts, text[copied : ends[start]]])


def _literal(source: str, label: str) -> list[Any]:
    """The list that a source says, without evaluating anything."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unknown escapes such as \d, which Python keeps as they are
            values = ast.literal_eval(source)
    # All that Python raises for sources that are too deep, too large or no literals.
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise WorkflowError(
            Reason.NOT_LITERAL, f"expected a Python list of literals in {label}, got something else: write it out"
        ) from None
    return list(values)
