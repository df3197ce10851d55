"""All that a recorded round tells about its members: as numbers, as tables, and as plots."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.table import Table

from nsed_torch.data.rounds import Rounds
from nsed_torch.evaluation.members.faulty_members import KINDS, Faulty, faulty_members
from nsed_torch.evaluation.members.sub_teams import (
    ALL,
    MOST,
    TUNED,
    Addition,
    Gain,
    RankCorrelation,
    Rule,
    TeamSize,
    additions,
    gains,
    sub_teams,
    team_sizes,
)
from nsed_torch.evaluation.plots import GREY, draw_points, new_axes, short_name, style, write_png
from nsed_torch.evaluation.statistics import shown
from nsed_torch.evaluation.tables import Rows, markdown_table, markdown_text, terminal_table

_TIES = "95% intervals over tasks; a tie counts as the share of right ones among the tied."


@dataclass(frozen=True)
class MemberStudy:
    """What a recorded round tells about its real agents, and with simulated ones beside them."""

    tasks: int
    agents: tuple[str, ...]
    sizes: list[TeamSize]
    additions: list[Addition]
    faulty: list[Faulty]
    gains: list[Gain]
    correlations: list[RankCorrelation]

    @classmethod
    def of(
        cls,
        rounds: Rounds,
        rules: Mapping[str, Rule],
        *,
        strata: Mapping[str, str] | None = None,
        core: int = 2,
        most_teams: int = MOST,
        draws: int = 5,
        seed: int = 0,
    ) -> "MemberStudy":
        """Vote again and again on one recorded round, and count; gains are those of the first rule and of the tuned.

        The rules have seats for `most_faulty` more agents; weaker ones are added to a core of so many of the best.
        """
        teams = sub_teams(len(rounds.agents), most=most_teams, seed=seed)
        added = additions(rounds, rules, core=core)
        faulty = faulty_members(rounds, rules, draws=draws, seed=seed)
        scores = {name: torch.stack([rule(rounds, team) for team in teams]) for name, rule in rules.items()}
        learned = {name: scores[name] for name in dict.fromkeys([next(iter(rules)), TUNED]) if name in rules}
        rows, correlations = gains(rounds, teams, learned, strata, seed=seed)
        sizes = team_sizes(rounds, teams, scores)
        return cls(len(rounds), rounds.agents, sizes, added, faulty, rows, correlations)


class Sheet(NamedTuple):
    """A table of any texts, its headings first, and what to know about its numbers."""

    name: str
    title: str
    rows: Rows
    notes: tuple[str, ...]

    def markdown(self) -> str:
        """With title and notes."""
        table = markdown_table(self.rows)
        return "\n".join([f"## {markdown_text(self.title)}", "", table, "", *map(markdown_text, self.notes)]) + "\n"

    def terminal(self) -> Table:
        """The same for a terminal; the notes are its caption."""
        return terminal_table(self.rows, title=self.title, caption=" ".join(self.notes))


def sheets(study: MemberStudy) -> list[Sheet]:
    """Every table of a study; of the many gains the team of all agents alone."""
    return [_sizes(study), _additions(study), _faulty(study), _gains(study), _correlations(study)]


def _sizes(study: MemberStudy) -> Sheet:
    rows = [["vote", "size", "teams", "mean accuracy", "on one half", "best team there", "worst team there"]]
    for row in study.sizes:
        ends = (f"{shown(team.accuracy)}: {', '.join(team.agents)}" for team in (row.best, row.worst))
        rows.append([row.vote, str(row.size), str(row.teams), shown(row.accuracy), shown(row.held_out), *ends])
    notes = (
        f"Mean over the teams of a size, {study.tasks} tasks. Best and worst are chosen on one half and measured on",
        f"the other, n = {study.sizes[0].held_out.n}, where the mean over all teams stands beside them.",
        _TIES,
    )
    return Sheet("sizes", "Accuracy by size of the team", rows, notes)


def _additions(study: MemberStudy) -> Sheet:
    rows = [["vote", "size", "added", "alone", "accuracy", "minus the core"]]
    for row in study.additions:
        numbers = shown(row.alone), shown(row.accuracy), shown(row.difference, "+")
        rows.append([row.vote, str(row.size), row.added or "(core)", *numbers])
    notes = (
        f"Agents are ranked on one half of the tasks; measured on the other, n = {study.additions[0].accuracy.n}.",
        "Of the core, alone is the mean over its members.",
        _TIES,
    )
    return Sheet("additions", "Weaker members added to the best", rows, notes)


def _faulty(study: MemberStudy) -> Sheet:
    """A line a kind and number of simulated members, a column a vote."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for row in study.faulty:
        lines.setdefault((row.kind, str(row.members), f"{row.share:.2f}"), []).append(shown(row.accuracy))
    head = ["members", "simulated", "share", *dict.fromkeys(row.vote for row in study.faulty)]
    kinds = "; ".join(f"{kind}: {text}" for kind, text in KINDS.items())
    notes = (
        f"Simulated members beside {len(study.agents)} real ones, {study.tasks} tasks. {kinds}.",
        "Real judges rate a copy as they rated the answer copied, or else as they rate wrong answers on average.",
        _TIES,
    )
    rows = [head, *([*line, *cells] for line, cells in lines.items())]
    return Sheet("faulty", "Simulated faulty members added: accuracy", rows, notes)


