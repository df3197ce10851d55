"""Numbers with intervals: known ones, alike questions, and intervals that hold the truth as often as they claim."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import pytest

from nsed_torch.evaluation.insight.values import Questions, within
from nsed_torch.evaluation.statistics import Estimate, plain, student


def questions(count):
    return Questions([f"q{i:03}" for i in range(count)])


@pytest.mark.parametrize(
    ("right", "n", "low", "high"), [(0, 10, 0.0, 0.27754), (10, 10, 0.72246, 1.0), (81, 263, 0.25528, 0.36618)]
)
def test_with_one_observation_a_question_a_share_has_wilsons_interval(right, n, low, high):
    """The last row is Newcombe's published example (Statistics in Medicine 17, 1998)."""
    value = questions(n).share(np.arange(n), np.arange(n) < right)
    assert (value.mean, value.n) == (right / n, n)
    assert (value.low, value.high) == pytest.approx((low, high), abs=1e-4)


def test_observations_that_repeat_their_question_add_nothing():
    hits = np.array([1, 0, 0, 1, 1, 0, 1, 1.0])
    once = questions(8).share(np.arange(8), hits)
    thrice = questions(8).share(np.arange(24) // 3, hits.repeat(3))
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high))
    assert (once.n, thrice.n) == (8, 24)


def test_observations_that_vary_on_their_own_all_count():
    hits = np.random.default_rng(5).random(900) < 0.7
    clustered, single = (questions(n).share(np.arange(900) % n, hits) for n in (300, 900))
    assert clustered.high - clustered.low == pytest.approx(single.high - single.low, rel=0.1)


def test_nothing_to_count_is_no_number():
    none, no = np.array([], dtype=int), np.array([])
    one = questions(3)
    assert one.share(none, no) == one.mean(none, no) == one.correlation(none, no, no) == Estimate(0)
    assert one.share(np.array([1]), np.array([0.0]), np.array([0.0])).mean is None


def test_one_question_alone_has_no_interval_but_a_shares():
    three = questions(3)
    assert three.mean(np.array([1, 1]), np.array([0.5, 1])) == Estimate(2, 0.75)
    assert three.share(np.array([1]), np.array([1])).low == pytest.approx(0.2065, abs=1e-4)


def test_a_mean_agrees_with_students_interval():

    draw = np.random.default_rng(3).normal(size=200)
    got, expected = questions(200).mean(np.arange(200), draw), student(draw)
    assert got.mean == pytest.approx(expected.mean)
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high), abs=0.02)


def test_correlation_by_hand():
    four = questions(4)
    x, y = np.array([1, 2, 4, 8.0]), np.array([2, 1, 5, 5.0])
    assert four.correlation(np.arange(4), x, y).mean == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert four.correlation(np.arange(4), x, -3 * x).mean == pytest.approx(-1)
    assert four.correlation(np.arange(4), x, np.full(4, 0.1)).mean is None
    table = np.array([(7, 1), (7, 2), (3, 4), (3, 8)], dtype=[("ballot", "i8"), ("x", "f8")])
    assert [column.tolist() for column in within(table, "x")] == [[-0.5, 0.5, -2, 2]]


def test_the_order_of_questions_changes_nothing():
    rng = np.random.default_rng(0)
    names, values = [f"q{i}" for i in range(30)], rng.normal(size=30)
    order = rng.permutation(30)
    one = Questions(names).mean(np.arange(30), values)
    other = Questions([names[i] for i in order]).mean(np.arange(30), values[order])
    assert (one.mean, one.low, one.high) == pytest.approx((other.mean, other.low, other.high))
    assert Questions(names, seed=1).mean(np.arange(30), values).low != one.low


@pytest.mark.parametrize("way", ["share", "mean"])
def test_coverage_where_answers_to_a_question_are_alike(way):
    """Of 300 intervals at 95%, fewer than 91% hits have a chance near one in 300; a share taken as if answers were
    independent holds the truth in about 4 of 5."""
    rng, whole = np.random.default_rng(1), questions(40)
    question = np.arange(160) // 4
    hits = 0
    for _ in range(300):
        easy = rng.beta(0.7, 0.3, size=40)
        value = getattr(whole, way)(question, (rng.random(160) < easy[question]).astype(float))
        hits += value.low <= 0.7 <= value.high
    assert 0.91 <= hits / 300 <= 0.99


def test_plain_data_are_rounded_and_finite():
    class Pair(NamedTuple):
        low: float
        high: float

    @dataclasses.dataclass
    class Tree:
        pair: Pair
        rest: dict

    tree = Tree(Pair(-1e-12, math.inf), {1: (0.1234567891234, True, None, "x", 3)})
    assert repr(plain(tree)) == "{'pair': {'low': 0.0, 'high': None}, 'rest': {'1': [0.123456789, True, None, 'x', 3]}}"
