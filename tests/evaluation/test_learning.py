"""How a Conductor learned, as a plot."""

import struct

import pytest

from nsed_torch.evaluation.learning import plot_learning

pytest.importorskip("matplotlib", reason="the extra `report` is not installed")


@pytest.mark.parametrize("steps", [1, 23])
def test_curves_are_drawn_the_same_each_time(tmp_path, steps):
    lines = [
        {"step": i + 1, "right": i / 23, "parsed": 1.0, "no_signal": 0.5, "workers": {"ant": 0.25, "bee": 0.75}}
        for i in range(steps)
    ]
    lines[0]["workers"] = {}  # no text could be read
    plot_learning(lines, tmp_path / "a.png")
    plot_learning(lines, tmp_path / "b.png")
    data = (tmp_path / "a.png").read_bytes()
    assert data == (tmp_path / "b.png").read_bytes()
    assert min(struct.unpack(">II", data[16:24])) > 600
