"""Results as tables: Markdown, CSV, LaTeX and the terminal. Names are any text, and data in each of them."""

import io
import re
from collections.abc import Container, Sequence
from csv import QUOTE_NONNUMERIC, writer

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nsed_torch.evaluation.results import DIGITS, MethodResult, Results
from nsed_torch.evaluation.statistics import Mean

UNNAMED = "(none)"
"""How a stratum without a name is shown."""

_MARKDOWN = re.compile(r"[\\`*_\[\]<>&|~$]")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # Behind `\\` and `\midrule` these would be read as options.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    **{c: "\\" + c for c in "#$%&_{}"},
}
# Cells of nothing but numbers, which no format reads as anything else; a name that looks so is as safe.
_NUMBERS = re.compile(r"[-+<]?[\d.]+( \[[-+]?[\d.]+, [-+]?[\d.]+\])?", re.ASCII)
_SIGNS = str.maketrans({"-": "$-$", "<": "$<$"})
# Spreadsheets read a cell that starts so as a formula. A quote is one of them, so that a guard can be taken away again.
_FORMULA = tuple("=+-@\t\r\n'")

_CSV_COLUMNS = (
    *("method", "stratum", "tasks", "n", "accuracy", "low", "high", "interval", "failed", "not_run"),
    *("reference", "difference", "difference_n", "difference_low", "difference_high", "difference_interval"),
    *("test", "p", "p_holm"),
    *("tokens_per_task", "relative_tokens", "calls", "prompt_tokens", "completion_tokens", "price", "seconds"),
)

_LEFT = ("stratum", "method")
_COLUMNS, _STRATA = 6, 40  # of a table on a terminal: columns, and rows by stratum
_Rows = list[list[str]]


def markdown(results: Results) -> str:
    """A table of methods, one by stratum where there are strata, and what to know about the numbers."""
    tables = [markdown_table(rows) + "\n" for rows in _tables(results)]
    return "\n".join([*tables, *map(markdown_text, notes(results))]) + "\n"


def markdown_table(rows: Sequence[Sequence[str]], left: Container[str] = _LEFT) -> str:
    """Any texts as a table; numbers stay as they are, the rest is escaped.

    Args:
        rows: the headings, then a row each.
        left: headings of the columns that are set to the left.
    """
    head, *body = [[markdown_cell(cell) for cell in row] for row in rows]
    rule = ["---" if column in left else "---:" for column in rows[0]]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def latex(results: Results) -> str:
    r"""The same tables as `tabular`s that need `\usepackage{booktabs}`; the notes are comments."""
    lines = [f"% {one_line(note)}" for note in notes(results)]
    for rows in _tables(results):
        head, *body = [" & ".join(map(_latex_cell, row)) + r" \\" for row in rows]
        columns = "".join("l" if column in _LEFT else "r" for column in rows[0])
        lines += ["", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body]
        lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def csv(results: Results) -> str:
    """One row a method, then one a method and stratum; numbers as they are, texts quoted, no cell a formula."""
    file = io.StringIO()
    table = writer(file, quoting=QUOTE_NONNUMERIC, lineterminator="\n")
    table.writerow(_CSV_COLUMNS)
    for name, method in results.methods.items():
        cells = _facts(results, name, method)
        table.writerow([_csv_cell(cells.get(column)) for column in _CSV_COLUMNS])
    for name, method in results.methods.items():
        for stratum, mean in method.strata.items():
            cells = {"method": name, "stratum": stratum or UNNAMED, **_mean_facts(mean)}
            table.writerow([_csv_cell(cells.get(column)) for column in _CSV_COLUMNS])
    return file.getvalue()


def terminal(results: Results) -> RenderableType:
    """The same tables for a terminal, with the notes below: what fits one, so no costs but tokens, and few strata."""
    tables = []
    for head, *body in _tables(results):
        if head[0] in _LEFT[:1] and len(body) > _STRATA:
            continue
        table = Table()
        for column in head[:_COLUMNS]:
            left = column in _LEFT
            width = min(12, max(len(row[head.index(column)]) for row in body)) if left else None
            table.add_column(
                Text(one_line(column)), justify="left" if left else "right", overflow="fold", min_width=width
            )
        for row in body:
            table.add_row(*(Text(one_line(cell)) for cell in row[:_COLUMNS]))
        tables.append(table)
    return Group(*tables, *(Text(one_line(note)) for note in notes(results)))


