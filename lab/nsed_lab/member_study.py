"""Who makes a team good or spoils it, by voting again on one recorded round: sizes, weaker members, faulty ones."""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from rich.table import Table
from torch import Tensor

from nsed_lab.faulty_members import KINDS, most_faulty, with_faulty
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.named import NAMED
from nsed_torch.evaluation.plots import draw_points, new_axes, short_name, style, write_png
from nsed_torch.evaluation.statistics import Estimate, mean_difference, mean_score, shown
from nsed_torch.evaluation.tables import Rows, markdown_table, markdown_text, terminal_table
from nsed_torch.parts.ties import Ties
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.rounds import Rounds
from nsed_torch.traces.splits import split

COMMONEST = "commonest answer"
"""The rule that asks no judge: plurality of equal answers."""

TUNED = "tuned"
"""The vote of a cell that was loaded."""

MOST = 60
"""Teams of one size that are tried; where there are more, so many are drawn."""

HALVES = (0.5, 0.0, 0.5)

Team = tuple[int, ...]
Rule = Callable[[Rounds, Sequence[int]], Float[Tensor, "batch"]]
"""From rounds and the indices of a team to the chance that the team's answer is right, per task."""


class Chosen(NamedTuple):
    """A team chosen on one half of the tasks, and its accuracy on the other."""

    agents: tuple[str, ...]
    accuracy: Estimate


class TeamSize(NamedTuple):
    """Teams of one size under one rule."""

    vote: str
    size: int
    teams: int  # that were tried
    accuracy: Estimate  # of a task's mean over the teams
    held_out: Estimate  # the same over the second half of the tasks
    best: Chosen  # of equal ones the first
    worst: Chosen


class Addition(NamedTuple):
    """A team of the best agents by the first half of the tasks, measured on the other."""

    vote: str
    size: int
    added: str  # the weakest member, who came last; "" for the core
    alone: Estimate  # accuracy of that member; of the core, the mean over its members
    accuracy: Estimate
    difference: Estimate  # to the core, task by task


class Faulty(NamedTuple):
    """A team with simulated members."""

    kind: str
    members: int  # that are simulated
    share: float  # of the whole team
    vote: str
    accuracy: Estimate  # over tasks, of a task's mean over the draws
    difference: Estimate  # to the team without simulated members, task by task


def polled(episodes: Episodes, number: int = 1, ties: Ties = Ties.LOT) -> Rounds:
    """A round of the tasks that held it.

    Raises:
        ValueError: for ties by accuracy, for what is learned here is who is accurate.
        ValueError: for fewer than two agents, or fewer than two tasks in which somebody gave an answer that round.
    """
    if ties is Ties.ACCURACY:
        raise ValueError("expected ties=lot or ties=first where members are studied, got ties=accuracy")
    rounds = replace(Rounds.of(episodes, number), ties=ties)
    if len(rounds.agents) < 2:
        raise ValueError(f"expected at least 2 agents, got {len(rounds.agents)}: collect with more")
    if (answers := int((rounds.classes >= 0).any(1).sum())) < 2:
        raise ValueError(f"expected answers to at least 2 tasks in round {number}, got {answers}: collect more")
    return rounds


def elected(cell: ConsensusCell, rounds: Rounds, team: Sequence[int]) -> Float[Tensor, "batch"]:
    """Whether the consensus of a team is right, when it holds this round alone, without memory; ties by the rounds'.

    By lot no agent gains by its place in the list, as it does in a deliberation, where the first wins. 0 where nobody
    of the team gave an answer. The cell knows at least as many agents as the rounds, in their order.
    """
    return rounds.right(cell, _members(rounds, team)[:, None])


def commonest(rounds: Rounds, team: Sequence[int]) -> Float[Tensor, "batch"]:
    """As `elected`, for the answer that most of a team gave. Nobody rates."""
    return rounds.plurality_right(_members(rounds, team))


