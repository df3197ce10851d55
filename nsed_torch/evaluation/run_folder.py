"""A folder of `nsed evaluate` or `nsed collect`, read for its page: methods side by side, what became of each task."""

import base64
import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nsed_torch.evaluation.comparison import Comparison, MethodResult
from nsed_torch.evaluation.round_statistics import standing, summarize
from nsed_torch.parts.ties import Ties
from nsed_torch.records.execution import Execution
from nsed_torch.records.files import read_json
from nsed_torch.records.lookalikes import one_line
from nsed_torch.records.outcome import Outcome, Verdict, read_outcomes
from nsed_torch.records.trace import ABOUT, TRACES, Trace, read_traces
from nsed_torch.records.transcript import Usage
from nsed_torch.records.withholding import WITHHELD, withheld_outcome, withheld_trace

RESULTS = "results.json"
OUTCOMES = "outcomes.jsonl"
EXECUTIONS = "executions"

FILTERS = {
    "right": "Right",
    "wrong": "Wrong",
    "lost": "Right → wrong",
    "won": "Wrong → right",
    "disagree": "Agents disagree",
    "ungraded": "Not graded",
}
"""What tasks can be filtered by; see `TaskEntry.tags`."""

# Drawn in places of their own.
_DRAWN = {"methods", "paired", "difference_by_lot", "reference", "insight", "agents", "settings", "counts"}


@dataclass(frozen=True)
class TaskEntry:
    """What became of one task."""

    name: str  # its id
    trace: Trace | None  # its deliberation with grades; None where there was none
    outcomes: tuple[Outcome, ...] = ()  # what each method made of it
    reference: str = "deliberation"  # whose answer stands for the task; the trace's where it has no outcome
    executions: Mapping[str, Execution] = field(default_factory=dict)  # by method

    @property
    def question(self) -> str:
        """As it was asked; "" where nothing holds it."""
        if self.trace:
            return self.trace.transcript.task.question
        return next((execution.task.question for execution in self.executions.values()), "")

    @property
    def curve(self) -> list[bool]:
        """Whether the answer stood right after each round of the deliberation that gave answers."""
        return standing(self.trace)[len(self.trace.transcript.task.inputs) :] if self.trace else []

    @property
    def verdict(self) -> Verdict | None:
        """On the answer that stands for the task; None if nothing was graded."""
        verdict = next((outcome.verdict for outcome in self.outcomes if outcome.method == self.reference), None)
        if verdict is None and self.trace:
            return Verdict.RIGHT if self.curve[-1:] == [True] else Verdict.WRONG
        return verdict

    @property
    def tags(self) -> list[str]:
        """The keys of `FILTERS` that hold.

        `lost` and `won` say that the answer turned wrong or right in some round; agents disagree if their answers of
        the first round that gave any, or those of single agents, differ, where all right answers are one.
        """
        steps = set(itertools.pairwise(self.curve))
        if self.trace:
            first = min(len(self.trace.transcript.task.inputs), len(self.trace.grades) - 1)
            given = zip(self.trace.grades[first], self.trace.answers[first], strict=True)
            said = [right or answer for right, answer in given]
        else:
            single = [outcome for outcome in self.outcomes if outcome.method.startswith("single:")]
            said = [outcome.verdict is Verdict.RIGHT or outcome.answer for outcome in single]
        holds = {
            "right": self.verdict is Verdict.RIGHT,
            "wrong": self.verdict not in {Verdict.RIGHT, Verdict.NOT_RUN, None},
            "lost": (True, False) in steps,
            "won": (False, True) in steps,
            "disagree": len(set(said)) > 1,
            "ungraded": self.verdict in {Verdict.NOT_RUN, None},
        }
        return [tag for tag in FILTERS if holds[tag]]

    @property
    def stratum(self) -> str:
        """The benchmark's subject, difficulty or pattern; "" where there is none."""
        return self.outcomes[0].stratum if self.outcomes else ""

    @property
    def tokens(self) -> int:
        """Of the deliberation, or of all methods where there was none."""
        usages = [self.trace.transcript.usage] if self.trace else [outcome.usage for outcome in self.outcomes]
        return sum(usage.tokens for usage in usages)

    @property
    def sources(self) -> dict[str, str]:
        """Method -> where its text stands in the deliberation word for word, such as `r2-p0`."""
        rounds = self.trace.transcript.rounds if self.trace else []
        places = {p.text: f"r{turn.index}-p{j}" for turn in rounds for j, p in enumerate(turn.proposals)}
        places.pop(WITHHELD, None)
        return {outcome.method: places[outcome.text] for outcome in self.outcomes if outcome.text in places}


