"""Where a training run writes its numbers."""

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nsed_torch.records.files import write_text


class FileLog:
    """One line of JSON per step."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path

    def write(self, step: int, record: Mapping[str, Any]) -> None:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as file:
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

    def close(self) -> None:
        """Every line is on disk already."""


class TensorBoardLog:
    """Scalars for TensorBoard; nested names are joined by slashes, items of lists numbered from 1."""

    def __init__(self, folder: Path) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise ValueError(
                "expected tensorboard for logger=tensorboard, got no such package: pip install nsed_torch[track]"
            )
        self._folder = folder
        self._open(None)

    def write(self, step: int, record: Mapping[str, Any]) -> None:
        """Add every number of the record."""
        for name, value in _scalars(record):
            self._writer.add_scalar(name, value, step)

    def resume(self, step: int) -> None:
        """Have the viewer hide what was written after a step."""
        self._writer.close()
        self._open(step + 1)

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()

    def _open(self, purge_step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - heavy, and an extra

        self._writer = SummaryWriter(self._folder, purge_step=purge_step)


Log = FileLog | TensorBoardLog
"""Takes one record per step: nested numbers by name."""


def _scalars(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{name}/")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield from _scalars({str(i): item for i, item in enumerate(value, start=1)}, f"{name}/")
        elif isinstance(value, int | float):
            yield name, float(value)
