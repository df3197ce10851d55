"""Cost against accuracy: curves of policies with intervals by question, and their paired differences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from rich.table import Table
from torch import Tensor

from nsed_torch.evaluation.comparison import shown
from nsed_torch.evaluation.statistics import Estimate, estimate


@dataclass(frozen=True, eq=False)
class Curve:
    """A policy at several budgets: what it cost and whether it was right, question by question.

    Args:
        name: of the policy.
        cost: shares of the full team's mean cost.
        right: 1 where right, else 0; between where the policy or its training was random.
    """

    name: str
    cost: Float[Tensor, "point question"]
    right: Float[Tensor, "point question"]

    def at(self, cost: float) -> Float[Tensor, "question"]:
        """Whether each question is right at a mean cost, in expectation.

        Points of the curve are mixed linearly, as by a coin that chooses between neighbouring policies; below the
        cheapest, between it and asking nobody; above the dearest it stays. Points of equal mean cost are averaged.
        """
        spent = self.cost.mean(1)
        levels, group = spent.unique(return_inverse=True)
        counts = torch.bincount(group)[:, None]
        rows = self.right.new_zeros(len(levels), self.right.shape[1]).index_add(0, group, self.right) / counts
        if levels[0] > 0:
            levels = torch.cat([levels.new_zeros(1), levels])
            rows = torch.cat([torch.zeros_like(rows[:1]), rows])
        above = int((levels < cost).sum())
        if above == 0 or above == len(levels):
            return rows[min(above, len(levels) - 1)]
        weight = float((cost - levels[above - 1]) / (levels[above] - levels[above - 1]))
        return (1 - weight) * rows[above - 1] + weight * rows[above]


def difference(one: Curve, other: Curve, point: int) -> Estimate:
    """Paired difference in accuracy, the first curve's point minus the other curve at the same mean cost."""
    return _over_questions(one.right[point] - other.at(float(one.cost[point].mean())))


def oracle_curve(
    correct: Bool[Tensor, "question agent"], cost: Float[Tensor, "question agent"], budgets: Sequence[float]
) -> Curve:
    """The cheapest right agent of each question, the cheapest questions first, as far as each mean budget reaches.

    Nobody can do better: it knows the grades.
    """
    price = torch.where(correct, cost, math.inf).amin(1)
    order = price.argsort()
    spent = torch.empty_like(price)
    spent[order] = price[order].cumsum(0)
    chosen = torch.stack([spent <= budget * len(price) for budget in budgets])
    return Curve("oracle", torch.where(chosen, price, 0), chosen.double())


def cost_tables(curves: Sequence[Curve], budgets: Sequence[float], full: float) -> tuple[Table, Table]:
    """Accuracy at each budget, and how the first curve differs from the others at its own cost.

    Args:
        curves: the policy of interest first; a point a budget.
        budgets: shares of the full team's mean cost.
        full: the full team's accuracy.
    """
    first, *others = curves
    level = Table(title=f"accuracy at a share of the full team's cost (full team {full:.4f})", title_justify="left")
    apart = Table(title=f"{first.name} at its own cost, question by question", title_justify="left")
    for column in ("budget", "cost", *(curve.name for curve in curves)):
        level.add_column(column)
    for column in ("budget", "of full team", *(f"minus {curve.name}" for curve in others)):
        apart.add_column(column)
    for point, budget in enumerate(budgets):
        accuracies = [_over_questions(first.right[point]), *(_over_questions(curve.at(budget)) for curve in others)]
        spent = f"{float(first.cost[point].mean()):.3f}"
        level.add_row(f"{budget:.2f}", spent, *map(shown, accuracies))
        differences = (shown(difference(first, curve, point), "+") for curve in others)
        apart.add_row(f"{budget:.2f}", f"{accuracies[0].mean / full if full else math.nan:.1%}", *differences)
    return level, apart


def cost_json(curves: Sequence[Curve], budgets: Sequence[float], full: Estimate) -> dict[str, Any]:
    """Every number of the table."""
    first, *others = curves
    points = {
        curve.name: [
            {"budget": b, "cost": float(curve.cost[i].mean()), "accuracy": _over_questions(curve.right[i])._asdict()}
            for i, b in enumerate(budgets)
        ]
        for curve in curves
    }
    paired = {
        curve.name: [{"budget": b, **difference(first, curve, i)._asdict()} for i, b in enumerate(budgets)]
        for curve in others
    }
    return {"full_team": full._asdict(), "curves": points, f"{first.name}_minus": paired}


def cost_plot(
    curves: Sequence[Curve],
    path: Path,
    *,
    full: Estimate,
    title: str = "",
    unit: str = "parameters x answer length",
) -> None:
    """Draw the curves with bands of 95%; the file's suffix says whether as PNG or SVG.

    Args:
        curves: the policy of interest first.
        path: where to.
        full: the full team's accuracy.
        title: above the axes.
        unit: what costs are counted in.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ValueError(
            "expected matplotlib for the plot, got no such package: pip install nsed_torch[report]"
        ) from error
    figure = Figure(figsize=(7.5, 5.0), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.axhspan(full.low, full.high, color="0.93", zorder=0)
    axes.axhline(full.mean, color="0.55", linewidth=1, label="full team")
    for index, curve in enumerate(curves):
        order = curve.cost.mean(1).argsort()
        x = curve.cost.mean(1)[order].tolist()
        points = [_over_questions(curve.right[i]) for i in order.tolist()]
        (line,) = axes.plot(
            x, [p.mean for p in points], marker="os^Dvx"[index % 6], linewidth=2.2 if index == 0 else 1.4,
            markersize=4.5, label=curve.name, zorder=5 - min(index, 4),
        )  # fmt: skip
        axes.fill_between(x, [p.low for p in points], [p.high for p in points], color=line.get_color(), alpha=0.13)
    axes.set_xlabel(f"mean cost, share of the full team's ({unit})")
    axes.set_ylabel("accuracy, with 95% intervals by question")
    axes.set_title(title, loc="left")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _over_questions(values: Float[Tensor, "question"]) -> Estimate:
    return estimate(values[None])
