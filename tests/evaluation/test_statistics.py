"""Means with intervals and tests of difference: by hand, against SciPy, and right as often as they claim."""

import dataclasses
import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nsed_torch.evaluation.statistics import (
    Estimate,
    clopper_pearson,
    clustered_share,
    holm,
    mcnemar,
    mean_difference,
    mean_score,
    plain,
    shown,
    sign_flip,
    student,
    tango,
)


def test_students_interval():
    scores = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.5])
    got = student(scores)
    low, high = stats.t.interval(0.95, 4, loc=scores.mean(), scale=stats.sem(scores))
    assert (got.mean, got.low, got.high) == pytest.approx((0.7, low, high), rel=1e-6)
    assert (got.n, got.interval) == (5, "Student")
    assert student(scores.tolist()) == got
    assert student([0.0, 0.0, 1.0]).low < 0  # as of a difference
    assert student([0.0, 0.0, 1.0], 0.0, 1.0) == Estimate(3, pytest.approx(1 / 3), 0.0, 1.0, "Student")
    assert student([1.0, 1.0]) == Estimate(2, 1.0, 1.0, 1.0, "Student")
    with pytest.raises(ValueError, match="at least 2 tested tasks, got 1"):
        student([1.0])


def test_coverage():
    """Of 400 intervals at 95% around means of 60 draws, fewer than 92% hits have a chance near one in 300."""
    draws = torch.bernoulli(torch.full((400, 60), 0.7), generator=torch.Generator().manual_seed(1))
    hits = sum(e.low <= 0.7 <= e.high for e in map(student, draws))
    assert 0.92 <= hits / 400 <= 0.98


@pytest.mark.parametrize(
    ("estimate", "sign", "text"),
    [
        (Estimate(8, 0.75, 0.3491, 0.9681, "Clopper-Pearson"), "", "0.750 [0.349, 0.968]"),
        (Estimate(8, 0.75, 0.1817, 0.9294), "+", "+0.750 [+0.182, +0.929]"),
        (Estimate(1, 0.5), "", "0.500"),
        (Estimate(0), "+", "no score"),
    ],
)
def test_one_way_to_show_a_number(estimate, sign, text):
    assert shown(estimate, sign) == text


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_clopper_pearson_is_scipys_exact_interval(counts):
    right, n = counts
    other = stats.binomtest(right, n).proportion_ci(0.95, method="exact")
    assert clopper_pearson(right, n) == pytest.approx((other.low, other.high), abs=1e-9)


@pytest.mark.parametrize("n", [1, 4, 9, 30])
def test_clopper_pearson_covers_every_share(n):
    """Summed over all outcomes, so without luck; the interval is closed, so its ends are tried just inside."""
    ends = [clopper_pearson(right, n) for right in range(n + 1)]
    for share in torch.linspace(0.001, 0.999, 200).tolist():
        hit = sum(stats.binom.pmf(right, n, share) for right, (low, high) in enumerate(ends) if low <= share <= high)
        assert hit >= 0.95 - 1e-12


def test_tango_is_the_published_example():
    """Airway hyper-responsiveness before and after a treatment: 1 and 7 of 21 changed (Fagerland et al. 2014)."""
    assert tango(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 30))
def test_tango_is_where_the_score_test_turns(wins, losses, ties):
    """Against the test itself: the chance of a loss is found by maximising the likelihood on a grid."""
    n = max(1, wins + losses + ties)

    def refuses(d):
        low, high = max(0.0, -d), (1 - d) / 2
        q = low + (high - low) * torch.linspace(0, 1, 20_001, dtype=torch.float64)
        counts = ((wins, q + d), (losses, q), (n - wins - losses, 1 - 2 * q - d))
        best = q[sum(torch.xlogy(torch.tensor(float(k)), p.clamp(min=0)) for k, p in counts).argmax()].item()
        return (wins - losses - n * d) ** 2 > stats.chi2.ppf(0.95, 1) * n * (2 * best + d * (1 - d))

    low, high = tango(wins, losses, n)
    assert -1 <= low <= (wins - losses) / n <= high <= 1
    assert tango(losses, wins, n) == (-high, -low)
    for end, out in ((low, -1e-3), (high, 1e-3)):
        if abs(end) < 1 - 2e-3:
            assert refuses(end + out)
            assert not refuses(end - out)


