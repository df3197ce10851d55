"""What traces tell of a team, counted by hand; any traces give sound numbers, and epochs of a question count as one."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from team_traces import some_traces, team, trace, turn

from nsed_torch.evaluation.round_statistics import insight, summarize
from nsed_torch.evaluation.statistics import plain, share
from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import Usage

YES, NO = "yes", "no"


@pytest.fixture(scope="module")
def counted():
    return [
        trace(
            "one",
            turn([YES, NO, NO], 0, tokens=10),
            turn([YES, NO, NO], 1, tokens=20),
            turn([YES, YES, YES], None, tokens=30),
        ),
        trace("two", turn([NO, YES], 1, tokens=5)),  # stops early, and c was not asked
        trace("three", turn([NO, NO, NO], None, tokens=3), turn([NO, NO, YES], 2, tokens=4)),
    ]


@pytest.fixture(scope="module")
def course(counted):
    return insight(counted)["course"]


def test_accuracies_of_what_was_collected(counted):
    summary = summarize(counted)
    assert summary.accuracies == {
        "answer after round 1": share(2, 3),
        "answer after round 2": share(2, 3),
        "answer after round 3": share(2, 3),
        "a, round 1": share(1, 3),
        "b, round 1": share(1, 3),
        "c, round 1": share(0, 2),
        "oracle, any proposal": share(3, 3),
    }
    assert (summary.tasks, summary.usage) == (3, Usage(6, 72, 0))


def test_the_standing_answer_and_what_it_cost(course):
    assert [r["accuracy"].mean for r in course["rounds"]] == [2 / 3] * 3
    assert [r["accuracy"].n for r in course["rounds"]] == [3] * 3
    assert [r["deliberating"] for r in course["rounds"]] == [3, 2, 1]
    assert [r["tokens"] for r in course["rounds"]] == [6, 14, 24]


def test_where_rounds_are_steps_an_answer_is_right_once_it_is_given():
    """Right steps on the way answer nothing, so that the curve rises."""
    on_the_way = turn([YES, YES], 0, texts=["1 + 2", "1 + 2"])
    done, lost = (turn([answer] * 2, 0, texts=["Answer: 3", "Answer: 3"]) for answer in (YES, NO))
    split = turn([NO, YES], 0, texts=["Answer: 4", "Answer: 3"])
    steps = {"settings": {"unit": "step"}}
    traces = [
        trace("long", on_the_way, on_the_way, on_the_way, done, **steps),
        trace("short", on_the_way, done, **steps),
        trace("wrong", on_the_way, lost, **steps),
        trace("outvoted", split, **steps),
    ]
    found = insight(traces)["course"]
    assert [r["accuracy"].mean for r in found["rounds"]] == [0.0, 0.25, 0.25, 0.5]
    assert found["oracle_gap"].mean == 0.25
    assert summarize(traces).accuracies["answer after round 1"] == share(0, 4)
    whole = insight([replace(t, transcript=replace(t.transcript, settings={})) for t in traces])["course"]
    assert whole["rounds"][0]["accuracy"].mean == 0.75


def test_right_proposals_that_nobody_took(course):
    assert (course["oracle_gap"].mean, course["oracle_gap"].n) == (1 / 3, 3)


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
    shares = ("accuracy", "oracle_gap", "p_g", "p_v")
    for name, value in leaves.items():
        if value is None or isinstance(value, str):
            continue
        assert math.isfinite(value)
        if any(f"/{share}/" in name for share in shares) and not name.endswith("/n"):
            assert 0 <= value <= 1


def test_without_ratings_only_what_needs_them_is_missing():
    found = insight([trace("one", turn(["yes", "no"])), trace("two", turn(["no", "yes"]))])
    assert (found["tasks"], found["questions"]) == (2, 2)
    assert {value.mean for value in found["p_v"]["pooled"].values()} == {None}
    assert found["course"]["rounds"][0]["accuracy"].mean == 0.5


def test_nobody_right_leaves_pairs_unmeasured():
    rows = [[None, 0.2, -0.4], [0.2, None, 0.2], [0.0, 0.0, None]]
    found = insight([trace("one", turn(["no"] * 3, 0, rows), turn(["no"] * 3, 0, rows))])["p_v"]["pooled"]
    assert (found["auc"].mean, found["auc"].n) == (None, 0)
    assert found["sign"].mean == pytest.approx((1 + 2 * 0.5) / 6)


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


def test_a_stream_is_read_once():
    traces = team(12, 2)
    assert plain(insight(iter(traces))) == plain(insight(traces))
