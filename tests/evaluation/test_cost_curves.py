"""Curves of cost against accuracy, by hand."""

import io

import pytest
import torch
from rich.console import Console
from scipy.special import stdtrit

from nsed_torch.evaluation.cost_curves import Curve, cost_json, cost_tables, difference, oracle_curve
from nsed_torch.evaluation.statistics import student


def curve(name: str, costs: list[float], rights: list[list[float]]) -> Curve:
    right = torch.tensor(rights).double()
    return Curve(name, torch.tensor(costs).double()[:, None].expand_as(right), right)


ONE = curve("one", [0.2, 0.6], [[1, 0, 0, 0], [1, 1, 0, 0]])


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (0.0, [0, 0, 0, 0]),
        (0.1, [0.5, 0, 0, 0]),
        (0.2, [1, 0, 0, 0]),
        (0.3, [1, 0.25, 0, 0]),
        (0.6, [1, 1, 0, 0]),
        (2.0, [1, 1, 0, 0]),
    ],
)
def test_interpolation_by_hand(cost: float, expected: list[float]) -> None:
    torch.testing.assert_close(ONE.at(cost), torch.tensor(expected).double())


def test_points_of_one_cost_are_averaged_and_order_does_not_matter() -> None:
    twice = curve("x", [0.6, 0.2, 0.6], [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(twice.at(0.6), torch.tensor([0.5, 0.5, 0, 0]).double())
    torch.testing.assert_close(twice.at(0.4), torch.tensor([0.75, 0.25, 0, 0]).double())


def test_a_curve_that_starts_at_nothing_keeps_what_it_has_there() -> None:
    free = curve("free", [0.0, 1.0], [[1, 0, 0, 0], [1, 1, 1, 1]])
    torch.testing.assert_close(free.at(0.0), torch.tensor([1, 0, 0, 0]).double())


def test_difference_at_equal_cost_is_paired() -> None:
    other = curve("other", [0.4], [[1, 1, 1, 0]])
    found = difference(other, ONE, 0)
    # ONE at 0.4 is (1, 0.5, 0, 0); the differences are (0, 0.5, 1, 0).
    assert found.mean == pytest.approx(0.375)
    assert found.high - found.mean == pytest.approx(stdtrit(3, 0.975) * torch.tensor([0, 0.5, 1, 0]).std().item() / 2)


def test_oracle_takes_the_cheapest_right_answers_first() -> None:
    correct = torch.tensor([[1, 1], [0, 1], [0, 0], [1, 0]]).bool()
    cost = torch.tensor([[2.0, 1.0], [1.0, 5.0], [1.0, 1.0], [2.0, 9.0]]).double()
    found = oracle_curve(correct, cost, [0.25, 0.75, 1.9, 2.0])
    assert found.right.tolist() == [[1, 0, 0, 0], [1, 0, 0, 1], [1, 0, 0, 1], [1, 1, 0, 1]]
    assert found.cost.sum(1).tolist() == [1, 3, 3, 8]


def test_table_and_json_tell_the_same() -> None:
    curves = [ONE, curve("other", [0.2, 0.6], [[0, 0, 0, 0], [1, 1, 1, 0]])]
    found = cost_json(curves, [0.2, 0.6], student([1.0, 1.0, 1.0, 0.0]))
    assert [p["mean"] for p in found["one_minus"]["other"]] == [0.25, -0.25]
    page = io.StringIO()
    Console(width=220, file=page).print(*cost_tables(curves, [0.2, 0.6], student([1.0, 1.0, 1.0, 0.0])))
    text = page.getvalue()
    assert "+0.250 [" in text
    assert "-0.250 [" in text
    assert "66.7%" in text
