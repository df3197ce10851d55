"""How a Conductor learned, as a plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nsed_torch.evaluation.canvas import BLUE, GREEN, GREY, clean, new_figure, write_png

CURVES = {
    "right": ("right answers", BLUE),
    "parsed": ("valid workflows", GREEN),
    "no_signal": ("groups without signal", GREY),
}


def plot_learning(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Shares of a step's texts, and whom workflows asked, step by step and as running means of a tenth of the steps.

    Args:
        lines: of `log.jsonl`, a step each; at least one.
        path: the PNG file.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    above, below = new_figure(7.5, 6.0).subplots(2, 1, sharex=True, height_ratios=[3, 2])
    steps, width = [line["step"] for line in lines], max(1, len(lines) // 10)
    for key, (label, color) in CURVES.items():
        values = [line[key] for line in lines]
        above.plot(steps, values, color=color, alpha=0.25, linewidth=1)
        above.plot(steps, _running(values, width), color=color, label=label)
    above.set_ylabel("share of texts, of groups")
    above.set_title(f"What {len(lines)} steps of training came to", loc="left")
    names = sorted({name for line in lines for name in line["workers"]})
    base = np.zeros(len(lines))
    for i, name in enumerate(names):
        share = np.array(_running([line["workers"].get(name, 0.0) for line in lines], width))
        below.fill_between(
            steps, base, base + share, label=name, alpha=0.8, color=f"C{i}", hatch=["", "//", ".."][i % 3]
        )
        base = base + share
    below.set_ylabel("share of workflow steps")
    below.set_xlabel("step")
    for axes in (above, below):
        clean(axes)
        axes.set_ylim(0, 1.02)
        if axes.get_legend_handles_labels()[0]:  # nobody may have been asked
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    write_png(above, path)


def _running(values: Sequence[float], width: int) -> list[float]:
    """Means of up to `width` values, the last of them here."""
    return [float(np.mean(values[max(0, i + 1 - width) : i + 1])) for i in range(len(values))]