def rules(dim: int, seats: int, votes: Sequence[str], tuned: ConsensusCell | None = None) -> Mapping[str, Rule]:
    """What is compared, by name: fresh cells with these votes, the commonest answer, and a tuned cell if there is one.

    All cells have room for as many agents as there are seats.
    """
    if not votes or (unknown := [name for name in votes if name not in NAMED["vote"]]):
        got = ", ".join(unknown) if votes else "none"
        raise ValueError(f"votes: expected names out of {', '.join(NAMED['vote'])}, got {got}")
    chosen: dict[str, Rule] = {name: partial(elected, ConsensusCell(dim, seats, vote=name).double()) for name in votes}
    chosen[COMMONEST] = commonest
    return chosen if tuned is None else {**chosen, TUNED: partial(elected, tuned.double())}


def sub_teams(agents: int, *, most: int = MOST, seed: int = 0) -> list[Team]:
    """Teams of 1 to all agents, by size: all of a size if at most `most`, else as many different ones drawn."""
    if most < 1:
        raise ValueError(f"most_teams: expected at least 1, got {most}")
    draw = random.Random(seed)  # noqa: S311 - no secret
    teams: list[Team] = []
    for size in range(1, agents + 1):
        if math.comb(agents, size) <= most:
            teams += itertools.combinations(range(agents), size)
            continue
        drawn: set[Team] = set()
        while len(drawn) < most:
            drawn.add(tuple(sorted(draw.sample(range(agents), size))))
        teams += sorted(drawn)
    return teams


def team_sizes(rounds: Rounds, teams: Sequence[Team], rules: Mapping[str, Rule]) -> list[TeamSize]:
    """Accuracy by size: of the mean team, and of those that a half of the tasks calls best and worst.

    Halves are by hash of the ids.
    """
    parts = split(rounds.ids, HALVES)

    def chosen(team: int, right: Tensor) -> Chosen:
        return Chosen(tuple(rounds.agents[i] for i in teams[team]), accuracy(right[parts.test]))

    rows = []
    for vote, rule in rules.items():
        table = torch.stack([rule(rounds, team) for team in teams])
        for size in sorted({len(team) for team in teams}):
            same = [i for i, team in enumerate(teams) if len(team) == size]
            known = table[same][:, parts.train].mean(1)
            best, worst = same[int(known.argmax())], same[int(known.argmin())]
            mean = table[same].mean(0)
            means = accuracy(mean), accuracy(mean[parts.test])
            ends = chosen(best, table[best]), chosen(worst, table[worst])
            rows.append(TeamSize(vote, size, len(same), *means, *ends))
    return rows


def additions(rounds: Rounds, rules: Mapping[str, Rule], *, core: int = 2) -> list[Addition]:
    """Start from the best agents and add the weaker ones, the better first.

    Agents are ranked by their accuracy on the first half of the tasks, ties by their order; all that is reported is
    measured on the other half.
    """
    if not 1 <= core <= len(rounds.agents):
        raise ValueError(f"core: expected 1 to {len(rounds.agents)} agents, got {core}")
    parts = split(rounds.ids, HALVES)
    single = rounds.correct.double()
    order = single[parts.train].mean(0).argsort(descending=True, stable=True).tolist()
    rows = []
    for vote, rule in rules.items():
        start = rule(rounds, order[:core])[parts.test]
        for size in range(core, len(order) + 1):
            now = rule(rounds, order[:size])[parts.test]
            last = order[:core] if size == core else order[size - 1 : size]
            alone = accuracy(single[parts.test][:, last].mean(1))
            added = "" if size == core else rounds.agents[last[0]]
            rows.append(Addition(vote, size, added, alone, accuracy(now), difference(now, start)))
    return rows


def faulty_members(rounds: Rounds, rules: Mapping[str, Rule], *, draws: int = 5, seed: int = 0) -> list[Faulty]:
    """Accuracy with 0, 1, 2, ... simulated members up to 60% of the team, by kind and rule.

    A task's score is averaged over the draws, which all counts, kinds and rules share: a larger count adds members to
    those of the smaller one. The rules' cells have room for `most_faulty` more agents, behind the real ones.
    """
    if draws < 1:
        raise ValueError(f"draws: expected at least 1, got {draws}")
    n, most = len(rounds.agents), most_faulty(len(rounds.agents))
    rows = []
    for kind in KINDS:
        # Nothing about silence is random.
        crowds = [with_faulty(rounds, kind, most, seed=seed + i) for i in range(1 if kind == "silent" else draws)]
        for vote, rule in rules.items():
            alone = rule(rounds, range(n))
            for count in range(most + 1):
                right = torch.stack([rule(crowd, range(n + count)) for crowd in crowds]).mean(0) if count else alone
                share = count / (n + count)
                rows.append(Faulty(kind, count, share, vote, accuracy(right), difference(right, alone)))
    return rows


