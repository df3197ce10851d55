"""Means with intervals: by hand, clustered by task, and right as often as they claim."""

import math

import pytest
import torch
from scipy import stats

from nsed_torch.evaluation.statistics import estimate, paired


def test_one_seed_is_students_interval():
    scores = torch.tensor([[1.0, 0.0, 1.0, 1.0, 0.5]])
    got = estimate(scores)
    low, high = stats.t.interval(0.95, 4, loc=scores.mean(), scale=stats.sem(scores[0]))
    assert (got.mean, got.low, got.high) == pytest.approx((0.7, low, high), rel=1e-6)
    assert (got.n, got.standard_error) == (5, pytest.approx(stats.sem(scores[0]), rel=1e-6))
    assert estimate(scores, level=0.5).high < got.high


def test_seeds_of_one_task_are_one_observation():
    nan = math.nan
    scores = torch.tensor([[1.0, 0.0, nan, nan], [0.0, 0.0, 1.0, nan]])
    assert estimate(scores) == estimate(torch.tensor([[0.5, 0.0, 1.0]]))
    assert estimate(scores).n == 3


def test_pairs_cancel_what_tasks_have_in_common():
    g = torch.Generator().manual_seed(0)
    hard = torch.rand(1, 200, generator=g)
    one, other = hard + 0.1, hard
    difference = paired(one, other)
    assert difference.mean == pytest.approx(0.1, abs=1e-6)
    assert difference.high - difference.low < 1e-6 < estimate(one).high - estimate(one).low


def test_coverage():
    """Of 400 intervals at 95% around means of 60 draws, fewer than 92% hits have a chance near one in 300."""
    draws = torch.bernoulli(torch.full((400, 1, 60), 0.7), generator=torch.Generator().manual_seed(1))
    hits = sum(e.low <= 0.7 <= e.high for e in map(estimate, draws))
    assert 0.92 <= hits / 400 <= 0.98


def test_too_little_to_say():
    with pytest.raises(ValueError, match="at least 2 tested tasks, got 1"):
        estimate(torch.tensor([[1.0, math.nan]]))
    with pytest.raises(ValueError, match=r"level in \(0, 1\), got 95"):
        estimate(torch.ones(1, 3), level=95)
