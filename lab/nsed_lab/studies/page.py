"""`python page.py TEMPLATE FOLDER PAGE STEP...`: fill a template with what a study's steps left in their folders.

Templates are Jinja2 and see `steps.NAME`, the function `figure` and everything below that is marked `@on_pages`. What
has not run is a visible line, a misspelled name an error; texts from files are shown as they are, never read as
Markdown.
"""

import functools
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, FileSystemLoader, StrictUndefined, Undefined
from scipy.stats import binomtest

from nsed_lab.fatigue_law import law_of_rounds
from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.evaluation.tables import markdown_table, markdown_text, notes, shown_p
from nsed_torch.parts.ties import Ties
from nsed_torch.records.files import read_json, write_files
from nsed_torch.records.outcome import read_outcomes
from nsed_torch.records.portable import without_home

TEMPLATES = Path(__file__).parent / "templates"

MISSING = "*not run: "
"""How a line begins that stands for what has not run."""

WIDTH = 110
"""Of a line of a command."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""What templates may call, by name."""


class Markdown(str):
    """A text that is Markdown already; every other text is escaped where a page shows it."""

    __slots__ = ()

    def __html__(self) -> "Markdown":
        """How Jinja2 asks whether to escape."""
        return self


class NotRun(ChainableUndefined):
    """Stands for what a step has not left: whatever is taken out of it or done with it says so on the page."""

    def __str__(self) -> str:
        return f"{MISSING}{markdown_text(self._undefined_hint or '')}*"

    def __call__(self, *args: Any, **kwargs: Any) -> "NotRun":  # type: ignore[override]
        """As the methods of what is not there."""
        return self


for _operator in ("add", "sub", "mul", "truediv"):
    for _side in ("", "r"):
        setattr(NotRun, f"__{_side}{_operator}__", lambda self, other: self)


class StepResults:
    """A step as templates see it; what is missing is a `NotRun`, and so is everything of an unfinished step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.record: Any = read_json(folder / "step.json") if (folder / "step.json").is_file() else NotRun(self.name)

    def read(self, file: str, reader: Callable[[Path], Any]) -> Any:
        """What a reader makes of a file in the step's folder."""
        path = self.folder / file
        there = path.is_file() and not isinstance(self.record, NotRun)
        return reader(path) if there else NotRun(f"{self.name}/{file}")

    def json(self, file: str) -> Any:
        """The data of a JSON file, without paths of this machine."""
        return self.read(file, lambda path: json.loads(self.portable(path.read_text("utf-8"))))

    def markdown(self, file: str, below: int = 0) -> Any:
        """A Markdown file that the step's verb wrote, its headings so many levels below."""
        text = self.read(file, lambda path: self.portable(path.read_text("utf-8")))
        return text if isinstance(text, NotRun) else Markdown(re.sub(r"(?m)^(?=#{1,6} )", "#" * below, text))

    def portable(self, text: str) -> str:
        """A text whose paths are as seen from the current folder, or begin with ~."""
        portable: str = without_home(text.replace(f"{Path.cwd()}{os.sep}", ""))
        return portable


def main(template: str, folder: Path, page: Path, names: Sequence[str]) -> None:
    """Render the page and its images, whole or not at all, and print its path.

    A page that is there is not overwritten by one on which more has not run.

    Args:
        template: name of one in `TEMPLATES`.
        folder: with a folder per step.
        page: what to write; its images go to a folder of its name.
        names: of the steps, in the order of the table of costs.

    Raises:
        ValueError: where the page there has fewer lines about what has not run.
    """
    images: dict[Path, bytes] = {}

    def figure(step: StepResults, file: str, words: str) -> Any:
        """An image of a step, copied beside the page."""
        target = page.with_suffix("") / f"{step.name}-{file.replace('/', '-')}"
        link = Markdown(f"![{markdown_text(words)}]({target.relative_to(page.parent).as_posix()})")
        return step.read(file, lambda path: images.update({target: path.read_bytes()}) or link)

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,  # asks `Markdown` by its __html__, and leaves what macros give as it is
        finalize=printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FUNCTIONS
    environment.globals |= {**FUNCTIONS, "figure": figure}
    steps = {name: StepResults(folder / name) for name in names}
    text = environment.get_template(f"{template}.md.jinja").render(steps=steps)
    before, now = (page.read_text("utf-8") if page.is_file() else text).count(MISSING), text.count(MISSING)
    if now > before:
        raise ValueError(
            f"{page}: expected no more than {before} places that have not run, as in the page there, got {now}; "
            "run the study's other steps, or name another page"
        )
    write_files({**images, page: f"{text.strip()}\n".encode()})
    print(page)


