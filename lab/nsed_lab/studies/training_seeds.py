"""A table over several seeds of training: what every seed came to, their mean, and whether it holds beyond them.

Outcomes lie in lab/data/PAGE/RUN.jsonl.gz for the first seed and in RUN_1.jsonl.gz, RUN_2.jsonl.gz for the others, all
on the same questions. A number is first averaged over seeds, so that a question is what is drawn and tested. Ties count
by lot; `METHOD:decided` is a method whose run decided them by a rule of its own.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nsed_torch.evaluation.statistics import Estimate, holm, shown, sign_flip
from nsed_torch.records.outcome import Outcome

DRAWS = 10_000
"""Of seeds and questions."""

Compared = tuple[str, str, str, str]
"""Run and method, and run and method that it is held against."""

Scores = np.ndarray[Any, np.dtype[np.float64]]


class SeedFigures:
    """The functions of claims over seeds; runs by name, a list of outcomes each."""

    def __init__(self, runs: Mapping[str, Sequence[Outcome]], family: Sequence[Compared]) -> None:
        self.runs = runs
        self.family = list(family)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By name."""
        names = ("over_seeds", "each_seed", "minus_over_seeds", "p_over_seeds", "tokens_over_seeds")
        return {name: getattr(self, name) for name in names}

    def scores(self, run: str, method: str, kind: str | None = None) -> Scores:
        """Seed by question; a failure is wrong."""
        plain = method.removesuffix(":decided")
        rows = [
            {
                o.task: _right(o, lot=plain == method)
                for o in self.runs[name]
                if o.method == plain and (not kind or o.stratum in kind.split())
            }
            for name in self._names(run)
        ]
        if not rows or any(row.keys() != rows[0].keys() or not row for row in rows):
            raise ValueError(
                f"expected outcomes of {method} in every seed of {run} on the same questions: keep them anew"
            )
        return np.array([[row[task] for task in sorted(row)] for row in rows])

    def over_seeds(self, run: str, method: str = "deliberation", **part: Any) -> str:
        """Mean accuracy over seeds, with its interval."""
        return shown(drawn(self.scores(run, method, **part)))

    def each_seed(self, run: str, method: str = "deliberation", **part: Any) -> str:
        """Accuracy by seed."""
        return ", ".join(f"{mean:.3f}" for mean in self.scores(run, method, **part).mean(1))

    def tokens_over_seeds(self, run: str, method: str = "deliberation") -> str:
        """Tokens a question, computed and in brackets billed, mean over seeds."""
        usages = [o.usage for name in self._names(run) for o in self.runs[name] if o.method == method]
        computed, billed = (
            sum(used) / len(usages) for used in ([u.tokens for u in usages], [u.billed for u in usages])
        )
        return f"{computed:,.0f} ({billed:,.0f})"

    def minus_over_seeds(
        self, run: str, method: str, other: str, than: str, *, level: int = 95, each: bool = False, **part: Any
    ) -> str:
        """One method less another, question by question within a seed."""
        difference = self.scores(run, method, **part) - self.scores(other, than, **part)
        if each:
            return ", ".join(f"{mean:+.3f}" for mean in difference.mean(1))
        found = drawn(difference, level / 100)
        return shown(found).replace(f"{found.mean:.3f}", f"{found.mean:+.3f}", 1)

    def p_over_seeds(self, run: str, method: str, other: str, than: str) -> str:
        """Of sign flips of the questions' means, adjusted by Holm over the comparisons that the protocol names."""
        adjusted = self._adjusted()[run, method, other, than]
        return "p < 0.001" if adjusted < 0.001 else f"{adjusted:.3f}"

    def _names(self, run: str) -> list[str]:
        return [name for name in (run, *(f"{run}_{i}" for i in range(1, 99))) if name in self.runs]

    @functools.cache  # noqa: B019 - one object a page
    def _adjusted(self) -> dict[Compared, float]:
        found = [(self.scores(a, b) - self.scores(c, d)).mean(0).tolist() for a, b, c, d in self.family]
        return dict(zip(self.family, holm([sign_flip(means)[1] for means in found]), strict=True))


def family(claims: str) -> list[Compared]:
    """The comparisons that a file of claims names, a line `= RUN METHOD, RUN METHOD` each."""
    sides = [[side.split() for side in line[1:].split(",")] for line in claims.splitlines() if line.startswith("=")]
    if wrong := [pair for pair in sides if [len(side) for side in pair] != [2, 2]]:
        raise ValueError(f"expected `= RUN METHOD, RUN METHOD` in the claims, got {wrong[0]}")
    return [(a, b, c, d) for (a, b), (c, d) in sides]


def drawn(scores: Scores, level: float = 0.95) -> Estimate:
    """The mean of seed by question with the interval of a bootstrap that draws seeds, and then questions.

    All seeds answer the same questions, so those drawn are the same for all seeds of a draw.
    """
    seeds, n = scores.shape
    by_question = _seeds_drawn(seeds) @ scores  # draw by question
    means = np.einsum("dq,dq->d", by_question, _questions_drawn(n))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(n, float(scores.mean()), float(low), float(high), "bootstrap over seeds and questions")


@functools.cache
def _seeds_drawn(seeds: int) -> Scores:
    return np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), DRAWS) / seeds


@functools.cache
def _questions_drawn(n: int) -> Scores:
    return np.random.default_rng(1).multinomial(n, np.full(n, 1 / n), DRAWS) / n


def _right(outcome: Outcome, *, lot: bool) -> float:
    score = outcome.by_lot if lot and outcome.by_lot is not None else outcome.score
    return score or 0.0
