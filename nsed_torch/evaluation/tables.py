"""A comparison as tables: Markdown, CSV, LaTeX and the terminal. Names are any text, and data in each of them."""

import re
from collections.abc import Sequence
from csv import QUOTE_NONNUMERIC
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from nsed_torch.evaluation.comparison import Comparison, MethodResult
from nsed_torch.evaluation.statistics import shown
from nsed_torch.parts.ties import Ties
from nsed_torch.records.outcome import Verdict

UNNAMED = "(none)"
"""How a stratum without a name is shown."""

Rows = Sequence[Sequence[str]]
"""The headings, then a row each; any texts. Columns of nothing but numbers are set to the right."""

_MARKDOWN = re.compile(r"[\\`*_\[\]<>&|~$]")
# Cells of nothing but numbers, which no format reads as anything else; a name that looks so is as safe.
_NUMBERS = re.compile(r"[-+<]?[\d.]+( \[[-+]?[\d.]+, [-+]?[\d.]+\]| \([\d.]+\))?", re.ASCII)
# Spreadsheets read a cell that starts so as a formula. A quote is one of them, so that a guard can be taken away again.
_FORMULA = tuple("=+-@\t\r\n'")

_WIDTH = 110  # characters of a line where no terminal sets the width
_COLUMNS, _STRATA = 6, 40  # of a table on a terminal: columns, and rows by stratum


def markdown(comparison: Comparison) -> str:
    """A table of methods, one by stratum, and what to know about the numbers."""
    tables = [markdown_table(rows) + "\n" for rows in _tables(comparison)]
    return "\n".join([*tables, *map(markdown_text, notes(comparison))]) + "\n"


def latex(comparison: Comparison) -> str:
    r"""The same tables as `tabular`s that need `\usepackage{booktabs}`."""
    from pandas import DataFrame  # noqa: PLC0415 - heavy, and wanted only here

    tables = [DataFrame(body, columns=list(map(one_line, head)), dtype=object) for head, *body in _tables(comparison)]
    return "\n".join(table.map(one_line).to_latex(index=False, escape=True) for table in tables)


def csv(comparison: Comparison) -> str:
    """One row per method, then one per method and stratum; columns as `results.json` has them, no cell a formula."""
    from pandas import json_normalize  # noqa: PLC0415 - heavy, and wanted only here

    data = comparison.to_json()
    rows, strata = [], []
    for name, method in data["methods"].items():
        own = {"method": name, "stratum": "", "reference": data["reference"], "paired": data["paired"].get(name, {})}
        strata += [
            {"method": name, "stratum": stratum or UNNAMED, "accuracy": accuracy}
            for stratum, accuracy in method.pop("strata").items()
        ]
        rows.append({**own, **method, **data["timings"][name]})
    # Counts stay whole where a row has none.
    table = json_normalize([*rows, *strata]).convert_dtypes().map(_harmless)
    text: str = table.to_csv(index=False, quoting=QUOTE_NONNUMERIC, lineterminator="\n")
    return text


def terminal(comparison: Comparison) -> RenderableType:
    """The same tables for a terminal, with the notes below: what fits one, so no costs but tokens, and few strata."""
    methods, *strata = _tables(comparison)
    tables = [methods, *(rows for rows in strata if len(rows) <= _STRATA + 1)]
    return Group(
        *(terminal_table([row[:_COLUMNS] for row in rows]) for rows in tables),
        *(Text(one_line(note)) for note in notes(comparison)),
    )


def show(console: Console, comparison: Comparison) -> None:
    """Print the tables; where no terminal sets the width, wide enough for their rows."""
    (console if console.is_terminal else Console(highlight=False, width=_WIDTH)).print(terminal(comparison))


