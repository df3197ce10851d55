"""Plots as PNG files: light, told apart without colour, the same bytes each time, written whole or not at all.

Every function that draws raises a `ValueError` in one line if matplotlib is not installed.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nsed_torch.evaluation.comparison import MethodResult
from nsed_torch.evaluation.cost_curves import Curve
from nsed_torch.evaluation.statistics import Estimate, student
from nsed_torch.records.extras import missing
from nsed_torch.records.files import write_files

# Okabe and Ito's colours, which the colour-blind tell apart.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY = "#CC79A7", "#56B4E9", "#8A8A8A"


def new_axes(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> Any:
    """Axes of a new figure, sizes in inches, without frame and with a faint grid: one, or an array of several.

    Further options are those of `Figure.subplots`.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ValueError(missing("matplotlib", "plots", "report")) from error
    grid = Figure(figsize=(width, height), dpi=150, layout="constrained").subplots(rows, columns, **options)
    for axes in np.ravel(grid):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    return grid


def style(number: int) -> dict[str, Any]:
    """Colour and marker of a series."""
    colors, markers = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, "0.2"), "osD^vPX"
    return {"color": colors[number % len(colors)], "fmt": markers[number % len(markers)]}


def draw_points(
    axes: Any,
    at: Sequence[float],
    estimates: Sequence[Estimate],
    *,
    across: bool = False,
    fmt: str = "o",
    **options: Any,
) -> None:
    """Means with whiskers, upright or across; without an interval, without whiskers."""
    means = [e.mean or 0.0 for e in estimates]
    below = [0.0 if e.low is None else max(0.0, mean - e.low) for mean, e in zip(means, estimates, strict=True)]
    above = [0.0 if e.high is None else max(0.0, e.high - mean) for mean, e in zip(means, estimates, strict=True)]
    x, y, error = (means, at, "xerr") if across else (at, means, "yerr")
    options |= {error: [below, above], "fmt": fmt, "linestyle": "none"}
    axes.errorbar(x, y, markersize=5, capsize=3, elinewidth=1.2, **options)


