"""A study of members as tables, in Markdown and on a terminal."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.table import Table

from nsed_torch.evaluation.members.faulty import KINDS, Faulty
from nsed_torch.evaluation.members.study import Study
from nsed_torch.evaluation.members.teams import TeamSize
from nsed_torch.evaluation.statistics import Estimate, shown
from nsed_torch.evaluation.tables import markdown_table, markdown_text, terminal_table

_TIES = "95% intervals over tasks; a tie counts as the share of right ones among the tied."


@dataclass(frozen=True)
class Sheet:
    """A table and what to know about its numbers.

    Args:
        name: of its file.
        title: above it.
        head: names of the columns.
        rows: cells, any text.
        notes: a sentence or two each.
    """

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def markdown(self) -> str:
        """With title and notes."""
        lines = [f"## {markdown_text(self.title)}", "", markdown_table([self.head, *self.rows]), ""]
        return "\n".join([*lines, *map(markdown_text, self.notes)]) + "\n"

    def terminal(self) -> Table:
        """The same for a terminal; the notes are its caption."""
        return terminal_table([self.head, *self.rows], title=self.title, caption=" ".join(self.notes))


def sheets(study: Study) -> list[Sheet]:
    """Every table of a study; of the many gains the team of all agents alone."""
    return [
        _sizes(study),
        _additions(study),
        _faulty(study, "faulty", "Simulated faulty members added: accuracy", lambda row: shown(row.accuracy)),
        _faulty(study, "faulty_paired", "The same minus none, task by task", lambda row: shown(row.difference, "+")),
        _gains(study),
        _correlations(study),
    ]


def _sizes(study: Study) -> Sheet:
    rows = [
        (row.vote, str(row.size), str(row.teams), *map(shown, (row.accuracy, row.held_out)), *_chosen(row))
        for row in study.sizes
    ]
    head = ("vote", "size", "teams", "mean accuracy", "on one half", "best team there", "worst team there")
    n = study.sizes[0].held_out.n
    notes = (
        f"Mean over the teams of a size, {study.tasks} tasks. Best and worst are chosen on one half and measured on",
        f"the other, n = {n}, where the mean over all teams stands beside them.",
        _TIES,
    )
    return Sheet("sizes", "Accuracy by size of the team", head, tuple(rows), notes)


def _additions(study: Study) -> Sheet:
    rows = [
        (
            row.vote,
            str(row.size),
            row.added or "(core)",
            *map(shown, (row.alone, row.accuracy, row.difference), ("", "", "+")),
        )
        for row in study.additions
    ]
    head = ("vote", "size", "added", "alone", "accuracy", "minus the core")
    notes = (
        f"Agents are ranked on one half of the tasks; measured on the other, n = {study.additions[0].accuracy.n}.",
        "Of the core, alone is the mean over its members.",
        _TIES,
    )
    return Sheet("additions", "Weaker members added to the best", head, tuple(rows), notes)


def _faulty(study: Study, name: str, title: str, cell: Callable[[Faulty], str]) -> Sheet:
    """A line a kind and number of simulated members, a column a vote."""
    votes = tuple(dict.fromkeys(row.vote for row in study.faulty))
    lines: dict[tuple[str, ...], list[str]] = {}
    for row in study.faulty:
        lines.setdefault((row.kind, str(row.members), f"{row.share:.2f}"), []).append(cell(row))
    kinds = "; ".join(f"{kind}: {text}" for kind, text in KINDS.items())
    notes = (
        f"Simulated members beside {len(study.agents)} real ones, {study.tasks} tasks. {kinds}.",
        "Real judges rate a copy as they rated the answer copied, or else as they rate wrong answers on average.",
        _TIES,
    )
    head = ("members", "simulated", "share", *votes)
    return Sheet(name, title, head, tuple((*line, *cells) for line, cells in lines.items()), notes)


def _gains(study: Study) -> Sheet:
    rows = [
        (row.vote, row.stratum, str(row.tasks), f"{row.p_g:.3f}", _number(row.p_v), str(row.pairs), f"{row.gain:+.3f}")
        for row in study.gains
        if row.agents == study.agents
    ]
    notes = (
        "Team of all agents; members.json holds all teams.",
        "p_g: share of right proposals; p_v: chance that a right one is rated above a wrong one; n: tasks.",
        "gain: accuracy of the consensus minus p_g.",
    )
    head = ("vote", "stratum", "n", "p_g", "p_v", "pairs", "gain")
    return Sheet("gains", "Gain by stratum", head, tuple(rows), notes)


def _correlations(study: Study) -> Sheet:
    rows = [(row.vote, row.over, str(row.rho.n), _interval(row.rho)) for row in study.correlations]
    notes = (
        "Spearman's rank correlation of p_v with the gain, with 95% intervals of resampled tasks; rows share members.",
    )
    head = ("vote", "over", "rows", "correlation")
    return Sheet("correlations", "p_v and the gain", head, tuple(rows), notes)


def _chosen(row: TeamSize) -> list[str]:
    return [f"{shown(team.accuracy)}: {', '.join(team.agents)}" for team in (row.best, row.worst)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _interval(value: Estimate) -> str:
    return "undefined" if value.mean is None else shown(value, "+")