@pytest.mark.parametrize(("win", "loss"), [(0.02, 0.02), (0.1, 0.1), (0.3, 0.1), (0.25, 0.4), (0.5, 0.02)])
def test_tango_covers_nearly_as_claimed(win, loss):
    """Summed over all outcomes on 25 questions."""
    n, hit = 25, 0.0
    for wins in range(n + 1):
        for losses in range(n + 1 - wins):
            low, high = tango(wins, losses, n)
            if low <= win - loss <= high:
                hit += stats.multinomial.pmf([wins, losses, n - wins - losses], n, [win, loss, 1 - win - loss])
    assert 0.93 <= hit <= 1


def test_scores_get_the_interval_that_suits_them():
    right, wrong = [1.0], [0.0]
    assert mean_score([right, right, wrong, wrong]) == Estimate(4, 0.5, *clopper_pearson(2, 4), "Clopper-Pearson")
    epochs = mean_score([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    low, high = stats.t.interval(0.95, 2, loc=0.5, scale=stats.sem([1.0, 0.5, 0.0]))
    assert low < 0
    assert high > 1
    assert epochs == Estimate(3, 0.5, 0.0, 1.0, "Student")
    assert mean_score([[1.0, 1.0]] * 5) == Estimate(5, 1.0, *clopper_pearson(5, 5), "Clopper-Pearson")
    assert mean_score([[0.0], [0.0, 0.0]]) == Estimate(2, 0.0, *clopper_pearson(0, 2), "Clopper-Pearson")
    assert mean_score([[0.0, 1.0]]) == mean_score([[1.0, 0.0]]) == Estimate(1, 0.5)
    assert mean_score([[0.0, 1.0, 1.0]] * 7) == Estimate(7, pytest.approx(2 / 3))
    assert mean_score([]) == Estimate(0)


def test_differences_get_the_interval_that_suits_them():
    assert mean_difference([[1.0], [1.0], [-1.0], [0.0]]) == Estimate(4, 0.25, *tango(2, 1, 4), "Tango")
    epochs = mean_difference([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [-1.0, 1.0]])
    low, high = stats.t.interval(0.95, 3, loc=0.125, scale=stats.sem([0.5, 0.0, 0.0, 0.0]))
    assert (epochs.n, epochs.mean, epochs.interval) == (4, 0.125, "Student")
    assert (epochs.low, epochs.high) == pytest.approx((low, high))
    assert mean_difference([[1.0, -1.0], [0.0, 0.0]]) == Estimate(2, 0.0)
    assert mean_difference([[1.0, 0.0]]) == Estimate(1, 0.5)
    assert mean_difference([]) == Estimate(0)


def test_epochs_of_a_question_are_no_questions_of_their_own():
    """400 samples of 40 questions of different difficulty, five epochs each; mean difficulty is a half."""
    g = torch.Generator().manual_seed(3)
    clustered = naive = 0
    for _ in range(400):
        difficulty = torch.rand(40, 1, generator=g)
        scores = torch.bernoulli(difficulty.expand(40, 5), generator=g)
        found = mean_score(scores.tolist())
        low, high = clopper_pearson(int(scores.sum()), scores.numel())
        clustered += found.low <= 0.5 <= found.high
        naive += low <= 0.5 <= high
    assert 0.92 <= clustered / 400 <= 0.98
    assert naive / 400 < 0.88


COUNTS = st.integers(0, 60)


@given(COUNTS, COUNTS)
def test_mcnemar_is_the_binomial_test(wins, losses):
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert mcnemar(wins, losses) == ("McNemar, exact", pytest.approx(expected, rel=1e-9))


@given(st.lists(st.integers(-6, 6), max_size=8))
def test_sign_flips_count_all_signs(sixths):
    """In whole numbers, so without rounding; zeros change neither side."""
    sums = [
        sum(s * d for s, d in zip(signs, sixths, strict=True))
        for signs in itertools.product((1, -1), repeat=len(sixths))
    ]
    expected = sum(abs(total) >= abs(sum(sixths)) for total in sums) / len(sums)
    assert sign_flip([d / 6 for d in sixths]) == ("sign flips, exact", pytest.approx(expected))


def test_equal_sums_are_equal_in_spite_of_rounding():
    assert sum([0.1, 0.2, -0.3]) != 0.0
    assert sign_flip([0.1, 0.2, -0.3])[1] == 1.0
    # All sums are at least as far from 0 as one that is 0; in floats this one is 1e-16, and others are 0.
    assert sign_flip([-0.4, -0.7, 0.7, 0.4])[1] == 1.0


def test_many_questions_draw_their_signs():
    g = torch.Generator().manual_seed(5)
    values = (torch.randint(-2, 4, (18,), generator=g) / 3 + 0.1).tolist()
    sums = torch.zeros(1, dtype=torch.float64)
    for value in values:
        sums = torch.cat([sums + value, sums - value])
    truth = (sums.abs() >= abs(sum(values)) - 1e-9).double().mean().item()
    name, p = sign_flip(values)
    assert name == "sign flips, 20,000 draws"
    assert 0.001 < truth < 0.9
    assert p == pytest.approx(truth, abs=4 * (truth / 20_000) ** 0.5)
    assert sign_flip(values) == (name, p)
    assert sign_flip(values, seed=1)[1] != p


def test_drawn_p_is_never_zero():
    assert sign_flip([1.0] * 40)[1] == 1 / 20_001


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_the_order_and_lies_between_no_adjustment_and_bonferronis(ps):
    adjusted = holm(ps)
    for p, q in zip(ps, adjusted, strict=True):
        assert p <= q <= min(1.0, len(ps) * p)
    order = sorted(range(len(ps)), key=ps.__getitem__)
    assert [adjusted[i] for i in order] == sorted(adjusted)


@pytest.mark.parametrize(
    ("right", "n", "low", "high"), [(0, 10, 0.0, 0.27754), (10, 10, 0.72246, 1.0), (81, 263, 0.25528, 0.36618)]
)
def test_with_one_observation_a_question_a_share_has_wilsons_interval(right, n, low, high):
    """The last row is Newcombe's published example (Statistics in Medicine 17, 1998)."""
    value = clustered_share(range(n), np.arange(n) < right)
    assert (value.mean, value.n) == (right / n, n)
    assert (value.low, value.high) == pytest.approx((low, high), abs=1e-4)


def test_observations_that_repeat_their_question_add_nothing():
    hits = np.array([1, 0, 0, 1, 1, 0, 1, 1.0])
    once = clustered_share(range(8), hits)
    thrice = clustered_share(np.arange(24) // 3, hits.repeat(3))
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high))
    assert (once.n, thrice.n) == (8, 24)


def test_observations_that_vary_on_their_own_all_count():
    hits = np.random.default_rng(5).random(900) < 0.7
    clustered, single = (clustered_share(np.arange(900) % n, hits) for n in (300, 900))
    assert clustered.high - clustered.low == pytest.approx(single.high - single.low, rel=0.1)


def test_observations_that_differ_within_their_question_count_once_each():
    hits = np.array([1, 0] * 19 + [0, 0])  # shares of questions vary less than by chance
    clustered, single = (clustered_share(np.arange(40) // size, hits) for size in (2, 1))
    assert (clustered.low, clustered.high) == pytest.approx((single.low, single.high))


def test_nothing_to_count_is_no_share():
    assert clustered_share([], []) == clustered_share([1], [0.0], [0.0]) == Estimate(0)
    assert clustered_share([1], [1]).low == pytest.approx(0.2065, abs=1e-4)


@pytest.mark.parametrize(
    ("questions", "each", "mean", "alike"), [(40, 4, 0.7, 1.0), (30, 20, 0.03, 0.5), (30, 20, 0.97, 0.5)]
)
def test_coverage_where_answers_to_a_question_are_alike(questions, each, mean, alike):
    """Of 300 intervals at 95%, fewer than 91% hits have a chance near one in 300; a share taken as if answers were
    independent holds the truth in about 4 of 5, and so do clusters alone where hits or misses are rare."""
    rng, question = np.random.default_rng(1), np.arange(questions * each) // each
    hits = 0
    for _ in range(300):
        easy = rng.beta(mean * alike, (1 - mean) * alike, size=questions)
        value = clustered_share(question, (rng.random(len(question)) < easy[question]).astype(float))
        hits += value.low <= mean <= value.high
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
