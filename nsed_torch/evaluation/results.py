"""What an evaluation comes to: accuracy and cost of each method, and what the reference has over the others."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nsed_torch.evaluation.significance import holm, mcnemar, sign_flip
from nsed_torch.evaluation.statistics import LEVEL, Mean, mean_difference, mean_score
from nsed_torch.records import Outcome, Usage, Verdict
from nsed_torch.records.checked import rebuild

REFERENCE = "deliberation"
"""What other methods are compared with, where it took part."""

DIGITS = 9
"""Kept behind the point, so that equal runs write equal bytes on any machine."""


@dataclass(frozen=True)
class MethodResult:
    """What a method came to.

    Args:
        tasks: that it was given.
        accuracy: over questions with a score, epochs of one averaged first.
        verdicts: how often each came up; those that never did are left out.
        usage: of all calls.
        strata: accuracy within each stratum; empty where tasks name none.
    """

    tasks: int
    accuracy: Mean
    verdicts: dict[str, int]
    usage: Usage
    strata: dict[str, Mean]

    @property
    def failed(self) -> int:
        """Tasks that ended in an error; each scores 0."""
        return self.verdicts.get(Verdict.FAILED, 0)

    @property
    def not_run(self) -> int:
        """Tasks whose answer nothing could grade; they have no score."""
        return self.verdicts.get(Verdict.NOT_RUN, 0)

    @property
    def tokens_per_task(self) -> float:
        """Tokens in and out together, a task."""
        return self.usage.tokens / self.tasks


@dataclass(frozen=True)
class Paired:
    """What the reference has over another method, on the tasks that have scores of both.

    Args:
        difference: the reference's accuracy minus the other's.
        wins: questions where the reference is ahead.
        losses: questions where the other is ahead.
        test: whose p it is; None where the two share no question.
        p: two-sided.
        p_holm: the same, adjusted by Holm over all comparisons of the evaluation.
    """

    difference: Mean
    wins: int
    losses: int
    test: str | None = None
    p: float | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class Results:
    """What an evaluation came to.

    Args:
        reference: the method that others are compared with.
        methods: by name, in the order in which they first came up.
        paired: the reference minus each other method, by the other's name.
    """

    reference: str
    methods: dict[str, MethodResult]
    paired: dict[str, Paired]

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], *, reference: str | None = None) -> "Results":
        """Count, average and compare.

        Outcomes of one method may come in any order. Those that were not run have no score: they are counted and left
        out of every mean. Where every question has one scored task, means have Clopper and Pearson's interval, and
        differences Tango's with McNemar's exact test; where questions have epochs, Student's over questions and the
        sign-flip test. All intervals are at 95%.

        Args:
            outcomes: one a method and task, at least one.
            reference: a method's name; None is `deliberation`, or the first method where that took no part.

        Raises:
            ValueError: for no outcomes, two of one method and task, or an unknown reference.
        """
        by_method: dict[str, dict[str, Outcome]] = {}
        for outcome in outcomes:
            if outcome.task in by_method.setdefault(outcome.method, {}):
                raise ValueError(
                    f"expected one outcome a method and task, got a second of {outcome.method!r} for {outcome.task!r}; "
                    "remove the file and rerun the nsed evaluate that wrote it"
                )
            by_method[outcome.method][outcome.task] = outcome
        if not by_method:
            raise ValueError("expected at least one outcome, got none: rerun nsed evaluate with a method and a task")
        chosen = reference if reference is not None else REFERENCE if REFERENCE in by_method else next(iter(by_method))
        if chosen not in by_method:
            raise ValueError(f"expected a reference among {', '.join(by_method)}, got {chosen!r}")
        # Sums of floats depend on their order; tasks come in theirs, whoever finished first.
        by_method = {name: dict(sorted(own.items())) for name, own in by_method.items()}
        mine = by_method[chosen]
        compared = {name: _compare(mine, other) for name, other in by_method.items() if name != chosen}
        methods = {name: _method(list(own.values())) for name, own in by_method.items()}
        return cls(chosen, methods, _adjusted(compared))

    def relative_tokens(self, method: str) -> float | None:
        """Tokens a task of a method over the reference's; None where the reference took none."""
        mine = self.methods[self.reference].tokens_per_task
        return self.methods[method].tokens_per_task / mine if mine else None

    def to_json(self) -> dict[str, Any]:
        """As plain data, floats rounded to 9 decimals.

        Returns:
            `level`, `reference`, `methods`, `paired`, and `timings` by method, the only part in which two runs of one
            command may differ.
        """
        data = {
            "level": LEVEL,
            "reference": self.reference,
            "methods": {name: self._method_json(name) for name in self.methods},
            "paired": {name: dataclasses.asdict(comparison) for name, comparison in self.paired.items()},
            "timings": {
                name: {"seconds": m.usage.seconds, "seconds_per_task": m.usage.seconds / m.tasks}
                for name, m in self.methods.items()
            },
        }
        rounded: dict[str, Any] = _rounded(data)
        return rounded

    @classmethod
    def from_json(cls, data: Any, where: str = "results.json") -> "Results":
        """Read what `to_json` gave; keys beside it are passed over.

        Args:
            data: as JSON keeps it.
            where: its file, for errors.

        Raises:
            ValueError: in one line with `where`, if it is none.
        """
        try:
            methods = {name: _read_method(entry, data["timings"][name]) for name, entry in data["methods"].items()}
            compared = {name: rebuild(Paired, entry) for name, entry in data["paired"].items()}
            reference = data["reference"]
            if reference not in methods or compared.keys() != methods.keys() - {reference}:
                raise ValueError(f"reference {reference!r} is not compared with each of {', '.join(methods)}")
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{where}: not the results of an evaluation ({error!r}); rerun the nsed evaluate that wrote it"
            ) from error
        return cls(reference, methods, compared)

    def _method_json(self, name: str) -> dict[str, Any]:
        method = self.methods[name]
        usage = dataclasses.asdict(method.usage)
        del usage["seconds"]
        return {
            "n": method.accuracy.n,
            "tasks": method.tasks,
            "failed": method.failed,
            "not_run": method.not_run,
            "accuracy": dataclasses.asdict(method.accuracy),
            "verdicts": method.verdicts,
            "usage": usage,
            "per_task": {key: value / method.tasks for key, value in usage.items()},
            "tokens_per_task": method.tokens_per_task,
            "relative_tokens": self.relative_tokens(name),
            "strata": {stratum: dataclasses.asdict(mean) for stratum, mean in method.strata.items()},
        }


