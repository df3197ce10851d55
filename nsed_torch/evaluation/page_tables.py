"""What a study's page is made of: numbers with intervals, and tables of what the verbs write."""

from collections.abc import Mapping, Sequence
from typing import Any

from nsed_torch.evaluation.results import Results
from nsed_torch.evaluation.statistics import Mean, clopper_pearson
from nsed_torch.evaluation.tables import UNNAMED, markdown_table, markdown_text, notes, shown, shown_p


class Markdown(str):
    """A text that is Markdown already; every other text is escaped where a page shows it."""

    __slots__ = ()

    def __html__(self) -> "Markdown":
        """How Jinja2 asks whether to escape."""
        return self


def ci(value: Any, sign: str = "") -> Markdown:
    """A mean with its 95% interval, as `0.873 [0.842, 0.901]`.

    Args:
        value: a mapping with mean, low and high, as results.json and metrics.json have them; or one with right and
            tasks, as collect.json has them, which gets Clopper and Pearson's exact interval.
        sign: "+" for differences.

    Raises:
        ValueError: for anything else.
    """
    return Markdown(shown(_mean(value), sign))


def pct(value: Any, digits: int = 1) -> Markdown:
    """A share, or the mean of a mapping as `ci` takes it, as `87.3%`.

    Raises:
        ValueError: for anything else.
    """
    share = _mean(value).mean if isinstance(value, Mapping) else value
    return Markdown("no score" if share is None else f"{100 * _number(share):.{digits}f}%")


def num(value: Any, digits: int = 3) -> Markdown:
    """A number with so many digits behind the point.

    Raises:
        ValueError: if it is none.
    """
    return Markdown(f"{_number(value):.{digits}f}")


def table(rows: Sequence[Any], columns: Sequence[str] | Mapping[str, str]) -> Markdown:
    """A Markdown table; columns of nothing but numbers are set to the right.

    Args:
        rows: mappings, or lists in the order of the columns. Means with low and high are shown as by `ci`.
        columns: keys of the rows, which are the headings too; or key -> heading.

    Raises:
        ValueError: for a row that lacks a column.
    """
    headings = dict(columns) if isinstance(columns, Mapping) else {column: column for column in columns}
    body = []
    for row in rows:
        cells = row if isinstance(row, Mapping) else dict(zip(headings, row, strict=False))
        if lacking := [key for key in headings if key not in cells]:
            raise ValueError(f"table: expected rows with {', '.join(headings)}, got one without {lacking[0]!r}: {row}")
        body.append([_cell(cells[key]) for key in headings])
    return _table(list(headings.values()), body)


def results_table(data: Any, methods: Sequence[str] | None = None) -> Markdown:
    """Methods side by side, from results.json: accuracy, what the reference has over each, tokens a task.

    Args:
        data: of results.json.
        methods: those to show, in this order; None shows all.
    """
    results = Results.from_json(data)
    head = ["method", "n", "accuracy", f"{results.reference} minus it", "p (Holm)", "tokens a task"]
    body = []
    for name in results.methods if methods is None else methods:
        method, pair = _known(results, name), results.paired.get(name)
        over = [shown(pair.difference, "+"), shown_p(pair.p_holm)] if pair else ["", ""]
        accuracy = [str(method.accuracy.n), shown(method.accuracy)]
        body.append([name, *accuracy, *over, f"{method.tokens_per_task:.0f}"])
    return _table(head, body)


def results_notes(data: Any) -> Markdown:
    """What to know about the numbers of results.json: whose intervals and tests they are, what failed."""
    return Markdown("\n".join(map(markdown_text, notes(Results.from_json(data)))))


def strata_table(data: Any, methods: Sequence[str] | None = None) -> Markdown:
    """A row a method and a column a stratum, from results.json; n stands with the stratum where all methods share it.

    Args:
        data: of results.json.
        methods: those to show, in this order; None shows all.
    """
    results = Results.from_json(data)
    rows = {name: _known(results, name).strata for name in (results.methods if methods is None else methods)}
    strata = sorted({stratum for row in rows.values() for stratum in row})
    if not strata:
        return Markdown("*the tasks name no strata*")
    sizes = {s: {row[s].n for row in rows.values() if s in row} for s in strata}
    head = [f"{s or UNNAMED} (n = {min(sizes[s])})" if len(sizes[s]) == 1 else s or UNNAMED for s in strata]
    body = [
        [name, *("" if s not in row else shown(row[s]) + f" of {row[s].n}" * (len(sizes[s]) > 1) for s in strata)]
        for name, row in rows.items()
    ]
    return _table(["method", *head], body)


