"""A study's page: a template in Markdown, filled with what the steps left in their folders."""

import functools
import json
import os
import re
import shlex
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, FileSystemLoader, StrictUndefined, TemplateError, TemplateSyntaxError, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from nsed_torch.evaluation import page_insight, page_tables, page_workflows
from nsed_torch.evaluation.page_tables import Markdown, table
from nsed_torch.evaluation.provenance import without_home
from nsed_torch.evaluation.results import REFERENCE, Results
from nsed_torch.evaluation.tables import markdown_text
from nsed_torch.records import Execution, Outcome, read_json, read_outcomes, to_json, write_files

TEMPLATES = Path(__file__).parent / "templates"

WIDTH = 110
"""Of a line of a command."""

_FILES = {
    page_tables.results_table: "results.json",
    page_tables.results_notes: "results.json",
    page_tables.strata_table: "results.json",
    page_insight.rounds_table: "results.json",
    page_insight.law_text: "results.json",
    page_tables.metrics_table: "metrics.json",
    page_tables.accuracy_table: "collect.json",
    page_tables.budgets_table: "cost.json",
    page_tables.broker_table: "cost.json",
}


class NotRun(ChainableUndefined):
    """Stands for what a step has not left: whatever is taken out of it or done with it says so on the page."""

    def __str__(self) -> str:
        return f"*not run: {markdown_text(self._undefined_hint or '')}*"

    def __call__(self, *args: Any, **kwargs: Any) -> "NotRun":  # type: ignore[override]
        """As the methods of what is not there."""
        return self


for _operator in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _side in ("", "r"):
        setattr(NotRun, f"__{_side}{_operator}__", lambda self, other: self)


class StepResults:
    """A step as templates see it; what is missing is a `NotRun`. No path of this machine is shown.

    Args:
        name: of the step, and of its folder.
        root: the study's folder.
        record: what `step.json` holds; None if the step is unfinished.
        outdated: whether the study has changed since.
    """

    def __init__(self, name: str, root: Path, record: Mapping[str, Any] | None, *, outdated: bool = False) -> None:
        self.name = name
        self.outdated = outdated
        # Behind an underscore, where the sandbox lets no template reach: a path can write.
        self._root = root
        self._record = record

    @property
    def seconds(self) -> Any:
        """Wall time."""
        return self._fact("seconds")

    @property
    def memory(self) -> Any:
        """The most memory that its process held, in MiB."""
        return self._fact("peak_memory_mib")

    @property
    def date(self) -> Any:
        """When it ended, in UTC."""
        return self._fact("date")

    @property
    def command(self) -> Any:
        """The command as one would type it, in lines."""
        if self._record is None:
            return NotRun(self.name)
        first, *words = map(shlex.quote, self._record["command"])
        lines = [first]
        for word in words:
            if len(lines[-1]) + len(word) > WIDTH:
                lines[-1] += " \\"
                lines.append("   ")
            lines[-1] += f" {word}"
        return Markdown(self._portable("\n".join(lines)))

    def json(self, file: str) -> Any:
        """The data of a JSON file in the step's folder."""
        path = self._path(file)
        return NotRun(f"{self.name}/{file}") if path is None else json.loads(self._portable(to_json(read_json(path))))

    def markdown(self, file: str, below: int = 0) -> Any:
        """A Markdown file that the step's verb wrote, such as sweep.md, its headings so many levels below."""
        path = self._path(file)
        if path is None:
            return NotRun(f"{self.name}/{file}")
        text = re.sub(r"^(?=#{1,6} )", "#" * below, path.read_text("utf-8"), flags=re.MULTILINE)
        return Markdown(self._portable(text))

    def _fact(self, key: str) -> Any:
        return NotRun(self.name) if self._record is None else self._record[key]

    def _path(self, file: str) -> Path | None:
        """A file below the folder of the finished step, if it is there.

        Raises:
            ValueError: for a path that leads elsewhere.
        """
        folder = self._root / self.name
        if not (folder / file).resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"step {self.name}: expected a file in its folder, got {file!r}")
        return folder / file if self._record is not None and (folder / file).is_file() else None

    def _portable(self, text: str) -> str:
        """Paths as seen from the current folder; elsewhere the study's folder is shown by its name alone."""
        root, here = self._root.absolute(), Path.cwd()
        text = text.replace(str(root), str(root.relative_to(here)) if root.is_relative_to(here) else root.name)
        portable: str = without_home(text.replace(f"{here}{os.sep}", ""))
        return portable

    def outcomes(self) -> Any:
        """What its run of nsed evaluate came to, task by task."""
        path = self._path("outcomes.jsonl")
        return NotRun(f"{self.name}/outcomes.jsonl") if path is None else read_outcomes(path)

    def executions(self, method: str) -> Any:
        """The workflows of one of its methods, task by task."""
        file = f"executions/{method}.jsonl"
        path = self._path(file)
        if path is None:
            return NotRun(f"{self.name}/{file}")
        lines = path.read_bytes().splitlines()
        return [Execution.from_line(line, f"{self.name}/{file}:{n}") for n, line in enumerate(lines, start=1)]