def _method(outcomes: Sequence[Outcome]) -> MethodResult:
    counts = Counter(outcome.verdict for outcome in outcomes)
    usage = Usage.sum(outcome.usage for outcome in outcomes)
    # What is written is what is computed with, so that results read from a file give the same tables.
    usage = replace(usage, price=round(usage.price, DIGITS), seconds=round(usage.seconds, DIGITS))
    strata = sorted({outcome.stratum for outcome in outcomes})
    return MethodResult(
        tasks=len(outcomes),
        accuracy=_accuracy(outcomes),
        verdicts={verdict.value: counts[verdict] for verdict in Verdict if counts[verdict]},
        usage=usage,
        strata={s: _accuracy([o for o in outcomes if o.stratum == s]) for s in strata if strata != [""]},
    )


def _accuracy(outcomes: Sequence[Outcome]) -> Mean:
    return mean_score(_by_question([(o.group, o.score) for o in outcomes if o.score is not None]))


def _compare(mine: Mapping[str, Outcome], other: Mapping[str, Outcome]) -> Paired:
    """Both by task."""
    both = [(one, other[task]) for task, one in mine.items() if task in other]
    questions = _by_question(
        [(a.group, a.score - b.score) for a, b in both if a.score is not None and b.score is not None]
    )
    difference = mean_difference(questions)
    means = [sum(values) / len(values) for values in questions]
    wins, losses = sum(value > 0 for value in means), sum(value < 0 for value in means)
    if not means:
        return Paired(difference, wins, losses)
    single = all(len(values) == 1 for values in questions)
    test, p = mcnemar(wins, losses) if single else sign_flip(means)
    return Paired(difference, wins, losses, test, p)


def _by_question(scores: Iterable[tuple[str, float]]) -> list[list[float]]:
    found: dict[str, list[float]] = {}
    for question, score in scores:
        found.setdefault(question, []).append(score)
    return list(found.values())


def _adjusted(compared: Mapping[str, Paired]) -> dict[str, Paired]:
    tested = {name: comparison.p for name, comparison in compared.items() if comparison.p is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {name: replace(comparison, p_holm=adjusted.get(name)) for name, comparison in compared.items()}


def _read_method(entry: Mapping[str, Any], timing: Mapping[str, Any]) -> MethodResult:
    method: MethodResult = rebuild(MethodResult, entry)
    usage: Usage = rebuild(Usage, {**entry["usage"], "seconds": timing["seconds"]})
    return replace(method, usage=usage, strata={name: rebuild(Mean, mean) for name, mean in method.strata.items()})


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS) + 0.0  # never -0.0
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    return value