def metrics_table(data: Any) -> Markdown:
    """What `nsed tune` measured, from metrics.json: methods and differences, or judges before and after training."""
    if isinstance(data.get("test"), Mapping):
        rows = [[name, row["before"]["n"], *map(_cell, row.values())] for name, row in data["test"].items()]
        return table(rows, ["accuracy", "n", *next(iter(data["test"].values()))])
    paired = data["paired"]
    method = next(iter(paired)).rpartition(" - ")[0]
    rows = [
        [name, entry["n"], entry, difference and ci(difference, "+")]
        for name, entry in data.items()
        if isinstance(entry, Mapping) and "standard_error" in entry
        for difference in [paired.get(f"{method} - {name}")]
    ]
    return table(rows, ["method", "n", "accuracy", f"{method} minus it"])


def budgets_table(data: Any) -> Markdown:
    """Accuracy at shares of the full team's tokens, from cost.json of `nsed fit-broker` on traces."""
    curves = data["curves"]
    own = next(iter(curves))
    rows = [
        {
            "budget": point["budget"],
            f"cost of the {own}": point["cost"],
            **{n: c[i]["accuracy"] for n, c in curves.items()},
        }
        for i, point in enumerate(curves[own])
    ]
    return table(rows, list(rows[0]))


def broker_table(data: Any) -> Markdown:
    """Accuracy at shares of the full team's cost, from cost.json of `nsed fit-broker` on answers."""
    return budgets_table(data)


def coverage_table(sets: Any, own: Any) -> Markdown:
    """How often sets held the truth, all tasks and by category, from metrics.json of `nsed tune coverage=...`.

    Args:
        sets: with one threshold for all.
        own: with one for each category.
    """
    rows = [
        [name, value["n"], value, other]
        for name, value, other in [
            ("all", sets["covered"], own["covered"]),
            *((name, value, own["by_category"][name]) for name, value in sets["by_category"].items()),
        ]
    ]
    return table(rows, ["tasks", "n", "one threshold", "one for each category"])


def surest_table(sets: Any) -> Markdown:
    """Accuracy of the surest tasks by their share, from metrics.json of `nsed tune coverage=...`."""
    rows = [[f"{float(share):.0%}", value["n"], value] for share, value in sets["surest"].items()]
    return table(rows, ["share", "n", "accuracy"])


def accuracy_table(data: Any) -> Markdown:
    """What a team's answers came to, from collect.json: after each round, of each agent, of the oracle."""
    return table(
        [{**row, "accuracy": row} for row in data["counts"]["accuracies"]],
        {"what": "what", "tasks": "n", "accuracy": "accuracy"},
    )


def _known(results: Results, name: str) -> Any:
    if name not in results.methods:
        raise ValueError(f"expected methods out of {', '.join(results.methods)}, got {name!r}")
    return results.methods[name]


def _table(head: list[str], body: list[list[str]]) -> Markdown:
    numbers = [h for i, h in enumerate(head) if any(row[i] for row in body) and all(_is_plain(row[i]) for row in body)]
    return Markdown(markdown_table([head, *body], [h for h in head if h not in numbers]))


def _is_plain(cell: str) -> bool:
    return not any(c.isalpha() for c in cell) or cell == "no score"


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return ci(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else str(value)


def _mean(value: Any) -> Mean:
    if isinstance(value, Mapping) and value.keys() >= {"mean", "low", "high"}:
        return Mean(value.get("n", 0), value["mean"], value["low"], value["high"])
    if isinstance(value, Mapping) and value.keys() >= {"right", "tasks"}:
        right, tasks = value["right"], value["tasks"]
        return Mean(tasks, right / tasks, *clopper_pearson(right, tasks))
    raise ValueError(f"expected a mapping with mean, low and high, or with right and tasks, got {value!r}")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, got {value!r}")
    return value
