"""`-m nsed_lab.studies.recompute [PAGE...]`: work out the numbers of pages anew from outcomes stored beside them.

lab/data/PAGE/RUN.jsonl.gz holds what a run came to (RUN.steps.jsonl.gz where its rounds were steps, RUN.odds.jsonl.gz
where steps were read and not drawn, RUN.cells.jsonl.gz where members and judge were of many strengths,
RUN.table.jsonl.gz where many methods were right or wrong and nothing more is told);
lab/data/PAGE.claims has sentences and rows of the page, one a line, with a Jinja2 expression for every number. A claim
holds where its text, worked out, stands in the page exactly once. A line `? WORDS :: REASON` names words whose numbers
cannot be worked out and says why; `= RUN METHOD, RUN METHOD` names a comparison over seeds of training, among all of
which p is adjusted (`training_seeds`). Every number with a decimal point must be in one or the other; integers
that are in neither are listed. No model runs. `recompute keep RUN FILE` stores the outcomes of a run
folder.

The README and the pages of docs are held in the same way, by claims about the pages that they tell of.

Of pages without stored outcomes, tables are held against themselves: intervals and differences must follow from some
number of right answers out of n, and a row that names its source in a column `where` may quote no other number.
"""

import functools
import gzip
import re
import sys
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from nsed_lab.pressure import adopting
from nsed_lab.studies import competence, step_odds, vote_tables
from nsed_lab.studies.step_outcomes import ENDING, StepFigures, keep_steps, load_steps
from nsed_lab.studies.training_seeds import SeedFigures, family
from nsed_torch.evaluation.comparison import Comparison, MethodResult
from nsed_torch.evaluation.statistics import Estimate, clustered_share, share, shown, student
from nsed_torch.records.files import parse_json
from nsed_torch.records.outcome import Outcome, Verdict, read_outcomes
from nsed_torch.records.transcript import Usage

LAB = Path(__file__).parents[2]

UNSTORED = ("results", "results/tables", "recorded", "../../docs/results")
"""Pages of lab/pages whose outcomes were not kept, and one that quotes them all."""

SUMMARIES = {"README": "README.md", "docs": "docs/*.md"}
"""What tells of several pages: in its claims `@ PAGE` begins lines about what was stored beside that page."""

TEAM = "deliberation"

NUMBER = re.compile(r"(?<![\w.#])[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w#]|\.\d)")

_OPEN, _CLOSE = "\x02", "\x03"  # stand around what was worked out; no page has them
_WORKED_OUT = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")

Ties = Callable[[Sequence[float]], float]

TIES: dict[str, Ties] = {
    "first": lambda tied: tied[0],  # to the answer that stands first, as in the protocol
    "last": lambda tied: tied[-1],
    "expected": lambda tied: sum(tied) / len(tied),  # drawn by lot, on average
}
"""The score of a tie, from those of the tied answers in the order of the agents that gave them first."""


# What a run came to.


