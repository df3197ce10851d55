"""The horizon is where half of the tasks are right, its interval covers it; steps hold, and teams end, in time."""

import dataclasses
import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from team_traces import trace, turn

from nsed_torch.evaluation.horizon import ended_in_time, horizon
from nsed_torch.evaluation.round_statistics import elected_steps, steps_held


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from((12, 60, 300)), st.sampled_from((1.0, 2.0, 6.0)))
def test_a_curves_own_horizon_is_found(seed, half, slope):
    draw = random.Random(seed)
    steps = [draw.choice((4, 8, 16, 32, 64, 128, 256, 512)) for _ in range(4000)]
    right = [draw.random() < 1 / (1 + (s / half) ** slope) for s in steps]
    found = horizon(steps, right)
    assert found.steps == pytest.approx(half, rel=0.25)
    assert found.interval.low <= found.steps <= found.interval.high
    assert found.interval.high / found.interval.low < 1.6


def test_few_tasks_bound_it_less_than_many():
    steps, right = [8, 16, 32, 64] * 6, [True, True, False, False] * 6
    few, many = horizon(steps, right).interval, horizon(steps * 10, right * 10).interval
    assert few.low < many.low < 23 < many.high < few.high


def test_all_right_or_none_bound_one_side():
    everything, nothing = horizon([8, 16, 32] * 5, [True] * 15), horizon([8, 16, 32] * 5, [False] * 15)
    assert (everything.steps, everything.interval.high) == (math.inf, math.inf)
    assert 16 < everything.interval.low < 40
    assert (nothing.steps, nothing.interval.low) == (0, 0)
    assert 4 < nothing.interval.high < 16


def test_lengths_that_tell_nothing_bound_no_horizon():
    steps = [8, 16, 32] * 20
    for wrong, found in ((0, math.inf), (59, 0)):
        right = [(i == 4) == (wrong > 0) for i in range(60)]  # one task unlike the rest, of middle length
        assert horizon(steps, right).steps == found


@pytest.mark.parametrize(("steps", "right"), [([], []), ([0], [True]), ([3, 4], [True])])
def test_tasks_have_steps_and_a_verdict_each(steps, right):
    with pytest.raises(ValueError, match="expected tasks of at least one step"):
        horizon(steps, right)


def transcript(*steps, stop_reason="finished"):
    rounds = [turn([step]) if step else turn([None], winner=None) for step in steps]
    return dataclasses.replace(trace("t", *rounds).transcript, stop_reason=stop_reason)


def test_steps_hold_until_the_first_that_is_another():
    assert elected_steps(transcript("a", "", "b")) == ["a", "", "b"]
    chain = ["a", "b  c", "d"]
    for steps, held in ((["a", "b c", "d"], 3), (["a", "b c"], 2), (["a", "", "d"], 1), (["x", "b c"], 0), ([], 0)):
        assert steps_held(steps, chain) == held


def test_a_team_ends_in_time_if_it_votes_so_near_the_end():
    chain = ["a"] * 6
    for count, within in itertools.product(range(1, 12), range(4)):
        ended = transcript(*["a"] * count)
        assert ended_in_time([ended], [chain], within) == [abs(count - 6) <= within]
    stopped = transcript(*chain, stop_reason="rounds")
    assert ended_in_time([stopped, ended, transcript(*chain)], [chain] * 3) == [False, False, True]
    with pytest.raises(ValueError, match="zip"):
        ended_in_time([stopped], [])
