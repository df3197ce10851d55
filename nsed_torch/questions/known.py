"""What is known of a task besides its answer: the steps of a work, what matters of a text, the parts of a question.

A family of tasks is lines of such data. The same lines are asked, learned from and graded by. Anybody may have written
them, so each is checked before it is used, and a fault names its line.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nsed_torch.core.prompts import FINISHED
from nsed_torch.records.transcript import Task

Chain = tuple[str, ...]
"""The work after each step; the last text begins with `FINISHED`, and the answer follows."""

KEYS = ("id", "question", "target", "category", "inputs", "start", "goal", "answer", "steps", "needed", "hops")
"""What a line may hold; `answer` is another word for `target`."""


class Fact(NamedTuple):
    """What a piece of the inputs tells that the answer depends on, at least for a while."""

    text: str  # as a note should say it
    piece: int  # that says it, from 1
    until: int | None = None  # the piece that makes it useless; None where it matters to the end
    reader: str | None = None  # name or place of the one agent that reads it; None for all

    def matters(self, index: int) -> bool:
        """Whether a memory should hold it after round `index`, from 1."""
        return self.piece <= index and (self.until is None or index < self.until)


class Hop(NamedTuple):
    """A part of a question: whom it is for, what they are told, and what is right."""

    kind: str  # of knowledge, as a worker is named; "" for no special one
    subtask: str
    reply: str
    reads: bool = False  # whether it needs the replies to all hops before it; otherwise it needs none


class Known(NamedTuple):
    """A task, and what is known of it."""

    task: Task
    chain: Chain = ()
    facts: tuple[Fact, ...] = ()
    hops: tuple[Hop, ...] = ()


def known(row: Mapping[str, Any], where: str, prompt: str = "") -> Known:
    """Read one line of a family.

    Args:
        row: {question, answer}, perhaps with an id, a category, inputs, and start and goal of a work. Of a work
            `steps`, what stands after each; of inputs what is `needed`, texts that a note should say, or {text, piece,
            until, reader}; of a question its `hops`, {subtask, reply} each, perhaps with kind and reads.
        where: the line, for errors.
        prompt: behind the question, how to answer.

    Examples:
        >>> row = {"id": "a", "question": "Count to 2.", "start": "0", "steps": ["0 1", "0 1 2"], "answer": "0 1 2"}
        >>> known(row, "counts.jsonl:1").chain
        ('0 1', '0 1 2', 'Answer: 0 1 2')
    """
    answers = [row[name] for name in ("target", "answer") if name in row]
    if "question" not in row or len(answers) != 1:
        got = "a target and an answer" if len(answers) > 1 else str(dict(row))[:60]
        raise _fault(where, "an object with question and answer", got)
    if len([name for name in ("steps", "inputs", "hops") if row.get(name)]) > 1:
        raise _fault(where, "steps, inputs or hops", "several of them", "a task is of one kind")
    texts = {name: _text(row[name], f"{where}: {name}", False) for name in ("question", "start", "goal") if name in row}
    category = None if row.get("category") is None else _text(row["category"], f"{where}: category")
    target = _text(answers[0], f"{where}: answer")
    if prompt:
        texts["question"] = f"{texts['question']}\n\n{prompt}"
    try:
        task = Task(id=row["id"], target=target, category=category, inputs=row.get("inputs", ()), **texts)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    if "needed" in row and not task.inputs:
        raise _fault(where, "inputs of which something is needed", "none")
    return Known(
        task,
        _chain(row["steps"], task, where) if "steps" in row else (),
        _facts(row["needed"], task, where) if "needed" in row else (),
        _hops(row["hops"], task, where) if "hops" in row else (),
    )


def _chain(given: Any, task: Task, where: str) -> Chain:
    steps = _texts(given, f"{where}: steps")
    last = f"{FINISHED}{task.target}"
    if steps[-1].startswith(FINISHED.strip()):
        if steps[-1].split() != last.split():
            raise _fault(where, f"{last!r:.60} as the last step", repr(steps[-1])[:60])
        steps = steps[:-1]
    chain = (*steps, last)
    known_texts = [" ".join(text.split()) for text in (task.start, *chain) if text]
    for place, text in enumerate(known_texts):
        # The next step is written from one text alone.
        if text in known_texts[:place]:
            raise _fault(where, "steps that all differ", f"{text!r:.60} twice", "say what tells them apart")
        if text.startswith(FINISHED.strip()) and place < len(known_texts) - 1:
            raise _fault(where, f"{FINISHED.strip()!r} in the last step alone", repr(text)[:60])
    return chain


def _facts(given: Any, task: Task, where: str) -> tuple[Fact, ...]:
    if not isinstance(given, list | tuple):
        raise _fault(where, "a list of what is needed", repr(given)[:60])
    facts = []
    for place, item in enumerate(given, start=1):
        here = f"{where}: needed {place}"
        row = {"text": item} if isinstance(item, str) else item
        fields = _fields(row, here, {"text"}, {"piece", "until", "reader"})
        text = _text(fields["text"], here)
        pieces = [readers(piece) for piece in task.inputs]
        said = [(index, who) for index, piece in enumerate(pieces, start=1) for who in piece if text in piece[who]]
        if "piece" not in fields and not said:
            raise _fault(here, "a text of one of the inputs, or its piece", repr(text)[:60])
        piece, reader = said[0] if said else (0, None)
        piece, reader, until = fields.get("piece", piece), fields.get("reader", reader), fields.get("until")
        counts = [number for number in (piece, until) if number is not None]
        if any(type(number) is not int or not 1 <= number <= len(pieces) for number in counts):
            raise _fault(here, f"pieces from 1 to {len(pieces)}", str(counts)[:60])
        if (until is not None and until <= piece) or reader not in pieces[piece - 1]:
            raise _fault(here, "a later piece as until, and a reader of the piece", str(row)[:60])
        facts.append(Fact(text, piece, until, reader))
    return tuple(sorted(facts, key=lambda fact: fact.piece))


def readers(piece: str | dict[str, str]) -> dict[str | None, str]:
    """Who reads what of a piece: an agent's name or place, or None for all."""
    return {None: piece} if isinstance(piece, str) else dict(piece.items())


