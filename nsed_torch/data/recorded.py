"""Recorded answers: what many agents once answered to many questions, graded, as aligned arrays."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.agents import Agent, Decoding, Ensemble
from nsed_torch.agents.replay import CHARACTERS_PER_TOKEN, Recording, ReplayEngine
from nsed_torch.data.equality import Equality
from nsed_torch.data.jsonl import read_records
from nsed_torch.records import CallLog, Task
from nsed_torch.records.files import read_json

SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True, eq=False)
class RecordedAnswers:
    """Tasks x agents: who answered what, whether it was right, how long it was.

    An agent that has no line for a task, or a line whose answer is null or blank, did not answer it: `answered` is
    False, `correct` is False, and downstream masks it.

    Args:
        tasks: in the order of the file; the target is the recorded gold answer.
        agents: their names, as asked for or by the name of their file.
        answers: a row a task, an entry an agent; None where it gave none.
        outputs: the full texts; "" where there is no line.
        correct: as recorded.
        answered: where there is an answer.
        characters: lengths of the outputs.
        parameters: of each agent, in billions; NaN where not published.
        price: of each agent, in US$ per million tokens written; NaN where not given.
        digest: hash of everything that was read, whether compressed or not.
    """

    tasks: tuple[Task, ...]
    agents: tuple[str, ...]
    answers: tuple[tuple[str | None, ...], ...]
    outputs: tuple[tuple[str, ...], ...]
    correct: Bool[Tensor, "batch agent"]
    answered: Bool[Tensor, "batch agent"]
    characters: Int[Tensor, "batch agent"]
    parameters: Float[Tensor, "agent"]
    price: Float[Tensor, "agent"]
    digest: str

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def tokens(self) -> Float[Tensor, "batch agent"]:
        """Estimated length of the outputs in tokens: characters over 4."""
        return self.characters / CHARACTERS_PER_TOKEN

    @property
    def cost(self) -> Float[Tensor, "batch agent"]:
        """Parameters x answer length, in billions of parameters x tokens; NaN for unpublished parameters."""
        return self.parameters * self.tokens

    def select(self, tasks: Sequence[int] | Tensor, agents: Sequence[int] | Tensor | None = None) -> "RecordedAnswers":
        """Some of the tasks and some of the agents, by index, in the order given."""
        rows, columns = _indices(tasks), _indices(range(len(self.agents)) if agents is None else agents)
        return dataclasses.replace(
            self,
            tasks=tuple(self.tasks[i] for i in rows),
            agents=tuple(self.agents[j] for j in columns),
            answers=tuple(tuple(self.answers[i][j] for j in columns) for i in rows),
            outputs=tuple(tuple(self.outputs[i][j] for j in columns) for i in rows),
            **{name: getattr(self, name)[rows][:, columns] for name in ("correct", "answered", "characters")},
            **{name: getattr(self, name)[columns] for name in ("parameters", "price")},
        )

    def engine(self, equality: Equality | None = None) -> ReplayEngine:
        """An engine that speaks for all agents and rates by agreement of answers.

        Args:
            equality: when answers agree; by default the rule of `Equality()`.

        Raises:
            ValueError: if two tasks have the same question.
        """
        rule = equality or Equality()
        classes = rule.classes(self.answers).tolist()
        recordings = {
            agent: {t.id: Recording(self.outputs[i][j], classes[i][j]) for i, t in enumerate(self.tasks)}
            for j, agent in enumerate(self.agents)
        }
        identity = {"digest": self.digest, "agents": list(self.agents), "equality": rule.identity()}
        return ReplayEngine({task.id: task.question for task in self.tasks}, recordings, identity=identity)

    def ensemble(self, equality: Equality | None = None, *, call_log: CallLog | None = None) -> Ensemble:
        """The recorded agents as an ensemble, which deliberates like a live one.

        Each agent's answer allowance is its longest output, so that budgets bound what it may cost; an agent
        without a price costs nothing.

        Args:
            equality: when answers agree; by default the rule of `Equality()`.
            call_log: where finished calls are kept.

        Raises:
            ValueError: for fewer than two agents, or two tasks with the same question.
        """
        engine = self.engine(equality)
        longest = self.tokens.amax(0).ceil().long().clamp(min=1).tolist()
        prices = self.price.nan_to_num(0.0).tolist()
        agents = [
            Agent(name, "recorded", decoding=Decoding(max_new_tokens=tokens), completion_price=price)
            for name, tokens, price in zip(self.agents, longest, prices, strict=True)
        ]
        return Ensemble({"recorded": engine}, agents, call_log=call_log)


def recorded_engine(data_dir: str) -> ReplayEngine:
    """The engine of all agents of a folder, for the group `ensemble`; as `load_recorded` and `RecordedAnswers.engine`.

    Args:
        data_dir: the folder.
    """
    return load_recorded(data_dir).engine()


def load_recorded(
    folder: str | Path, *, agents: Sequence[str] | None = None, max_parameters_b: float | None = None
) -> RecordedAnswers:
    """Read a folder of recorded answers, line by line.

    `questions.jsonl[.gz]` holds {id, question, gold} and, where one is known, {category}; `answers/<agent>.jsonl[.gz]`
    {id, output, answer, correct}; `agents.json`, if there is one, {agent: {parameters_b, price}}, both optional.
    Answers to questions that are not listed are left out.

    Args:
        folder: where those files are.
        agents: names of the agents to read, in this order; None reads all, by name.
        max_parameters_b: keep agents of at most so many billions of parameters; those of unpublished size are left out.

    Raises:
        ValueError: in one line with the file, and the line where there is one: a file that is missing or cannot be
            read, a line that is no such record, an id that comes twice, an agent that is not there, nothing left to
            read.
    """
    root = Path(folder).expanduser()
    facts = _facts(root / "agents.json")
    files = _chosen(root, agents, max_parameters_b, facts)
    digest = hashlib.sha256()
    tasks = read_tasks(_one_of(root, "questions"), digest)
    index = {task.id: i for i, task in enumerate(tasks)}
    columns = []
    for name, path in files.items():
        digest.update(name.encode())
        columns.append(_read_answers(path, index, digest))
    rows = list(zip(*columns, strict=True))
    return RecordedAnswers(
        tasks=tasks,
        agents=tuple(files),
        answers=tuple(tuple(line.answer for line in row) for row in rows),
        outputs=tuple(tuple(line.output for line in row) for row in rows),
        correct=torch.tensor([[line.correct for line in row] for row in rows]),
        answered=torch.tensor([[line.answer is not None for line in row] for row in rows]),
        characters=torch.tensor([[len(line.output) for line in row] for row in rows]),
        parameters=torch.tensor([facts.get(name, _Facts()).parameters_b for name in files], dtype=torch.float64),
        price=torch.tensor([facts.get(name, _Facts()).price for name in files], dtype=torch.float64),
        digest=digest.hexdigest(),
    )


def read_tasks(path: str | Path, digest: Any = None) -> tuple[Task, ...]:
    """Read the tasks of a file of questions, `{id, question, gold}` a line, and a category if it has one.

    Args:
        path: JSON Lines, compressed if its name ends in `.gz`; a gold of null is no target.
        digest: a hash object to update with every line, if it is wanted.

    Raises:
        ValueError: in one line with the file, and the line where there is one: a file that cannot be read, a line that
            is no such record, an id that comes twice, no questions at all.
    """
    tasks = []
    for where, line in read_records(Path(path).expanduser(), digest or hashlib.sha256(), ("id", "question", "gold")):
        try:
            tasks.append(Task(line["question"], line["id"], _text(line["gold"]), _text(line.get("category"))))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{where}: expected texts for question and gold, got {str(line)[:60]}") from error
    if not tasks:
        raise ValueError(f"{path}: expected questions, got an empty file")
    return tuple(tasks)


class _Answer(NamedTuple):
    output: str = ""
    answer: str | None = None
    correct: bool = False


class _Facts(NamedTuple):
    parameters_b: float = math.nan
    price: float = math.nan


def _facts(path: Path) -> dict[str, _Facts]:
    """What `agents.json` tells; nothing if there is none."""
    if not path.is_file():
        return {}
    found = read_json(path)
    if not isinstance(found, dict) or not all(isinstance(facts, dict) for facts in found.values()):
        raise ValueError(f"{path}: expected {{agent: {{parameters_b, price}}}}, got {str(found)[:60]}")
    return {
        name: _Facts(*(_amount(path, name, key, facts.get(key)) for key in _Facts._fields))
        for name, facts in found.items()
    }


def _amount(path: Path, name: str, key: str, value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{path}: {name}.{key}: expected a number of at least 0 or null, got {value!r}")
    return float(value)


def _chosen(
    root: Path, agents: Sequence[str] | None, limit: float | None, facts: Mapping[str, _Facts]
) -> dict[str, Path]:
    """Agent -> its file, for those asked for."""
    folder = root / "answers"
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        for suffix in SUFFIXES:
            if path.name.endswith(suffix):
                name = path.name.removesuffix(suffix)
                if name in found:
                    raise ValueError(
                        f"{path}: expected one file of agent {name!r}, got {found[name].name} too: remove one"
                    )
                found[name] = path
    if not found:
        raise ValueError(f"{folder}: expected files <agent>.jsonl or <agent>.jsonl.gz, got none; check data_dir")
    names = list(found) if agents is None else list(agents)
    if unknown := [name for name in names if name not in found]:
        raise ValueError(f"{folder}: expected agents out of {', '.join(found)}, got {', '.join(unknown)}")
    if len(set(names)) < len(names):
        raise ValueError(f"expected every agent once, got {', '.join(names)}")
    kept = [n for n in names if limit is None or facts.get(n, _Facts()).parameters_b <= limit]
    if not kept:
        raise ValueError(
            f"{root / 'agents.json'}: expected agents of at most max_parameters_b={limit} billion parameters, "
            f"got none among {len(names)}: raise it or add parameters_b"
        )
    return {name: found[name] for name in kept}


def _one_of(root: Path, stem: str) -> Path:
    for suffix in SUFFIXES:
        if (path := root / f"{stem}{suffix}").is_file():
            return path
    raise ValueError(
        f"{root}: expected a folder with {' or '.join(stem + s for s in SUFFIXES)}, got none; check data_dir"
    )


def _read_answers(path: Path, index: Mapping[str, int], digest: Any) -> list[_Answer]:
    """One agent's lines, in the order of the tasks."""
    column = [_Answer()] * len(index)
    known = False
    for where, line in read_records(path, digest, ("id", "output", "answer", "correct")):
        if line["correct"] not in (True, False):
            raise ValueError(f"{where}: expected correct to be true or false, got {line['correct']!r}")
        try:
            answer, output = _text(line["answer"]), _text(line["output"]) or ""
        except TypeError as error:
            raise ValueError(f"{where}: {error}") from error
        if line["id"] in index:
            known = True
            answered = answer is not None and bool(answer.strip())
            column[index[line["id"]]] = _Answer(
                output, answer if answered else None, answered and bool(line["correct"])
            )
    if not known:
        raise ValueError(f"{path}: expected answers to some of the {len(index)} questions, got none; check the ids")
    return column


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"expected a text, a number or null, got {str(value)[:60]!r}")


def _indices(items: Sequence[int] | Tensor) -> list[int]:
    return [int(item) for item in items]
