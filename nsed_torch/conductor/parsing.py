r"""From a Conductor's text to a workflow: strict for training, repairing for answering.

A text holds reasoning, then three Python lists of equal length, here with every access entry there is:

    model_id = [0, 2, 1, 0]
    subtasks = ["Solve it.", "Solve it another way.", "Compare both.", "Write the answer."]
    access_list = [[], [], [0, 1], "all"]

**Labels.** `model_id`, `subtasks` and `access_list`, in this order and with no other list of these names between them.
In any case, singular or plural, with a blank, a hyphen or nothing for the underscore; `*`, a backquote or a quote
may stand directly behind a label, as in bold type and JSON. Then `=` or `:`, then the bracket.

**Which lists.** The last three complete ones behind the last closing think tag. A list is complete where its brackets,
three deep at most, close. Brackets, labels, tags and `#` inside strings are text, and comments are left out. As in
Python a string ends on its line, unless its quotes are threefold; outside of strings there is nothing but words,
numbers, commas and brackets, of any kind in the list of accesses. Smart quotes are quotes where a string may begin and
text anywhere else. Code fences around lists make no difference. Two halves of a letter that follow each other, as JSON
escapes what lies beyond its first 65,536 letters, are that letter.

**Access.** `"all"` (any case), `["all"]`, `[]`, or a list or tuple of numbers of steps before, from 0. An entry that is
no literal is a fault of its step alone.

Values are read by `ast.literal_eval`: nothing is evaluated. Time is linear in the text. Published: the lists, "all", []
and indices. What independent re-implementations do: case, `=` or `:`, brackets, smart quotes, think tags. Our
decisions: reasons, repairs, variants of labels.
"""

import ast
import functools
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from nsed_torch.conductor.workflow import Reason, Workflow, WorkflowError, WorkflowStep, size_faults, step_fault

MAX_CHARS = 100_000  # the longest text that is read, reasoning included

_LABELS = ("model_id", "subtasks", "access_list")
_EVENT = re.compile(
    r"(?<!\w)(?:(model[_ -]?ids?)|(sub[_ -]?tasks?)|(access[_ -]?lists?))[\"'`*]{0,3}\s*[=:]\s*(?=\[)"
    r"|</(?:think|thinking|thought|reasoning)>",
    re.IGNORECASE,
)
_ESCAPE = re.compile(r"(\\[\s\S])|\"")
_ESCAPED = r"\\(?:\r\n|[\s\S])"
# Strings and comments. The limits keep what nothing closes from being read to the text's end again and again; inside a
# word U+2019 is an apostrophe.
_SPAN = "|".join(
    [
        *(rf"{quote}(?:{_ESCAPED}|(?!{quote})[^\\]){{0,5000}}+{quote}" for quote in ('"""', "'''")),
        *(rf"{quote}(?:{_ESCAPED}|[^{quote}\\\r\n])*+{quote}" for quote in ('"', "'")),
        rf"[\u201c\u201d](?:{_ESCAPED}|[^\u201c\u201d\\\r\n])*+[\u201c\u201d]",
        rf"(?:\u2018|(?<!\w)\u2019|\u2019(?!\w))(?:{_ESCAPED}|(?<=\w)\u2019(?=\w)|[^\u2018\u2019\\\r\n])*+[\u2018\u2019]",
        r"#[^\r\n]{0,5000}+[\r\n]",
    ]
)
_PLAIN = rf"{_SPAN}|(?<=\w)\u2019(?=\w)"
_STRICT, _LOOSE = (
    re.compile(functools.reduce(lambda inner, _: rf"\[(?:{inner}|{_PLAIN}|{plain})*+\]", range(3), "(?!)"))
    for plain in (r"[\w\s,.\-]", r"[\w\s,.\-(){}]")
)
_WHOLE = {1: _STRICT, 2: _STRICT, 3: _LOOSE}  # by the place of a list's label
_SPANS = re.compile(_SPAN)
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


@dataclass(frozen=True)
class _Unreadable:
    """An entry that is no literal, as it is written."""

    source: str

    def __repr__(self) -> str:
        return repr(self.source)


def parse(text: str, *, workers: int, max_steps: int = 5, allow_empty: bool = False) -> Workflow:
    """The workflow in a text for a pool of so many workers, where it is valid as it stands: for training.

    With `allow_empty` three empty lists are valid, which accept the previous answer. 5 steps at most are published.
    """
    if len(text) > MAX_CHARS:
        raise WorkflowError(
            Reason.TOO_LONG, f"expected a text of at most {MAX_CHARS} characters, got {len(text)}: write less"
        )
    workflow, faults = _mended(_read(text), workers, max_steps, allow_empty=allow_empty)
    if faults:
        raise faults[0]
    return workflow


def repair(
    text: str, *, workers: int, max_steps: int = 5, allow_empty: bool = False
) -> tuple[Workflow, tuple[Reason, ...]]:
    """The workflow in a text, mended where its lists can be read at all: for answering.

    Of a text too long the end is read. Lists are cut to the shortest, then to `max_steps`. Steps without a usable
    worker or subtask are dropped, and later ones renumbered; what means nothing in an access entry is dropped from
    it, and an entry that is no literal reads nothing. A workflow whose steps were all dropped is never valid.

    Returns:
        The workflow, and what had to be mended: each reason once, in the order found, the first the one that `parse`
        raises. A valid text gives what `parse` gives and no reasons.
    """
    workflow, faults = _mended(_read(text[-MAX_CHARS:]), workers, max_steps, allow_empty=allow_empty)
    reasons = [Reason.TOO_LONG] if len(text) > MAX_CHARS else []
    return workflow, tuple(dict.fromkeys([*reasons, *(fault.reason for fault in faults)]))


