import json
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import xlogy
from scipy.stats import chi2

from nsed_lab import fatigue_law as module
from nsed_lab.fatigue_law import fit_fatigue_law, fitted_halting, law_of_rounds
from nsed_torch.parts import fatigue_law
from nsed_torch.parts.halting_rules import REPORTED_BETA, REPORTED_K, FatigueHalting

PAPER = (0.54, REPORTED_K, REPORTED_BETA)


def curve(p_g, k, beta, rounds):
    return [1 - (1 - p_g) * math.exp(-k * t) - beta * t * t for t in rounds]


@settings(max_examples=3)
@given(st.floats(0.2, 0.8), st.floats(0.2, 0.8), st.floats(0.3, 0.95), st.integers(5, 9))
def test_recovers_the_law_that_made_the_curve(p_g, k, share, rounds):
    beta = share * (1 - p_g) * k * math.exp(-2 * k) / 4  # peaks after round 2
    accuracy = curve(p_g, k, beta, range(1, rounds + 1))
    assume(min(accuracy) > 0.02)
    law = fit_fatigue_law(accuracy, 10**6)
    peak = fatigue_law.optimal_round(torch.tensor(k, dtype=torch.float64), p_g, beta).item()
    for got, interval, true in (
        (law.p_g, law.p_g_interval, p_g),
        (law.k, law.k_interval, k),
        (law.beta, law.beta_interval, beta),
        (law.t_opt, law.t_opt_interval, peak),
    ):
        assert got == pytest.approx(true, rel=1e-2)
        assert interval.low - 1e-9 <= got <= interval.high + 1e-9
        assert interval.low <= true <= interval.high
    assert law.r_squared == pytest.approx(1, abs=1e-6)


def deviance(p_g, k, beta, accuracy, counts):
    """Of arrays of laws, in plain NumPy; inf outside the range."""
    t = np.arange(1, len(accuracy) + 1)
    u = 1 - (1 - p_g[..., None]) * np.exp(-k[..., None] * t) - beta[..., None] * t**2
    inside = np.clip(u, 1e-12, 1 - 1e-12)
    exact = xlogy(accuracy, accuracy) + xlogy(1 - accuracy, 1 - accuracy)
    terms = exact - xlogy(accuracy, inside) - xlogy(1 - accuracy, 1 - inside)
    return np.where((u > 0).all(-1), 2 * (counts * terms).sum(-1), np.inf)


def test_intervals_are_the_extent_of_all_laws_near_the_best():
    """Scans laws: over a grid of (p_g, k) the range of beta that stays near is found by bisection."""
    accuracy, counts = np.array([0.62, 0.71, 0.75, 0.76, 0.755, 0.73]), 1500
    law = fit_fatigue_law(accuracy.tolist(), counts)
    boxes = [(i.high - i.low, i.low, i.high) for i in (law.p_g_interval, law.k_interval)]
    sides = [np.linspace(low - 0.1 * width, high + 0.1 * width, 121) for width, low, high in boxes]
    p_g, k = np.meshgrid(*sides, indexing="ij")

    def d(beta):
        return deviance(p_g, k, beta, accuracy, counts)

    left, right = np.zeros_like(k), np.full_like(k, 0.03)
    for _ in range(45):  # ternary search: D is convex in beta
        a, b = left + (right - left) / 3, right - (right - left) / 3
        falls = d(a) > d(b)
        left, right = np.where(falls, a, left), np.where(falls, right, b)
    middle = (left + right) / 2
    limit = d(middle).min() + chi2.ppf(0.95, 1)
    near = d(middle) <= limit
    ends = []
    for outside in (0.0, 0.03):
        inner, outer = middle.copy(), np.full_like(k, outside)
        for _ in range(30):
            half = (inner + outer) / 2
            inside = d(half) <= limit
            inner, outer = np.where(inside, half, inner), np.where(inside, outer, half)
        ends.append(inner[near])
    peaks = [fatigue_law.optimal_round(torch.tensor(k[near]), torch.tensor(p_g[near]), torch.tensor(e)) for e in ends]
    scanned = (
        (law.p_g_interval, p_g[near].min(), p_g[near].max()),
        (law.k_interval, k[near].min(), k[near].max()),
        (law.beta_interval, ends[0].min(), ends[1].max()),
        (law.t_opt_interval, peaks[1].min().item(), peaks[0].max().item()),
    )
    for interval, low, high in scanned:
        width = interval.high - interval.low
        assert low == pytest.approx(interval.low, abs=0.03 * width)
        assert high == pytest.approx(interval.high, abs=0.03 * width)


