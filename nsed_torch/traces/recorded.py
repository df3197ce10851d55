"""Recorded answers: what many agents once answered to many questions, graded, as aligned arrays."""

import dataclasses
import gzip
import hashlib
import math
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.engine import CHARACTERS_PER_TOKEN
from nsed_torch.records.files import parse_json, read_json, regular
from nsed_torch.records.transcript import Task

SUFFIXES = (".jsonl", ".jsonl.gz")

_EMPTY, _SPARE = 200, 10_000_000  # places without an answer for one that has one, and besides: they take memory, too
_LONGEST = 64 << 20  # bytes of a line: a small compressed file may hold one that fills the memory


@dataclass(frozen=True, eq=False)
class RecordedAnswers:
    """Tasks x agents: who answered what, whether it was right, how long it was; of several rounds, in the first.

    An agent that has no line for a task, or a line whose answer is null or blank, did not answer it: `answered` is
    False, `correct` is False, and downstream masks it.
    """

    tasks: tuple[Task, ...]  # in the order of the file; the target is the recorded right answer
    agents: tuple[str, ...]
    answers: tuple[tuple[str | None, ...], ...]  # by task and agent; None where it gave none
    outputs: tuple[tuple[str, ...], ...]  # the texts, or their ends; "" where there is no line
    correct: Bool[Tensor, "batch agent"]
    answered: Bool[Tensor, "batch agent"]
    parameters: Float[Tensor, "agent"]  # in billions; NaN where not published
    digest: str  # of everything that was read, whether compressed or not
    later: tuple["RecordedAnswers", ...] = ()  # the rounds behind the first, of the same tasks and agents
    held: Int[Tensor, "batch"] | None = None  # how many rounds each task had; all if None
    # In [-1, 1], NaN where there is none; None where agents' agreement stands for them.
    ratings: Float[Tensor, "batch voter proposal"] | None = None
    characters: Float[Tensor, "batch agent"] | None = None  # of texts of which outputs are the ends; NaN: not said

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def lengths(self) -> Float[Tensor, "batch agent"]:
        """Characters of whole texts."""
        kept = torch.tensor([[float(len(text)) for text in row] for row in self.outputs])
        return kept if self.characters is None else torch.where(self.characters.isfinite(), self.characters, kept)

    @property
    def tokens(self) -> Float[Tensor, "batch agent"]:
        """Estimated length of the whole texts in tokens: characters over 4."""
        return self.lengths / CHARACTERS_PER_TOKEN

    @property
    def cost(self) -> Float[Tensor, "batch agent"]:
        """Parameters x answer length, in billions of parameters x tokens; NaN for unpublished parameters."""
        return self.parameters * self.tokens

    def select(self, tasks: Sequence[int] | Tensor, agents: Sequence[int] | Tensor | None = None) -> "RecordedAnswers":
        """Some of the tasks and some of the agents, by index, in the order given."""
        columns = list(map(int, range(len(self.agents)) if agents is None else agents))
        rows = list(map(int, tasks))
        return dataclasses.replace(
            self,
            tasks=tuple(self.tasks[i] for i in rows),
            agents=tuple(self.agents[j] for j in columns),
            answers=tuple(tuple(self.answers[i][j] for j in columns) for i in rows),
            outputs=tuple(tuple(self.outputs[i][j] for j in columns) for i in rows),
            correct=self.correct[rows][:, columns],
            answered=self.answered[rows][:, columns],
            parameters=self.parameters[columns],
            later=tuple(part.select(rows, columns) for part in self.later),
            held=None if self.held is None else self.held[rows],
            ratings=None if self.ratings is None else self.ratings[rows][:, columns][:, :, columns],
            characters=None if self.characters is None else self.characters[rows][:, columns],
        )


