"""What the page of a run shows around its deliberations: methods side by side, and what became of each task."""

import base64
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from nsed_torch.evaluation.collection import standing, summarize
from nsed_torch.evaluation.statistics import Estimate
from nsed_torch.evaluation.workflows import WorkflowSummary
from nsed_torch.records import Execution, Outcome, Trace, Verdict, read_json, read_traces
from nsed_torch.records.trace import ABOUT, TRACES

RESULTS = "results.json"
OUTCOMES = "outcomes.jsonl"
EXECUTIONS = "executions"
T = TypeVar("T")

WITHHELD = "(withheld at the authors' request)"
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
_DRAWN = {"methods", "paired", "reference", "insight", "agents", "settings", "counts"}


@dataclass(frozen=True)
class MethodRow:
    """A method among others; None for what is not known.

    Args:
        name: the method's.
        n: tasks.
        accuracy: share of tasks that it got right.
        difference: accuracy of the reference minus this one's.
        p: of that difference.
        tokens: read and written a task.
        price: of all tasks in US$.
    """

    name: str
    n: float | None
    accuracy: Estimate | None
    difference: Estimate | None = None
    p: float | None = None
    tokens: float | None = None
    price: float | None = None


def method_rows(results: Mapping[str, Any]) -> list[MethodRow]:
    """Methods side by side, from the data of `results.json`; what is not there, or is no number, is None."""
    against = _mapping(results.get("paired"))
    rows = []
    for name, value in _mapping(results.get("methods")).items():
        found, pair = _mapping(value), _mapping(against.get(name))
        usage = _mapping(found.get("usage"))
        rows.append(
            MethodRow(
                name,
                _number(found.get("n")),
                _span(found.get("accuracy")),
                _span(pair.get("difference", pair)),
                _number(pair.get("p_holm", pair.get("p"))),
                _number(found.get("tokens_per_task")),
                _number(found.get("price", usage.get("price"))),
            )
        )
    return rows


@dataclass(frozen=True)
class TaskEntry:
    """What became of one task.

    Args:
        name: its id.
        trace: its deliberation with grades; None where there was none.
        outcomes: what each method made of it.
        reference: the method whose answer stands for the task; the deliberation's where it has no outcome.
        executions: method -> what became of its workflows.
    """

    name: str
    trace: Trace | None
    outcomes: tuple[Outcome, ...] = ()
    reference: str = "deliberation"
    executions: Mapping[str, Execution] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """As it was asked; "" where nothing holds it."""
        if self.trace:
            return self.trace.transcript.task.question
        return next((execution.task.question for execution in self.executions.values()), "")

    @property
    def curve(self) -> list[bool]:
        """Whether the answer stood right after each round of the deliberation."""
        return standing(self.trace) if self.trace else []

    @property
    def verdict(self) -> Verdict | None:
        """On the answer that stands for the task; None if nothing was graded."""
        found = next((outcome.verdict for outcome in self.outcomes if outcome.method == self.reference), None)
        if found is None and self.trace:
            return Verdict.RIGHT if self.curve[-1] else Verdict.WRONG
        return found

    @property
    def tags(self) -> list[str]:
        """The keys of `FILTERS` that hold.

        `lost` and `won` say that the answer turned wrong or right in some round; agents disagree if their answers of
        round 1, or those of single agents, differ, where all right answers are one.
        """
        steps = set(itertools.pairwise(self.curve))
        if self.trace:
            said = [right or answer for right, answer in zip(self.trace.grades[0], self.trace.answers[0], strict=True)]
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
        if self.trace:
            return self.trace.transcript.usage.tokens
        return sum(outcome.usage.tokens for outcome in self.outcomes)

    @property
    def scores(self) -> list[float]:
        """Of the methods that could be graded."""
        return [outcome.score for outcome in self.outcomes if outcome.score is not None]

    @property
    def sources(self) -> dict[str, str]:
        """Method -> where its text stands in the deliberation word for word, such as `r2-p0`."""
        if not self.trace:
            return {}
        rounds = self.trace.transcript.rounds
        places = {p.text: f"r{turn.index}-p{j}" for turn in rounds for j, p in enumerate(turn.proposals)}
        return {outcome.method: places[outcome.text] for outcome in self.outcomes if outcome.text in places}

    def withheld(self) -> "TaskEntry":
        """The same with every text replaced, for models repeat the question in their own words."""
        outcomes = tuple(
            replace(outcome, text=WITHHELD, answer=outcome.answer and WITHHELD, note="") for outcome in self.outcomes
        )
        return replace(self, trace=self.trace and _withheld(self.trace), outcomes=outcomes, executions={})