def test_coverage():
    """Six curves drawn from the paper's law; at 95%, fewer than 4 hits have a chance near one in 400."""
    draw, rounds, counts = np.random.default_rng(0), 7, 800
    true = np.array(curve(*PAPER, range(1, rounds + 1)))
    hits = np.zeros(4)
    for _ in range(6):
        law = fit_fatigue_law((draw.binomial(counts, true) / counts).tolist(), counts)
        intervals = (law.p_g_interval, law.k_interval, law.beta_interval, law.t_opt_interval)
        hits += [i.low <= value <= i.high for i, value in zip(intervals, (*PAPER, 6.0), strict=True)]
        assert law.p_g_interval.high - law.p_g_interval.low < 0.3
    assert (hits >= 4).all(), hits


def test_a_lift_that_holds_the_peak_holds_it():
    for peak in (0.3, 1.0, 5.0):
        p_g, k, beta = module._peaking(math.log(peak))(np.array([0.4, 1.7])).tolist()
        got = fatigue_law.optimal_round(torch.tensor(k, dtype=torch.float64), p_g, beta).item()
        assert got == pytest.approx(peak, rel=1e-12)


def test_a_falling_curve_says_that_deliberation_cannot_help():
    law = fit_fatigue_law([0.80, 0.75, 0.68, 0.60, 0.51], 4000)
    assert law.t_opt_interval.low == 0
    assert law.t_opt_interval.high < 2
    steep = fit_fatigue_law([0.8, 0.7, 0.63, 0.58, 0.555, 0.54], 10**6)
    assert steep.k < 0
    assert steep.t_opt == 0
    assert steep.t_opt_interval == (0, 0)
    assert any("deliberation cannot help; t_opt is 0" in note for note in steep.notes)


def test_a_rising_curve_shows_no_fatigue():
    law = fit_fatigue_law(curve(0.4, 0.5, 0, range(1, 7)), 500)
    assert law.beta == pytest.approx(0, abs=1e-4)
    assert law.beta_interval.low == 0
    assert law.t_opt_interval.high == math.inf
    assert law.notes == ("beta may be 0: no fatigue is shown; record more rounds to bound t_opt",)


def test_a_gain_that_is_over_by_round_one_has_no_bound():
    law = fit_fatigue_law([1 - 0.008 * t * t for t in range(1, 6)], 2000)
    assert law.k_interval.high == math.inf
    assert law.notes[-1] == "k has no upper end: any gain may be over by round 1"


@pytest.mark.parametrize("accuracy", [[1.0] * 5, [0.0] * 5, [0.7] * 5, [0.0, 1.0, 0.0, 1.0, 0.5]])
def test_odd_curves_have_a_law_too(accuracy):
    law = fit_fatigue_law(accuracy, 50)
    numbers = [law.p_g, law.k, law.beta]
    assert all(map(math.isfinite, numbers))
    assert law.notes
    assert math.isnan(law.r_squared) == (len(set(accuracy)) == 1)
    for value, interval in zip(numbers, (law.p_g_interval, law.k_interval, law.beta_interval), strict=True):
        assert interval.low <= value <= interval.high


def test_more_tasks_narrow_the_intervals():
    some, many = (fit_fatigue_law(curve(*PAPER, range(1, 8)), n) for n in (900, 9000))
    for name in ("p_g_interval", "k_interval", "beta_interval", "t_opt_interval"):
        wide, narrow = (getattr(law, name) for law in (some, many))
        assert wide.low < narrow.low < narrow.high < wide.high


def told(accuracies, tasks=100):
    """As `results.json` has it of tasks that all held a round for each accuracy."""
    return {"tasks": tasks, "course": {"rounds": [{"accuracy": {"mean": a}} for a in accuracies]}}


def test_the_law_of_an_earlier_runs_rounds_is_where_a_team_stops(tmp_path):
    rises = [0.54, 0.66, 0.72, 0.75, 0.75, 0.72]
    law, notes = law_of_rounds(told(rises))
    assert law == fit_fatigue_law(rises, 100)
    assert notes == law.notes
    assert 3 < law.t_opt < 6
    (tmp_path / "results.json").write_text(json.dumps({"insight": told(rises)}))
    found = fitted_halting(str(tmp_path / "results.json"), rounds=9)
    assert found.state_dict() == FatigueHalting(9, p_g=law.p_g, k=law.k, beta=law.beta).state_dict()
    assert found.rounds == 9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"expected results.json of nsed evaluate with a deliberation, got '.*results.json' \(ValueError"),
        ("{", r"expected results.json of nsed evaluate with a deliberation, got .*not valid JSON"),
        ('{"insight": null}', r"expected results.json of nsed evaluate with a deliberation, got .*TypeError"),
        (
            json.dumps({"insight": told([0.1, 0.2])}),
            r"expected rounds .*, got none: a law needs at least 4 rounds, got 2",
        ),
        (json.dumps({"insight": told([0.5] * 5)}), r"expected rounds .*, got none: accuracy is the same after every"),
    ],
)
def test_results_without_a_law_are_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=f"^halting: {message}") as fault:
        fitted_halting(str(path))
    assert "\n" not in str(fault.value)