def _mended(
    lists: Sequence[list[Any]], workers: int, max_steps: int, *, allow_empty: bool
) -> tuple[Workflow, list[WorkflowError]]:
    """What can be executed of what the lists say, and all that cannot; the first fault is raised where no step can."""
    rows = zip(*lists, strict=False)
    written = [WorkflowStep(worker, _whole_letters(subtask), _access(entry)) for worker, subtask, entry in rows]
    faults = []
    if len({len(values) for values in lists}) > 1:
        lengths = ", ".join(f"{len(values)} in {label}" for label, values in zip(_LABELS, lists, strict=True))
        message = f"expected lists of equal length, got {lengths}: write one entry a step in each"
        faults.append(WorkflowError(Reason.UNEQUAL_LENGTHS, message))
    faults += size_faults(len(written), max_steps, allow_empty=allow_empty and not any(lists))
    steps: list[WorkflowStep] = []
    places: dict[int, int] = {}  # from the number that a step was written under to its own
    for k, step in enumerate(written[:max_steps]):
        fault = step_fault(step, k, workers)
        faults += [fault] if fault else []
        if fault is None or fault.reason in (Reason.BAD_ACCESS, Reason.FORWARD_REFERENCE):
            steps.append(replace(step, access=_readable(step.access, places)))
            places[k] = len(places)
    if faults and not steps:
        raise faults[0]
    return Workflow(tuple(steps)), faults


def _readable(access: Any, places: dict[int, int]) -> Literal["all"] | tuple[int, ...]:
    """What an access entry says of the earlier steps that are left."""
    entries = access if isinstance(access, tuple) else (access,)
    if any(_is_all(entry) for entry in entries):
        return "all"
    return tuple(places[i] for i in entries if type(i) is int and i in places)


def _access(entry: Any) -> Any:
    """An entry of access_list as a step holds it; what means nothing stays as it is, for `check` to name."""
    if _is_all(entry) or (isinstance(entry, list) and len(entry) == 1 and _is_all(entry[0])):
        return "all"
    return tuple(entry) if isinstance(entry, list) else entry


def _is_all(entry: Any) -> bool:
    return isinstance(entry, str) and entry.lower() == "all"


def _read(text: str) -> list[list[Any]]:
    """The values of the last three complete lists."""
    found: list[tuple[int, str]] = []  # which label, and its list as it is written
    last: list[tuple[int, str]] = []
    behind, broken = 0, False
    while event := _EVENT.search(text, behind):
        behind = event.end()
        if event.lastindex is None:
            found, last, broken = [], [], False
        elif written := _WHOLE[event.lastindex].match(text, behind):
            behind = written.end()
            found = [*found[-2:], (event.lastindex, written[0])]
            last = found if [label for label, _ in found] == [1, 2, 3] else last
        else:
            broken = True
    if not last:
        reason = Reason.BROKEN_LIST if broken else Reason.NO_LISTS
        got = "a list that does not end or holds what no literal does" if broken else "no such three"
        raise WorkflowError(
            reason, f"expected complete lists {', '.join(_LABELS)}, got {got}: write them last, in this order"
        )
    return [_literal(_SPANS.sub(_straight, source), _LABELS[label - 1]) for label, source in last]


def _straight(span: re.Match[str]) -> str:
    """A string in smart quotes in straight ones; anything else as it is."""
    if span[0][0] not in "\u201c\u201d\u2018\u2019":
        return span[0]
    inside = _ESCAPE.sub(lambda part: part[1] or r"\"", span[0][1:-1])
    return f'"{inside}"'


def _literal(source: str, label: str) -> list[Any]:
    """The list that a source says, without evaluating anything; accesses are read one by one if need be."""
    if (values := _evaluated(source)) is not None:
        return values
    if label == _LABELS[-1]:
        read = ((entry, _evaluated(f"[{entry}\n]")) for entry in _entries(source))
        return [values[0] if values and len(values) == 1 else _Unreadable(entry.strip()) for entry, values in read]
    raise WorkflowError(
        Reason.NOT_LITERAL, f"expected a Python list of literals in {label}, got something else: write it out"
    )


def _evaluated(source: str) -> list[Any] | None:
    """The values of a list of literals; None for anything else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unknown escapes such as \d, which Python keeps as they are
            return list(ast.literal_eval(source))
    # All that Python raises for sources that are too deep, too large or no literals.
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _entries(source: str) -> Iterator[str]:
    """What stands between the outermost commas of a list; nothing where only a blank or a comment follows the last."""
    hidden = _SPANS.sub(lambda span: (" " if span[0][0] == "#" else "_") * len(span[0]), source)
    begun, depth = 1, 0
    for place in range(1, len(source) - 1):
        depth = max(depth + (hidden[place] in "([{") - (hidden[place] in ")]}"), 0)
        if hidden[place] == "," and depth == 0:
            yield source[begun:place]
            begun = place + 1
    if hidden[begun:-1].strip():
        yield source[begun:-1]


def _whole_letters(subtask: Any) -> Any:
    """A text whose letters are whole; a half without its other half stays, and so does what is no text."""
    if not isinstance(subtask, str):
        return subtask
    return _HALVES.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), subtask)