def write_page(template: str, steps: Sequence[StepResults], output: Path, *, figures: Path) -> Path:
    """Render a template and write the page and its images, whole or not at all.

    Templates are Jinja2 in a sandbox. They see `steps.NAME` (`StepResults`), the filters `ci`, `pct`, `num` and
    `table`, and functions of steps: `results_table(steps.NAME)`, `results_notes`, `strata_table`, `metrics_table`,
    `accuracy_table`, `budgets_table`, `broker_table`, `rounds_table`, `law_text`, `command`,
    `figure(steps.NAME, "plots/cost.png", "text")`; of what a step's JSON holds: `coverage_table`, `surest_table`; of
    several: `variants_table({"words": steps.NAME, ...})`, `judging_table`, `workflows_table`, `costs(steps)`. What has
    not run is a visible line; a misspelled name is an error. Texts from files are shown as they are, never read as
    Markdown.

    Args:
        template: a file, or the name of one among the package's own.
        steps: of the study.
        output: the page.
        figures: folder that images are copied to.

    Returns:
        The page's path.

    Raises:
        ValueError: in one line with the template, if it cannot be found or filled.
    """
    images: dict[Path, bytes] = {}

    def figure(step: StepResults, file: str, words: str) -> Any:
        source = step._path(file)
        if source is None:
            return NotRun(f"{step.name}/{file}")
        target = figures / f"{step.name}-{file.replace('/', '-')}"
        images[target] = source.read_bytes()
        return Markdown(f"![{markdown_text(words)}]({Path(os.path.relpath(target, output.parent)).as_posix()})")

    environment = _environment(Path(template).parent)
    environment.globals["figure"] = figure
    try:
        page = environment.get_template(Path(template).name).render(steps={step.name: step for step in steps})
    except (TemplateError, TypeError, ValueError) as error:
        raise ValueError(f"page template {template}: {_place(error)}{error}") from error
    write_files({**images, output: f"{page.strip()}\n".encode()})
    return output


def _environment(folder: Path) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        undefined=StrictUndefined,
        autoescape=True,  # asks `Markdown` by its __html__, and leaves what macros give as it is
        finalize=_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (page_tables.ci, page_tables.pct, page_tables.num, table)
    environment.filters |= {function.__name__: _or_not_run(function) for function in filters}
    environment.globals |= {show.__name__: _from_file(show, file) for show, file in _FILES.items()}
    environment.globals |= {
        "command": _command,
        "costs": _costs,
        "coverage_table": _both(page_tables.coverage_table),
        "surest_table": _or_not_run(page_tables.surest_table),
        "variants_table": _variants,
        "judging_table": _judging,
        "workflows_table": _workflows,
    }
    return environment


