"""Where a training run writes its numbers."""

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from nsed_torch.records.files import naming, write_text
from nsed_torch.records.pace import time_left


class FileLog:
    """One line of JSON per step: nested numbers by name."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path

    def write(self, step: int, record: Mapping[str, Any]) -> None:
        """Append a line."""
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **record}) + "\n")

    def resume(self, step: int) -> None:
        """Keep whole lines up to a step: what came later, or was cut off by a kill, will come again."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        kept = []
        for line in lines:
            with contextlib.suppress(ValueError):
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
        write_text(self.path, "".join(kept))

    def read(self) -> list[dict[str, Any]]:
        """Every line."""
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


class ToldLog(FileLog):
    """A log that says about every twentieth of its steps how far it is, and how long the rest takes."""

    def __init__(self, path: Path, total: int, report: Callable[[str], None]) -> None:
        super().__init__(path)
        self.total, self.report = total, report
        self._began: tuple[int, float] | None = None

    def write(self, step: int, record: Mapping[str, Any]) -> None:
        """Append a line, and tell."""
        super().write(step, record)
        first, began = self._began = self._began or (step, perf_counter())
        if step > first and step % max(1, self.total // 20) == 0:
            rest = time_left(perf_counter() - began, step - first, self.total - first)
            self.report(f"step {step} of {self.total}{rest}")


def to_tensorboard(log: FileLog) -> None:
    """Write a finished log as TensorBoard reads it, into `tensorboard` beside it, over what was there."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError(
            "expected tensorboard for logger=tensorboard, got no such package: pip install nsed_torch[track]"
        )
    from accelerate.tracking import TensorBoardTracker  # noqa: PLC0415 - heavy, and an extra

    tracker = TensorBoardTracker("tensorboard", log.path.parent, purge_step=0)
    tracker.start()
    for line in log.read():
        tracker.log(dict(_scalars(line)), step=line["step"])
    tracker.finish()


def _scalars(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Numbers with names joined by slashes, items of lists numbered from 1."""
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{name}/")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield from _scalars({str(i): item for i, item in enumerate(value, start=1)}, f"{name}/")
        elif isinstance(value, int | float):
            yield name, float(value)
