"""The end of `nsed tune -m ...`: all combinations in one table, each against the first, task by task."""

import time
from pathlib import Path
from typing import Any, NamedTuple

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from nsed_torch.evaluation.comparison import Comparison, shown
from nsed_torch.evaluation.statistics import Estimate, paired
from nsed_torch.records import read_json, write_json


class Job(NamedTuple):
    """One combination of a sweep.

    Args:
        settings: the overrides that not all jobs share.
        comparison: of its methods on the held-out tasks.
    """

    settings: str
    comparison: Comparison


class AblationTable(Callback):
    """Collects what the jobs of a sweep wrote; Hydra calls it at the sweep's two ends."""

    def __init__(self) -> None:
        self._began = 0.0

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Note the time: results that are older belong to another sweep into the same folder."""
        self._began = time.time()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table and write `ablation.json` beside the jobs' folders."""
        folder = Path(config.hydra.sweep.dir)
        jobs = read_jobs(folder, self._began)
        if len(jobs) < 2:
            return
        Console(highlight=False).print(ablation_table(jobs))
        write_json(folder / "ablation.json", [_row(job, jobs[0]) for job in jobs])
        print(folder / "ablation.json")  # noqa: T201 - the result


def read_jobs(folder: Path, since: float = 0.0) -> list[Job]:
    """The finished jobs in numbered folders, in the order of their numbers.

    Args:
        folder: of the sweep.
        since: seconds of wall time; jobs that finished earlier are left out.
    """
    found = []
    numbered = (path.parent for path in folder.glob("*/metrics.json") if path.parent.name.isdigit())
    for job in sorted(numbered, key=lambda path: int(path.name)):
        if (job / "metrics.json").stat().st_mtime >= since:
            metrics = read_json(job / "metrics.json")
            runs = [read_json(job / f"seed_{seed['seed']}" / "result.json")["scores"] for seed in metrics["seeds"]]
            found.append((metrics["overrides"], Comparison.of(runs)))
    shared = set.intersection(*(set(overrides) for overrides, _ in found)) if found else set()
    return [Job(" ".join(o for o in overrides if o not in shared), comparison) for overrides, comparison in found]


def ablation_table(jobs: list[Job], method: str = "consensus_tuned") -> Table:
    """One line a combination: the method's accuracy, what tuning added, and what sets it off from the first line."""
    n = len(jobs[0].comparison.tasks)
    title = f"{method}, {n} held-out tasks, 95% intervals, differences task by task"
    table = Table(title=title, title_justify="left")
    for column in ("settings", "accuracy", "minus untrained", "minus the first"):
        table.add_column(column, no_wrap=column != "settings")
    for job in jobs:
        row = _estimates(job, jobs[0], method)
        differences = (shown(row[name], "+") for name in ("minus_untrained", "minus_first"))
        table.add_row(job.settings, shown(row["accuracy"]), *differences)
    return table


def _estimates(job: Job, first: Job, method: str) -> dict[str, Estimate]:
    mine, untrained = job.comparison.scores[method], job.comparison.scores["consensus_untrained"]
    return {
        "accuracy": job.comparison.estimates()[method],
        "minus_untrained": paired(mine, untrained),
        "minus_first": paired(mine, first.comparison.scores[method]),
    }


def _row(job: Job, first: Job) -> dict[str, Any]:
    estimates = _estimates(job, first, "consensus_tuned")
    return {"settings": job.settings, **{name: value._asdict() for name, value in estimates.items()}}
