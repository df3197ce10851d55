"""All that a recorded round tells about its members: as numbers, as tables, and as plots."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.table import Table

from nsed_torch.data.rounds import Rounds
from nsed_torch.evaluation.members.faulty_members import KINDS, Faulty, faulty_members
from nsed_torch.evaluation.members.sub_teams import (
    MOST,
    TUNED,
    Addition,
    Chosen,
    Gain,
    RankCorrelation,
    Rule,
    TeamSize,
    additions,
    gains,
    sub_teams,
    team_sizes,
)
from nsed_torch.evaluation.plots import draw_points, new_axes, short_name, style, write_png
from nsed_torch.evaluation.statistics import Estimate, shown
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

    @classmethod
    def of(cls, name: str, title: str, head: str, rows: Iterable[Iterable[Any]], *notes: str) -> "Sheet":
        """Headings with commas between them; rows of texts, numbers and estimates."""
        return cls(name, title, [head.split(", "), *(list(map(_cell, row)) for row in rows)], notes)

    def markdown(self) -> str:
        """With title and notes."""
        table = markdown_table(self.rows)
        return "\n".join([f"## {markdown_text(self.title)}", "", table, "", *map(markdown_text, self.notes)]) + "\n"

    def terminal(self) -> Table:
        """The same for a terminal; the notes are its caption."""
        return terminal_table(self.rows, title=self.title, caption=" ".join(self.notes))


def sheets(study: MemberStudy) -> list[Sheet]:
    """Every table of a study; of the many gains the team of all agents alone."""
    rhos = [(row, "undefined" if row.rho.mean is None else shown(row.rho, "+")) for row in study.correlations]
    gains = (row for row in study.gains if row.agents == study.agents)
    return [
        _sizes(study),
        _additions(study),
        _faulty(study),
        Sheet.of(
            "gains",
            "Gain by stratum",
            "vote, stratum, n, p_g, p_v, pairs, gain",
            ((g.vote, g.stratum, g.tasks, g.p_g, g.p_v, g.pairs, f"{g.gain:+.3f}") for g in gains),
            "Team of all agents; members.json holds all teams.",
            "p_g: share of right proposals; p_v: chance that a right one is rated above a wrong one; n: tasks.",
            "gain: accuracy of the consensus minus p_g.",
        ),
        Sheet.of(
            "correlations",
            "p_v and the gain",
            "vote, over, rows, correlation",
            ((row.vote, row.over, row.rho.n, text) for row, text in rhos),
            "Spearman's rank correlation of p_v with the gain, with 95% intervals of resampled tasks; rows share "
            "members.",
        ),
    ]


def _sizes(study: MemberStudy) -> Sheet:
    def named(team: Chosen) -> str:
        return f"{shown(team.accuracy)}: {', '.join(team.agents)}"

    return Sheet.of(
        "sizes",
        "Accuracy by size of the team",
        "vote, size, teams, mean accuracy, on one half, best team there, worst team there",
        ((s.vote, s.size, s.teams, s.accuracy, s.held_out, named(s.best), named(s.worst)) for s in study.sizes),
        f"Mean over the teams of a size, {study.tasks} tasks. Best and worst are chosen on one half and measured on",
        f"the other, n = {study.sizes[0].held_out.n}, where the mean over all teams stands beside them.",
        _TIES,
    )


def _additions(study: MemberStudy) -> Sheet:
    rows = study.additions
    return Sheet.of(
        "additions",
        "Weaker members added to the best",
        "vote, size, added, alone, accuracy, minus the core",
        ((r.vote, r.size, r.added or "(core)", r.alone, r.accuracy, shown(r.difference, "+")) for r in rows),
        f"Agents are ranked on one half of the tasks; measured on the other, n = {rows[0].accuracy.n}.",
        "Of the core, alone is the mean over its members.",
        _TIES,
    )


def _faulty(study: MemberStudy) -> Sheet:
    """A line a kind and number of simulated members, a column a vote."""
    lines: dict[tuple[str, int, str], list[Estimate]] = {}
    for row in study.faulty:
        lines.setdefault((row.kind, row.members, f"{row.share:.2f}"), []).append(row.accuracy)
    kinds = "; ".join(f"{kind}: {text}" for kind, text in KINDS.items())
    return Sheet.of(
        "faulty",
        "Simulated faulty members added: accuracy",
        ", ".join(["members", "simulated", "share", *dict.fromkeys(row.vote for row in study.faulty)]),
        ((*line, *cells) for line, cells in lines.items()),
        f"Simulated members beside {len(study.agents)} real ones, {study.tasks} tasks. {kinds}.",
        "Real judges rate a copy as they rated the answer copied, or else as they rate wrong answers on average.",
        _TIES,
    )


def _cell(value: Any) -> str:
    if isinstance(value, Estimate):
        return shown(value)
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def plot_faulty(study: MemberStudy, path: Path) -> None:
    """Accuracy by the share of simulated members, a panel a kind."""
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
    write_png(grid[0, 1], path, legend=True)
