"""A team against the field's baselines on tasks of anybody, at equal cost, from Python."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import Observer
from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.evaluation.methods.independent import Plurality, SelfConsistency
from nsed_torch.evaluation.methods.interactive import Debate, MixtureOfAgents, SelfCorrection, SelfMoA
from nsed_torch.evaluation.methods.method import Method
from nsed_torch.evaluation.run_methods import BEST_SINGLE, DELIBERATION, SINGLE, Contest
from nsed_torch.evaluation.tables import printed
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.outcome import Outcome
from nsed_torch.records.trace import Trace, TraceWriter
from nsed_torch.records.withholding import withheld_trace
from nsed_torch.traces.collecting import CALLS, logged_calls, pooling

METHODS: dict[str, Callable[[], Method]] = {
    "plurality": Plurality,
    "self_consistency": SelfConsistency,
    "self_correction": SelfCorrection,
    "self_moa": SelfMoA,
    "moa": MixtureOfAgents,
    "debate": Debate,
}
"""Baselines by name, beside the deliberation itself, every agent alone, and the best of them."""

USUAL = (DELIBERATION, SINGLE, BEST_SINGLE, "plurality")


@dataclass(frozen=True)
class Evaluation:
    """What methods came to on the same tasks; printed, it is a table with intervals."""

    comparison: Comparison
    outcomes: tuple[Outcome, ...]
    traces: tuple[Trace, ...]  # of the deliberations

    @property
    def accuracy(self) -> dict[str, float | None]:
        """Of each method; None where nothing could be graded."""
        return {name: method.accuracy.mean for name, method in self.comparison.methods.items()}

    def __str__(self) -> str:
        return printed(self.comparison)


def evaluate(
    team: MacroRNN,
    tasks: GradedTasks,
    methods: Iterable[str] | Mapping[str, Method] = USUAL,
    *,
    folder: str | Path | None = None,
    equal_tokens: bool = True,
    batch_tasks: int = 16,
    pooled: bool = True,
    report: Callable[[str], None] = lambda text: None,
    observer: Observer | None = None,
) -> Evaluation:
    """Put a team and what it is compared with to graded tasks.

    Args:
        team: who deliberates; the baselines are asked of the same agents through the same engines.
        tasks: what is asked, such as `nsed_torch.tasks("questions.jsonl")`.
        methods: names out of `deliberation`, `single` (every agent alone), `best_single` (the best of them, chosen on
            the other tasks) and `METHODS`; or methods of your own by name, beside which these names stand for None.
        folder: where finished calls and the deliberations' traces are kept, so that the same call goes on where it was
            interrupted; None keeps nothing.
        equal_tokens: whether baselines get the tokens that the deliberation took on each task, or their own size.
        batch_tasks: tasks that go through a method's phases together.
        pooled: whether proposals that the grader calls equal pool their support, unless the team has a rule of its own.
        report: hears of every batch.
        observer: hears of progress within a deliberation.

    Raises:
        ValueError: for an unknown method, or methods that need a deliberation where none is named.
    """
    given: Mapping[str, Any] = methods if isinstance(methods, Mapping) else dict.fromkeys(methods)
    own = (DELIBERATION, SINGLE, BEST_SINGLE)
    if unknown := [name for name, method in given.items() if method is None and name not in {*own, *METHODS}]:
        known = ", ".join((*own, *METHODS))
        raise ValueError(f"methods: expected names out of {known}, got {', '.join(unknown)}: correct them")
    built = {n: m if m is not None else METHODS[n]() for n, m in given.items() if m is not None or n in METHODS}
    how = {"batch_tasks": batch_tasks, "equal_tokens": equal_tokens, "report": report, "observer": observer}
    where = None if folder is None else Path(folder).expanduser()
    with pooling(team, tasks if pooled else None):
        if where is None:
            found = Contest(team, tasks, built, **how).run(list(given))  # type: ignore[arg-type]
        else:
            with logged_calls(team, where / CALLS):
                found = Contest(team, tasks, built, **how).run(list(given))  # type: ignore[arg-type]
                keep_traces(where, found.traces, team, tasks)
    return Evaluation(Comparison.of(found.outcomes), tuple(found.outcomes), tuple(found.traces))


def keep_traces(folder: Path, traces: Sequence[Trace], team: MacroRNN, tasks: GradedTasks) -> None:
    """Write a folder of traces, if there are any; texts of withheld tasks are left out."""
    if traces:
        writer = TraceWriter(folder)
        writer.add([withheld_trace(trace) if tasks.withheld else trace for trace in traces])
        writer.finish(team.cell.encoder.embed)