class Run:
    """Outcomes of a run, by method, task by task in the order of the benchmark."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes = list(outcomes)
        self.methods = list(dict.fromkeys(o.method for o in self.outcomes))

    @classmethod
    def load(cls, path: Path) -> "Run":
        """Read what `keep` wrote; what cannot be read is a ValueError with file and line."""
        with gzip.open(path, "rb") as file:
            return cls(Outcome.from_line(line, f"{path}:{number}") for number, line in enumerate(file, 1))

    def part(self, *, only: "Run | None" = None, first: int | None = None, kind: str | None = None) -> "Run":
        """The outcomes of tasks that another run has too, that come among the first, or are of some kinds."""
        tasks = list(dict.fromkeys(o.task for o in self.outcomes))[:first]
        kept = set(tasks) & ({o.task for o in only.outcomes} if only else set(tasks))
        return Run(o for o in self.outcomes if o.task in kept and (kind is None or o.stratum in kind.split()))

    def plurality(self, ties: str = "first") -> dict[str, float]:
        """Task -> score of the commonest answer of all members, each alone; who gives none does not vote."""
        answers: dict[str, dict[str, list[float]]] = {}
        for one in self.outcomes:
            if one.method.startswith("single:"):
                given = answers.setdefault(one.task, {})
                if one.answer is not None:
                    given.setdefault(one.answer, []).append(one.score or 0.0)
        scores = {}
        for task, given in answers.items():
            most = max(map(len, given.values()), default=0)
            scores[task] = TIES[ties]([right[0] for right in given.values() if len(right) == most]) if given else 0.0
        return scores

    def problems(self, name: str) -> Iterator[str]:
        """Where the recorded plurality is not that of the recorded answers, ties to the first."""
        recorded = {o.task: o.score for o in self.outcomes if o.method == "plurality"}
        counted = self.plurality() if recorded else {}
        wrong = [task for task in recorded if counted.get(task, recorded[task]) != recorded[task]]
        if wrong:
            yield f"{name}: plurality of the stored answers is not the stored plurality for {', '.join(wrong[:3])}"


def keep(folder: Path, file: Path) -> None:
    """Store a run folder's outcomes: no texts, times, prices or paths; equal answers, by the grader, in equal words."""
    words: dict[tuple[str, str], str] = {}
    traces = folder / "traces.jsonl"  # a run without a deliberation has none
    for line in traces.read_bytes().splitlines() if traces.is_file() else ():
        trace = parse_json(line, str(folder), "run nsed evaluate again")
        first = trace["rounds"][0]
        by_class: dict[int, str] = {}
        for number, answer in zip(first["classes"], trace["answers"][0], strict=True):
            if answer is not None and number >= 0:
                words[trace["task"]["id"], answer] = by_class.setdefault(number, answer)
    lines = []
    for one in read_outcomes(folder / "outcomes.jsonl"):
        answer = None if one.answer is None else words.get((one.task, one.answer), one.answer)
        usage = replace(one.usage, price=0.0, seconds=0.0)
        lines.append(replace(one, answer=answer, text="", note="", usage=usage).to_line())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))


# What claims may say.


