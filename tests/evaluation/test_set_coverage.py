"""What sets of answers came to."""

import pytest
from rich.console import Console

from nsed_torch.evaluation.set_coverage import coverage_plot, coverage_summary, coverage_tables


def row(covered, size, right, chance, category):
    return {
        "covered": covered,
        "size": size,
        "decided": size == 1,
        "right": right,
        "chance": chance,
        "category": category,
    }


ROWS = {
    "a": row(True, 1, True, 0.9, "law"),
    "b": row(True, 3, False, 0.4, "law"),
    "c": row(False, 1, False, 0.8, "physics"),
    "d": row(True, 2, True, 0.6, "physics"),
}


def test_by_hand():
    found = coverage_summary(ROWS, 0.8)
    assert found["promised"] == 0.8
    assert (found["covered"].mean, found["covered"].n) == (0.75, 4)
    assert (found["decided"].mean, found["accuracy_of_decided"].mean) == (0.5, 0.5)
    assert found["mean_size"] == pytest.approx(1.75)
    assert {name: value.mean for name, value in found["by_category"].items()} == {"law": 1.0, "physics": 0.5}
    # The surest two are a and c.
    assert (found["surest"]["0.4"].n, found["surest"]["0.4"].mean) == (2, 0.5)
    assert found["surest"]["1"].mean == found["accuracy"].mean == 0.5


def test_tables(capsys):
    found = coverage_summary(ROWS, 0.8)
    Console(width=100).print(*coverage_tables(found))
    out = capsys.readouterr().out
    assert "promised 80%" in out
    assert "one answer in the set: 50.0%" in out


def test_nobody_decides():
    rows = {name: {**value, "decided": False} for name, value in ROWS.items()}
    found = coverage_summary(rows, 0.8)
    assert found["accuracy_of_decided"].mean is None
    assert coverage_tables(found)[1].row_count == 8


def test_the_plot_shows_the_share_of_wrong_answers(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        "nsed_torch.evaluation.set_coverage.draw_points", lambda axes, at, risks, **_: drawn.update(at=at, risks=risks)
    )
    coverage_plot(coverage_summary(ROWS, 0.8), tmp_path / "coverage.png")
    assert drawn["at"][-1] == 1.0
    assert (drawn["risks"][-1].mean, drawn["risks"][-1].n) == (0.5, 4)
    assert drawn["risks"][-1].low < 0.5 < drawn["risks"][-1].high
    assert (tmp_path / "coverage.png").stat().st_size > 5_000