def _gains(study: MemberStudy) -> Sheet:
    rows = [["vote", "stratum", "n", "p_g", "p_v", "pairs", "gain"]]
    for row in study.gains:
        if row.agents == study.agents:
            p_v = "" if row.p_v is None else f"{row.p_v:.3f}"
            numbers = str(row.tasks), f"{row.p_g:.3f}", p_v, str(row.pairs), f"{row.gain:+.3f}"
            rows.append([row.vote, row.stratum, *numbers])
    notes = (
        "Team of all agents; members.json holds all teams.",
        "p_g: share of right proposals; p_v: chance that a right one is rated above a wrong one; n: tasks.",
        "gain: accuracy of the consensus minus p_g.",
    )
    return Sheet("gains", "Gain by stratum", rows, notes)


def _correlations(study: MemberStudy) -> Sheet:
    rows = [["vote", "over", "rows", "correlation"]]
    for row in study.correlations:
        text = "undefined" if row.rho.mean is None else shown(row.rho, "+")
        rows.append([row.vote, row.over, str(row.rho.n), text])
    note = (
        "Spearman's rank correlation of p_v with the gain, with 95% intervals of resampled tasks; rows share members."
    )
    return Sheet("correlations", "p_v and the gain", rows, (note,))


def plot_study(study: MemberStudy, folder: Path) -> list[Path]:
    """Draw `faulty.png`, and `gain.png` where a judge told right from wrong.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    votes = list(dict.fromkeys(row.vote for row in study.faulty))
    grid = new_axes(10.0, 6.4, 2, 2, sharex=True, sharey=True)
    for axes, kind in zip(grid.flat, KINDS, strict=True):
        for number, vote in enumerate(votes):
            crowds = [row for row in study.faulty if (row.kind, row.vote) == (kind, vote)]
            means, look = [row.accuracy for row in crowds], style(number)
            # Side by side, or the whiskers hide each other.
            at = [row.share + 0.008 * (number - (len(votes) - 1) / 2) for row in crowds]
            draw_points(axes, at, means, label=short_name(vote), **look)
            axes.plot(at, [mean.mean for mean in means], color=look["color"], linewidth=1)
        axes.set_title(f"{kind} (simulated)", loc="left")
    for axes in grid[1]:
        axes.set_xlabel("share of simulated members")
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy, 95% interval")
    _write(grid[0, 0], grid[0, 1], folder / "faulty.png")

    known = [row for row in study.gains if row.vote == study.gains[0].vote and row.p_v is not None]
    if not known:
        return [folder / "faulty.png"]
    known = [row for row in known if row.stratum != ALL] or known
    axes = new_axes(8.0, 4.8)
    axes.set_xlabel("p_v: chance that a right proposal is rated above a wrong one")
    axes.set_ylabel("accuracy of the consensus minus p_g")
    axes.axhline(0, color="0.4", linewidth=1)
    axes.axvline(0.5, color=GREY, linewidth=1, linestyle="--")
    for number, stratum in enumerate(dict.fromkeys(row.stratum for row in known)):
        points, look = [row for row in known if row.stratum == stratum], style(number)
        x, y = [row.p_v for row in points], [row.gain for row in points]
        axes.scatter(x, y, s=14, color=look["color"], marker=look["fmt"], alpha=0.6, label=short_name(stratum))
    axes.set_title(f"Gain of every team, {known[0].vote} vote", loc="left")
    _write(axes, axes, folder / "gain.png")
    return [folder / "faulty.png", folder / "gain.png"]


def _write(axes: Any, legend: Any, path: Path) -> None:
    legend.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    write_png(axes, path)
