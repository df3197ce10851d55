"""What deliberations tell, on a study's page: rounds, their law, and judges, from the insight of results.json."""

from collections.abc import Mapping
from typing import Any

from nsed_torch.evaluation.page_tables import Markdown, table
from nsed_torch.evaluation.tables import markdown_text


def rounds_table(data: Any) -> Markdown:
    """Where the team stands after each round, from the insight of results.json."""
    rows = [
        {
            "round": r["round"],
            "tasks": r["deliberating"],
            "accuracy": r["accuracy"],
            "tokens so far": f"{r['tokens']:.0f}",
        }
        for r in _insight(data)["course"]["rounds"]
    ]
    return table(rows, list(rows[0]))


def law_text(data: Any) -> Markdown:
    """The efficiency-fatigue law fitted to the rounds of results.json, with its intervals."""
    law = _insight(data)["course"]["law"]
    notes = "".join(f" {markdown_text(note)}." for note in law["notes"])
    if law["fit"] is None:
        return Markdown(f"No law:{notes}")
    names = {"p_g": "p_g", "k": "k", "beta": "beta", "t_opt": "peak in rounds"}
    parts = [f"{text} {_bounded(law['fit'][key], law['fit'][f'{key}_interval'])}" for key, text in names.items()]
    r_squared = law["fit"]["r_squared"]
    fit = ", ".join(parts).replace("_", "\\_")  # notes are escaped already
    return Markdown(f"{fit}{'' if r_squared is None else f', R² {r_squared:.2f}'}.{notes}")


def judging_table(found: Mapping[str, Any]) -> Markdown:
    """How often proposals are right, how well judges tell which, and what the team's answer has over a proposal.

    Args:
        found: name of a run -> its results.json.
    """
    rows = []
    for name, data in found.items():
        told = _insight(data)
        p_g, p_v, last = told["p_g"]["pooled"], told["p_v"]["pooled"], told["course"]["rounds"][-1]["accuracy"]
        gain = None if p_g["mean"] is None else f"{last['mean'] - p_g['mean']:+.3f}"
        rows.append([name, p_g, p_v["auc"], p_v["sign"], last, gain])
    return table(rows, ["run", "p_g", "p_v, pairs", "p_v, signs", "accuracy", "gain over p_g"])


def _insight(data: Any) -> Any:
    """What the deliberations of a run tell.

    Raises:
        ValueError: if there were none.
    """
    if data.get("insight") is None:
        raise ValueError(
            "expected results with deliberations, got none: take a run with deliberation among its methods"
        )
    return data["insight"]


def _bounded(value: float | None, interval: Mapping[str, float | None]) -> str:
    shown, low, high = (
        "unbounded" if end is None else f"{end:.3f}" for end in (value, interval["low"], interval["high"])
    )
    return f"{shown} [{low}, {high}]"
