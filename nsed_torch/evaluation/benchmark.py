"""Timing two ways of doing the same work side by side."""

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch


@dataclass(frozen=True)
class Comparison:
    """One line of a benchmark: our way against the other, taken in turns in one run.

    Args:
        name: what was done.
        ours: what ours is, in words.
        other: what the other is, in words.
        ours_seconds: one time a repeat.
        other_seconds: one time a repeat.
    """

    name: str
    ours: str
    other: str
    ours_seconds: tuple[float, ...]
    other_seconds: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """How many times as long the other took, repeat by repeat."""
        return [b / a for a, b in zip(self.ours_seconds, self.other_seconds, strict=True)]

    @property
    def ratio(self) -> float:
        """Median of `ratios`."""
        return statistics.median(self.ratios)

    def as_json(self) -> dict[str, Any]:
        """All times, and the ratio with its spread."""
        spread = {"ratio": self.ratio, "least": min(self.ratios), "most": max(self.ratios)}
        return {**vars(self), **spread}


def compare(
    name: str,
    *,
    ours: tuple[str, Callable[[], object]],
    other: tuple[str, Callable[[], object]],
    repeats: int,
) -> Comparison:
    """Run both in turns, after one round of each to warm up.

    Args:
        name: what is done.
        ours: what ours is, and how to do it.
        other: what the other is, and how to do it.
        repeats: timed rounds, at least 1.

    Raises:
        ValueError: if `repeats` is below 1.
    """
    if repeats < 1:
        raise ValueError(f"expected at least 1 repeat, got {repeats}")
    times = [(_seconds(ours[1]), _seconds(other[1])) for _ in range(repeats + 1)][1:]
    ours_seconds, other_seconds = zip(*times, strict=True)
    return Comparison(name, ours[0], other[0], ours_seconds, other_seconds)


def hardware() -> Mapping[str, Any]:
    """Machine and versions, for the record."""
    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    packages = ("nsed_torch", "torch", "transformers", "bitsandbytes", "peft")
    return {
        "machine": platform.machine(),
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "accelerator": accelerator,
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start