def printed(comparison: Comparison) -> str:
    """The same as text."""
    console = Console(width=_WIDTH, highlight=False, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(terminal(comparison))
    return capture.get().rstrip()


_UNSCORED = (
    (Verdict.FAILED, "Failed, and so counted as wrong", "tasks"),
    (Verdict.NO_ANSWER, "No answer could be read, and so counted as wrong", "texts"),
    (Verdict.NOT_RUN, "Not run, and so without a score", "answers"),
)


def notes(comparison: Comparison) -> list[str]:
    """What to know about the numbers, a sentence or two each: intervals, tests, what failed."""
    methods, pairs = comparison.methods, comparison.paired.values()
    accuracies = [accuracy for m in methods.values() for accuracy in (m.accuracy, *m.strata.values())]
    intervals = sorted({accuracy.interval for accuracy in accuracies if accuracy.interval})
    difference = sorted({pair.difference.interval for pair in pairs if pair.difference.interval})
    tests = sorted({pair.test for pair in pairs if pair.test})
    family = sum(pair.p is not None for pair in pairs)
    lines = ["n counts questions with a score; epochs of one question are averaged first."]
    if intervals:
        lines.append(f"{comparison.what.capitalize()} with 95% intervals over questions ({', '.join(intervals)}).")
    if tests:
        names = f" ({', '.join(difference)})" if difference else ""
        lines.append(
            f"Differences are taken question by question, with 95% intervals{names}; p by {', '.join(tests)}, "
            f"two-sided, adjusted by Holm for {family} comparison{'s' if family > 1 else ''}."
        )
    if any(method.usage.calls for method in methods.values()):
        lines.append(
            "Tokens are those computed: what the calls of a task share counts once. In brackets are those billed."
        )
    if comparison.ties:
        lines.append(comparison.ties.note)
    if taken := [f"{name} {mean:.1f} {what}" for name, m in methods.items() for what, mean in m.steps.items()]:
        lines.append(f"Steps a task took on average: {', '.join(taken)}.")
    for name, method in methods.items():
        for verdict, what, unit in _UNSCORED:
            if count := method.count(verdict):
                lines.append(f"{what}: {count} of {method.tasks} {unit} of {name}.")
    return lines


def markdown_table(rows: Rows) -> str:
    """A table in Markdown; numbers stay as they are, the rest is escaped."""
    # Numbers need no escape, and are easier to read without.
    cells = [[cell if _NUMBERS.fullmatch(cell) else markdown_text(cell) for cell in row] for row in rows]
    rule = ["---" if side == "left" else "---:" for side in _sides(rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:]))


def terminal_table(rows: Rows, *, title: str = "", caption: str = "") -> Table:
    """A table for a terminal, which obeys nothing in it."""
    table = Table(title=Text(one_line(title), style="table.title") if title else None, title_justify="left")
    table.caption, table.caption_justify = Text(one_line(caption)) if caption else None, "left"
    head, *body = rows
    for column, (name, side) in enumerate(zip(head, _sides(rows), strict=True)):
        width = min(12, max((len(row[column]) for row in body), default=0)) if side == "left" else None
        table.add_column(Text(one_line(name)), justify=side, overflow="fold", min_width=width)  # type: ignore[arg-type]
    for row in body:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table


def markdown_text(text: str) -> str:
    """Any text as Markdown within a line or a cell, shown as it is but for white space."""
    return _MARKDOWN.sub(r"\\\g<0>", one_line(text))


def one_line(text: str) -> str:
    """Any text in one line, without what a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shown_p(p: float | None) -> str:
    """A p value with three digits; nothing where there is none."""
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _tables(comparison: Comparison) -> list[Rows]:
    head = ["method", "n", comparison.what, f"{comparison.reference} minus it", "p (Holm)"]
    costs = ["tokens per task (billed)", "relative tokens", "US$", "seconds"]
    methods = comparison.methods.items()
    # Recorded answers are compared without a call.
    if not any(method.usage.calls for _, method in methods):
        costs = []
    width = len(head) + len(costs)
    tables: list[Rows] = [
        [[*head, *costs], *([name, *_cells(comparison, name, method)][:width] for name, method in methods)]
    ]
    tables += _lots(comparison)
    strata = [
        [stratum or UNNAMED, name, str(estimate.n), shown(estimate)]
        for stratum in sorted({stratum for _, method in methods for stratum in method.strata})
        for name, method in methods
        if (estimate := method.strata.get(stratum))
    ]
    return [*tables, [["stratum", "method", "n", "accuracy"], *strata]] if strata else tables


def _lots(comparison: Comparison) -> list[Rows]:
    """What methods whose answers tied come to if a lot decides, in expectation, where another rule counted above."""
    if comparison.ties is Ties.LOT:
        return []
    differences = comparison.difference_by_lot
    rows = [
        [name, str(method.tied), shown(method.by_lot), shown(differences[name], "+") if name in differences else ""]
        for name, method in comparison.methods.items()
        if method.by_lot
    ]
    return [[["method", "ties", "ties by lot", f"{comparison.reference} minus it"], *rows]] if rows else []


def _cells(comparison: Comparison, name: str, method: MethodResult) -> list[str]:
    pair, relative = comparison.paired.get(name), comparison.relative_tokens(name)
    return [
        str(method.accuracy.n),
        shown(method.accuracy),
        shown(pair.difference, "+") if pair else "",
        shown_p(pair.p_holm) if pair else "",
        f"{method.tokens_per_task:.0f} ({method.billed_per_task:.0f})",
        "" if relative is None else f"{relative:.2f}",
        f"{method.usage.price:.4f}",
        f"{method.usage.seconds:.1f}",
    ]


def _harmless(cell: Any) -> Any:
    return "'" + cell if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def _sides(rows: Rows) -> list[str]:
    """Of each column: right where no cell holds words."""
    words = [[cell != "no score" and any(map(str.isalpha, cell)) for cell in row] for row in rows[1:]]
    return ["left" if any(row[i] for row in words) else "right" for i in range(len(rows[0]))]