def load_recorded(
    folder: str | Path, *, agents: Sequence[str] | None = None, max_parameters_b: float | None = None
) -> RecordedAnswers:
    """Read a folder of recorded answers, line by line.

    `questions.jsonl[.gz]` holds {id, question, target} and, where known, {category}; `answers/<agent>.jsonl[.gz]`
    {id, output, answer, correct} and, where output is the end of a longer text, its length in {characters};
    `agents.json`, if there is one, {agent: {parameters_b}}, in billions or null. Answers to questions that are not
    listed are left out.

    Answers of several rounds say which: `round`, 0 for the first and where nothing is said. An agent may be absent in
    a round. `ratings.jsonl[.gz]`, if there is one, holds what agents think of others' answers, {id, round, judge,
    candidate, rating}, in [-1, 1]; in a round of a task that has none, agreement stands for them.

    Args:
        folder: where those files are.
        agents: names of the agents to read, in this order; None reads all, by name.
        max_parameters_b: keep agents of at most so many billions of parameters; those of unpublished size are left out.

    Raises:
        ValueError: in one line with the file, and the line where there is one.
    """
    root = Path(folder).expanduser()
    sizes = _sizes(root / "agents.json")
    files = _chosen(root, agents, max_parameters_b, sizes)
    digest = hashlib.sha256()
    tasks = read_tasks(questions_in(root), digest)
    index = {task.id: i for i, task in enumerate(tasks)}
    columns = []
    for name, path in files.items():
        digest.update(name.encode())
        columns.append(_read_answers(path, index, digest))
    held = _rounds_held(root, tasks, columns)
    if (cells := len(tasks) * len(files) * int(held.max())) > _EMPTY * sum(map(len, columns)) + _SPARE:
        wanted = f"expected an answer for one in {_EMPTY} of tasks x agents x rounds"
        raise ValueError(f"{root}: {wanted}, got {cells} places: leave out questions, agents or rounds")
    rated = _read_ratings(root, index, list(files), list(map(set, columns)), digest)
    parameters = torch.tensor([sizes.get(name, math.nan) for name in files], dtype=torch.float64)
    rounds = []
    for number in range(int(held.max())):
        rows = [[column.get((i, number), _Answer()) for column in columns] for i in range(len(tasks))]
        rounds.append(
            RecordedAnswers(
                tasks=tasks,
                agents=tuple(files),
                answers=tuple(tuple(line.answer for line in row) for row in rows),
                outputs=tuple(tuple(line.output for line in row) for row in rows),
                correct=torch.tensor([[line.correct for line in row] for row in rows]),
                answered=torch.tensor([[line.answer is not None for line in row] for row in rows]),
                parameters=parameters,
                digest=digest.hexdigest(),
                ratings=rated.get(number),
                characters=torch.tensor([[line.characters for line in row] for row in rows]),
            )
        )
    first, later = rounds[0], tuple(rounds[1:])
    return dataclasses.replace(first, later=later, held=held) if later else first


def _rounds_held(root: Path, tasks: Sequence[Task], columns: Sequence["_Column"]) -> Int[Tensor, "batch"]:
    """How many rounds each task had, one where nobody has a line; a ValueError for a round that is missing."""
    found: list[set[int]] = [set() for _ in tasks]
    for column in columns:
        for place, number in column:
            found[place].add(number)
    for task, numbers in zip(tasks, found, strict=True):
        if numbers != set(range(len(numbers))):
            got = ", ".join(map(str, sorted(numbers)[:5]))
            wanted = "expected answers of rounds 0, 1, ... without a gap"
            raise ValueError(f"{root}: {task.id:.60}: {wanted}, got those of {got}")
    return torch.tensor([max(len(numbers), 1) for numbers in found])


