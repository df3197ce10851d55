"""Plots of an evaluation as PNG files: light, told apart without colour, each written whole or not at all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nsed_torch import functional
from nsed_torch.evaluation.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    clean,
    draw_points,
    new_axes,
    new_figure,
    short_name,
    write_png,
)
from nsed_torch.evaluation.insight import Insight, Value
from nsed_torch.evaluation.insight.team_insight import Law


class MethodPoint(NamedTuple):
    """A method in a plot.

    Args:
        name: as shown.
        accuracy: in [0, 1].
        low: lower end of its interval; None if there is none.
        high: upper end, likewise.
        tokens: read and written for a task, the mean.
    """

    name: str
    accuracy: float
    low: float | None
    high: float | None
    tokens: float


def plot_insight(insight: Insight, folder: Path) -> list[Path]:
    """Draw whatever an insight has data for.

    Returns:
        The files written: `rounds.png`, and of `flips.png`, `calibration.png`, `biases.png` those with something in.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    drawn = {
        "rounds": (plot_rounds, True),
        "flips": (plot_flips, bool(insight.course.flips)),
        "calibration": (plot_calibration, insight.calibration.brier.mean is not None),
        "biases": (plot_biases, bool(_biases(insight))),
    }
    paths = []
    for name, (plot, wanted) in drawn.items():
        if wanted:
            paths.append(folder / f"{name}.png")
            plot(insight, paths[-1])
    return paths


def plot_rounds(insight: Insight, path: Path) -> None:
    """Accuracy after each round with its interval, the tokens it took, and the fitted law with its best round."""
    rounds, law = insight.course.rounds, insight.course.law
    axes = new_axes(max(6.5, 2.5 + 0.8 * len(rounds)), 4.4)
    at = [r.round for r in rounds]
    draw_points(axes, at, [r.accuracy for r in rounds], color=BLUE, label="measured, 95% interval")
    if law.fit is not None:
        _curve(axes, law, len(rounds))
    axes.set_xticks(at, [f"{r.round}\n{_short(r.tokens)}" for r in rounds])
    axes.set_xlim(0.5, len(rounds) + 0.5)
    axes.set_xlabel("round, and tokens a task up to it")
    axes.set_ylabel("accuracy")
    axes.set_title(f"Accuracy by round, {insight.tasks} tasks", loc="left")
    if law.fit is None:
        axes.text(0, -0.24, f"No law fitted: {law.notes[0]}.", transform=axes.transAxes, color=GREY, fontsize=8)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    write_png(axes, path)


