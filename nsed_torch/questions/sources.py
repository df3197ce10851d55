"""Rows of benchmarks: from a file below a folder of the user's, or from the Hub.

Every loader of a published set takes the same settings: `data_dir`, a folder that holds the file its docstring names,
None or "" for the Hub; and, where questions say how to answer, the `prompt` behind every one. `hub_tasks` takes any
other set on the Hub, and what lies here and `datasets` can read. A source that cannot be read, or a row that
is no question, is a ValueError in one line that shows no text, for some sets are not to be revealed.
"""

import gzip
import hashlib
import importlib.util
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsed_torch.questions.answers.kinds import Kind
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader, Grader
from nsed_torch.records.extras import missing
from nsed_torch.records.files import read_bytes
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality

Entries = Iterable[tuple[str, str, str, str]]  # id, question, target, stratum


@dataclass(frozen=True)
class Hub:
    """A dataset on the Hugging Face Hub, pinned, or what lies here and `datasets` can read."""

    repo: str  # or a folder or file
    revision: str  # commit or tag
    config: str = ""  # "" for the only one
    split: str = "test"
    files: tuple[str, ...] = ()  # JSON Lines of the repository to read instead, for one that keeps a loading script
    without: tuple[str, ...] = ()  # columns that are never read
    gated: bool = False  # whether its terms must be accepted first
    instead: str = "pass data_dir=DIR"  # what to do where it cannot be read

    @property
    def identity(self) -> dict[str, Any]:
        """Which rows these are."""
        about = {name: getattr(self, name) for name in ("repo", "revision", "config", "split")}
        return about | ({"files": list(self.files)} if self.files else {})


@dataclass(frozen=True)
class Row:
    """One row. Its faults name the place and the column and never show a value."""

    where: str  # file and line, or dataset and row
    values: Mapping[str, Any]  # by column

    def value(self, *names: str) -> Any:
        """What stands in the first of these columns that the row has and that is not null; else None."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def text(self, *names: str) -> str:
        """The same as a text that is not blank; a whole number becomes one."""
        value = self.value(*names)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            got = "none" if isinstance(value, str | None) else type(value).__name__
            raise self.fault(f"a text in column {' or '.join(names)}", got)
        return value

    def texts(self, *names: str) -> list[str]:
        """The same as a list of texts that is not empty."""
        value = self.value(*names)
        if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
            raise self.fault(f"a list of texts in column {' or '.join(names)}", type(value).__name__)
        return value

    def number(self, *names: str) -> int:
        """The same as a whole number, also one written as a text."""
        value = self.value(*names)
        if isinstance(value, bool) or not str(value).strip().lstrip("-").isdecimal():
            raise self.fault(f"a whole number in column {' or '.join(names)}", type(value).__name__)
        return int(value)

    def fault(self, expected: str, got: str) -> ValueError:
        """What is wrong with the row, in one line."""
        return ValueError(f"{self.where}: expected {expected}, got {got}; fetch the benchmark's own file again")


@dataclass(frozen=True)
class Rows:
    """The rows of a benchmark and where they come from."""

    name: str  # the benchmark's
    rows: tuple[Row, ...]
    identity: Mapping[str, Any]  # the source: file and sha256 of its bytes, or dataset and revision

    def graded(
        self, entries: Iterable[tuple[Task, str]], grader: Grader, *, withheld: bool = False, **about: Any
    ) -> GradedTasks:
        """Tasks with their strata, "" for none, and their grader.

        `about` are the settings that make the questions what they are, for the identity. No task at all, or an id that
        comes twice, is a ValueError.
        """
        strata: dict[str, str] = {}
        tasks = []
        for task, stratum in entries:
            if task.id in strata:
                raise ValueError(f"{self.name}: expected every id once, got {task.id!r:.60} again; remove the row")
            strata[task.id] = stratum
            tasks.append(task)
        if not tasks:
            raise ValueError(f"{self.name}: expected questions, got none of {len(self.rows)} rows; check the source")
        identity = {"name": self.name, **self.identity, **about, **grader.identity()}
        return GradedTasks(
            tuple(tasks), grader, identity, {name: text for name, text in strata.items() if text}, withheld=withheld
        )

    def answered(
        self, entries: Entries, prompt: str, math_verify: bool | None, kind: Kind | None = None
    ) -> GradedTasks:
        """Tasks out of (id, question, target, stratum), right if equal to the target."""
        tasks = [
            (Task(paragraphs(text.strip(), prompt), name, target), stratum) for name, text, target, stratum in entries
        ]
        return self.graded(tasks, AnswerGrader(Equality(math_verify), kind), prompt=prompt)


def hub_tasks(
    repo: str,
    question: str,
    target: str,
    *,
    revision: str = "main",
    config: str = "",
    split: str = "test",
    id: str = "",  # noqa: A002 - the column's usual name
    stratum: str = "",
    prompt: str = "",
    math_verify: bool | None = None,
    kind: Kind | None = None,
) -> GradedTasks:
    """A set of the user's: a question a row, and the answer that a right one equals, as by `AnswerGrader`.

    Args:
        repo: OWNER/NAME on the Hub, or a folder or file here that `datasets` reads (JSON Lines, CSV, Parquet).
        question: its column; likewise the next.
        target: texts or whole numbers.
        revision: commit or tag on the Hub; main moves.
        config: "" for the only one.
        split: as the set names it; of a file, all of it.
        id: the column of ids; "" names rows by their place in the split.
        stratum: the column by which results are told apart; "" has none.
        prompt: how to answer, behind every question.
        math_verify: as in `Equality`.
        kind: of all answers; None guesses it from each target.

    Raises:
        ValueError: in one line, for a set that cannot be read or that lacks a column.
    """
    if not repo:
        raise ValueError("expected a set of questions, got none: pass tasks.repo=OWNER/NAME, a folder or a file")
    here = Path(repo).expanduser()
    hub = Hub(
        str(here) if here.exists() else repo,
        revision,
        config,
        split,
        instead="name a folder or file here that datasets reads",
    )
    source = read_rows("hub", "", hub, None)
    has = set().union(*(row.values for row in source.rows))
    for role, column in {"question": question, "target": target, "id": id, "stratum": stratum}.items():
        if column and column not in has:
            raise ValueError(f"{repo}: expected {role} to be one of {', '.join(sorted(has))}, got {column!r}")
    entries = (
        (
            row.text(id) if id else f"{split}-{place}",
            row.text(question),
            row.text(target),
            row.text(stratum) if stratum else "",
        )
        for place, row in enumerate(source.rows)
    )
    return source.answered(entries, prompt, math_verify, kind)


def read_rows(name: str, file: str, hub: Hub, data_dir: str | None) -> Rows:
    """A benchmark's rows: from JSON Lines below `data_dir`, compressed if the name ends in `.gz`, or from the Hub."""
    if not data_dir:
        return Rows(name, tuple(_hub_rows(hub)), hub.identity)
    path = Path(data_dir).expanduser() / file
    data = read_file(path, hub)
    try:
        lines = gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error}); fetch it again") from error
    return Rows(name, tuple(parse_rows(lines, str(path))), file_identity(file, data))