def _read_ratings(
    root: Path, index: Mapping[str, int], agents: Sequence[str], answered: Sequence[set[tuple[int, int]]], digest: Any
) -> dict[int, Float[Tensor, "batch voter proposal"]]:
    """Round -> ratings, NaN where there is none; of agents that are read, about questions that are listed."""
    path = next((p for p in (root / f"ratings{suffix}" for suffix in SUFFIXES) if os.path.lexists(p)), None)
    tables: dict[int, Tensor] = {}
    fields = ("id", "round", "judge", "candidate")
    everybody = {p.name.removesuffix(".gz").removesuffix(".jsonl") for p in (root / "answers").iterdir()}
    for where, line in read_records(path, digest, (*fields, "rating"), fields) if path else ():
        who, value = (line["judge"], line["candidate"]), line["rating"]
        if unknown := [name for name in who if not isinstance(name, str) or name not in everybody]:
            raise ValueError(f"{where}: expected judge and candidate with files in answers, got {unknown[0]!r:.60}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= 1:
            raise ValueError(f"{where}: expected a rating in [-1, 1], got {value!r:.60}")
        if who[0] == who[1]:
            raise ValueError(
                f"{where}: expected ratings of others' answers, got {who[0]!r} of its own: remove the line"
            )
        number, task = _round_of(line, where), index.get(line["id"])
        if task is None or not set(who) <= set(agents):
            continue
        i, j = map(agents.index, who)
        if (task, number) not in answered[i] or (task, number) not in answered[j]:
            raise ValueError(f"{where}: expected answers of both in that round, got a rating alone: remove the line")
        if number not in tables:
            tables[number] = torch.full((len(index), len(agents), len(agents)), math.nan)
        tables[number][task, i, j] = value
    return tables


def read_tasks(path: str | Path, digest: Any = None) -> tuple[Task, ...]:
    """Read the tasks of a file of questions, `{id, question, target}` a line, with category and inputs if it has them.

    Files of earlier versions say `gold` for target, and are read as they were. A target of null is none. The digest, a
    hash object, is updated with every line.
    """
    tasks = []
    for where, line in read_records(Path(path).expanduser(), digest or hashlib.sha256(), ("id", "question", "target")):
        try:
            known = line["question"], line["id"], _text(line["target"]), _text(line.get("category"))
            tasks.append(Task(*known, inputs=line.get("inputs", ())))
        except (ValueError, TypeError, AttributeError) as error:
            if "inputs" in line:
                raise ValueError(f"{where}: {error}") from error
            raise ValueError(f"{where}: expected texts for question and target, got {str(line)[:60]}") from error
    if not tasks:
        raise ValueError(f"{path}: expected questions, got an empty file")
    return tuple(tasks)


class _Answer(NamedTuple):
    output: str = ""
    answer: str | None = None
    correct: bool = False
    characters: float = math.nan


_Column = dict[tuple[int, int], _Answer]
"""One agent's lines by task and round, both counted from 0."""


def _sizes(path: Path) -> dict[str, float]:
    """Agent -> its billions of parameters, where `agents.json` says how many."""
    known = read_json(path) if os.path.lexists(path) else {}
    if not isinstance(known, dict) or not all(isinstance(facts, dict) for facts in known.values()):
        raise ValueError(f"{path}: expected {{agent: {{parameters_b}}}}, got {str(known)[:60]}")
    sizes = {name: facts.get("parameters_b") for name, facts in known.items()}
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int | float | None) or not _within(value or 0):
            wanted = "expected a number of at least 0 or null"
            raise ValueError(f"{path}: {name:.60}.parameters_b: {wanted}, got {value!r:.60}")
    return {name: float(value) for name, value in sizes.items() if value is not None}


def _chosen(
    root: Path, agents: Sequence[str] | None, limit: float | None, sizes: Mapping[str, float]
) -> dict[str, Path]:
    """Agent -> its file, for those wanted."""
    folder = root / "answers"
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.endswith(SUFFIXES):
            name = path.name.removesuffix(".gz").removesuffix(".jsonl")
            if name in found:
                raise ValueError(f"{path}: expected one file of agent {name!r}, got {found[name].name} too: remove one")
            if not name.strip() or not name.isprintable():
                raise ValueError(f"{folder}: expected files with printable names of agents, got {name!r}: rename it")
            found[name] = path
    if not found:
        wanted = "expected files <agent>.jsonl or <agent>.jsonl.gz of {id, output, answer, correct} and perhaps {round}"
        raise ValueError(f"{folder}: {wanted}, or traces.jsonl beside them, got none; check data_dir")
    names = list(found) if agents is None else list(agents)
    if unknown := [name for name in names if name not in found]:
        raise ValueError(f"{folder}: expected agents out of {', '.join(found)}, got {', '.join(unknown)}")
    if len(set(names)) < len(names):
        raise ValueError(f"expected every agent once, got {', '.join(names)}")
    kept = [n for n in names if limit is None or sizes.get(n, math.inf) <= limit]
    if not kept:
        raise ValueError(
            f"{root / 'agents.json'}: expected agents of at most max_parameters_b={limit} billion parameters, "
            f"got none among {len(names)}: raise it or add parameters_b"
        )
    return {name: found[name] for name in kept}