@dataclass(frozen=True)
class Run:
    """A folder of `nsed evaluate` or `nsed collect`, read for its page.

    Args:
        about: the data of `results.json`, else of `collect.json`, else nothing.
        methods: side by side; where only a deliberation was collected, its rounds and agents.
        tasks: in the order of the run.
        plots: titles and images as data URIs.
    """

    about: Mapping[str, Any]
    methods: list[MethodRow]
    tasks: list[TaskEntry]
    plots: list[tuple[str, str]]

    @classmethod
    def load(cls, folder: Path) -> "Run":
        """Read what is there.

        Raises:
            ValueError: in one line with the file, if one cannot be read.
        """
        files = [folder / name for name in (RESULTS, ABOUT) if (folder / name).is_file()]
        about = _mapping(read_json(files[0])) if files else {}
        traces = {t.transcript.task.id: t for t in read_traces(folder)} if (folder / TRACES).is_file() else {}
        outcomes: dict[str, list[Outcome]] = {}
        if (folder / OUTCOMES).is_file():
            for outcome in _read(folder / OUTCOMES, Outcome.from_line):
                outcomes.setdefault(outcome.task, []).append(outcome)
        executions: dict[str, dict[str, Execution]] = {}
        for path in sorted((folder / EXECUTIONS).glob("*.jsonl")):
            for execution in _read(path, Execution.from_line):
                executions.setdefault(execution.task.id, {})[path.stem] = execution
        reference = str(about.get("reference", "deliberation"))
        tasks = [
            TaskEntry(name, traces.get(name), tuple(outcomes.get(name, ())), reference, executions.get(name, {}))
            for name in dict.fromkeys([*traces, *outcomes, *executions])
        ]
        rows = method_rows(about)
        if not rows and traces:
            counted = summarize(traces.values()).accuracies
            rows = [MethodRow(what, accuracy.n, accuracy) for what, accuracy in counted.items()]
        plots = [
            (path.stem.replace("_", " "), "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode())
            for path in sorted((folder / "plots").glob("*.png"))
        ]
        return cls(about, rows, tasks, plots)

    @property
    def title(self) -> str:
        """The benchmark's name, or how many tasks there are."""
        benchmark = self.about.get("benchmark")
        name = _mapping(benchmark).get("name", benchmark)
        count = f"{len(self.tasks)} task{'' if len(self.tasks) == 1 else 's'}"
        return f"{name}: {count}" if isinstance(name, str) and name else count

    @property
    def hidden(self) -> bool:
        """Whether the questions' authors ask that texts are shown nowhere."""
        blank = any(not entry.trace.transcript.task.question.strip() for entry in self.tasks if entry.trace)
        return blank or self.about.get("withheld") is True

    @property
    def filters(self) -> list[tuple[str, str, int]]:
        """Tag, label and number of tasks of each filter; what cannot be graded only where there is some."""
        tags = [tag for entry in self.tasks for tag in entry.tags]
        return [(tag, label, tags.count(tag)) for tag, label in FILTERS.items() if tag in tags or tag != "ungraded"]

    @property
    def strata(self) -> list[str]:
        """All there are."""
        return sorted({entry.stratum for entry in self.tasks} - {""})

    @property
    def workflows(self) -> list[WorkflowSummary]:
        """Of every method that had workflows run."""
        found: dict[str, list[tuple[Execution, Outcome | None]]] = {}
        for entry in self.tasks:
            outcomes = {outcome.method: outcome for outcome in entry.outcomes}
            for method, execution in entry.executions.items():
                found.setdefault(method, []).append((execution, outcomes.get(method)))
        return [WorkflowSummary.of(method, executions) for method, executions in found.items()]

    @property
    def remarks(self) -> dict[str, Any]:
        """What else `about` holds: configuration, versions, hardware."""
        return {key: value for key, value in self.about.items() if key not in _DRAWN}


def _withheld(trace: Trace) -> Trace:
    transcript = trace.transcript
    task = replace(transcript.task, question=WITHHELD, target=transcript.task.target and WITHHELD)
    rounds = [
        replace(
            turn,
            proposals=[replace(proposal, text=WITHHELD) for proposal in turn.proposals],
            critiques=[replace(critique, text=WITHHELD) for critique in turn.critiques],
            memory=[replace(slot, text=WITHHELD) for slot in turn.memory],
        )
        for turn in transcript.rounds
    ]
    answers = [[answer and WITHHELD for answer in row] for row in trace.answers]
    return replace(trace, transcript=replace(transcript, task=task, rounds=rounds, answer=WITHHELD), answers=answers)


def _read(path: Path, read: Callable[[bytes, str], T]) -> Iterator[T]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield read(line, f"{path}:{number}")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _span(value: Any) -> Estimate | None:
    """A bare number, or a mapping of `mean`, `low` and `high`."""
    found = value if isinstance(value, Mapping) else {"mean": value}
    mean, low, high = (_number(found.get(key)) for key in ("mean", "low", "high"))
    return None if mean is None else Estimate(0, mean, low, high)
