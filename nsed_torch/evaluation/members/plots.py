"""A study of members as PNG files: size, simulated members, gain against p_v."""

from pathlib import Path

from nsed_torch.evaluation.members.faulty import KINDS
from nsed_torch.evaluation.members.gain import ALL
from nsed_torch.evaluation.members.study import Study
from nsed_torch.evaluation.plots import GREY, draw_points, new_axes, short_name, style, write_png


def plot_study(study: Study, folder: Path) -> list[Path]:
    """Draw all there is.

    Returns:
        The files written: `sizes.png`, `faulty.png`, and `gain.png` where a judge told right from wrong.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    paths = [folder / "sizes.png", folder / "faulty.png"]
    plot_sizes(study, paths[0])
    plot_faulty(study, paths[1])
    if any(row.p_v is not None for row in study.gains):
        paths.append(folder / "gain.png")
        plot_gain(study, paths[2])
    return paths


def plot_sizes(study: Study, path: Path) -> None:
    """Mean accuracy of all teams of a size by vote."""
    axes = new_axes(8.0, 4.4)
    votes = list(dict.fromkeys(row.vote for row in study.sizes))
    for number, vote in enumerate(votes):
        rows = [row for row in study.sizes if row.vote == vote]
        # Side by side, or the whiskers hide each other.
        at = [row.size + 0.08 * (number - (len(votes) - 1) / 2) for row in rows]
        draw_points(axes, at, [row.accuracy for row in rows], label=short_name(vote), **style(number))
        axes.plot(at, [row.accuracy.mean for row in rows], color=style(number)["color"], linewidth=1)
    axes.set_xticks(sorted({row.size for row in study.sizes}))
    axes.set_xlabel("members")
    axes.set_ylabel("accuracy, 95% interval")
    axes.set_title(f"Accuracy by size, mean over teams, {study.tasks} tasks", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    write_png(axes, path)


def plot_faulty(study: Study, path: Path) -> None:
    """Accuracy against the share of simulated members by vote, a panel a kind."""
    grid = new_axes(10.0, 6.4, 2, 2, sharex=True, sharey=True)
    votes = list(dict.fromkeys(row.vote for row in study.faulty))
    for axes, kind in zip(grid.flat, KINDS, strict=True):
        for number, vote in enumerate(votes):
            rows = [row for row in study.faulty if (row.kind, row.vote) == (kind, vote)]
            at = [row.share + 0.008 * (number - (len(votes) - 1) / 2) for row in rows]
            means = [row.accuracy for row in rows]
            draw_points(axes, at, means, label=short_name(vote), **style(number))
            axes.plot(at, [mean.mean for mean in means], color=style(number)["color"], linewidth=1)
        axes.set_title(f"{kind} (simulated)", loc="left")
    for axes in grid[1]:
        axes.set_xlabel("share of simulated members")
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy, 95% interval")
    grid[0, 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    write_png(grid[0, 0], path)


def plot_gain(study: Study, path: Path) -> None:
    """The gain of every team against its p_v; a colour a stratum, the first vote alone."""
    rows = [row for row in study.gains if row.vote == study.gains[0].vote and row.p_v is not None]
    rows = [row for row in rows if row.stratum != ALL] or rows
    axes = new_axes(8.0, 4.8)
    axes.axhline(0, color="0.4", linewidth=1)
    axes.axvline(0.5, color=GREY, linewidth=1, linestyle="--")
    for number, stratum in enumerate(dict.fromkeys(row.stratum for row in rows)):
        own, look = [row for row in rows if row.stratum == stratum], style(number)
        x, y = [row.p_v for row in own], [row.gain for row in own]
        axes.scatter(x, y, s=14, color=look["color"], marker=look["fmt"], alpha=0.6, label=short_name(stratum))
    axes.set_xlabel("p_v: chance that a right proposal is rated above a wrong one")
    axes.set_ylabel("accuracy of the consensus minus p_g")
    axes.set_title(f"Gain of every team, {rows[0].vote} vote", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    write_png(axes, path)