def printed(value: Any) -> Any:
    """Every value that a template prints: numbers and Markdown as they are, any other text escaped."""
    if isinstance(value, NotRun):
        return Markdown(value)
    if hasattr(value, "__html__") or isinstance(value, Undefined | int | float):
        return value
    return Markdown(markdown_text(str(value)))


def on_pages(file: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let templates call a function; a step stands for this JSON file of it, and what has not run for the result."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            values = [arg.json(file) if file and isinstance(arg, StepResults) else arg for arg in args]
            missing = [value for value in values if isinstance(value, NotRun)]
            return missing[0] if missing else function(*values, **kwargs)

        FUNCTIONS[function.__name__] = guarded
        return guarded

    return register


@on_pages()
def ci(value: Mapping[str, Any], sign: str = "") -> Markdown:
    """A mean with low and high, as `0.873 [0.842, 0.901]`, or right of tasks with the exact interval; "+" signs."""
    if "right" in value:
        value = share(value["right"], value["tasks"])
    if value["mean"] is None:
        return Markdown("no score")
    mean, low, high = ("" if value[key] is None else f"{value[key]:{sign}.3f}" for key in ("mean", "low", "high"))
    return Markdown(f"{mean} [{low}, {high}]" if low else mean)


@on_pages()
def pct(value: Any, digits: int = 1) -> Markdown:
    """A share, or a mean with its interval, as `87.3%`."""
    value = value["mean"] if isinstance(value, Mapping) else value
    return Markdown("no score" if value is None else f"{100 * value:.{digits}f}%")


@on_pages()
def num(value: float, digits: int = 3) -> Markdown:
    """A number with so many digits behind the point."""
    return Markdown(f"{value:.{digits}f}")


@on_pages()
def table(rows: Sequence[Any], columns: Sequence[str] | Mapping[str, str]) -> Markdown:
    """A Markdown table, columns of numbers set to the right, of lists or of mappings by key, or key -> heading."""
    headings = dict(columns) if isinstance(columns, Mapping) else {column: column for column in columns}
    cells = [row if isinstance(row, Mapping) else dict(zip(headings, row, strict=True)) for row in rows]
    body = [[cell(row[key]) for key in headings] for row in cells]
    return Markdown(markdown_table([list(headings.values()), *body]))


def cell(value: Any) -> str:
    """A value in a table, not yet escaped."""
    if isinstance(value, Mapping):
        return str(ci(value))
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else str(value)


@on_pages("results.json")
def results_table(data: Any, methods: Sequence[str] | None = None) -> Markdown:
    """Methods side by side, from results.json; `methods` picks some, in their order."""
    rows = []
    for name in data["methods"] if methods is None else methods:
        method, pair = data["methods"][name], data["paired"].get(name)
        over = [ci(pair["difference"], "+"), shown_p(pair["p_holm"])] if pair else ["", ""]
        rows.append([name, method["accuracy"]["n"], method["accuracy"], *over, f"{method['tokens_per_task']:.0f}"])
    return table(rows, ["method", "n", "accuracy", f"{data['reference']} minus it", "p (Holm)", "tokens per task"])


@on_pages()
def results_notes(step: StepResults) -> Any:
    """What to know about an evaluation's numbers: whose intervals and tests they are, what failed."""
    outcomes = step.read("outcomes.jsonl", read_outcomes)
    if isinstance(outcomes, NotRun):
        return outcomes
    return Markdown("\n".join(map(markdown_text, notes(Comparison.of(outcomes, ties=Ties.FIRST)))))


@on_pages("results.json")
def strata_table(data: Any, methods: Sequence[str] | None = None) -> Markdown:
    """A row per method and a column per stratum; n stands with the stratum where all methods share it."""
    rows = {name: data["methods"][name]["strata"] for name in (data["methods"] if methods is None else methods)}
    sizes: dict[str, set[int]] = {}
    for stratum, mean in (pair for row in rows.values() for pair in row.items()):
        sizes.setdefault(stratum, set()).add(mean["n"])
    if not sizes:
        return Markdown("*the tasks name no strata*")
    strata = sorted(sizes)
    heads = [f"{s or '(none)'} (n = {min(sizes[s])})" if len(sizes[s]) == 1 else s or "(none)" for s in strata]
    body = [
        [name, *(ci(row[s]) + f" of {row[s]['n']}" * (len(sizes[s]) > 1) if s in row else "" for s in strata)]
        for name, row in rows.items()
    ]
    return table(body, ["method", *heads])


@on_pages("results.json")
def rounds_table(data: Any) -> Markdown:
    """Where the team stands after each round."""
    rows = [
        [r["round"], r["deliberating"], r["accuracy"], f"{r['tokens']:.0f}"]
        for r in data["insight"]["course"]["rounds"]
    ]
    return table(rows, ["round", "tasks", "accuracy", "tokens so far"])


@on_pages("results.json")
def law_text(data: Any) -> Markdown:
    """The efficiency-fatigue law fitted to the rounds, with its intervals."""
    fit, notes = law_of_rounds(data["insight"])
    remarks = "".join(f" {markdown_text(note)}." for note in notes)
    if fit is None:
        return Markdown(f"No law:{remarks}")
    parts = []
    for key, words in {"p_g": r"p\_g", "k": "k", "beta": "beta", "t_opt": "peak in rounds"}.items():
        ends = getattr(fit, key), *getattr(fit, f"{key}_interval")
        value, low, high = (f"{end:.3f}" if math.isfinite(end) else "unbounded" for end in ends)
        parts.append(f"{words} {value} [{low}, {high}]")
    r_squared = "" if math.isnan(fit.r_squared) else f", R² {fit.r_squared:.2f}"
    return Markdown(f"{', '.join(parts)}{r_squared}.{remarks}")


@on_pages("metrics.json")
def metrics_table(data: Any) -> Markdown:
    """Methods of `nsed tune`, and what the last one has over each."""
    rows = []
    for name, method in data["methods"].items():
        pair = data["paired"].get(name)
        rows.append([name, method["accuracy"]["n"], method["accuracy"], pair and ci(pair["difference"], "+")])
    return table(rows, ["method", "n", "accuracy", f"{data['reference']} minus it"])


@on_pages()
def budgets_table(data: Any) -> Markdown:
    """Accuracy of several brokers at shares of the full team's cost, from what `nsed tune` calls curves."""
    first, curve = next(iter(data["curves"].items()))
    rows = [
        [point["budget"], point["cost"], *(other[i]["accuracy"] for other in data["curves"].values())]
        for i, point in enumerate(curve)
    ]
    return table(rows, ["budget", f"cost of the {first}", *data["curves"]])


@on_pages()
def coverage_table(one: Any, each: Any) -> Markdown:
    """How often sets held the truth, with one threshold for all and with one for each category."""
    rows = [["all", one["covered"]["n"], one["covered"], each["covered"]]]
    rows += [[name, mean["n"], mean, each["by_category"][name]] for name, mean in one["by_category"].items()]
    return table(rows, ["tasks", "n", "one threshold", "one for each category"])


@on_pages()
def surest_table(sets: Any) -> Markdown:
    """Accuracy of the surest tasks by their share."""
    return table(
        [[f"{float(s):.0%}", mean["n"], mean] for s, mean in sets["surest"].items()], ["share", "n", "accuracy"]
    )


@on_pages("collect.json")
def accuracy_table(data: Any) -> Markdown:
    """What a team's answers came to: after each round, of each agent, of the oracle."""
    rows = [[what, mean["n"], mean] for what, mean in data["counts"]["accuracies"].items()]
    return table(rows, ["what", "n", "accuracy"])


@on_pages()
def variants_table(steps: Mapping[str, StepResults], method: str = "deliberation") -> Any:
    """One method as several runs had it, each against the first on the tasks that both answered."""
    there, missing = split(steps, lambda step: step.read("outcomes.jsonl", read_outcomes))
    first = next(iter(steps))
    if first not in there:
        return NotRun(f"{steps[first].name}/outcomes.jsonl")
    outcomes = [replace(o, method=name) for name, run in there.items() for o in run if o.method == method]
    return Markdown(results_table(Comparison.of(outcomes, reference=first).to_json()) + missing)


@on_pages()
def judging_table(steps: Mapping[str, StepResults]) -> Markdown:
    """Runs side by side: right proposals, how well judges tell which, what the team's answer has over a proposal."""
    there, missing = split(steps, lambda step: step.json("results.json"))
    rows = []
    for name, insight in ((name, data["insight"]) for name, data in there.items()):
        p_g, p_v, last = insight["p_g"]["pooled"], insight["p_v"]["pooled"], insight["course"]["rounds"][-1]["accuracy"]
        gain = None if p_g["mean"] is None else f"{last['mean'] - p_g['mean']:+.3f}"
        rows.append([name, p_g, p_v["auc"], p_v["sign"], last, gain])
    shown = table(rows, ["run", "p_g", "p_v, pairs", "p_v, signs", "accuracy", "gain over p_g"]) if rows else ""
    return Markdown(shown + missing)


def split(steps: Mapping[str, StepResults], read: Callable[[StepResults], Any]) -> tuple[dict[str, Any], str]:
    """What those steps left that have run, and a line that names the others."""
    results = {name: read(step) for name, step in steps.items()}
    missing = [markdown_text(name) for name, data in results.items() if isinstance(data, NotRun)]
    there = {name: data for name, data in results.items() if not isinstance(data, NotRun)}
    return there, ("\n\n" if there else "") + f"{MISSING}{', '.join(missing)}*" if missing else ""


def share(count: int, n: int) -> dict[str, float]:
    """A share with its exact interval."""
    low, high = binomtest(count, n).proportion_ci(method="exact")
    return {"mean": count / n, "low": float(low), "high": float(high)}


@on_pages()
def command(step: StepResults) -> Any:
    """A step's command as one would type it, in lines, and what it cost over all its attempts."""
    if isinstance(step.record, NotRun):
        return step.record
    first, *words = map(shlex.quote, step.record["command"])
    lines = [first]
    for word in words:
        if len(lines[-1]) + len(word) > WIDTH:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    cost = f"{duration(step.record['seconds'])}, {step.record['peak_memory_mib']} MiB at most"
    return Markdown(step.portable("```sh\n" + "\n".join(lines) + f"\n```\n\n{cost}, {step.record['date'][:10]}."))


@on_pages()
def costs(steps: Mapping[str, StepResults]) -> Markdown:
    """All steps with their time and memory."""
    rows = []
    for name, step in steps.items():
        if isinstance(step.record, NotRun):
            rows.append([name, "not run", None, None, None])
        else:
            time = duration(step.record["seconds"])
            rows.append([name, "complete", time, step.record["peak_memory_mib"], step.record["date"][:10]])
    return table(rows, ["step", "state", "time", "MiB", "date"])


def duration(seconds: float) -> str:
    """A time in its unit."""
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    except ValueError as error:
        sys.exit(str(error))
