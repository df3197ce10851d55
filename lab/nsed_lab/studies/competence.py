"""`-m nsed_lab.studies.competence keep FOLDER FILE`: what a vote gains where members and judges are of many strengths.

FOLDER has a run of `nsed collect` a cell, `g5v0` for the generalist at 5/5 and the verifier at 0/5 of its strength.
FILE gets a line a cell and question: which proposals are right, which say the same, the order and the signs of their
ratings, and who won.
"""

import gzip
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from nsed_torch.evaluation.statistics import Estimate, shown
from nsed_torch.records.files import parse_json

ENDING = ".cells.jsonl.gz"

STRENGTHS = range(6)

DRAWS = 10_000

Real = NDArray[np.float64]


def keep_cells(folder: Path, file: Path) -> None:
    """Store the first rounds of all cells in a folder; a cell that is not there is an OSError."""
    lines = []
    for g in STRENGTHS:
        for v in STRENGTHS:
            for line in (folder / f"g{g}v{v}/traces.jsonl").read_bytes().splitlines():
                trace = parse_json(line, str(folder), "run nsed collect again")
                (first,) = trace["rounds"]
                (ratings,) = first["ratings"]  # of the verifier
                told = {
                    "cell": [g, v],
                    "task": trace["task"]["id"],
                    "right": [int(grade) for grade in trace["grades"][0]],
                    "classes": first["classes"],
                    "ratings": ordered(ratings),
                    "winner": first["winner"],
                }
                lines.append(json.dumps(told) + "\n")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))


def ordered(ratings: Sequence[float]) -> list[int]:
    """Small integers of the same signs and order, equal where ratings are."""
    levels = sorted({*ratings, 0.0})
    return [levels.index(rating) - levels.index(0.0) for rating in ratings]


class Cell:
    """One strength of members and one of the judge, question by question."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        lines = list(lines)
        self.right = np.array([line["right"] for line in lines], dtype=float)
        self.ratings = np.array([line["ratings"] for line in lines], dtype=float)
        self.team = np.array([line["right"][line["winner"]] for line in lines], dtype=float)
        self.commonest = np.array([commonest(line["classes"], line["right"]) for line in lines])

    @property
    def p_g(self) -> float:
        """The share of right proposals."""
        return float(self.right.mean())

    @property
    def p_v(self) -> float:
        """The share of ratings with the right sign; 0 counts one half."""
        return float(((1 + np.sign(self.ratings) * (2 * self.right - 1)) / 2).mean())

    @property
    def auc(self) -> float:
        """The chance that a right proposal is rated above a wrong one to the same question; equal ones count half."""
        won, pairs = 0.0, 0
        for right, rated in zip(self.right, self.ratings, strict=True):
            ahead = np.sign(np.subtract.outer(rated[right == 1], rated[right == 0]))
            won, pairs = won + (ahead.sum() + ahead.size) / 2, pairs + ahead.size
        return float(won / pairs)

    @cached_property
    def over_p_g(self) -> Estimate:
        """The team's accuracy less its members'."""
        return gain(self.team - self.right.mean(axis=1))

    @cached_property
    def over_commonest(self) -> Estimate:
        """The team's accuracy less that of the commonest answer, ties by lot."""
        return gain(self.team - self.commonest)

    @property
    def law(self) -> float:
        """What the law's rate has the sign of."""
        return self.p_v - self.p_g


def commonest(classes: Iterable[int], right: Iterable[int]) -> float:
    """The share of right answers among the commonest; -1 is no answer."""
    given: dict[int, list[int]] = defaultdict(list)
    for number, grade in zip(classes, right, strict=True):
        if number >= 0:
            given[number].append(grade)
    most = max(map(len, given.values()), default=0)
    tied = [grades[0] for grades in given.values() if len(grades) == most]
    return sum(tied) / len(tied) if tied else 0.0


def gain(differences: Real) -> Estimate:
    """The mean of differences a question, and its bootstrap interval over questions."""
    n = len(differences)
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS) @ differences / n
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(n, float(differences.mean()), float(low), float(high), "bootstrap")


class CellFigures:
    """The functions of claims about cells."""

    def __init__(self, cells: Mapping[tuple[int, int], Cell]) -> None:
        self.cells = cells

    @classmethod
    def load(cls, path: Path) -> "CellFigures":
        """Read what `keep_cells` wrote."""
        lines: dict[tuple[int, int], list[Any]] = defaultdict(list)
        with gzip.open(path, "rb") as file:
            for line in map(json.loads, file):
                lines[tuple(line["cell"])].append(line)
        return cls({cell: Cell(those) for cell, those in lines.items()})

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By name."""
        return {name: getattr(self, name) for name in ("grid", "contested", "sign_rule", "gaining", "rank")}

    def grid(self, what: str, g: int) -> str:
        """A row of a table: the generalist's strength and p_g, then each strength of the verifier."""
        row = [self.cells[g, v] for v in STRENGTHS]
        if what == "judged":
            told = [f"{cell.p_v:.3f}, {cell.auc:.3f}" for cell in row]
        else:
            gains = [getattr(cell, what) for cell in row]
            told = [shown(one).replace(f"{one.mean:.3f}", f"{one.mean:+.3f}", 1) for one in gains]
        return f"| {g}/5 ({row[0].p_g:.3f}) | {' | '.join(told)} |"

    def contested(self, g: int) -> int:
        """Questions with right and wrong proposals, at a strength of the generalist."""
        return int(sum(0 < row.mean() < 1 for row in self.cells[g, 0].right))

    def sign_rule(self, sign: int, does: int) -> int:
        """Cells where p_v - p_g has a sign and the gain over p_g lies above (1), below (-1) or about 0."""
        return sum(np.sign(c.law) == sign and side(c.over_p_g) == does for c in self.cells.values())

    def gaining(self, what: str, does: int = 1, least: float = 0.0) -> str:
        """Of the cells whose auc is at least so much, those whose gain lies above 0, below or about it."""
        those = [c for c in self.cells.values() if c.auc >= least]
        return f"{sum(side(getattr(c, what)) == does for c in those)} of {len(those)}"

    def rank(self, what: str) -> str:
        """Spearman's correlation of the gain over p_g with p_v - p_g (law), auc, or auc (1 - p_g) (room)."""
        by = {"law": lambda c: c.law, "auc": lambda c: c.auc, "room": lambda c: c.auc * (1 - c.p_g)}[what]
        cells = list(self.cells.values())
        return f"{spearmanr([by(c) for c in cells], [c.over_p_g.mean for c in cells]).statistic:.2f}"


def side(found: Estimate) -> int:
    """1 where the interval lies above 0, -1 below, else 0."""
    return int(found.low > 0) - int(found.high < 0)


if __name__ == "__main__":
    if sys.argv[1:2] != ["keep"] or not re.fullmatch(rf".*{re.escape(ENDING)}", sys.argv[-1]):
        sys.exit(f"usage: python -m nsed_lab.studies.competence keep FOLDER FILE{ENDING}")
    keep_cells(*map(Path, sys.argv[2:4]))
