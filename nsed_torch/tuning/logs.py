"""Where a training run writes its numbers."""

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from nsed_torch.records.extras import install
from nsed_torch.records.files import naming, write_text
from nsed_torch.records.pace import time_left

PROJECT = "nsed_torch"

FILE = "file"
"""No tracker: the log alone."""

TRACKERS = ("tensorboard", "wandb", "trackio", "mlflow")
"""Of accelerate's, those that a log can be handed to as a run."""


class FileLog:
    """One line of JSON per step: nested numbers by name; and a tracker, which gets a step's numbers as it ends.

    The tracker's run is named by the log's folder and begins with the lines that are there, so that it is whole where
    a killed training goes on. "file" is none. TensorBoard's files go into `tensorboard` beside the log, over what was
    there; where others keep a run is their own setting.
    """

    def __init__(self, path: Path, tracker: str = FILE) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.tracker = path, tracker
        self._run: Any = None

    def write(self, step: int, record: Mapping[str, Any]) -> None:
        """Append a line."""
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **record}) + "\n")
        if self._run is not None:
            self._run.log(dict(_scalars({"step": step, **record})), step=step)
        elif self.tracker != FILE:
            self._begin()

    def close(self) -> None:
        """End the tracker's run, which has every line of the log."""
        if self.tracker != FILE:
            self._begin()
            self._run.finish()
            self._run = None

    def _begin(self) -> None:
        if self._run is None:
            self._run = _tracker(self.path.parent, self.tracker)
            for line in self.read():
                self._run.log(dict(_scalars(line)), step=line["step"])

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

    def __init__(self, path: Path, total: int, report: Callable[[str], None], tracker: str = FILE) -> None:
        super().__init__(path, tracker)
        self.total, self.report = total, report
        self._began: tuple[int, float] | None = None

    def write(self, step: int, record: Mapping[str, Any]) -> None:
        """Append a line, and tell."""
        super().write(step, record)
        first, began = self._began = self._began or (step, perf_counter())
        if step > first and step % max(1, self.total // 20) == 0:
            rest = time_left(perf_counter() - began, step - first, self.total - first)
            self.report(f"step {step} of {self.total}{rest}")


def check_tracker(name: str) -> None:
    """Refuse a tracker that is not there, before anything is trained; "file" is none."""
    if name not in (FILE, *TRACKERS):
        raise ValueError(f"logger: expected one of {', '.join((FILE, *TRACKERS))}, got {name!r}")
    if name != FILE and importlib.util.find_spec(name) is None:
        remedy = install("track") if name == "tensorboard" else f"pip install {name}"
        raise ValueError(f"expected {name} for logger={name}, got no such package: {remedy}")


def _tracker(folder: Path, name: str) -> Any:
    """A tracker of accelerate's whose run has begun."""
    check_tracker(name)
    from accelerate import PartialState, tracking  # noqa: PLC0415 - heavy

    PartialState()
    if name == "tensorboard":
        tracker: Any = tracking.TensorBoardTracker(name, folder, purge_step=0)
    elif name == "mlflow":
        tracker = tracking.MLflowTracker(PROJECT, run_name=str(folder))
    else:
        tracker = tracking.LOGGER_TYPE_TO_CLASS[name](PROJECT, name=str(folder))
    tracker.start()
    return tracker


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
