"""Methods side by side."""

import io
import math

import pytest
from rich.console import Console

from nsed_torch.evaluation.baselines import best_single, oracle, plurality_correct
from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.records import read_json

RUNS = [
    {"plurality": {"a": 1.0, "b": 0.0}, "consensus_tuned": {"a": 1.0, "b": 1.0}},
    {"plurality": {"c": 0.0, "d": 1.0}, "consensus_tuned": {"c": 1.0, "d": 0.0}},
]


def test_tasks_are_aligned_over_seeds():
    comparison = Comparison.of(RUNS)
    assert comparison.tasks == ("a", "b", "c", "d")
    assert comparison.scores["plurality"].isnan().tolist() == [[False, False, True, True], [True, True, False, False]]
    assert comparison.estimates()["consensus_tuned"].mean == 0.75
    difference = comparison.differences("consensus_tuned")["plurality"]
    assert (difference.mean, difference.n) == (0.25, 4)
    assert difference.standard_error == pytest.approx(math.sqrt((0.0625 + 0.5625 + 0.5625 + 1.5625) / 3 / 4))


def test_what_is_written_is_what_is_printed(tmp_path):
    comparison = Comparison.of(RUNS)
    comparison.write(tmp_path, tasks=4)
    metrics = read_json(tmp_path / "metrics.json")
    assert metrics["plurality"]["mean"] == 0.5
    assert metrics["paired"]["consensus_tuned - plurality"]["mean"] == 0.25
    assert metrics["tasks"] == 4
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(comparison.table())
    text = console.export_text()
    assert "4 held-out tasks" in text
    row = next(line for line in text.splitlines() if "plurality" in line)
    difference = metrics["paired"]["consensus_tuned - plurality"]
    assert f"+0.2500 ± {difference['mean'] - difference['low']:.4f}" in row
    assert "0.5000 ±" in row
    assert "| plurality | 0.5000 ±" in comparison.card()


def test_baselines(guesses):
    train, test = guesses(40), guesses(30, seed=3)
    right, answered, classes, _ = test.by_agent()
    assert answered.all()
    assert classes.equal(test.classes[:, -1])
    assert oracle(test).equal(right.any(1))
    score, name = best_single(train, test)
    assert name == "cat"
    assert score.equal(right[:, 2])
    # Three of four say no, unless nobody misleads them: then all four differ or "no" has two.
    counts = [[row.count(c) for c in row] for row in test.classes[:, 0].tolist()]
    first = [row.index(max(row)) for row in counts]
    assert plurality_correct(test).tolist() == [right[i, j].item() for i, j in enumerate(first)]
