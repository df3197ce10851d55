"""Methods side by side on the same tasks: accuracy and cost of each, and what the reference has over the others."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nsed_torch.evaluation.statistics import (
    DIGITS,
    LEVEL,
    Estimate,
    holm,
    mcnemar,
    mean_difference,
    mean_score,
    plain,
    sign_flip,
    student,
)
from nsed_torch.parts.ties import Ties
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage

REFERENCE = "deliberation"
"""What other methods are compared with, where it took part."""

_STEPS = re.compile(r"(?:^|; )(rounds|layers|corrections|samples): (\d+)")

_Questions = list[list[float]]
_Mean = Callable[[_Questions], Estimate]
_Score = Callable[[Outcome], float | None]


@dataclass(frozen=True)
class MethodResult:
    """What a method came to."""

    tasks: int  # that it was given
    accuracy: Estimate  # over questions with a score, epochs of one averaged first
    verdicts: dict[str, int]  # how often each came up; those that never did are left out
    usage: Usage  # of all calls
    strata: dict[str, Estimate]  # accuracy within each stratum; empty where tasks name none
    steps: dict[str, float] = field(default_factory=dict)  # rounds, layers, ... a task took on average, by their name
    tied: int = 0  # tasks in which several answers stood level
    by_lot: Estimate | None = None  # accuracy where a lot decides ties, in expectation; None where nothing tied

    def count(self, verdict: Verdict) -> int:
        """Tasks that ended so."""
        return self.verdicts.get(verdict, 0)

    @property
    def tokens_per_task(self) -> float:
        """Those computed."""
        return self.usage.tokens / self.tasks

    @property
    def billed_per_task(self) -> float:
        """Tokens in and out together, as a metered endpoint charges them."""
        return self.usage.billed / self.tasks


@dataclass(frozen=True)
class Paired:
    """What the reference has over another method, on the tasks that have scores of both."""

    difference: Estimate  # the reference's share minus the other's
    wins: int  # questions where the reference is ahead
    losses: int  # questions where the other is ahead
    test: str | None = None  # whose p it is; None where the two share no question
    p: float | None = None  # two-sided
    p_holm: float | None = None  # the same, adjusted by Holm over all pairs of the comparison


@dataclass(frozen=True)
class Comparison:
    """Methods by name, in the order in which they first came up, and the reference minus each other one."""

    reference: str
    methods: dict[str, MethodResult]
    paired: dict[str, Paired]
    what: str = "accuracy"  # what the scores are called in tables
    ties: Ties | None = None  # by which the scores were counted; None where nobody says
    difference_by_lot: dict[str, Estimate] = field(default_factory=dict)  # where the reference or the other tied

    @classmethod
    def of(
        cls,
        outcomes: Iterable[Outcome],
        *,
        reference: str | None = None,
        by_student: bool = False,
        what: str = "accuracy",
        ties: Ties | None = None,
    ) -> "Comparison":
        """Count, average and compare.

        Outcomes of one method may come in any order. Those that were not run have no score: they are counted and left
        out of every mean. Where every question has one scored task, means have Clopper and Pearson's interval, and
        differences Tango's with McNemar's exact test; where questions have epochs, Student's over questions and the
        sign-flip test.

        The reference is `deliberation`, or the first method where that took no part, unless another is named;
        `by_student` gives every mean Student's interval, whatever the scores. With `ties` of LOT a tie scores the share
        of right ones among the tied; the other rules were decided by whoever made the outcomes.
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
        by_method = {name: dict(sorted(tasks.items())) for name, tasks in by_method.items()}
        score, difference = (_student_share, _student_difference) if by_student else (mean_score, mean_difference)
        right = _by_lot if ties is Ties.LOT else _accuracy
        methods = {name: _result(list(tasks.values()), score, right) for name, tasks in by_method.items()}
        return cls(
            chosen,
            methods,
            _pairs(by_method, chosen, difference, right),
            what,
            ties,
            {
                name: _pair(by_method[chosen], tasks, difference, _by_lot).difference
                for name, tasks in by_method.items()
                if name != chosen and (methods[name].tied or methods[chosen].tied)
            },
        )

    def relative_tokens(self, method: str) -> float | None:
        """Computed tokens per task of a method over the reference's; None where the reference took none."""
        first = self.methods[self.reference].tokens_per_task
        return self.methods[method].tokens_per_task / first if first else None

    def to_json(self) -> dict[str, Any]:
        """As plain data, floats rounded to 9 decimals.

        Returns:
            `level`, `reference`, `methods`, `paired`, `ties` where they have a rule, `difference_by_lot` where some
            tied, and `timings` by method, the only part in which two runs of one command may differ.
        """
        methods, timings = {}, {}
        for name, method in self.methods.items():
            usage = vars(method.usage).copy()
            timings[name] = {"seconds": usage.pop("seconds")}
            costs = {
                "tokens_per_task": method.tokens_per_task,
                "billed_per_task": method.billed_per_task,
                "relative_tokens": self.relative_tokens(name),
            }
            methods[name] = {**vars(method), "usage": usage, **costs}
            for part in ("steps", "tied", "by_lot"):
                if not methods[name][part]:
                    del methods[name][part]
        parts: dict[str, Any] = {
            "reference": self.reference,
            "methods": methods,
            "paired": self.paired,
            "timings": timings,
        }
        rare = {"ties": self.ties, "difference_by_lot": self.difference_by_lot}
        parts |= {name: value for name, value in rare.items() if value}
        data: dict[str, Any] = plain({"level": LEVEL, **parts})
        return data