class Figures:
    """The functions of claims; runs by name, each number as the text that a page has for it."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self.runs = runs
        self._compared: dict[Any, Comparison] = {}
        self._results: dict[Any, MethodResult] = {}
        self._parts: dict[Any, Run] = {}
        self._adopted: dict[Any, Comparison | None] = {}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By name."""
        names = [
            name
            for name in vars(Figures)
            if not name.startswith("_") and name not in {"functions", "part", "compared", "result", "adopted"}
        ]
        return {name: getattr(self, name) for name in names}

    def part(self, run: str, only: str | None = None, first: int | None = None, kind: str | None = None) -> Run:
        """Of a run by its name, or of several with + between them."""
        key = run, only, first, kind
        if key not in self._parts:
            joined = Run(outcome for name in run.split("+") for outcome in self.runs[name].outcomes)
            self._parts[key] = joined.part(only=self.runs[only] if only else None, first=first, kind=kind)
        return self._parts[key]

    def compared(self, run: str, reference: str | None = None, **part: Any) -> Comparison:
        """As `nsed evaluate` compares."""
        key = (run, reference, *sorted(part.items()))
        if key not in self._compared:
            self._compared[key] = Comparison.of(self.part(run, **part).outcomes, reference=reference)
        return self._compared[key]

    def result(self, run: str, method: str, **part: Any) -> MethodResult:
        """What one method came to, without a comparison."""
        key = (run, method, *sorted(part.items()))
        if key not in self._results:
            own = [outcome for outcome in self.part(run, **part).outcomes if outcome.method == method]
            self._results[key] = Comparison.of(own, reference=method).methods[method]
        return self._results[key]

    def accuracy(self, run: str, method: str = TEAM, **part: Any) -> str:
        """With its interval."""
        return shown(self.result(run, method, **part).accuracy)

    def right(self, run: str, method: str = TEAM, digits: int = 3, **part: Any) -> str:
        """Accuracy alone."""
        return f"{self.result(run, method, **part).accuracy.mean:.{digits}f}"

    def hits(self, run: str, method: str = TEAM, **part: Any) -> int:
        """Tasks answered right."""
        return self.result(run, method, **part).count(Verdict.RIGHT)

    def count(self, run: str, method: str = TEAM, **part: Any) -> str:
        """Tasks."""
        return f"{self.result(run, method, **part).tasks:,}"

    def computed(self, run: str, method: str = TEAM, **part: Any) -> str:
        """Tokens a task."""
        return f"{self.tokens(run, method, **part):,.0f}"

    def billed(self, run: str, method: str = TEAM, **part: Any) -> str:
        """Tokens a task, as an endpoint charges them."""
        return f"{self.tokens(run, method, billed=True, **part):,.0f}"

    def tokens(self, run: str, method: str = TEAM, *, billed: bool = False, **part: Any) -> float:
        """Tokens a task, not yet rounded."""
        result = self.result(run, method, **part)
        return result.billed_per_task if billed else result.tokens_per_task

    def times(self, one: float, other: float, digits: int) -> str:
        """A ratio."""
        return f"{one / other:.{digits}f}"

    def most_apart(self, run: str, other: str, but: Sequence[str]) -> str:
        """The largest difference of two teams within a kind, kinds but some, rounded up to two digits."""
        one, two = (self.result(name, TEAM, only=other).strata for name in (run, other))
        most = max(abs((one[kind].mean or 0.0) - (two[kind].mean or 0.0)) for kind in one if kind not in but)
        return f"{np.ceil(round(100 * most, 6)) / 100:.2f}"

    def p(self, run: str, method: str, reference: str | None = None, **part: Any) -> str:
        """McNemar's, adjusted by Holm over all methods of the run, the team, or another reference, against each."""
        adjusted = self.compared(run, reference, **part).paired[method].p_holm
        return "p < 0.001" if adjusted is not None and adjusted < 0.001 else f"{adjusted:.3f}"

    def minus(
        self, run: str, other: str, method: str = TEAM, than: str = TEAM, *, level: int = 95, by: str = "tango",
        sign: str = "+", mean: bool = True, **part: Any,
    ) -> str:  # fmt: skip
        """One method of a run less one of another, question by question: Tango's interval, or a bootstrap's."""
        alone = {"stratum": ""}  # a comparison by kinds is not asked for
        one = {o.task: replace(o, method="one", **alone) for o in self.part(run, **part).outcomes if o.method == method}
        own = [o for o in self.part(other).outcomes if o.method == than and o.task in one]
        two = [replace(o, method="two", **alone) for o in own]
        pair = Comparison.of([*one.values(), *two], reference="one").paired["two"]
        found = pair.difference
        if by == "bootstrap":
            found = redrawn(pair.wins, pair.losses, level, found)
        elif level != 95:
            raise ValueError(f"expected level 95 of Tango's interval, got {level}: add by='bootstrap'")
        return signed(found, sign) if mean else signed(found).partition(" ")[2]

    def adoption(self, run: str, method: str = TEAM, **part: Any) -> str:
        """Share of answers that are the suggested one, with its interval."""
        found = self.adopted(run, **part)
        return shown(found.methods[method].accuracy) if found else ""

    def minus_adoption(self, run: str, than: str) -> str:
        """The team's less a method's, question by question."""
        found = self.adopted(run)
        return signed(found.paired[than].difference) if found else ""

    def adopted(self, run: str, **part: Any) -> Comparison | None:
        """Methods by what they adopt."""
        key = (run, *sorted(part.items()))
        if key not in self._adopted:
            self._adopted[key] = adopting(self.part(run, **part).outcomes)
        return self._adopted[key]

    def plurality(self, run: str, ties: str, **part: Any) -> str:
        """Of the members' answers with a rule for ties; with its interval where every score is 0 or 1."""
        scores = list(self.part(run, **part).plurality(ties).values())
        if set(scores) <= {0.0, 1.0}:
            return shown(share(round(sum(scores)), len(scores)))
        return f"{sum(scores) / len(scores):.3f}"

    def minus_plurality(self, run: str, ties: str) -> str:
        """The team less the members' plurality with a rule for ties that leaves every score 0 or 1."""
        scores, team = self.runs[run].plurality(ties), [o for o in self.runs[run].outcomes if o.method == TEAM]
        verdicts = {True: Verdict.RIGHT, False: Verdict.WRONG}
        other = [replace(o, method="plurality", verdict=verdicts[scores[o.task] == 1], usage=Usage()) for o in team]
        return signed(Comparison.of([*team, *other]).paired["plurality"].difference)


