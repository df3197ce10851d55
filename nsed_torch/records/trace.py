"""Traces: graded transcripts in a folder, to be studied many times without a model."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from safetensors import SafetensorError

from nsed_torch.records.checked import Record, json_line, plain_data
from nsed_torch.records.files import naming, read_bytes, write_files
from nsed_torch.records.lookalikes import one_line
from nsed_torch.records.transcript import Transcript

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

TRACES = "traces.jsonl"
EMBEDDINGS = "embeddings.safetensors"
ABOUT = "collect.json"  # what made the traces; written last


@dataclass(frozen=True)
class Trace(Record):
    """A transcript with its grades."""

    WHAT = "a trace"
    REMEDY = "rerun the nsed collect that wrote it, which asks no model again"

    transcript: Transcript
    grades: list[list[bool]]  # round by proposal: whether it is right
    answers: list[list[str | None]]  # round by proposal: its final answer
    # Round by proposal, where a benchmark knows: the last round, from 1, after which a memory should hold the note; 0
    # for none.
    needed: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rounds = self.transcript.rounds
        if not rounds:
            raise ValueError("expected at least one round, got none")
        sizes = [len(record.proposals) for record in rounds]
        proposers = [record.proposers for record in rounds]
        told: dict[str, list[Any]] = {"proposers": proposers, "grades": self.grades, "answers": self.answers}
        for name, rows in (told | ({"needed": self.needed} if self.needed else {})).items():
            if [len(row) for row in rows] != sizes:
                raise ValueError(f"expected {name} of {sizes} proposals a round, got {str(rows)[:60]}")
        for record, size in zip(rounds, sizes, strict=True):
            shapes = [[len(row) for row in rows] for rows in (record.ratings, record.vote_mask)]
            if shapes != [[size] * len(record.voters)] * 2 or len(record.classes) not in {0, size}:
                raise ValueError(
                    f"round {record.index}: expected {len(record.voters)} voters' ratings and vote_mask of {size} "
                    f"proposals, and a class for each or none, got rows of {shapes} and {record.classes}"
                )

    def to_line(self) -> str:
        """The transcript's JSON with `grades`, `answers` and perhaps `needed` beside its fields, in one line."""
        data = plain_data(self)
        return json_line(data.pop("transcript") | data)

    @classmethod
    def from_data(cls, data: Any, where: str) -> Self:
        """Read what `to_line` wrote."""
        return super().from_data(data | {"transcript": data} if isinstance(data, dict) else data, where)


class TraceWriter:
    """Writes a folder of traces so that a killed run can be repeated: `add` by batches, `finish`.

    A repeated run adds the same traces again, replayed from the call log. Lines that stand in the file already are left
    alone; from the first that differs, the file is written anew. So it holds at any moment what some run had come to,
    at most its last line torn, and in the end what a straight run would have written.
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
        with naming(self._file), self._file.open("r+b") as file:
            file.seek(self._position)
            if file.read(len(data)) != data:
                self._cut()
                file.seek(self._position)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        self._position += len(data)

    def finish(self, embed: "Callable[[Sequence[str]], Float[Tensor, 'text dim']]") -> None:
        """Say that all traces are there: drop what an earlier run had beyond them, and write the embeddings."""
        import safetensors.torch  # noqa: PLC0415 - torch is slow to import, and texts need none

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
            write_files({self.folder / EMBEDDINGS: safetensors.torch.save(tensors)})

    def _cut(self) -> None:
        """Drop every line behind the last that was added, and first what an earlier run made of the whole."""
        for name in (ABOUT, EMBEDDINGS):
            (self.folder / name).unlink(missing_ok=True)
        os.truncate(self._file, self._position)


def read_traces(folder: str | Path) -> Iterator[Trace]:
    """Read the traces of a folder of `nsed collect` in their order; an unfinished one gives the traces so far."""
    path = Path(folder).expanduser() / TRACES
    seen: set[str] = set()
    for number, trace in enumerate(Trace.read_lines(path), start=1):
        if (name := trace.transcript.task.id) in seen:
            raise ValueError(f"{path}:{number}: expected every task once, got {name!r:.60} again; {Trace.REMEDY}")
        seen.add(name)
        yield trace
    if not seen:
        raise ValueError(f"{path}: expected traces, got an empty file; {Trace.REMEDY}")


def read_embeddings(folder: str | Path) -> "dict[str, tuple[Float[Tensor, 'dim'], Float[Tensor, 'proposal dim']]]":
    """Read a folder's embeddings in float32.

    Returns:
        Task id -> embedding of the question, and of the proposals of all rounds, one round after the other.
    """
    import safetensors.torch  # noqa: PLC0415 - as above

    path = Path(folder).expanduser() / EMBEDDINGS
    try:
        tensors = safetensors.torch.load(read_bytes(path))
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise ValueError("expected finite numbers, got NaN or infinity")
        names = [key.removesuffix("/task") for key in tensors if key.endswith("/task")]
        return {name: (tensors[f"{name}/task"], tensors[f"{name}/proposals"]) for name in names}
    except FileNotFoundError as error:
        raise ValueError(
            f"{path}: there is no such file; run the same nsed collect again, which goes on where it was"
        ) from error
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise ValueError(
            f"{path}: not readable as embeddings ({one_line(error)}); remove it, then {Trace.REMEDY}"
        ) from error