@dataclass(frozen=True)
class Run:
    """What a run's folder holds."""

    about: Mapping[str, Any]  # the data of `results.json`, else of `collect.json`, else nothing
    results: Comparison  # where only a deliberation was collected, its rounds and agents stand for methods
    tasks: list[TaskEntry]  # in the order of the run
    plots: list[tuple[str, str]]  # titles, and images as data URIs

    @classmethod
    def load(cls, folder: Path) -> "Run":
        """Read what is there."""
        files = [path for path in (folder / RESULTS, folder / ABOUT) if path.is_file()]
        data = read_json(files[0]) if files else None
        about = data if isinstance(data, dict) else {}
        traces = {t.transcript.task.id: t for t in read_traces(folder)} if (folder / TRACES).is_file() else {}
        outcomes, executions = defaultdict[str, list[Outcome]](list), defaultdict[str, dict[str, Execution]](dict)
        answered = read_outcomes(folder / OUTCOMES) if (folder / OUTCOMES).is_file() else []
        for outcome in answered:
            outcomes[outcome.task].append(outcome)
        for path in sorted((folder / EXECUTIONS).glob("*.jsonl")):
            for execution in Execution.read_lines(path):
                executions[execution.task.id][path.stem] = execution
        if answered:
            try:
                ties = None if about.get("ties") is None else Ties.named(str(about["ties"]))
            except ValueError as error:
                raise ValueError(f"{files[0]}: {one_line(error)}: evaluate again") from error
            compared = Comparison.of(answered, ties=ties)
        else:
            rows = summarize(traces.values()).accuracies if traces else {}
            methods = {what: MethodResult(accuracy.n, accuracy, {}, Usage(), {}) for what, accuracy in rows.items()}
            compared = Comparison("", methods, {})
        tasks = [
            TaskEntry(name, traces.get(name), tuple(outcomes[name]), compared.reference, executions[name])
            for name in dict.fromkeys([*traces, *outcomes, *executions])
        ]
        plots = [
            (path.stem.replace("_", " "), "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode())
            for path in sorted((folder / "plots").glob("*.png"))
        ]
        return cls(about, compared, tasks, plots)

    def shown(self) -> "Run":
        """The run as its page shows it: without texts, where the questions' authors ask for it."""
        if self.about.get("withheld") is not True:
            return self
        tasks = [
            replace(
                entry,
                trace=entry.trace and withheld_trace(entry.trace),
                outcomes=tuple(map(withheld_outcome, entry.outcomes)),
                executions={},
            )
            for entry in self.tasks
        ]
        return replace(self, tasks=tasks)

    @property
    def title(self) -> str:
        """The benchmark's name, or how many tasks there are."""
        benchmark = self.about.get("benchmark")
        name = benchmark.get("name") if isinstance(benchmark, Mapping) else benchmark
        count = f"{len(self.tasks)} task{'' if len(self.tasks) == 1 else 's'}"
        return f"{name}: {count}" if isinstance(name, str) and name else count

    @property
    def headline(self) -> str:
        """Which method is right most often, by how much over the reference or the next one, at what tokens.

        "" where no two methods were compared.
        """
        methods = {name: one for name, one in self.results.methods.items() if one.accuracy.mean is not None}
        if len(methods) < 2 or self.results.reference not in methods:
            return ""
        first, second, *_ = sorted(
            methods, key=lambda m: (-(methods[m].accuracy.mean or 0), methods[m].tokens_per_task)
        )
        rival = second if first == self.results.reference else self.results.reference
        sign = 1 if first == self.results.reference else -1
        (one, other), pair = (methods[first], methods[rival]), self.results.paired[rival if sign == 1 else first]
        most = "right most often" if one.accuracy.mean != other.accuracy.mean else f"right as often as {rival}"
        text = f"{first} is {most}: {_percent(one)} of {one.accuracy.n} questions, {rival} {_percent(other)}"
        difference = pair.difference
        if difference.mean is not None and difference.low is not None and difference.high is not None:
            low, high = sorted((100 * sign * difference.low, 100 * sign * difference.high))
            text += f"; that is {100 * sign * difference.mean:+.1f} points [{low:+.1f}, {high:+.1f}]"
            text += ", which may be chance" * (low <= 0 <= high)
        if one.usage.calls or other.usage.calls:
            text += f", at {one.tokens_per_task:,.0f} tokens a task against {other.tokens_per_task:,.0f}"
        return f"{text}."

    @property
    def filters(self) -> list[tuple[str, str, int]]:
        """Tag, label and number of tasks of each filter; what cannot be graded only where there is some."""
        tags = [tag for entry in self.tasks for tag in entry.tags]
        return [(tag, label, tags.count(tag)) for tag, label in FILTERS.items() if tag in tags or tag != "ungraded"]

    @property
    def remarks(self) -> dict[str, Any]:
        """What else `about` holds: configuration, versions, hardware."""
        return {key: value for key, value in self.about.items() if key not in _DRAWN}


def _percent(method: MethodResult) -> str:
    return f"{100 * (method.accuracy.mean or 0):.1f}%"
