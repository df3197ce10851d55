"""What all plots share: axes that are light and told apart without colour, means with whiskers, files written whole."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from nsed_torch.records import write_files

# Okabe and Ito's colours, which the colour-blind tell apart.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY = "#CC79A7", "#56B4E9", "#8A8A8A"
_WHISKERS = {"capsize": 3, "elinewidth": 1.2, "linestyle": "none"}


class Interval(Protocol):
    """A number with its interval, whoever counted it; None for what is not there."""

    @property
    def mean(self) -> float | None:
        """The number."""

    @property
    def low(self) -> float | None:
        """Lower end."""

    @property
    def high(self) -> float | None:
        """Upper end."""


def new_axes(width: float, height: float) -> Any:
    """Clean axes on a figure of their own.

    Args:
        width: in inches.
        height: likewise.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    axes = new_figure(width, height).add_subplot()
    clean(axes)
    return axes


def new_figure(width: float, height: float) -> Any:
    """A figure without axes, sizes in inches.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ValueError(
            "expected matplotlib for plots, got no such package: pip install nsed_torch[report]"
        ) from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def clean(axes: Any) -> None:
    """No frame but two lines, and a faint grid behind everything."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)


def draw_points(
    axes: Any, at: Sequence[float], values: Sequence[Interval], *, across: bool = False, fmt: str = "o", **style: Any
) -> None:
    """Means with whiskers, upright or across; without an interval, without whiskers."""
    means = [value.mean or 0.0 for value in values]
    ends = [(v.mean if v.low is None else v.low, v.mean if v.high is None else v.high) for v in values]
    # An interval of resamples need not hold the mean.
    reach = [
        [max(0.0, m - (low or 0.0)) for m, (low, _) in zip(means, ends, strict=True)],
        [max(0.0, (high or 0.0) - m) for m, (_, high) in zip(means, ends, strict=True)],
    ]
    x, y, error = (means, at, {"xerr": reach}) if across else (at, means, {"yerr": reach})
    axes.errorbar(x, y, **error, fmt=fmt, markersize=5, **_WHISKERS, **style)


def write_png(axes: Any, path: Path) -> None:
    """Write the whole figure that the axes are on, the same bytes each time."""
    data = io.BytesIO()
    axes.figure.savefig(data, format="png", metadata={"Software": None}, facecolor="white")
    write_files({path: data.getvalue()})


def short_name(name: str) -> str:
    """A name as a plot shows it: short, in one line, no formula, and never hidden from a legend."""
    text = " ".join(name.split())
    text = text if len(text) <= 40 else text[:39] + "\N{HORIZONTAL ELLIPSIS}"
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