def signed(difference: Estimate, sign: str = "+") -> str:
    """A difference with its sign, its ends without one where they are above 0."""
    return shown(difference).replace(f"{difference.mean:.3f}", f"{difference.mean:{sign}.3f}", 1)


def redrawn(wins: int, losses: int, level: int, plain: Estimate) -> Estimate:
    """The bootstrap interval of a mean difference of -1, 0 or 1 a question: its quantiles, exact instead of drawn.

    Of n questions drawn with replacement, wins less losses is a sum of n such differences; its distribution is the n-th
    power of theirs under convolution.
    """
    n = plain.n
    one = np.zeros(2 * n + 1)  # a lattice from -n to n that the sum cannot leave
    one[[1, 0, -1]] = np.array([wins, n - wins - losses, losses]) / n
    total = np.fft.fftshift(np.fft.ifft(np.fft.fft(one) ** n).real)
    low, high = np.searchsorted(np.cumsum(total), [0.5 - level / 200, 0.5 + level / 200]) - n
    return replace(plain, low=float(low / n), high=float(high / n), interval="bootstrap")


# What a page says.


@dataclass(frozen=True)
class Report:
    """What became of a page."""

    checked: int  # numbers that were worked out and found
    wrong: list[str]  # a line each
    left: list[str]  # numbers that nobody claimed, a line of the page each; integers
    excused: list[str]  # claims that cannot be worked out, with the reason


class PageText:
    """A page as one line of words, and which of its numbers have been seen to."""

    def __init__(self, text: str) -> None:
        # Commands are no claims; the same number of characters keeps the lines countable.
        self.raw = re.sub(
            r"```.*?```|`[^`\n]*`|\]\([^)]*\)", lambda code: re.sub(r"\d", "#", code[0]), text, flags=re.DOTALL
        )
        self.text, self._lines, seen = "", [], re.finditer(r"\S+", self.raw)
        starts = [match.end() for match in re.finditer("\n", self.raw)]
        for word in seen:
            self._lines.append((len(self.text), bisect(starts, word.start()) + 1))
            self.text += word[0] + " "
        self.done: list[tuple[int, int]] = []

    def line(self, position: int) -> int:
        """Of the file, from 1."""
        return self._lines[bisect(self._lines, (position, sys.maxsize)) - 1][1]

    def find(self, words: str) -> list[int]:
        """Where the words stand."""
        return [match.start() for match in re.finditer(re.escape(words), self.text)]

    def unclaimed(self) -> Iterator[tuple[int, str]]:
        """Numbers outside of every claim, with their lines."""
        for match in NUMBER.finditer(self.text):
            if not any(start <= match.start() and match.end() <= end for start, end in self.done):
                yield self.line(match.start()), match[0]


def plain_words(text: str) -> str:
    """As in `PageText`: one space between words, no digits in code."""
    return " ".join(PageText(text).text.split())