def questions_in(*folders: Path) -> Path:
    """The first file of questions in some folders; a ValueError names all that were looked for."""
    files = [folder / f"questions{suffix}" for folder in folders for suffix in SUFFIXES]
    if (path := next(filter(Path.is_file, files), None)) is None:
        raise ValueError(f"expected questions in one of {', '.join(map(str, files))}, got none; check data_dir")
    return path


def _read_answers(path: Path, index: Mapping[str, int], digest: Any) -> _Column:
    """One agent's lines."""
    column: _Column = {}
    for where, line in read_records(path, digest, ("id", "output", "answer", "correct"), ("id", "round")):
        if line["correct"] not in (True, False):
            raise ValueError(f"{where}: expected correct to be true or false, got {line['correct']!r:.60}")
        try:
            answer, output = _text(line["answer"]), _text(line["output"]) or ""
        except TypeError as error:
            raise ValueError(f"{where}: {error}") from error
        number = _round_of(line, where)
        if line["id"] in index:
            given = answer if answer and answer.strip() else None
            right = given is not None and bool(line["correct"])
            length = _length(line.get("characters"), where)
            column[index[line["id"]], number] = _Answer(output, given, right, length)
    if not column:
        raise ValueError(f"{path}: expected answers to some of the {len(index)} questions, got none; check the ids")
    return column


def _round_of(line: Mapping[str, Any], where: str) -> int:
    number = line.get("round", 0)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f"{where}: expected a round of 0, 1, ..., got {number!r:.60}")
    return number


def _length(value: Any, where: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int) or not _within(value):
        raise ValueError(f"{where}: expected characters to be a whole number of at least 0, got {str(value)[:60]!r}")
    return float(value)


def _within(value: float) -> bool:
    """Whether a number is one of those that a float holds, and not below 0; JSON has 1e999 and 10^400."""
    return 0 <= value <= sys.float_info.max


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and _within(abs(value)):
        return str(value)
    raise TypeError(f"expected a text, a number or null, got {str(value)[:60]!r}")


def read_records(
    path: Path, digest: Any, fields: Sequence[str], key: Sequence[str] = ("id",)
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read records that have these fields, one by one; ids come out as texts, and where none is asked for by line.

    No two may be alike in the fields of the key, of which the id is one.

    The file is compressed if its name ends in `.gz`; blank lines are passed over. The digest, a hash object, is updated
    with every record as it stands.

    Yields:
        Where the record stands (file:line), and the record.
    """
    seen = set()
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        digest.update(line.strip() + b"\n")
        record = parse_json(line, where, "mend or remove the line")
        if isinstance(record, dict) and "gold" in record:  # what earlier versions called it
            record.setdefault("target", record["gold"])
        if not isinstance(record, dict) or not set(fields) <= set(record):
            raise ValueError(f"{where}: expected an object with {', '.join(fields)}, got {str(record)[:60]}")
        record.setdefault("id", f"question-{number}")
        if isinstance(record["id"], bool) or not isinstance(record["id"], str | int):
            raise ValueError(f"{where}: expected an id that is a text or a whole number, got {record['id']!r:.60}")
        record["id"] = str(record["id"])
        name = tuple(repr(record.get(field, 0)) for field in key)
        if name in seen:
            again = (
                record["id"] if len(key) == 1 or not record.get("round") else f"{record['id']}, round {record['round']}"
            )
            raise ValueError(f"{where}: expected every id once, got {again!r:.60} again: remove the line")
        seen.add(name)
        yield where, record


def _lines(path: Path) -> Iterator[bytes]:
    try:
        regular(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line in iter(partial(file.readline, _LONGEST + 1), b""):
                if len(line) > _LONGEST:
                    raise ValueError(f"{path}: expected lines of at most {_LONGEST} bytes, got a longer one: remove it")
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error}); fetch it again") from error
