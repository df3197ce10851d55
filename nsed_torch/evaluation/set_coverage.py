"""How often answer sets held the truth, how many decided, and what a decision is worth: overall and by category."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from nsed_torch.evaluation.plots import BLUE, draw_points, new_axes, write_png
from nsed_torch.evaluation.statistics import Estimate, mean_score, shown
from nsed_torch.evaluation.tables import terminal_table

SHARES = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
"""Shares of the tasks, the surest first, whose accuracy is shown: a risk-coverage curve."""


def coverage_summary(by_task: Mapping[str, Mapping[str, Any]], coverage: float) -> dict[str, Any]:
    """What sets came to on tasks that nothing was fitted to.

    Tasks have {covered, size, decided, right, chance, category}, as `training.answer_sets.set_rows` gives them.
    `statistics.plain` makes JSON data of the result; `decided` is the share of tasks whose set is one answer alone,
    `surest` the accuracy of the surest tasks by their share.
    """
    rows = list(by_task.values())
    decided = [row for row in rows if row["decided"]]
    categories = sorted({row["category"] for row in rows} - {""})
    surest = sorted(rows, key=lambda row: -row["chance"])
    return {
        "promised": coverage,
        "covered": _share(rows, "covered"),
        "decided": _share(rows, "decided"),
        "accuracy_of_decided": _share(decided, "right"),
        "accuracy": _share(rows, "right"),
        "mean_size": sum(row["size"] for row in rows) / len(rows),
        "by_category": {c: _share((row for row in rows if row["category"] == c), "covered") for c in categories},
        "surest": {f"{share:g}": _share(surest[: round(share * len(surest))], "right") for share in SHARES},
    }


def coverage_tables(summary: Mapping[str, Any]) -> list[Table]:
    """What `nsed tune coverage=...` prints: the promise kept, and accuracy where only the surest tasks are answered."""
    covered = {"all": summary["covered"], **summary["by_category"]}
    curve = {f"{float(share):.0%}": accuracy for share, accuracy in summary["surest"].items()}
    curve[f"one answer in the set: {summary['decided'].mean:.1%}"] = summary["accuracy_of_decided"]
    return [
        terminal_table(
            [["tasks", "n", "sets that hold the truth"], *([c, str(e.n), shown(e)] for c, e in covered.items())],
            title=f"sets of answers, promised {summary['promised']:.0%}",
        ),
        terminal_table(
            [["share of tasks", "accuracy"], *([share, shown(e)] for share, e in curve.items())],
            title="answered alone, the surest first",
        ),
    ]


def coverage_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Share of errors against the share of tasks that are answered, the surest first: a risk-coverage curve."""
    axes, at, risks = new_axes(6.0, 4.0), [], []
    for share, e in summary["surest"].items():
        if e.mean is not None:
            low, high = (None if end is None else 1 - end for end in (e.high, e.low))
            at.append(float(share))
            risks.append(Estimate(e.n, 1 - e.mean, low, high))
    axes.plot(at, [risk.mean for risk in risks], color=BLUE, linewidth=1.2)
    draw_points(axes, at, risks, color=BLUE)
    axes.set(xlabel="share of tasks answered, the surest first", ylabel="share of wrong answers", xlim=(0, 1.03))
    axes.set_ylim(bottom=0)
    write_png(axes, path)


def _share(rows: Iterable[Mapping[str, Any]], key: str) -> Estimate:
    return mean_score([[float(row[key])] for row in rows])
