"""How often answer sets held the truth, how many decided, and what a decision is worth: overall and by category."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from nsed_torch.evaluation.statistics import Mean, mean_score

SHARES = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
"""Shares of the tasks, the surest first, whose accuracy is told: a risk-coverage curve."""


def coverage_summary(rows: Mapping[str, Mapping[str, Any]], coverage: float) -> dict[str, Any]:
    """What sets came to on tasks that nothing was fitted to.

    Args:
        rows: task -> {covered, size, decided, right, chance, category}, as `training.coverage.set_rows` has them.
        coverage: promised.

    Returns:
        JSON data: the promise, coverage with its interval overall and by category, share of tasks whose set is one
        answer alone and the accuracy of those, mean size of the sets, accuracy of the surest tasks by their share.
    """
    found = list(rows.values())
    decided = [row for row in found if row["decided"]]
    categories = sorted({row["category"] for row in found} - {""})
    surest = sorted(found, key=lambda row: -row["chance"])
    return {
        "promised": coverage,
        "covered": _share(found, "covered"),
        "decided": _share(found, "decided"),
        "accuracy_of_decided": _share(decided, "right"),
        "accuracy": _share(found, "right"),
        "mean_size": sum(row["size"] for row in found) / len(found),
        "by_category": {name: _share([r for r in found if r["category"] == name], "covered") for name in categories},
        "surest": {f"{share:g}": _share(surest[: round(share * len(surest))], "right") for share in SHARES},
    }


def coverage_tables(summary: Mapping[str, Any]) -> list[Table]:
    """What `nsed tune coverage=...` prints: the promise kept, and accuracy where only the surest tasks are answered."""
    table = Table(title=f"sets of answers, promised {summary['promised']:.0%}", title_justify="left")
    for column in ("tasks", "n", "sets that hold the truth"):
        table.add_column(column, justify="left" if column == "tasks" else "right")
    for name, value in {"all": summary["covered"], **summary["by_category"]}.items():
        table.add_row(name, str(value["n"]), _told(value))
    curve = Table(title="answered alone, the surest first", title_justify="left")
    for column in ("share of tasks", "accuracy"):
        curve.add_column(column, justify="right")
    for share, value in summary["surest"].items():
        curve.add_row(f"{float(share):.0%}", _told(value))
    curve.add_row(f"one answer in the set: {summary['decided']['mean']:.1%}", _told(summary["accuracy_of_decided"]))
    return [table, curve]


def _share(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    value: Mean = mean_score([[float(row[key])] for row in rows])
    return {"n": value.n, "mean": value.mean, "low": value.low, "high": value.high}


def _told(value: Mapping[str, Any]) -> str:
    if value["mean"] is None:
        return "none"
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