def write_png(axes: Any, path: Path, *, legend: bool = False, **options: Any) -> None:
    """Write the whole figure that the axes are on; a legend, with these options, stands beside them."""
    if legend:
        axes.legend(**({"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False} | options))
    data = io.BytesIO()
    axes.figure.savefig(data, format="png", metadata={"Software": None}, facecolor="white")
    write_files({path: data.getvalue()})


def short_name(name: str) -> str:
    """A name as a plot shows it: short, in one line, no formula, and never hidden from a legend."""
    text = " ".join(name.split())
    text = text if len(text) <= 40 else text[:39] + "\N{HORIZONTAL ELLIPSIS}"
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def plot_rounds(course: Mapping[str, Any], tasks: int, path: Path) -> None:
    """Accuracy after each round with its interval, and the tokens it took."""
    rounds = course["rounds"]
    axes = new_axes(min(max(6.5, 2.5 + 0.8 * len(rounds)), 12.0), 4.4)
    at = [r["round"] for r in rounds]
    draw_points(axes, at, [r["accuracy"] for r in rounds], color=BLUE, label="measured, 95% interval")
    last = len(rounds) + 0.5
    named = rounds[-1 :: -math.ceil(len(rounds) / 12)]  # the last one, and as many before it as there is room for
    axes.set_xticks([r["round"] for r in named], [f"{r['round']}\n{_short(r['tokens'])}" for r in named])
    axes.set(xlim=(0.5, last), xlabel="round, and computed tokens per task up to it", ylabel="accuracy")
    axes.set_title(f"Accuracy by round, {tasks} tasks", loc="left")
    write_png(axes, path, legend=True)


def plot_cost(methods: Mapping[str, MethodResult], path: Path) -> None:
    """Cost against accuracy: a point per method, up and to the left is better; the legend is sorted by accuracy.

    One or more methods, all with scores.
    """
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - heavy, and wanted only here

    axes = new_axes(8.5, max(4.4, 1.2 + 0.24 * len(methods)))
    ranked = sorted(methods.items(), key=lambda item: -(item[1].accuracy.mean or 0.0))
    tokens = np.array([method.tokens_per_task for _, method in ranked])
    least, most = float(tokens.min()), float(tokens.max())
    logs = 0 < 8 * least < most
    # Points stand as near their costs as leaves a step between any two.
    at = np.log(tokens) if logs else tokens.copy()
    order = at.argsort(kind="stable")
    steps = 0.02 * (at.max() - (at.min() if logs else 0)) * np.arange(len(at))
    at[order] = isotonic_regression(at[order] - steps).x + steps
    for number, ((name, method), x) in enumerate(zip(ranked, np.exp(at) if logs else at, strict=True)):
        draw_points(axes, [x], [method.accuracy], label=short_name(name), **style(number))
    if logs:
        axes.set_xscale("log", subs=range(2, 10))
        axes.set_xlim(least / 1.25, most * 1.25)
        axes.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axes.xaxis.set_minor_formatter("")
    else:
        axes.set_xlim(-0.03 * (most or 1.0), 1.15 * (most or 1.0))
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.set_xlabel("tokens per task, computed; about equal ones stand side by side")
    axes.set_ylabel("accuracy, 95% interval")
    write_png(axes, path, legend=True)


def plot_curves(
    curves: Sequence[Curve], path: Path, *, full: Estimate, title: str = "", unit: str = "parameters x answer length"
) -> None:
    """Policies' cost, counted in `unit`, against accuracy with bands of 95%, the policy of interest first.

    `full` is the full team's accuracy.
    """
    axes = new_axes(7.5, 5.0)
    axes.axhspan(full.low, full.high, color="0.93", zorder=0)
    axes.axhline(full.mean, color="0.55", linewidth=1, label="full team")
    for index, curve in enumerate(curves):
        order = curve.cost.mean(1).argsort()
        x = curve.cost.mean(1)[order].tolist()
        points = [student(curve.right[i], 0.0, 1.0) for i in order.tolist()]
        (line,) = axes.plot(
            x, [p.mean for p in points], marker="os^Dvx"[index % 6], linewidth=2.2 if index == 0 else 1.4,
            markersize=4.5, label=curve.name, zorder=5 - min(index, 4),
        )  # fmt: skip
        axes.fill_between(x, [p.low for p in points], [p.high for p in points], color=line.get_color(), alpha=0.13)
    axes.set_xlabel(f"mean cost, share of the full team's ({unit})")
    axes.set_ylabel("accuracy, with 95% intervals by question")
    axes.set_title(title, loc="left")
    write_png(axes, path, legend=True)


def plot_learning(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """How a Conductor learned, from the lines of `log.jsonl`: shares of a step's texts, and whom workflows asked.

    Both step by step and as running means of a tenth of the steps.
    """
    above, below = new_axes(7.5, 6.0, 2, sharex=True, height_ratios=[3, 2])
    steps, width = [line["step"] for line in lines], max(1, len(lines) // 10)

    def running(values: Sequence[float]) -> Any:
        return np.array([np.mean(values[max(0, i + 1 - width) : i + 1]) for i in range(len(values))])

    for key, label, color in (
        ("right", "right answers", BLUE),
        ("parsed", "valid workflows", GREEN),
        ("no_signal", "groups without signal", GREY),
    ):
        values = [line[key] for line in lines]
        above.plot(steps, values, color=color, alpha=0.25, linewidth=1)
        above.plot(steps, running(values), color=color, label=label)
    above.set_title(f"What {len(lines)} steps of training came to", loc="left")
    base = np.zeros(len(lines))
    for i, name in enumerate(sorted({name for line in lines for name in line["workers"]})):
        top = base + running([line["workers"].get(name, 0.0) for line in lines])
        below.fill_between(steps, base, top, label=name, alpha=0.8, color=f"C{i}", hatch=["", "//", ".."][i % 3])
        base = top
    above.set(ylim=(0, 1.02), ylabel="share of texts, of groups")
    below.set(ylim=(0, 1.02), ylabel="share of workflow steps", xlabel="step")
    if below.get_legend_handles_labels()[0]:  # nobody may have been asked
        below.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    write_png(above, path, legend=True)


def _short(tokens: float) -> str:
    return f"{tokens / 1000:.3g}k" if tokens >= 1000 else f"{tokens:.3g}"