def _hops(given: Any, task: Task, where: str) -> tuple[Hop, ...]:
    if not isinstance(given, list | tuple) or not given:
        raise _fault(where, "a list of hops", repr(given)[:60])
    hops = []
    for place, row in enumerate(given, start=1):
        here = f"{where}: hop {place}"
        fields = _fields(row, here, {"subtask", "reply"}, {"kind", "reads"})
        reads = fields.get("reads", place > 1)
        if type(reads) is not bool or (reads and place == 1):
            raise _fault(here, "reads to be true or false, and false in the first", repr(reads)[:60])
        kind = _text(fields["kind"], f"{here}: kind") if "kind" in fields else ""
        subtask, reply = (_text(fields[name], f"{here}: {name}") for name in ("subtask", "reply"))
        hops.append(Hop(kind, subtask, reply, reads))
    if hops[-1].reply.split() != str(task.target).split():
        raise _fault(where, f"the answer {task.target!r:.60} as the last hop's reply", repr(hops[-1].reply)[:60])
    return tuple(hops)


def _fields(row: Any, where: str, needed: set[str], others: set[str]) -> Mapping[str, Any]:
    if not isinstance(row, Mapping) or not needed <= set(row) <= needed | others:
        raise _fault(where, f"{{{', '.join(sorted(needed))}}} and perhaps {', '.join(sorted(others))}", repr(row)[:60])
    return row


def _texts(given: Any, where: str) -> list[str]:
    if not isinstance(given, list | tuple) or not given:
        raise _fault(where, "a list of texts", repr(given)[:60])
    return [_text(item, f"{where} {place}") for place, item in enumerate(given, start=1)]


def _text(value: Any, where: str, numbers: bool = True) -> str:
    """A text that says something; a number becomes one."""
    text = str(value) if numbers and isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text.strip():
        raise _fault(where, f"a text{' or a number' * numbers}", repr(value)[:60])
    return text


def _fault(where: str, expected: str, got: str, remedy: str = "correct the line") -> ValueError:
    return ValueError(f"{where}: expected {expected}, got {got}: {remedy}")


def consistent(lines: Sequence[Known]) -> Sequence[Known]:
    """The lines as they are; a ValueError names two that go on differently from the same text, all a step reads."""
    after: dict[str, tuple[str, str]] = {}
    for task, chain, *_ in lines:
        for one, other in itertools.pairwise((task.start or task.question, *chain)):
            said, by = after.setdefault(one, (other, task.id))
            if said != other:
                got = f"{said!r:.40} in {by!r:.40} and {other!r:.40} in {task.id!r:.40}"
                raise ValueError(f"steps: expected one step behind {one!r:.60}, got {got}: say what tells them apart")
    return lines
