"""Two ways of doing the same work, timed in turns in one run."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

Way = tuple[str, Callable[[], object]]
"""What a way of doing the work is, in words, and how to do it."""


@dataclass(frozen=True)
class Measurement:
    """One line of the table: our way against another, in `unit` ("s" or "MiB"), less is better; a value per repeat."""

    name: str
    ours: str
    other: str
    ours_values: tuple[float, ...]
    other_values: tuple[float, ...]
    unit: str = "s"
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        """How many times as much the other took, repeat by repeat."""
        return [b / a for a, b in zip(self.ours_values, self.other_values, strict=True)]

    @property
    def ratio(self) -> float:
        """Median of `ratios`."""
        return statistics.median(self.ratios)

    def as_json(self) -> dict[str, Any]:
        """All values, and the ratio with its spread."""
        spread = {"ratio": self.ratio, "least": min(self.ratios), "most": max(self.ratios)}
        return {**vars(self), "facts": dict(self.facts), **spread}


def compare(
    name: str,
    *,
    ours: Way,
    others: Sequence[Way],
    repeats: int,
    scales: Sequence[float] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> list[Measurement]:
    """Time our way and the others in turns; callers have warmed all of them up.

    Args:
        name: what is done.
        ours: our way.
        others: what it is compared with.
        repeats: timed rounds, at least 1.
        scales: for each other way, how many times its work is the whole work; None is once.
        facts: for every line.

    Returns:
        A line for each other way.
    """
    times = [[seconds(work) for _, work in (ours, *others)] for _ in range(repeats)]
    mine, *theirs = zip(*times, strict=True)
    return [
        Measurement(name, ours[0], words, mine, tuple(scale * t for t in taken), facts=facts or {})
        for (words, _), taken, scale in zip(others, theirs, scales or [1.0] * len(others), strict=True)
    ]


def seconds(work: Callable[[], object]) -> float:
    """How long something takes, an accelerator's work included."""
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def show(lines: Sequence[Measurement], title: str, console: Console | None = None) -> None:
    """The table on standard output or a console of one's own, and each line's facts below it."""
    table = Table(title=title, title_justify="left")
    for column in ("what", "ours", "against", "ratio", "spread"):
        table.add_column(column)
    for line in lines:
        table.add_row(
            line.name,
            f"{line.ours}: {statistics.median(line.ours_values):.4g} {line.unit}",
            f"{line.other}: {statistics.median(line.other_values):.4g} {line.unit}",
            f"{line.ratio:.2f}",
            f"{min(line.ratios):.2f} to {max(line.ratios):.2f}",
        )
    console = console or Console(width=140)
    console.print(table)
    console.print("ratio: how many times as much the other took, median of the repeats; spread: least to most")
    for line in lines:
        if line.facts:
            facts = (
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in line.facts.items()
            )
            console.print(f"{line.name}, against {line.other}: {', '.join(facts)}")