@functools.cache
def stored(name: str, lab: Path = LAB) -> tuple[dict[str, Run], dict[str, Callable[..., Any]]]:
    """What was stored beside a page: runs by name, and functions of claims about it."""
    files = sorted((lab / "data" / name).glob("*.gz"))
    steps = {path.name.removesuffix(ENDING): load_steps(path) for path in files if path.name.endswith(ENDING)}
    cells = [p for p in files if p.name.endswith(competence.ENDING)]
    runs = {
        path.name.removesuffix(".jsonl.gz"): Run.load(path)
        for path in files
        if not path.name.endswith((ENDING, competence.ENDING, step_odds.ENDING, vote_tables.ENDING))
    }
    tables = {p.name.removesuffix(vote_tables.ENDING): p for p in files if p.name.endswith(vote_tables.ENDING)}
    told = {run: vote_tables.load_table(path) for run, path in tables.items()}
    runs |= {run: Run(outcomes) for run, (outcomes, _) in told.items()}
    read = [p for p in files if p.name.endswith(step_odds.ENDING)]
    odds = {path.name.removesuffix(step_odds.ENDING): step_odds.load_odds(path) for path in read}
    functions = StepFigures(steps).functions() | step_odds.OddsFigures(odds).functions()
    for path in cells:
        functions |= competence.CellFigures.load(path).functions()
    if (known := lab / f"data/{name}/forms.json").is_file():
        shares = parse_json(known.read_bytes(), str(known), "run python -m nsed_lab.studies.forms again")
        functions["known_forms"] = lambda kind: f"{shares[kind]:.3f}"
    claims = (lab / f"data/{name}.claims").read_text("utf-8")
    functions["spent"] = lambda run, method, digits=3: f"{told[run][1][method]:.{digits}f}"
    functions |= SeedFigures({run: one.outcomes for run, one in runs.items()}, family(claims)).functions()
    return runs, functions


def check(name: str, lab: Path = LAB) -> Report:
    """Hold a page against its claims and what was stored beside it, or beside the pages that its claims name."""
    claims = (lab / f"data/{name}.claims").read_text("utf-8")
    if name not in SUMMARIES:
        runs, functions = stored(name, lab)
        return hold(name, (lab / f"pages/{name}.md").read_text("utf-8"), claims, runs, functions)
    return compare(name, summary(name, lab), told(name, claims, lab))


def told(name: str, claims: str, lab: Path = LAB) -> list[tuple[str, str, str]]:
    """As `worked_out`, each part of the claims from what is stored beside the page that it is about."""
    texts = []
    for part in re.split(r"^@ ?", claims, flags=re.MULTILINE)[1:]:
        study, _, lines = part.partition("\n")
        texts += worked_out(name, lines, *(stored(study.strip(), lab) if study.strip() else ({}, {})))
    return texts


def summary(name: str, lab: Path = LAB) -> str:
    """The text of the README, or of all pages of docs that have claims."""
    pages = sorted(lab.parent.glob(SUMMARIES[name]))
    return "\n".join(page.read_text("utf-8") for page in pages if page.name != "results.md")


