"""Plots are drawn where there is something to draw, with any names, the same bytes each time."""

import sys

import numpy as np
import pytest
import torch
from team_traces import team

from nsed_torch.evaluation.comparison import MethodResult
from nsed_torch.evaluation.cost_curves import Curve
from nsed_torch.evaluation.plots import plot_cost, plot_curves, plot_learning, plot_rounds
from nsed_torch.evaluation.round_statistics import insight
from nsed_torch.evaluation.statistics import Estimate
from nsed_torch.records.transcript import Usage

pytest.importorskip("matplotlib", reason="the extra `report` is not installed")


def method(tokens, *accuracy):
    return MethodResult(1, Estimate(9, *accuracy), {}, Usage(1, tokens), {})


METHODS = {
    "deliberation": method(9200, 0.71, 0.62, 0.79),
    "single:$x_1$ and a name that is much too long for any plot": method(400, 0.55, 0.45, 0.64),
    "_hidden": method(2000, 0.6),
}


def png(path):
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return data


def ink(path):
    """Coloured pixels; the legend of an empty plot has some hundreds."""
    from matplotlib.image import imread

    png(path)
    return int((np.ptp(imread(path)[..., :3], axis=-1) > 0.3).sum())


@pytest.mark.parametrize("rounds", [1, 6])
def test_accuracy_by_round(rounds, tmp_path):
    found = insight(team(30, rounds))
    for name in ("a.png", "b.png"):
        plot_rounds(found["course"], found["tasks"], tmp_path / name)
    assert ink(tmp_path / "a.png") > 100
    assert png(tmp_path / "a.png") == png(tmp_path / "b.png")


def test_a_plot_of_many_rounds_is_no_wider_than_a_page(tmp_path):
    from matplotlib.image import imread

    one = {"accuracy": Estimate(4, 0.5, 0.1, 0.9), "tokens": 10.0}
    course = {"rounds": [{**one, "round": r} for r in range(1, 257)]}
    plot_rounds(course, 4, tmp_path / "rounds.png")
    height, width, _ = imread(tmp_path / "rounds.png").shape
    assert width < 3 * height


@pytest.mark.parametrize("methods", [METHODS, {"one": METHODS["deliberation"]}, {"free": method(0, 0.71, 0.62, 0.79)}])
def test_methods_of_any_name(methods, tmp_path, recwarn):
    plot_cost(methods, tmp_path / "x.png")
    assert ink(tmp_path / "x.png") > 900
    assert not recwarn.list


def test_curves_of_policies(tmp_path):
    right = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0]]).double()
    curve = Curve("one", torch.tensor([0.2, 0.6]).double()[:, None].expand_as(right), right)
    plot_curves([curve], tmp_path / "cost.png", full=Estimate(4, 0.8, 0.7, 0.9))
    assert ink(tmp_path / "cost.png") > 900


@pytest.mark.parametrize("steps", [1, 23])
def test_curves_are_drawn_the_same_each_time(tmp_path, steps):
    lines = [
        {"step": i + 1, "right": i / 23, "parsed": 1.0, "no_signal": 0.5, "workers": {"ant": 0.25, "bee": 0.75}}
        for i in range(steps)
    ]
    lines[0]["workers"] = {}  # no text could be read
    plot_learning(lines, tmp_path / "a.png")
    plot_learning(lines, tmp_path / "b.png")
    assert png(tmp_path / "a.png") == png(tmp_path / "b.png")
    assert ink(tmp_path / "a.png") > 100


def test_without_matplotlib_one_line_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"expected matplotlib for plots, .* pip install .*report"):
        plot_cost(METHODS, tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
