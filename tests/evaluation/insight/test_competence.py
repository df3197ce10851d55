"""Who knows, and who knows whom to believe: counted by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from team_traces import some_traces, team, trace, turn

from nsed_torch.evaluation.insight import insight
from nsed_torch.records import Trace

YES, NO = "yes", "no"
TRACES = [
    trace(
        "one",
        turn([YES, NO, NO], 0, [[None, 0.5, -0.2], [0.5, None, 0.5], [0.0, -0.3, None]]),
        turn([YES, YES, YES], 0, [[None, 0.1, 0.1]]),
    ),
    trace("two", turn([None, YES], 1, [[0.9, -0.1]])),
]


def test_generators_are_counted_in_round_one():
    p_g = insight(TRACES)["p_g"]["pooled"]
    assert (p_g.mean, p_g.n) == (2 / 5, 5)


def test_judges_are_measured_pair_by_pair_and_by_signs_where_zero_counts_half():
    p_v = insight(TRACES)["p_v"]["pooled"]
    # a's first ballot has no right proposal of another; b ties once, c is right once.
    assert (p_v["auc"].mean, p_v["auc"].n) == (3 / 4, 2)
    # a: 0.5 and -0.2 for wrong ones, 0.1 for two right ones, -0.1 for a right one; 0.9 was its own. b: 0.5 for a right
    # and for a wrong one. c: 0.0 for a right, -0.3 for a wrong one.
    assert (p_v["sign"].mean, p_v["sign"].n) == ((3 + 1 + 1.5) / 9, 9)


def negated(given):
    rounds = [
        replace(r, ratings=[[None if x is None else -x for x in row] for row in r.ratings])
        for r in given.transcript.rounds
    ]
    return Trace(replace(given.transcript, rounds=rounds), given.grades, given.answers)


def mirrored(value, other):
    assert value.n == other.n
    if value.mean is not None:
        assert (value.mean, value.low, value.high) == pytest.approx((1 - other.mean, 1 - other.high, 1 - other.low))


@settings(max_examples=15)
@given(some_traces())
def test_judges_who_say_the_opposite_are_right_where_they_were_wrong(traces):
    one, other = insight(traces)["p_v"]["pooled"], insight(map(negated, traces))["p_v"]["pooled"]
    mirrored(one["auc"], other["auc"])
    mirrored(one["sign"], other["sign"])


def test_auc_of_a_large_run_agrees_with_counting_all_pairs():
    traces = team(60, 2, seed=4)
    wins = pairs = 0
    for one in traces:
        for record, grades in zip(one.transcript.rounds, one.grades, strict=True):
            for row in record.ratings:
                rated = [(r, right) for r, right in zip(row, grades, strict=True) if r is not None]
                for r, right in rated:
                    for s, wrong in rated:
                        if right and not wrong:
                            pairs += 1
                            wins += 1 if r > s else 0.5 if r == s else 0
    auc = insight(traces)["p_v"]["pooled"]["auc"]
    assert auc.n == pairs > 200
    assert auc.mean == pytest.approx(wins / pairs)
    assert 0.5 < auc.low < auc.mean < auc.high