def _text(value: Any) -> Any:
    """Every value that a template prints: numbers and Markdown as they are, any other text escaped."""
    if isinstance(value, NotRun):
        return Markdown(value)
    if hasattr(value, "__html__") or isinstance(value, Undefined | int | float):
        return value
    return Markdown(markdown_text(str(value)))


def _or_not_run(function: Callable[..., Markdown]) -> Callable[..., Any]:
    """The function, and for what is not there just that."""

    @functools.wraps(function)
    def guarded(value: Any, *args: Any, **kwargs: Any) -> Any:
        return value if isinstance(value, NotRun) else function(value, *args, **kwargs)

    return guarded


def _from_file(show: Callable[..., Markdown], file: str) -> Callable[..., Any]:
    return lambda step, *args, **kwargs: _or_not_run(show)(step.json(file), *args, **kwargs)


def _both(show: Callable[[Any, Any], Markdown]) -> Callable[[Any, Any], Any]:
    """A table of two values, which is missing where one of them is."""

    def guarded(one: Any, other: Any) -> Any:
        missing = [value for value in (one, other) if isinstance(value, NotRun)]
        return missing[0] if missing else show(one, other)

    return guarded


def _variants(steps: Mapping[str, StepResults], method: str = REFERENCE) -> Any:
    """One method as several runs of nsed evaluate had it, each against the first on the tasks that both answered."""
    found: list[Outcome] = []
    names, missing = _there(steps, lambda step: step.outcomes())
    if next(iter(steps)) not in names:
        return next(iter(steps.values())).outcomes()
    for name, outcomes in names.items():
        found += [replace(outcome, method=name) for outcome in outcomes if outcome.method == method]
    return Markdown(page_tables.results_table(Results.of(found, reference=next(iter(steps))).to_json()) + missing)


def _judging(steps: Mapping[str, StepResults]) -> Any:
    """Runs of nsed evaluate side by side: right proposals, judges, and what came of them."""
    found, missing = _there(steps, lambda step: step.json("results.json"))
    return Markdown(page_insight.judging_table(found) + missing) if found else Markdown(missing.strip())


def _workflows(steps: Mapping[str, StepResults], method: str = "conductor") -> Any:
    """Runs of nsed evaluate side by side: what the workflows of a method were like."""
    found, missing = _there(steps, lambda step: step.executions(method))
    return Markdown(page_workflows.workflows_table(found) + missing) if found else Markdown(missing.strip())


def _there(steps: Mapping[str, StepResults], read: Callable[[StepResults], Any]) -> tuple[dict[str, Any], str]:
    """What those steps left that have run, and a line that names the others."""
    found = {name: read(step) for name, step in steps.items()}
    missing = [markdown_text(name) for name, data in found.items() if isinstance(data, NotRun)]
    line = f"\n\n*not run: {', '.join(missing)}*" if missing else ""
    return {name: data for name, data in found.items() if not isinstance(data, NotRun)}, line


def _command(step: StepResults) -> Any:
    """The command in a block, and what it cost."""
    if isinstance(step.command, NotRun):
        return step.command
    cost = f"{_duration(step.seconds)}, {step.memory} MiB at most, {step.date[:10]}"
    older = "; the study has changed since" if step.outdated else ""
    return Markdown(f"```sh\n{step.command}\n```\n\n{cost}{older}.")


def _costs(steps: Mapping[str, StepResults]) -> Markdown:
    """All steps with their time and memory."""
    rows = []
    for name, step in steps.items():
        ran = not isinstance(step.seconds, NotRun)
        state = "not run" if not ran else "outdated" if step.outdated else "complete"
        rows.append([name, state, *([_duration(step.seconds), step.memory, step.date[:10]] if ran else [None] * 3)])
    return table(rows, ["step", "state", "time", "MiB", "date"])


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{seconds / 3600:.1f} h"


def _place(error: Exception) -> str:
    """The line of a template in which an error came up."""
    if isinstance(error, TemplateSyntaxError):
        return f"line {error.lineno}: "
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(".jinja")]
    return f"line {lines[-1]}: " if lines else ""