def plot_flips(insight: Insight, path: Path) -> None:
    """What became of the standing answer from round to round, as stacked bars; above them what was won and lost."""
    flips = insight.course.flips
    axes = new_axes(max(6.5, 2.5 + 0.8 * len(flips)), 4.2)
    base = [0] * len(flips)
    places = range(len(flips))
    for label, color, counts in (
        ("stays right", GREEN, [f.right_to_right for f in flips]),
        ("wrong to right, +", SKY, [f.wrong_to_right for f in flips]),
        ("right to wrong, \N{MINUS SIGN}", RED, [f.right_to_wrong for f in flips]),
        ("stays wrong", "0.8", [f.wrong_to_wrong for f in flips]),
    ):
        axes.bar(places, counts, 0.62, bottom=base, color=color, edgecolor="white", label=label)
        base = [b + c for b, c in zip(base, counts, strict=True)]
    for place, height, f in zip(places, base, flips, strict=True):
        text = f"+{f.wrong_to_right}  \N{MINUS SIGN}{f.right_to_wrong}"
        axes.annotate(text, (place, height), (0, 4), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xticks(places, [f"{f.round} \N{RIGHTWARDS ARROW} {f.round + 1}" for f in flips])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("rounds")
    axes.set_ylabel("tasks that held both")
    axes.set_title("What became of the standing answer", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, reverse=True)
    write_png(axes, path)


def plot_calibration(insight: Insight, path: Path) -> None:
    """Share of right proposals by rating, and how many ratings there are."""
    bins = [b for b in insight.calibration.bins if b.rating is not None]
    axes, below = new_figure(6.2, 5.4).subplots(2, 1, sharex=True, height_ratios=[4, 1])
    clean(axes)
    clean(below)
    axes.plot([-1, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="calibrated")
    draw_points(
        axes, [b.rating or 0.0 for b in bins], [b.right for b in bins], color=BLUE, label="measured, 95% interval"
    )
    axes.set_xlim(-1.05, 1.05)
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("share of right proposals")
    error, brier = insight.calibration.error.mean, insight.calibration.brier.mean
    axes.set_title(f"Calibration of ratings: expected error {error:.3f}, Brier score {brier:.3f}", loc="left")
    axes.legend(loc="upper left", frameon=False)
    below.bar([(b.low + b.high) / 2 for b in bins], [b.right.n for b in bins], 0.17, color=SKY)
    below.set_ylabel("ratings")
    below.set_xlabel("rating")
    write_png(axes, path)


def plot_biases(insight: Insight, path: Path) -> None:
    """Correlation of ratings with what should not matter."""
    rows = _biases(insight)
    axes = new_axes(7.5, 1.3 + 0.36 * len(rows))
    axes.axvline(0, color="0.4", linewidth=1)
    places = list(range(len(rows)))
    draw_points(axes, places, [value for _, value in rows], color=BLUE, across=True)
    axes.set_yticks(places, [short_name(name) for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel("Pearson's correlation with the rating, 95% interval")
    axes.set_title("What ratings follow besides the truth", loc="left")
    write_png(axes, path)


def plot_methods(methods: Sequence[MethodPoint], path: Path) -> None:
    """Accuracy of every method as a bar with its interval, in the order given.

    Args:
        methods: one or more.
        path: where to.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    axes = new_axes(7.5, 1.3 + 0.38 * len(methods))
    places = list(range(len(methods)))
    axes.barh(places, [m.accuracy for m in methods], 0.62, color=SKY)
    draw_points(axes, places, [_value(m) for m in methods], color="0.25", across=True)
    for place, method in enumerate(methods):
        end = method.accuracy if method.high is None else method.high
        axes.annotate(
            f"{method.accuracy:.1%}", (end, place), (6, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_yticks(places, [short_name(m.name) for m in methods])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("accuracy, 95% interval")
    write_png(axes, path)


def plot_cost(methods: Sequence[MethodPoint], path: Path) -> None:
    """Cost against accuracy: a method a point, up and to the left is better; the legend is sorted by accuracy.

    Args:
        methods: one or more.
        path: where to.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    axes = new_axes(8.5, max(4.4, 1.2 + 0.24 * len(methods)))
    colors, markers = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, "0.2"), "osD^v"
    ranked = sorted(methods, key=lambda method: -method.accuracy)
    for number, (method, at) in enumerate(zip(ranked, _aside([m.tokens for m in ranked]), strict=True)):
        style: dict[str, Any] = {"color": colors[number % len(colors)], "fmt": markers[number % len(markers)]}
        draw_points(axes, [at], [_value(method)], label=short_name(method.name), **style)
    if _wide(tokens := [method.tokens for method in methods]):
        axes.set_xscale("log", subs=range(2, 10))
        axes.set_xlim(min(tokens) / 1.25, max(tokens) * 1.25)
        axes.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axes.xaxis.set_minor_formatter("")
    else:
        top = max(tokens) or 1.0
        axes.set_xlim(-0.03 * top, 1.15 * top)
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.set_xlabel("tokens a task, read and written; about equal ones stand side by side")
    axes.set_ylabel("accuracy, 95% interval")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    write_png(axes, path)


def _biases(insight: Insight) -> list[tuple[str, Value]]:
    length = insight.length
    rows = [
        ("length, all ratings", length.pooled.pearson),
        ("length, within a ballot", length.within.pearson),
        ("length, right proposals", length.right.pearson),
        ("length, wrong proposals", length.wrong.pearson),
        ("position heard at, within a ballot", insight.position.correlation),
        *((f"length, {name}", correlations.pearson) for name, correlations in length.judges.items()),
    ]
    return [(name, value) for name, value in rows if value.mean is not None]


def _curve(axes: Any, law: Law, rounds: int) -> None:
    fit = law.fit
    if fit is None:
        return
    t = torch.linspace(0.5, rounds + 0.5, 200, dtype=torch.float64)
    values = functional.utility(t, fit.p_g, fit.k, fit.beta)
    axes.plot(t.tolist(), values.tolist(), color=ORANGE, linewidth=1.8, zorder=1, label="fitted law")
    if 0 < fit.t_opt <= rounds + 0.5:
        low, high = fit.t_opt_interval
        label = f"best round {fit.t_opt:.1f} [{low:.1f}, {high:.1f}]"
        axes.axvline(fit.t_opt, color=RED, linewidth=1.2, linestyle=":", label=label)


def _wide(tokens: Sequence[float]) -> bool:
    """Whether costs differ so much that their logarithms are drawn."""
    return bool(tokens) and 0 < 8 * min(tokens) < max(tokens)


def _aside(tokens: Sequence[float]) -> list[float]:
    """Where on the axis methods are drawn: as near their costs as leaves a step between any two."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - heavy, and wanted only here

    logs = _wide(tokens)
    places = np.log(tokens) if logs else np.array(tokens, dtype=np.float64)
    order = places.argsort(kind="stable")
    steps = 0.02 * (places.max() - (places.min() if logs else 0)) * np.arange(len(places))
    places[order] = isotonic_regression(places[order] - steps).x + steps
    return list(np.exp(places) if logs else places)


def _value(method: MethodPoint) -> Value:
    return Value(method.accuracy, method.low, method.high, 0)


def _short(tokens: float) -> str:
    return f"{tokens / 1000:.3g}k" if tokens >= 1000 else f"{tokens:.3g}"
