"""The whole tree: any traces give one, in any order the same; epochs of a question count as one."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from team_traces import some_traces, team, trace, turn

from nsed_torch.evaluation.insight import insight
from nsed_torch.evaluation.statistics import plain


def flat(tree, name=""):
    """Name -> number of every leaf."""
    if isinstance(tree, dict | list):
        pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {k: v for key, value in pairs for k, v in flat(value, f"{name}/{key}").items()}
    return {name: tree}


@settings(max_examples=15)
@given(some_traces(), st.randoms(use_true_random=False))
def test_the_order_of_tasks_changes_nothing(traces, random):
    other = list(traces)
    random.shuffle(other)
    assert flat(plain(insight(other))) == pytest.approx(flat(plain(insight(traces))), abs=1e-8)


@settings(max_examples=15)
@given(some_traces())
def test_any_traces_give_sound_numbers(traces):
    leaves = flat(json.loads(json.dumps(plain(insight(traces)), allow_nan=False)))
    shares = ("accuracy", "oracle_gap", "p_g", "p_v", "right", "brier", "error")
    for name, value in leaves.items():
        if value is None or isinstance(value, str):
            continue
        assert math.isfinite(value)
        if "length" not in name and any(f"/{share}/" in name for share in shares) and not name.endswith("/n"):
            assert 0 <= value <= 1
        if ("/length/" in name or "/position/" in name) and not name.endswith("/n"):
            assert -1 <= value <= 1


def test_without_ratings_only_what_needs_them_is_missing():
    found = insight([trace("one", turn(["yes", "no"])), trace("two", turn(["no", "yes"]))])
    assert (found["tasks"], found["questions"]) == (2, 2)
    unmeasured = (found["p_v"]["pooled"]["auc"], found["calibration"]["brier"], found["length"]["within"])
    assert {value.mean for value in (*unmeasured, found["position"])} == {None}
    assert found["course"]["rounds"][0]["accuracy"].mean == 0.5


def test_one_round_has_no_transitions():
    course = insight([trace("one", turn(["yes", "no"]))])["course"]
    assert (course["flips"], course["gain"].mean) == ([], 0)


def test_nobody_right_leaves_judges_unmeasured_but_calibrated():
    rows = [[None, 0.2, -0.4], [0.2, None, 0.2], [0.0, 0.0, None]]
    found = insight([trace("one", turn(["no"] * 3, 0, rows), turn(["no"] * 3, 0, rows))])
    assert (found["p_v"]["pooled"]["auc"].mean, found["p_v"]["pooled"]["auc"].n) == (None, 0)
    assert found["calibration"]["error"].mean == pytest.approx(
        sum((r + 1) / 2 for row in rows for r in row if r is not None) / 6
    )
    assert found["length"]["right"].mean is None


def test_no_traces_are_refused():
    with pytest.raises(ValueError, match="expected at least one trace, got none"):
        insight([])


def test_epochs_of_a_question_are_one_observation():
    rows = [[None, 0.5], [-0.5, None]]
    right, wrong = turn(["yes", "no"], 0, rows), turn(["no", "yes"], 0, rows)
    once = [trace("q1", right), trace("q2", wrong), trace("q3", wrong)]
    again = [trace("q1~2", right), trace("q2~2", wrong), trace("q3~2", wrong)]
    single = insight(once)
    double = insight([*once, *again], question=lambda task: task.id.split("~")[0])
    assert (double["tasks"], double["questions"]) == (6, 3)
    one, two = single["course"]["rounds"][0]["accuracy"], double["course"]["rounds"][0]["accuracy"]
    assert (two.mean, two.low, two.high) == pytest.approx((one.mean, one.low, one.high))
    assert (two.n, one.n) == (6, 3)
    assert double["calibration"]["brier"].low == pytest.approx(single["calibration"]["brier"].low)
    assert double["calibration"]["brier"].high > insight([*once, *again])["calibration"]["brier"].high


def test_a_stream_is_read_once_and_the_seed_decides():
    traces = team(12, 2)
    found = plain(insight(iter(traces)))
    assert found == plain(insight(traces))
    assert found["calibration"]["brier"] != plain(insight(traces, seed=1))["calibration"]["brier"]