def read_file(path: Path, hub: Hub) -> bytes:
    """A file's bytes; a fault names the path and, for a missing file, the other source."""
    try:
        return read_bytes(path)
    except FileNotFoundError as error:
        raise ValueError(
            f"{path}: there is no such file; put it there, or pass data_dir=null to read {hub.repo} from the Hub"
        ) from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); check data_dir") from error


def file_identity(file: str, data: bytes) -> dict[str, str]:
    """Which file: its name below `data_dir`, and the sha256 of its bytes."""
    return {"file": file, "sha256": hashlib.sha256(data).hexdigest()}


def parse_rows(data: bytes, name: str) -> Iterator[Row]:
    r"""Read JSON Lines; lines end with "\n" alone, for texts may hold other line separators."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            where = f"{name}:{number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                # The error's own text may quote the line.
                raise ValueError(f"{where}: not valid JSON ({type(error).__name__}); fetch the file again") from error
            if not isinstance(record, dict):
                raise ValueError(f"{where}: expected an object, got {type(record).__name__}; fetch the file again")
            yield Row(where, record)


class NotHereError(ValueError):
    """A set of the Hub that was not read, for nothing is to be downloaded."""


NO_DOWNLOADS = ContextVar("NO_DOWNLOADS", default=False)
"""Whether sets are read that are on this machine and no others, as where costs are counted ahead of a run."""


def _cached(hub: Hub) -> bool:
    """Whether `datasets` was here before and kept the set."""
    if importlib.util.find_spec("datasets") is None:
        return False
    from datasets import config  # noqa: PLC0415 - an extra; costs seconds

    return (Path(config.HF_DATASETS_CACHE) / hub.repo.replace("/", "___")).is_dir()


def _hub_rows(hub: Hub) -> Iterator[Row]:
    if NO_DOWNLOADS.get() and not Path(hub.repo).exists() and not _cached(hub):
        raise NotHereError(f"{hub.repo}: is not on this machine; {hub.instead}")
    try:
        import datasets  # noqa: PLC0415 - an extra; costs seconds
    except ImportError as error:
        wanted = missing("the package datasets", f"{hub.repo} of the Hub", "bench", error)
        raise ValueError(f"{wanted}, or {hub.instead}") from error
    file = Path(hub.repo)
    try:
        if file.is_file():
            table = datasets.load_dataset(str(file.parent), data_files={hub.split: file.name}, split=hub.split)
        elif hub.files:
            urls = [f"hf://datasets/{hub.repo}@{hub.revision}/{file}" for file in hub.files]
            table = datasets.load_dataset("json", data_files=urls, split="train")
        else:
            table = datasets.load_dataset(hub.repo, hub.config or None, split=hub.split, revision=hub.revision)
        table = table.remove_columns([name for name in hub.without if name in table.column_names])
    except Exception as error:  # datasets, fsspec and the Hub's client each have errors of their own
        terms = "accept its terms on the Hub, run hf auth login, " if hub.gated else "check the connection, "
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{hub.repo}: cannot be read from the Hub ({reason}); {terms}or {hub.instead}") from error
    for number, record in enumerate(table):
        yield Row(f"{hub.repo}@{hub.revision}, row {number}", record)


def paragraphs(*parts: str) -> str:
    """Those parts that say something, a blank line between them."""
    return "\n\n".join(filter(None, parts))