def notes(results: Results) -> list[str]:
    """What to know about the numbers, a sentence or two each: intervals, tests, what failed."""
    found = [mean for m in results.methods.values() for mean in (m.accuracy, *m.strata.values())]
    accuracy = sorted({mean.interval for mean in found if mean.interval})
    difference = sorted({pair.difference.interval for pair in results.paired.values() if pair.difference.interval})
    tests = sorted({pair.test for pair in results.paired.values() if pair.test})
    family = sum(pair.p is not None for pair in results.paired.values())
    said = ["n counts questions with a score; epochs of one question are averaged first."]
    if accuracy:
        said.append(f"Accuracy with 95% intervals over questions ({', '.join(accuracy)}).")
    if tests:
        names = f" ({', '.join(difference)})" if difference else ""
        said.append(
            f"Differences are taken question by question, with 95% intervals{names}; p by {', '.join(tests)}, "
            f"two-sided, adjusted by Holm for {family} comparison{'s' if family > 1 else ''}."
        )
    for name, method in results.methods.items():
        if method.failed:
            said.append(f"Failed, and so counted as wrong: {method.failed} of {method.tasks} tasks of {name}.")
        if method.not_run:
            said.append(f"Not run, and so without a score: {method.not_run} of {method.tasks} answers of {name}.")
    return said


def markdown_text(text: str) -> str:
    """Any text as Markdown within a line or a cell, shown as it is but for white space."""
    return _MARKDOWN.sub(r"\\\g<0>", one_line(text))


def latex_text(text: str) -> str:
    """Any text as LaTeX, shown as it is but for white space."""
    return "".join(_LATEX.get(c, c) for c in one_line(text))


def _tables(results: Results) -> list[_Rows]:
    head = [
        *("method", "n", "accuracy", f"{results.reference} minus it", "p (Holm)"),
        *("tokens a task", "relative tokens", "US$", "seconds"),
    ]
    tables = [[head, *([name, *_cells(results, name, method)] for name, method in results.methods.items())]]
    strata = [
        [stratum or UNNAMED, name, str(mean.n), shown(mean)]
        for stratum in sorted({stratum for method in results.methods.values() for stratum in method.strata})
        for name, method in results.methods.items()
        if (mean := method.strata.get(stratum))
    ]
    return [*tables, [["stratum", "method", "n", "accuracy"], *strata]] if strata else tables


def _cells(results: Results, name: str, method: MethodResult) -> list[str]:
    pair, relative = results.paired.get(name), results.relative_tokens(name)
    return [
        str(method.accuracy.n),
        shown(method.accuracy),
        shown(pair.difference, "+") if pair else "",
        shown_p(pair.p_holm) if pair else "",
        f"{method.tokens_per_task:.0f}",
        "" if relative is None else f"{relative:.2f}",
        f"{method.usage.price:.4f}",
        f"{method.usage.seconds:.1f}",
    ]


def shown(mean: Mean, sign: str = "") -> str:
    """A mean with its interval, as `0.873 [0.842, 0.901]`; `sign="+"` for differences."""
    if mean.mean is None:
        return "no score"
    text = f"{mean.mean:{sign}.3f}"
    return text if mean.low is None else f"{text} [{mean.low:{sign}.3f}, {mean.high:{sign}.3f}]"


def shown_p(p: float | None) -> str:
    """A p value with three digits; nothing where there is none."""
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _facts(results: Results, name: str, method: MethodResult) -> dict[str, str | float | None]:
    facts: dict[str, str | float | None] = {
        "method": name,
        "tasks": method.tasks,
        **_mean_facts(method.accuracy),
        "failed": method.failed,
        "not_run": method.not_run,
        "tokens_per_task": method.tokens_per_task,
        "relative_tokens": results.relative_tokens(name),
        **vars(method.usage),
    }
    if pair := results.paired.get(name):
        difference = {f"difference_{key}": value for key, value in _mean_facts(pair.difference).items()}
        facts |= {"reference": results.reference, "difference": pair.difference.mean, **difference}
        facts |= {"test": pair.test, "p": pair.p, "p_holm": pair.p_holm}
    return facts


def _mean_facts(mean: Mean) -> dict[str, str | float | None]:
    return {"n": mean.n, "accuracy": mean.mean, "low": mean.low, "high": mean.high, "interval": mean.interval}


def _csv_cell(value: str | float | None) -> str | float:
    if isinstance(value, str):
        return "'" + value if value.startswith(_FORMULA) else value
    return "" if value is None else round(value, DIGITS)


def markdown_cell(text: str) -> str:
    """A cell of a Markdown table: numbers as they are, any other text as `markdown_text`."""
    return text if _NUMBERS.fullmatch(text) else markdown_text(text)


def _latex_cell(text: str) -> str:
    return text.translate(_SIGNS) if _NUMBERS.fullmatch(text) else latex_text(text)


def one_line(text: str) -> str:
    """Any text in one line, without what a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