@dataclass(frozen=True)
class MemberStudy:
    """What a recorded round tells about its real agents, and with simulated ones beside them."""

    tasks: int
    agents: tuple[str, ...]
    sizes: list[TeamSize]
    additions: list[Addition]
    faulty: list[Faulty]
    ties: Ties = Ties.LOT

    @classmethod
    def of(
        cls,
        rounds: Rounds,
        rules: Mapping[str, Rule],
        *,
        core: int = 2,
        most_teams: int = MOST,
        draws: int = 5,
        seed: int = 0,
    ) -> "MemberStudy":
        """Vote again and again on one recorded round, and count.

        The rules have seats for `most_faulty` more agents; weaker ones are added to a core of so many of the best.
        """
        sizes = team_sizes(rounds, sub_teams(len(rounds.agents), most=most_teams, seed=seed), rules)
        added = additions(rounds, rules, core=core)
        faulty = faulty_members(rounds, rules, draws=draws, seed=seed)
        return cls(len(rounds), rounds.agents, sizes, added, faulty, rounds.ties)


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
    """Every table of a study."""

    def named(team: Chosen) -> str:
        return f"{shown(team.accuracy)}: {', '.join(team.agents)}"

    # A line a kind and number of simulated members, a column a vote.
    lines: dict[tuple[str, int, str], list[Estimate]] = {}
    for row in study.faulty:
        lines.setdefault((row.kind, row.members, f"{row.share:.2f}"), []).append(row.accuracy)
    ties = f"95% intervals over tasks. {study.ties.note}"
    kinds = "; ".join(f"{kind}: {text}" for kind, text in KINDS.items())
    sizes, added = study.sizes, study.additions
    return [
        Sheet.of(
            "sizes",
            "Accuracy by size of the team",
            "vote, size, teams, mean accuracy, on one half, best team there, worst team there",
            ((s.vote, s.size, s.teams, s.accuracy, s.held_out, named(s.best), named(s.worst)) for s in sizes),
            f"Mean over the teams of a size, {study.tasks} tasks. Best and worst are chosen on one half and measured",
            f"on the other, n = {sizes[0].held_out.n}, where the mean over all teams stands beside them.",
            ties,
        ),
        Sheet.of(
            "additions",
            "Weaker members added to the best",
            "vote, size, added, alone, accuracy, minus the core",
            ((a.vote, a.size, a.added or "(core)", a.alone, a.accuracy, shown(a.difference, "+")) for a in added),
            f"Agents are ranked on one half of the tasks; measured on the other, n = {added[0].accuracy.n}.",
            "Of the core, alone is the mean over its members.",
            ties,
        ),
        Sheet.of(
            "faulty",
            "Simulated faulty members added: accuracy",
            ", ".join(["members", "simulated", "share", *dict.fromkeys(row.vote for row in study.faulty)]),
            ((*line, *cells) for line, cells in lines.items()),
            f"Simulated members beside {len(study.agents)} real ones, {study.tasks} tasks. {kinds}.",
            "Real judges rate a copy as they rated the answer copied, or else as they rate wrong answers on average.",
            ties,
        ),
    ]


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


def accuracy(right: Float[Tensor, "batch"]) -> Estimate:
    """Mean over tasks."""
    return mean_score(right[:, None].tolist())


def difference(one: Float[Tensor, "batch"], other: Float[Tensor, "batch"]) -> Estimate:
    """Mean paired difference over tasks."""
    return mean_difference((one - other)[:, None].tolist())


def _members(rounds: Rounds, team: Sequence[int]) -> Tensor:
    mask = torch.zeros(len(rounds.agents), dtype=torch.bool)
    mask[list(team)] = True
    return mask
