"""The plot of a Conductor's training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nsed_torch.evaluation.plots import BLUE, GREEN, GREY, new_axes, write_png


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
