"""What a vote gains, cell by cell, is counted as the package counts it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from nsed_lab.studies.competence import ENDING, STRENGTHS, Cell, CellFigures, commonest, gain, keep_cells, ordered, side
from nsed_torch.evaluation.round_statistics import insight


def line(right, ratings, winner=0, classes=None):
    return {"right": right, "ratings": ratings, "winner": winner, "classes": classes or list(range(len(right)))}


def test_a_cell_counts_as_insight_does():
    rng = np.random.default_rng(0)
    lines, traces = [], []
    for _ in range(30):
        right, ratings = rng.integers(0, 2, 5).tolist(), (rng.integers(-2, 3, 5) / 2).tolist()
        lines.append(line(right, ratings, winner=int(rng.integers(5))))
        grades, proposals = [list(map(bool, right))], [SimpleNamespace(agent=f"a{i}") for i in range(5)]
        record = SimpleNamespace(
            voters=("judge",),
            ratings=[ratings],
            proposals=proposals,
            usage=SimpleNamespace(tokens=1),
            winner=lines[-1]["winner"],
        )
        task = SimpleNamespace(id=str(len(lines)))
        traces.append(
            SimpleNamespace(
                transcript=SimpleNamespace(task=task, rounds=[record], unit="answer"),
                grades=grades,
                answers=[["x"] * 5],
            )
        )
    cell, found = Cell(lines), insight(traces)
    assert cell.p_g == pytest.approx(found["p_g"]["pooled"].mean)
    assert cell.p_v == pytest.approx(found["p_v"]["pooled"]["sign"].mean)
    assert cell.auc == pytest.approx(found["p_v"]["pooled"]["auc"].mean)
    assert cell.over_p_g.mean == pytest.approx(cell.team.mean() - cell.p_g)


def test_ratings_are_stored_by_sign_and_order():
    assert ordered([0.5, -0.25, 0.0, 0.5, -1.0]) == [1, -1, 0, 1, -2]
    assert ordered([-0.5, -0.5]) == [-1, -1]


def test_the_commonest_answer_shares_its_ties():
    assert commonest([0, 0, 1], [1, 1, 0]) == 1
    assert commonest([0, 1, -1, -1, -1], [1, 0, 0, 0, 0]) == 0.5
    assert commonest([-1, -1], [0, 0]) == 0


def test_a_gain_has_the_interval_of_its_mean():
    differences = np.random.default_rng(1).normal(0.1, 1.0, 400)
    found = gain(differences)
    error = 1.96 * differences.std() / 20
    assert (found.low, found.high) == pytest.approx((found.mean - error, found.mean + error), abs=0.01)
    assert [side(gain(np.full(9, x))) for x in (0.5, 0.0, -0.5)] == [1, 0, -1]


@pytest.fixture
def figures(tmp_path):
    """Members get better with g; the judge knows nothing at v = 0 and everything at v = 5."""
    rng = np.random.default_rng(2)
    for g in STRENGTHS:
        for v in STRENGTHS:
            lines = []
            for number in range(40):
                right = (rng.random(5) < (g + 1) / 8).tolist()
                known = rng.random(5) < 0.5 + v / 10
                ratings = np.where(right, 0.5, -0.5) * np.where(known, 1, -1)
                first = {"ratings": [ratings.tolist()], "classes": [0, 1, 2, 3, 4], "winner": int(ratings.argmax())}
                lines.append(json.dumps({"task": {"id": f"q{number}"}, "grades": [right], "rounds": [first]}))
            folder = tmp_path / f"g{g}v{v}"
            folder.mkdir()
            (folder / "traces.jsonl").write_text("\n".join(lines))
    keep_cells(tmp_path, tmp_path / f"run{ENDING}")
    return CellFigures.load(tmp_path / f"run{ENDING}")


def test_what_is_kept_says_where_a_vote_gains(figures):
    assert len(figures.cells) == 36
    assert figures.cells[0, 5].p_v == 1
    assert figures.cells[0, 5].law > 0.7
    assert all(side(figures.cells[g, 5].over_p_g) == 1 for g in range(5))
    counted = [[figures.sign_rule(sign, does) for does in (-1, 0, 1)] for sign in (-1, 1)]
    assert sum(map(sum, counted)) == 36
    assert figures.gaining("over_p_g", least=0.99) == "6 of 6"
    assert figures.contested(3) == sum(0 < sum(row) < 5 for row in figures.cells[3, 0].right)
    assert float(figures.rank("auc")) > float(figures.rank("law")) > 0
    cells = figures.grid("judged", 5).split(" | ")
    assert cells[0].startswith("| 5/5 (0.7")
    assert cells[-1] == "1.000, 1.000 |"
