"""Traces: graded transcripts in a folder, to be studied many times without a model."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from nsed_torch.records.checked import as_line, rebuild
from nsed_torch.records.files import parse_json, write_bytes, write_json
from nsed_torch.records.transcript import Transcript

TRACES = "traces.jsonl"
EMBEDDINGS = "embeddings.safetensors"
ABOUT = "collect.json"

_REMEDY = "rerun the nsed collect that wrote it, which asks no model again"


@dataclass(frozen=True)
class Trace:
    """A transcript with its grades.

    Raises:
        ValueError: unless there is a round, one proposer, grade and answer for every proposal, and one rating for every
            voter and proposal.
    """

    transcript: Transcript
    grades: list[list[bool]]  # round by proposal: whether it is right
    answers: list[list[str | None]]  # round by proposal: its final answer

    def __post_init__(self) -> None:
        rounds = self.transcript.rounds
        if not rounds:
            raise ValueError("expected at least one round, got none")
        proposals = [len(record.proposals) for record in rounds]
        for name, rows in (("grades", self.grades), ("answers", self.answers)):
            if [len(row) for row in rows] != proposals:
                raise ValueError(f"expected {name} of {proposals} proposals a round, got {str(rows)[:60]}")
        for record, count in zip(rounds, proposals, strict=True):
            where, voters = f"round {record.index}", len(record.voters)
            if len(record.classes) not in {0, count}:
                raise ValueError(f"{where}: expected a class for each of {count} proposals, got {record.classes}")
            shapes = [[len(row) for row in rows] for rows in (record.ratings, record.vote_mask)]
            if len(record.proposers) != count or shapes != [[count] * voters] * 2:
                raise ValueError(
                    f"{where}: expected {voters} voters' ratings and vote_mask of {len(record.proposers)} proposals, "
                    f"got {count} proposals and rows of {shapes}"
                )

    def to_line(self) -> str:
        """The transcript's JSON with `grades` and `answers` beside its fields, in one line."""
        return as_line(dataclasses.asdict(self.transcript) | {"grades": self.grades, "answers": self.answers})

    @classmethod
    def from_line(cls, line: bytes, where: str) -> "Trace":
        """Read what `to_line` wrote; anything else is a ValueError in one line with `where`."""
        data = parse_json(line, where, _REMEDY)
        transcript = Transcript.from_data(data, where)
        try:
            graded: _Grades = rebuild(_Grades, data)
            return cls(transcript, graded.grades, graded.answers)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: not a trace ({error}); {_REMEDY}") from error


@dataclass(frozen=True)
class _Grades:
    """What a trace's line has beside the transcript's fields."""

    grades: list[list[bool]]
    answers: list[list[str | None]]


class TraceWriter:
    """Writes a folder of traces so that a killed run can be repeated: `add` by batches, `finish`, `describe`.

    A repeated run adds the same traces again, replayed from the call log. Lines that stand in the file already are left
    alone; from the first that differs, the file is written anew. So it holds at any moment what some run had come to,
    at most its last line torn, and in the end what a straight run would have written.

    Raises:
        OSError: if the folder, which is made if missing, cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / TRACES
        self._file.open("ab").close()
        self._position = 0

    def add(self, traces: Sequence[Trace]) -> None:
        """Add the traces of a batch; on return they are on disk."""
        data = "".join(trace.to_line() for trace in traces).encode()
        with self._file.open("r+b") as file:
            file.seek(self._position)
            if file.read(len(data)) != data:
                self._cut()
                file.seek(self._position)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        self._position += len(data)

    def finish(self, embed: Callable[[Sequence[str]], Float[Tensor, "text dim"]]) -> None:
        """Say that all traces are there: drop what an earlier run had beyond them, and write the embeddings."""
        if self._file.stat().st_size > self._position:
            self._cut()
        # Whatever changed a trace has removed these; what is left belongs to the very same texts.
        if not (self.folder / EMBEDDINGS).exists():
            tensors = {}
            for trace in read_traces(self.folder):
                task = trace.transcript.task
                texts = [proposal.text for record in trace.transcript.rounds for proposal in record.proposals]
                tensors[f"{task.id}/task"] = embed([task.question])[0].float().contiguous()
                tensors[f"{task.id}/proposals"] = embed(texts).float().contiguous()
            write_bytes(self.folder / EMBEDDINGS, safetensors.torch.save(tensors))

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write what made the traces, JSON data."""
        write_json(self.folder / ABOUT, about)

    def _cut(self) -> None:
        """Drop every line behind the last that was added, and first what an earlier run made of the whole."""
        for name in (ABOUT, EMBEDDINGS):
            (self.folder / name).unlink(missing_ok=True)
        os.truncate(self._file, self._position)


def read_traces(folder: str | Path) -> Iterator[Trace]:
    """Read the traces of a folder of `nsed collect` in their order; an unfinished one gives the traces so far.

    Raises:
        ValueError: in one line with file and line: none to read, a line that is no trace, a task that comes twice.
    """
    path = Path(folder).expanduser() / TRACES
    seen: set[str] = set()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                trace = Trace.from_line(line, f"{path}:{number}")
                if (name := trace.transcript.task.id) in seen:
                    raise ValueError(f"{path}:{number}: expected every task once, got {name!r} again; {_REMEDY}")
                seen.add(name)
                yield trace
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); expected a folder of nsed collect") from error
    if not seen:
        raise ValueError(f"{path}: expected traces, got an empty file; {_REMEDY}")


def read_embeddings(folder: str | Path) -> dict[str, tuple[Float[Tensor, "dim"], Float[Tensor, "proposal dim"]]]:
    """Read a folder's embeddings in float32.

    Returns:
        Task id -> embedding of the question, and of the proposals of all rounds, one round after the other.

    Raises:
        ValueError: in one line, if the file is missing, as in a folder whose run has not ended, or is none of ours.
    """
    path = Path(folder).expanduser() / EMBEDDINGS
    try:
        tensors = safetensors.torch.load(path.read_bytes())
        names = [key.removesuffix("/task") for key in tensors if key.endswith("/task")]
        return {name: (tensors[f"{name}/task"], tensors[f"{name}/proposals"]) for name in names}
    except FileNotFoundError as error:
        raise ValueError(
            f"{path}: there is no such file; run the same nsed collect again, which goes on where it was"
        ) from error
    except (OSError, SafetensorError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not readable as embeddings ({reason}); remove it, then {_REMEDY}") from error
