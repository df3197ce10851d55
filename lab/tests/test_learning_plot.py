"""The plot of a Conductor's training is drawn for any log, the same each time."""

import pytest

from nsed_lab.conductors.learning_plot import plot_learning


@pytest.mark.parametrize("steps", [1, 23])
def test_a_training_is_drawn_the_same_each_time(tmp_path, steps):
    lines = [
        {"step": i + 1, "right": i / 23, "parsed": 1.0, "no_signal": 0.5, "workers": {"ant": 0.25, "bee": 0.75}}
        for i in range(steps)
    ]
    lines[0]["workers"] = {}  # no text could be read
    plot_learning(lines, tmp_path / "a.png")
    plot_learning(lines, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert len((tmp_path / "a.png").read_bytes()) > 10_000
