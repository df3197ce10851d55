"""Methods side by side on the same tasks: means, paired differences, one table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from rich.table import Table
from torch import Tensor

from nsed_torch.evaluation.statistics import Estimate, estimate, paired
from nsed_torch.records import write_json


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of several methods on the tasks that each seed held out.

    Args:
        tasks: ids, in the order of the last axis of scores.
        scores: by method; NaN where a seed did not test a task.
    """

    tasks: tuple[str, ...]
    scores: Mapping[str, Float[Tensor, "seed task"]]

    @classmethod
    def of(cls, runs: Sequence[Mapping[str, Mapping[str, float]]]) -> "Comparison":
        """From one mapping a seed: method -> task -> score."""
        tasks = tuple(sorted({task for run in runs for scores in run.values() for task in scores}))
        return cls(
            tasks,
            {
                method: torch.tensor([[run[method].get(task, math.nan) for task in tasks] for run in runs])
                for method in runs[0]
            },
        )

    def estimates(self) -> dict[str, Estimate]:
        """Mean and 95% interval of each method."""
        return {method: estimate(scores) for method, scores in self.scores.items()}

    def differences(self, method: str) -> dict[str, Estimate]:
        """The method minus each of the others, task by task."""
        mine = self.scores[method]
        return {other: paired(mine, scores) for other, scores in self.scores.items() if other != method}

    def table(self, method: str = "consensus_tuned") -> Table:
        """What `nsed tune` prints: every method, and what the given one has over it."""
        table = Table(title=f"{len(self.tasks)} held-out tasks, 95% intervals", title_justify="left")
        for column in ("method", "accuracy", f"{method} minus it"):
            table.add_column(column)
        differences = self.differences(method)
        for name, value in self.estimates().items():
            table.add_row(name, shown(value), shown(differences[name], "+") if name in differences else "")
        return table

    def card(self, method: str = "consensus_tuned") -> str:
        """The same table in Markdown, for a model card."""
        differences = self.differences(method)
        lines = [
            "## Measured",
            "",
            f"Accuracy on held-out tasks, n = {len(self.tasks)}, 95% intervals over tasks and seeds.",
            "",
            f"| method | accuracy | {method} minus it |",
            "| --- | --- | --- |",
        ]
        for name, value in self.estimates().items():
            difference = shown(differences[name], "+") if name in differences else ""
            lines.append(f"| {name} | {shown(value)} | {difference} |")
        return "\n".join(lines)

    def write(self, folder: Path, method: str = "consensus_tuned", **facts: Any) -> None:
        """Write `metrics.json`: an entry a method, the paired differences, and facts about the run."""
        estimates = {name: value._asdict() for name, value in self.estimates().items()}
        differences = {f"{method} - {name}": value._asdict() for name, value in self.differences(method).items()}
        write_json(folder / "metrics.json", {**estimates, "paired": differences, **facts})


def shown(value: Estimate, sign: str = "") -> str:
    """A mean with the reach of its interval to either side; `sign="+"` for differences."""
    return f"{value.mean:{sign}.4f} ± {value.high - value.mean:.4f}"