def scored(runs: Sequence[Mapping[str, Mapping[str, float]]]) -> list[Outcome]:
    """Outcomes without calls, for a comparison of what several seeds tested: one task per question and seed.

    A run is that of a seed: method -> question -> 1 where right, else 0; or a share in between, which is right where it
    is 1.
    """
    return [
        _Scored(method, f"{question}, seed {seed}", question, "", None, "", verdict, Usage(), value=score)
        for seed, run in enumerate(runs)
        for method, scores in run.items()
        for question, score in scores.items()
        for verdict in [Verdict.RIGHT if score == 1 else Verdict.WRONG]
    ]


@dataclass(frozen=True)
class _Scored(Outcome):
    """An outcome whose score the verdict alone does not tell."""

    value: float = 0.0

    @property
    def score(self) -> float:
        """The value."""
        return self.value


def _accuracy(outcome: Outcome) -> float | None:
    return outcome.score


def _by_lot(outcome: Outcome) -> float | None:
    return outcome.score if outcome.by_lot is None else outcome.by_lot


def _result(outcomes: Sequence[Outcome], mean: _Mean, right: _Score) -> MethodResult:
    counts = Counter(outcome.verdict for outcome in outcomes)
    tied = sum(outcome.by_lot is not None for outcome in outcomes)
    usage = Usage.sum(outcome.usage for outcome in outcomes)
    strata = sorted({outcome.stratum for outcome in outcomes})

    def share(part: Iterable[Outcome], score: _Score = right) -> Estimate:
        return mean(_by_question((o.group, value) for o in part if (value := score(o)) is not None))

    return MethodResult(
        tasks=len(outcomes),
        accuracy=share(outcomes),
        verdicts={verdict.value: counts[verdict] for verdict in Verdict if counts[verdict]},
        # What is written is what is computed with.
        usage=replace(usage, price=round(usage.price, DIGITS), seconds=round(usage.seconds, DIGITS)),
        strata={s: share(o for o in outcomes if o.stratum == s) for s in strata if strata != [""]},
        steps=_steps(outcomes),
        tied=tied,
        by_lot=share(outcomes, _by_lot) if tied else None,
    )


def _steps(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """How far methods that grow by steps got, as their notes have it."""
    counted = [found for outcome in outcomes if (found := _STEPS.search(outcome.note))]
    return {counted[0][1]: sum(int(found[2]) for found in counted) / len(counted)} if counted else {}


def _pairs(
    by_method: Mapping[str, Mapping[str, Outcome]], chosen: str, mean: _Mean, score: _Score
) -> dict[str, Paired]:
    """The reference with every other method, p values adjusted over all of them."""
    others = {name: tasks for name, tasks in by_method.items() if name != chosen}
    pairs = {name: _pair(by_method[chosen], tasks, mean, score) for name, tasks in others.items()}
    tested = {name: pair.p for name, pair in pairs.items() if pair.p is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {name: replace(pair, p_holm=adjusted.get(name)) for name, pair in pairs.items()}


def _pair(first: Mapping[str, Outcome], other: Mapping[str, Outcome], mean: _Mean, score: _Score) -> Paired:
    """Both by task."""
    both = [(one.group, score(one), score(other[task])) for task, one in first.items() if task in other]
    questions = _by_question((group, a - b) for group, a, b in both if a is not None and b is not None)
    difference = mean(questions)
    means = [sum(values) / len(values) for values in questions]
    wins, losses = sum(value > 0 for value in means), sum(value < 0 for value in means)
    if not means:
        return Paired(difference, wins, losses)
    # McNemar's is a test of right and wrong; equal probabilities differ by 0, too.
    verdicts = {score for _, *scores in both for score in scores if score is not None} <= {0.0, 1.0}
    single = verdicts and all(len(values) == 1 for values in questions)
    return Paired(difference, wins, losses, *(mcnemar(wins, losses) if single else sign_flip(means)))


def _by_question(scores: Iterable[tuple[str, float]]) -> _Questions:
    by_question: dict[str, list[float]] = {}
    for question, score in scores:
        by_question.setdefault(question, []).append(score)
    return list(by_question.values())


def _student_share(questions: _Questions) -> Estimate:
    return student([sum(scores) / len(scores) for scores in questions], 0.0, 1.0)


def _student_difference(questions: _Questions) -> Estimate:
    return student([sum(scores) / len(scores) for scores in questions], -1.0, 1.0)
