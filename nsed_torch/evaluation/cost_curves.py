"""Cost against accuracy: policies at several budgets with intervals by question, and their paired differences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from rich.table import Table
from torch import Tensor

from nsed_torch.evaluation.statistics import Estimate, plain, shown, student
from nsed_torch.evaluation.tables import terminal_table


@dataclass(frozen=True, eq=False)
class Curve:
    """A policy at several budgets: what it cost and whether it was right, question by question."""

    name: str
    cost: Float[Tensor, "point question"]  # shares of the full team's mean cost
    right: Float[Tensor, "point question"]  # 1 where right, else 0; between where policy or training was random

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
        weights = [np.interp(cost, levels, point) for point in np.eye(len(levels))]
        return rows.new_tensor(weights) @ rows


def difference(one: Curve, other: Curve, point: int) -> Estimate:
    """Paired difference in accuracy, the first curve's point minus the other curve at the same mean cost."""
    return student(one.right[point] - other.at(float(one.cost[point].mean())))


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


def cost_tables(curves: Sequence[Curve], budgets: Sequence[float], full: Estimate) -> tuple[Table, Table]:
    """Accuracy at each budget, and how the first curve, the policy of interest, differs from others at its own cost."""
    first, *others = curves
    whole = full.mean or 0.0
    level = [["budget", "cost", *(curve.name for curve in curves)]]
    apart = [["budget", "of full team", *(f"minus {curve.name}" for curve in others)]]
    for point, budget in enumerate(budgets):
        accuracies = [student(first.right[point], 0.0, 1.0), *(student(curve.at(budget), 0.0, 1.0) for curve in others)]
        level.append([f"{budget:.2f}", f"{float(first.cost[point].mean()):.3f}", *map(shown, accuracies)])
        relative = float(first.right[point].mean()) / whole if whole else math.nan
        differences = (shown(difference(first, curve, point), "+") for curve in others)
        apart.append([f"{budget:.2f}", f"{relative:.1%}", *differences])
    return (
        terminal_table(level, title=f"accuracy at a share of the full team's cost (full team {shown(full)})"),
        terminal_table(apart, title=f"{first.name} at its own cost, question by question"),
    )


def cost_json(curves: Sequence[Curve], budgets: Sequence[float], full: Estimate) -> dict[str, Any]:
    """Every number of the table."""
    first, *others = curves
    points = {
        curve.name: [
            {"budget": b, "cost": float(curve.cost[i].mean()), "accuracy": student(curve.right[i], 0.0, 1.0)}
            for i, b in enumerate(budgets)
        ]
        for curve in curves
    }
    paired = {
        curve.name: [{"budget": b, **vars(difference(first, curve, i))} for i, b in enumerate(budgets)]
        for curve in others
    }
    data: dict[str, Any] = plain({"full_team": full, "curves": points, f"{first.name}_minus": paired})
    return data