def hold(
    name: str,
    text: str,
    claims: str,
    runs: Mapping[str, Run],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Report:
    """Hold a page's text against its claims, which may have further functions."""
    report = compare(name, text, worked_out(name, claims, runs, functions))
    return replace(report, wrong=[line for run, one in runs.items() for line in one.problems(run)] + report.wrong)


def worked_out(
    name: str, claims: str, runs: Mapping[str, Run], functions: Mapping[str, Callable[..., Any]] | None = None
) -> list[tuple[str, str, str]]:
    """Of every claim its place, its text with what was worked out marked, and why it could not be, if it could not."""
    environment = Environment(undefined=StrictUndefined, finalize=lambda value: f"{_OPEN}{value}{_CLOSE}")  # noqa: S701 - no HTML
    environment.globals |= {**Figures(runs).functions(), **(functions or {})}
    texts = []
    for number, line in enumerate(claims.splitlines(), 1):
        where = f"data/{name}.claims:{number}"
        if line.startswith("?"):
            words, _, reason = line[1:].partition(" :: ")
            texts.append((where, words.strip(), reason.strip()))
        elif line.strip() and not line.startswith(("#", "=")):
            texts.append((where, environment.from_string(line).render(), ""))
    return texts


def compare(name: str, text: str, claims: Iterable[tuple[str, str, str]]) -> Report:
    """Hold a page's text against what was worked out."""
    page = PageText(text)
    checked, wrong, excused = 0, [], []
    for where, words, reason in claims:
        checked += len(NUMBER.findall(" ".join(_WORKED_OUT.findall(words))))
        wrong += found(page, words, where, whole=bool(reason))
        excused += [f"{words} ({reason})"] if reason else []
    left: dict[int, list[str]] = {}
    for line_number, figure in page.unclaimed():
        if "." in figure:
            wrong.append(f"{name}.md:{line_number}: {figure} is in no claim of data/{name}.claims")
        left.setdefault(line_number, []).append(figure)
    return Report(checked, wrong, [f"{name}.md:{at}: {' '.join(those)}" for at, those in left.items()], excused)


def found(page: PageText, rendered: str, where: str, *, whole: bool = False) -> list[str]:
    """Mark what a claim saw to; a line where its words do not stand in the page exactly once."""
    marked = " ".join(rendered.split())
    words = plain_words(marked.replace(_OPEN, "").replace(_CLOSE, ""))
    places = page.find(words)
    if len(places) != 1:
        told = max(map(plain_words, _WORKED_OUT.split(marked)[::2]), key=len)  # the longest words between numbers
        start = page.text.find(told) if told else -1
        there = f"the page has: {page.text[max(0, start - 60) : start + len(told) + 60].strip()}"
        there = there if start >= 0 else "no such words are there"
        return [f"{where}: expected once, found {len(places)} times: {words}\n  {there}"]
    at = places[0]
    if whole:
        page.done.append((at, at + len(words)))
    for match in _WORKED_OUT.finditer(marked):
        start = at + len(re.sub(f"[{_OPEN}{_CLOSE}]", "", marked[: match.start()]))
        page.done.append((start, start + len(match[1])))
    return []


# What a page without outcomes can be held against.


_SHOWN = re.compile(r"([+-]?\d\.\d{3})(?: \\?\[([+-]?\d\.\d{3}), ([+-]?\d\.\d{3})\\?\])?")
_ACCURACIES = {"accuracy", "valid as written"}


@dataclass(frozen=True)
class Table:
    """A Markdown table: headings, and rows with their line of the file, from 1."""

    heads: list[str]
    rows: list[tuple[int, list[str]]]

    def n(self, head: str, row: Sequence[str]) -> int:
        """Questions behind a cell; 0 where the table does not say."""
        named = re.search(r"\(n = ([\d,]+)\)", head)
        given = dict(zip(self.heads, row, strict=False))
        text = named[1] if named else given.get("n", given.get("tasks", "")) if head in _ACCURACIES else ""
        return int(text.replace(",", "") or 0)


def tables_of(text: str) -> list[Table]:
    """All tables of a page."""
    found_rows: list[list[tuple[int, list[str]]]] = [[]]
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("|"):
            found_rows[-1].append((number, [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]))
        elif found_rows[-1]:
            found_rows.append([])
    return [Table(rows[0][1], rows[2:]) for rows in found_rows if len(rows) > 2]


@functools.cache
def intervals(right: int, n: int) -> frozenset[str]:
    """What may stand in brackets behind an accuracy: Clopper and Pearson's, Student's, Wilson's."""
    scores = [1.0] * right + [0.0] * (n - right)
    estimates = (share(right, n), student(scores), clustered_share(range(n), scores))
    return frozenset(f"{e.low:.3f}, {e.high:.3f}" for e in estimates)


@functools.cache
def counts(mean: str, n: int) -> range:
    """The numbers of right answers that a page shows as this accuracy."""
    near = [k for k in range(int(float(mean) * n) - n // 1000 - 2, int(float(mean) * n) + n // 1000 + 3) if 0 <= k <= n]
    those = [k for k in near if f"{k / n:.3f}" == mean]
    return range(those[0], those[-1] + 1) if those else range(0)


def consistent(name: str, text: str, lab: Path = LAB) -> Report:
    """Hold a page's tables against their own n, and quotations against the pages they name."""
    checked, wrong = 0, []
    for table in tables_of(text):
        for line, row in table.rows:
            where = f"{name}.md:{line}"
            for head, cell in zip(table.heads, row, strict=False):
                n, value = table.n(head, row), _SHOWN.fullmatch(cell)
                if n and value and value[2]:
                    checked += 1
                    if not any(f"{value[2]}, {value[3]}" in intervals(k, n) for k in counts(value[1], n)):
                        wrong.append(f"{where}: {cell} is the interval of no number of right answers out of {n:,}")
            if "where" in table.heads:
                figures, missing = quoted(where, table, row, lab)
                checked, wrong = checked + figures, wrong + missing
        more, differ = differences(name, table)
        checked, wrong = checked + more, wrong + differ
    return Report(checked, wrong, [], [])


def differences(name: str, table: Table) -> tuple[int, list[str]]:
    """How many differences of a table were held against its accuracies, and which of them do not follow."""
    head = next((head for head in table.heads if head.endswith(" minus it")), "")
    if not {"n", "accuracy", head} <= set(table.heads):
        return 0, []
    cells = [(line, dict(zip(table.heads, row, strict=False))) for line, row in table.rows]
    reference = next((row for _, row in cells if not row[head]), None)
    checked, wrong = 0, []
    for line, row in cells:
        if reference and row[head] and row["n"] == reference["n"]:
            n, checked = int(row["n"].replace(",", "")), checked + 1
            first, other = (counts(one["accuracy"].split(" ")[0], n) for one in (reference, row))
            means = {f"{(a - b) / n:+.3f}".replace("-0.000", "+0.000") for a in first for b in other}
            if row[head].split(" ")[0] not in means:
                wrong.append(f"{name}.md:{line}: {row[head]} is no difference of the accuracies beside it")
    return checked, wrong


def quoted(where: str, table: Table, row: Sequence[str], lab: Path) -> tuple[int, list[str]]:
    """How many numbers a row has, and which are on none of the pages that its column `where` links or names."""
    named = row[table.heads.index("where")]
    links = re.findall(r"\]\(([^)#]+)", named) or [f"{n}.md" for n in re.findall(r"`([\w/]+)`", named)]
    texts = [(lab / "pages" / link).read_text("utf-8") for link in links]
    there = {match[0].lstrip("+") for text in texts for match in NUMBER.finditer(text)}
    figures = [match[0].lstrip("+") for match in NUMBER.finditer(" | ".join(row)) if "." in match[0]]
    place = " or ".join(links) or "any page"
    return len(figures), [f"{where}: {figure} is not on {place}" for figure in figures if figure not in there]


def main(names: Sequence[str]) -> int:
    """Check pages, all that have claims unless some are named, and say what was found."""
    code = 0
    claimed = sorted(path.stem for path in (LAB / "data").glob("*.claims"))
    for name in names or [*claimed, *UNSTORED]:
        unstored = name in UNSTORED
        report = consistent(name, (LAB / f"pages/{name}.md").read_text("utf-8")) if unstored else check(name)
        how = "held against their own n, for no outcomes are stored" if unstored else "worked out from stored outcomes"
        print(
            f"{SUMMARIES.get(name, f'lab/pages/{name}.md')}: {report.checked} numbers {how}, {len(report.wrong)} wrong"
        )
        print(*(f"  WRONG {line}" for line in report.wrong), sep="\n", end="\n" * bool(report.wrong))
        print(
            *(f"  cannot be worked out: {line}" for line in report.excused), sep="\n", end="\n" * bool(report.excused)
        )
        print(*(f"  unchecked {line}" for line in report.left), sep="\n", end="\n" * bool(report.left))
        code |= bool(report.wrong)
    return code


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        folder, file = map(Path, sys.argv[2:4])
        (keep_steps if file.name.endswith(ENDING) else keep)(folder, file)
    else:
        sys.exit(main(sys.argv[1:]))
