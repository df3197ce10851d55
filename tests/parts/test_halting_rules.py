import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.halting import FixedHalting
from nsed_torch.parts import fatigue_law
from nsed_torch.parts.halting_rules import REPORTED_BETA, REPORTED_K, EvidenceHalting, FatigueHalting

REAL = torch.float64


def test_default_law_is_the_reported_curve():
    from scipy.optimize import brentq

    k = brentq(lambda k: 0.46 * math.exp(-6 * k) * (1 + 3 * k) - 0.16, 0.01, 2, xtol=1e-15)
    assert pytest.approx(k, rel=1e-12) == REPORTED_K
    assert pytest.approx(0.46 * k * math.exp(-6 * k) / 12, rel=1e-12) == REPORTED_BETA
    u = fatigue_law.utility(torch.tensor([0.0, 6.0], dtype=REAL), 0.54, REPORTED_K, REPORTED_BETA)
    torch.testing.assert_close(u, torch.tensor([0.54, 0.84], dtype=REAL), atol=1e-12, rtol=0)
    peak = fatigue_law.optimal_round(torch.tensor(REPORTED_K, dtype=REAL), 0.54, REPORTED_BETA)
    assert peak.item() == pytest.approx(6, abs=1e-10)


def test_fixed():
    halting = FixedHalting(2)
    assert halting(torch.zeros(3, 1)).tolist() == [False] * 3
    assert halting(torch.zeros(3, 2)).tolist() == [True] * 3
    assert halting.reasons(torch.zeros(1, 2)) == ["rounds"]
    assert halting.reasons(torch.zeros(1, 0)) == [""]
    with pytest.raises(ValueError, match="halting rounds: expected at least 1, got 0"):
        FixedHalting(0)


def test_evidence_stops_the_convinced_and_caps_the_rest():
    halting = EvidenceHalting()
    convictions = torch.tensor([[1.0] * 8, [0.3] * 8, [-1.0] * 8])
    stops = torch.stack([halting(convictions[:, :r]) for r in range(9)])
    assert stops.int().argmax(0).tolist() == [3, 8, 8]
    assert halting.reasons(convictions[:, :3]) == ["evidence", "", ""]
    assert halting.reasons(convictions) == ["evidence", "rounds", "rounds"]
    exact = EvidenceHalting(rounds=5, effort=1.0)
    assert exact.reasons(convictions[:1, :5]) == ["evidence"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=8, max_size=8), st.floats(0.05, 1))
def test_rule_against_plain_python_and_monotone(convictions, effort):
    halting = EvidenceHalting(effort=effort).double()
    p_g, k, beta = (x.item() for x in (halting.p_g, halting.k, halting.beta))
    slope = [(1 - p_g) * k * math.exp(-k * r) - 2 * beta * r for r in range(1, 9)]
    enough = effort * sum(max(s, 0) for s in slope)
    total, stopped = 0.0, False
    for r in range(1, 9):
        total += max(convictions[r - 1], 0) * slope[r - 1]
        stopped = stopped or (r >= 3 and total >= enough)
        got = halting(torch.tensor([convictions[:r]], dtype=REAL)).item()
        if abs(total - enough) > 1e-12:
            assert got == (stopped or r == 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 2}, "halting min_rounds: expected a value from 1 to rounds=2, got 3"),
        ({"effort": 0.0}, r"halting effort: expected a value in \(0, 1\], got 0.0"),
        ({"p_g": 1.0}, r"halting p_g: expected a value in \[0, 1\), got 1.0"),
        ({"k": -0.1}, "halting k: expected a value above 0 .*use FixedHalting.*got -0.1"),
        ({"beta": -1.0}, "halting beta: expected at least 0, got -1.0"),
        ({"beta": 1.0}, "halting law: expected a gain in round 1.*lower beta"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        EvidenceHalting(**arguments)


def test_the_law_travels_with_the_module():
    assert set(EvidenceHalting().state_dict()) == {"p_g", "k", "beta"}
    assert "rounds=8" in repr(EvidenceHalting())
    assert "rounds=3" in repr(FixedHalting())


def test_fatigue_stops_where_the_paper_peaks():
    halting = FatigueHalting(rounds=8)
    stops = [halting(torch.zeros(2, r)).tolist() for r in range(9)]
    assert stops == [[r >= 6] * 2 for r in range(9)]
    assert halting.reasons(torch.zeros(2, 5)) == ["", ""]
    assert halting.reasons(torch.zeros(2, 6)) == ["fatigue", "fatigue"]
    assert repr(halting) == "FatigueHalting(rounds=8, peak=6)"


@pytest.mark.parametrize(
    ("law", "rounds", "stop", "reason"),
    [
        ({}, 6, 6, "fatigue"),
        ({}, 5, 5, "rounds"),
        ({"k": 0.0}, 5, 1, "fatigue"),
        ({"k": -0.3}, 5, 1, "fatigue"),
        ({"p_g": 1.0}, 5, 1, "fatigue"),
        ({"beta": 1.0}, 5, 1, "fatigue"),
        ({"beta": 0.0}, 5, 5, "rounds"),
    ],
)
def test_fatigue_holds_at_least_one_round_and_at_most_the_cap(law, rounds, stop, reason):
    halting = FatigueHalting(rounds, **law)
    assert [halting.reasons(torch.zeros(1, r))[0] for r in range(rounds + 1)] == [
        reason if r >= stop else "" for r in range(rounds + 1)
    ]


@settings(max_examples=30)
@given(st.floats(0, 0.99), st.floats(0.05, 2), st.floats(1e-4, 0.1), st.integers(1, 12))
def test_fatigue_takes_the_better_round_beside_the_peak(p_g, k, beta, rounds):
    rule = FatigueHalting(rounds, p_g=p_g, k=k, beta=beta).double()
    p_g, k, beta = (x.item() for x in (rule.p_g, rule.k, rule.beta))
    peak = fatigue_law.optimal_round(torch.tensor(k, dtype=REAL), p_g, beta).item()
    beside = [min(max(r, 1), rounds) for r in (math.floor(peak), math.ceil(peak))]
    utility = {r: 1 - (1 - p_g) * math.exp(-k * r) - beta * r * r for r in beside}
    stop = next(r for r in range(1, rounds + 1) if rule(torch.zeros(1, r)).item())
    assert utility.get(stop, -math.inf) >= max(utility.values()) - 1e-12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 0}, "halting rounds: expected at least 1, got 0"),
        ({"p_g": 1.2}, r"halting p_g: expected a value in \[0, 1\], got 1.2"),
        ({"k": math.inf}, "halting k: expected a finite value, got inf"),
        ({"beta": -1.0}, "halting beta: expected a finite value of at least 0, got -1.0"),
    ],
)
def test_bad_laws(arguments, message):
    with pytest.raises(ValueError, match=message):
        FatigueHalting(**arguments)


def test_fatigue_follows_a_law_that_is_loaded():
    halting = FatigueHalting(rounds=9)
    halting.load_state_dict(FatigueHalting(k=0.9, beta=0.02).state_dict())
    assert halting.peak == FatigueHalting(rounds=9, k=0.9, beta=0.02).peak < 6
