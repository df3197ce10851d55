"""What `nsed evaluate` leaves: the folder of a run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nsed_torch.benchmarks import GradedTasks
from nsed_torch.benchmarks.stepwise import StepwiseTasks
from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.evaluation.contest import Contested
from nsed_torch.evaluation.horizon import ended_in_time, horizons, step_errors
from nsed_torch.evaluation.insight import adoption, insight
from nsed_torch.evaluation.pages import write_report
from nsed_torch.evaluation.plots import plot_cost, plot_rounds
from nsed_torch.evaluation.provenance import provenance
from nsed_torch.evaluation.run_folder import OUTCOMES, RESULTS
from nsed_torch.evaluation.statistics import plain, share
from nsed_torch.evaluation.tables import csv, latex, markdown
from nsed_torch.functional.ties import Ties
from nsed_torch.records import Trace, Verdict, write_files
from nsed_torch.records.files import to_json
from nsed_torch.records.withholding import withheld_outcome

SCHEMA_VERSION = 3
"""Of results.json; raised by one when a field changes its meaning or goes away."""

REPORT = "report.html"


def write_run(
    folder: Path,
    contested: Contested,
    graded: GradedTasks,
    settings: Mapping[str, Any],
    *,
    report: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Write everything that a run came to beside its traces: comparison, outcomes, tables, plots and the page.

    `settings` is the composed config as plain data; `report` hears of what had to be left out.
    """
    comparison = Comparison.of(contested.outcomes, ties=Ties.named(settings.get("ties", Ties.FIRST)))
    outcomes = [withheld_outcome(o) if graded.withheld else o for o in contested.outcomes]
    not_run = any(outcome.verdict is Verdict.NOT_RUN for outcome in contested.outcomes)
    found = insight(contested.traces, question=graded.group) if contested.traces and not not_run else None
    if found is not None and graded.suggestions:
        found["adoption"] = adoption(contested.traces, graded)
    if found is not None and isinstance(graded, StepwiseTasks) and contested.traces[0].transcript.unit == "step":
        found["steps"] = steps_insight(contested, graded)
    data = {
        "schema_version": SCHEMA_VERSION,
        "benchmark": {**graded.identity, "tasks": len(graded.tasks)},
        "withheld": graded.withheld,
        **comparison.to_json(),
        "insight": plain(found),
        "provenance": provenance(settings, {"seed": settings.get("seed")}),
    }
    write_files(
        {
            folder / OUTCOMES: "".join(outcome.to_line() for outcome in outcomes).encode(),
            folder / "tables" / "results.md": markdown(comparison).encode(),
            folder / "tables" / "results.csv": csv(comparison).encode(),
            folder / "tables" / "results.tex": latex(comparison).encode(),
            folder / RESULTS: (to_json(data) + "\n").encode(),
        }
    )
    try:
        draw_plots(comparison, found, folder / "plots")
    except ValueError as error:  # matplotlib is an extra
        report(f"no plots: {error}")
    write_report(folder)
    return comparison


def steps_insight(contested: Contested, graded: StepwiseTasks) -> dict[str, Any]:
    """Who errs how often in a step, what that foretells, how far methods get, and how often a team ends in time."""
    transcripts = [trace.transcript for trace in contested.traces]
    chains = [graded.chains[graded.group(transcript.task)] for transcript in transcripts]
    in_time = ended_in_time(transcripts, chains)
    lengths = {name: len(graded.chains[name]) for name in {graded.group(task) for task in graded.tasks}}
    families: dict[str, list[Trace]] = {}
    for trace in contested.traces:
        families.setdefault(graded.strata[graded.group(trace.transcript.task)], []).append(trace)
    return {
        **step_errors(contested.traces),
        "families": {name: step_errors(those) for name, those in families.items()} if len(families) > 1 else {},
        # One length says nothing about others.
        "horizon": horizons(contested.outcomes, lengths) if len({*lengths.values()}) > 1 else {},
        "in_time": share(sum(in_time), len(in_time)),
    }


def draw_plots(comparison: Comparison, found: Mapping[str, Any] | None, folder: Path) -> None:
    """Cost against accuracy of the methods, and accuracy by round of the deliberations.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    methods = {name: method for name, method in comparison.methods.items() if method.accuracy.mean is not None}
    if methods:
        plot_cost(methods, folder / "cost.png")
    if found is not None:
        plot_rounds(found["course"], found["tasks"], folder / "rounds.png")


def is_complete(folder: Path) -> bool:
    """Whether a folder, which was opened for this run, holds all that it writes."""
    return (folder / RESULTS).is_file() and (folder / REPORT).is_file()
