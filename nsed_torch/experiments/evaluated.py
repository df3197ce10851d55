"""What `nsed evaluate` leaves: the folder of a run, and the table of a sweep."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from nsed_torch.benchmarks import GradedTasks
from nsed_torch.evaluation.contest import Contested
from nsed_torch.evaluation.insight import Insight, insight
from nsed_torch.evaluation.pages import write_report
from nsed_torch.evaluation.plots import MethodPoint, plot_cost, plot_insight, plot_methods
from nsed_torch.evaluation.provenance import provenance
from nsed_torch.evaluation.results import Results
from nsed_torch.evaluation.run_folder import OUTCOMES, RESULTS
from nsed_torch.evaluation.tables import csv, latex, markdown, terminal
from nsed_torch.records import Outcome, Verdict, read_json, read_outcomes, to_json, write_files
from nsed_torch.records.withholding import withheld_outcome

SCHEMA_VERSION = 1
"""Of results.json; raised by one when a field changes its meaning or goes away."""

REPORT = "report.html"
WIDTH = 110
"""Characters of a line in a file or a pipe."""


def write_run(
    folder: Path,
    contested: Contested,
    graded: GradedTasks,
    settings: Mapping[str, Any],
    *,
    report: Callable[[str], None] = lambda text: None,
) -> Results:
    """Write everything that a run came to: results, outcomes, tables, plots and the page.

    Args:
        folder: of the run; traces are there already.
        contested: outcomes and deliberations.
        graded: the tasks.
        settings: the composed config as plain data.
        report: hears of what had to be left out.

    Returns:
        What `results.json` holds of the methods.
    """
    results = Results.of(contested.outcomes)
    outcomes = [withheld_outcome(o) if graded.withheld else o for o in contested.outcomes]
    found = measured(contested, graded)
    data = {
        "schema_version": SCHEMA_VERSION,
        "benchmark": {**graded.identity, "tasks": len(graded.tasks)},
        "withheld": graded.withheld,
        **results.to_json(),
        "insight": None if found is None else found.to_json(),
        "provenance": provenance(settings, {"seed": settings.get("seed")}),
    }
    write_files(
        {
            folder / OUTCOMES: "".join(outcome.to_line() for outcome in outcomes).encode(),
            folder / "tables" / "results.md": markdown(results).encode(),
            folder / "tables" / "results.csv": csv(results).encode(),
            folder / "tables" / "results.tex": latex(results).encode(),
            folder / RESULTS: (to_json(data) + "\n").encode(),
        }
    )
    try:
        draw_plots(results, found, folder / "plots")
    except ValueError as error:  # matplotlib is an extra
        report(f"no plots: {error}")
    write_report(folder)
    return results


def show(console: Console, results: Results) -> None:
    """Print the tables; where no terminal sets the width, wide enough for their rows."""
    (console if console.is_terminal else Console(highlight=False, width=WIDTH)).print(terminal(results))


def draw_plots(results: Results, found: Insight | None, folder: Path) -> None:
    """Methods with their intervals, cost against accuracy, and what the deliberations tell.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    points = [
        MethodPoint(name, method.accuracy.mean, method.accuracy.low, method.accuracy.high, method.tokens_per_task)
        for name, method in results.methods.items()
        if method.accuracy.mean is not None
    ]
    if points:
        plot_methods(points, folder / "methods.png")
        plot_cost(points, folder / "cost.png")
    if found is not None:
        plot_insight(found, folder)


def measured(contested: Contested, graded: GradedTasks) -> Insight | None:
    """What the deliberations tell; nothing without any, or where answers could not be graded."""
    not_run = any(outcome.verdict is Verdict.NOT_RUN for outcome in contested.outcomes)
    if not contested.traces or not_run:
        return None
    return insight(contested.traces, graded.grader.classes, question=graded.group)


def is_complete(folder: Path, name: str) -> bool:
    """Whether a folder holds a finished run of the config of this name."""
    if not (folder / RESULTS).is_file() or not (folder / REPORT).is_file():
        return False
    return bool(read_json(folder / RESULTS)["provenance"]["config_sha256"].startswith(name))


class EvaluationTable(Callback):
    """Puts the combinations of a sweep side by side; Hydra calls it at the sweep's end."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table, each combination against the first, and write `sweep.md` and `sweep.csv` beside the jobs."""
        folder = Path(config.hydra.sweep.dir)
        jobs = read_jobs(folder)
        if len(jobs) < 2:
            return
        outcomes = [replace(outcome, method=job) for job, found in jobs.items() for outcome in found]
        results = Results.of(outcomes, reference=next(iter(jobs)))
        write_files({folder / "sweep.md": markdown(results).encode(), folder / "sweep.csv": csv(results).encode()})
        show(Console(highlight=False), results)
        print(folder / "sweep.md")  # noqa: T201 - the result


def read_jobs(folder: Path) -> dict[str, list[Outcome]]:
    """The finished runs in a sweep's folder: the overrides that not all share -> outcomes of the reference method.

    Raises:
        ValueError: for files that this package cannot read.
    """
    found = []
    for path in sorted(folder.glob(f"*/{RESULTS}")):
        overrides = [str(o) for o in OmegaConf.load(path.parent / ".hydra" / "overrides.yaml")]
        reference = Results.from_json(read_json(path), str(path)).reference
        outcomes = read_outcomes(path.parent / OUTCOMES)
        found.append((overrides, [o for o in outcomes if o.method == reference]))
    shared = set.intersection(*(set(overrides) for overrides, _ in found)) if found else set()
    jobs = {" ".join(o for o in overrides if o not in shared): outcomes for overrides, outcomes in found}
    return dict(sorted(jobs.items(), key=lambda job: _natural(job[0])))


def _natural(text: str) -> list[tuple[float, str]]:
    """Sorts numbers in a text as numbers."""
    parts = re.split(r"([0-9]+(?:\.[0-9]+)?)", text)
    return [(float(part), "") if i % 2 else (0.0, part) for i, part in enumerate(parts)]
