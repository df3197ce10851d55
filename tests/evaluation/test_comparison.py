"""Comparisons: counted by hand, the same in any order, the same after a trip through JSON."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.evaluation.comparison import Comparison, MethodResult, scored
from nsed_torch.evaluation.statistics import Estimate, mcnemar, share, sign_flip, student, tango
from nsed_torch.evaluation.tables import notes as table_notes
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage

RIGHT, WRONG, NOT_RUN, FAILED = Verdict.RIGHT, Verdict.WRONG, Verdict.NOT_RUN, Verdict.FAILED


def outcome(method, task, verdict=RIGHT, *, group=None, stratum="", usage=None):
    usage = usage or Usage(2, 10, 5, 0.25, 1.5)
    return Outcome(method, task, group or task, stratum, "7", "It is 7.", verdict, usage)


def outcomes(method, verdicts, **more):
    return [outcome(method, f"q{index}", verdict, **more) for index, verdict in enumerate(verdicts)]


def written(results):
    return json.dumps(results.to_json(), sort_keys=True)


def test_methods_are_counted():
    results = Comparison.of(
        [
            *outcomes("plurality", [RIGHT, WRONG, WRONG, NOT_RUN, WRONG]),
            *outcomes("deliberation", [RIGHT, RIGHT, FAILED, RIGHT, RIGHT], usage=Usage(4, 40, 20, 1.0, 2.0)),
        ]
    )
    assert (results.reference, list(results.methods)) == ("deliberation", ["plurality", "deliberation"])
    assert results.methods["deliberation"] == MethodResult(
        tasks=5,
        accuracy=share(4, 5),
        verdicts={"right": 4, "failed": 1},
        usage=Usage(20, 200, 100, 5.0),
        strata={},
    )
    other = results.methods["plurality"]
    assert (other.accuracy.n, other.accuracy.mean, other.count(Verdict.NOT_RUN), other.count(Verdict.FAILED)) == (
        4,
        0.25,
        1,
        0,
    )
    assert (other.tokens_per_task, results.relative_tokens("plurality")) == (15.0, 0.25)
    pair = results.paired["plurality"]
    assert list(results.paired) == ["plurality"]
    # Question 3 has no score of both: wins on 1 and 4, and 2 is wrong twice.
    assert pair.difference == Estimate(4, 0.5, *tango(2, 0, 4), "Tango")
    assert (pair.wins, pair.losses, pair.test, pair.p, pair.p_holm) == (2, 0, *mcnemar(2, 0), 0.5)


def test_steps_that_were_taken_are_told():
    notes = ["rounds: 1; why", "votes: 2 of 3; rounds: 2", "votes: 3 of 5"]
    debate = [replace(o, note=note) for o, note in zip(outcomes("debate", [RIGHT] * 3), notes, strict=True)]
    results = Comparison.of([*debate, *outcomes("plurality", [RIGHT] * 3)])
    assert [method.steps for method in results.methods.values()] == [{"rounds": 1.5}, {}]
    assert {name: method.get("steps") for name, method in results.to_json()["methods"].items()} == {
        "debate": {"rounds": 1.5},
        "plurality": None,
    }
    assert "Steps a task took on average: debate 1.5 rounds." in table_notes(results)


def test_epochs_of_a_question_are_averaged_first():
    def run(method, rows):
        return [
            outcome(method, f"q{q}~{epoch}", RIGHT if score else WRONG, group=f"q{q}")
            for q, row in enumerate(rows)
            for epoch, score in enumerate(row)
        ]

    results = Comparison.of(run("a", [(1, 1), (1, 0), (1, 1)]) + run("b", [(1, 0), (0, 0), (0, 0)]))
    a = results.methods["a"]
    assert (results.reference, a.tasks, a.accuracy.n) == ("a", 6, 3)
    assert (a.accuracy.mean, a.accuracy.interval) == (pytest.approx(5 / 6), "Student")
    pair = results.paired["b"]
    assert (pair.difference.mean, pair.wins, pair.losses) == (pytest.approx(2 / 3), 3, 0)
    assert (pair.test, pair.p) == sign_flip([0.5, 0.5, 1.0])


RUNS = [
    {"plurality": {"a": 1.0, "b": 0.0}, "consensus_tuned": {"a": 1.0, "b": 1.0}},
    {"plurality": {"c": 0.0, "d": 1.0, "a": 1.0}, "consensus_tuned": {"c": 1.0, "d": 0.0, "a": 0.0}},
]


def test_what_several_seeds_tested():
    """Seeds of one question are one observation; only what both methods were tested on is paired."""
    found = Comparison.of(scored(RUNS), reference="consensus_tuned", by_student=True)
    assert list(found.methods) == ["plurality", "consensus_tuned"]
    assert found.methods["consensus_tuned"].accuracy == student([0.5, 1.0, 1.0, 0.0], 0.0, 1.0)
    plurality = found.methods["plurality"].accuracy
    assert (plurality.low, plurality.high) == (0.0, 1.0)  # Student's own ends beyond
    pair = found.paired["plurality"]
    assert pair.difference == student([-0.5, 1.0, 1.0, -1.0], -1.0, 1.0)
    assert (pair.test, pair.p) == sign_flip([-0.5, 1.0, 1.0, -1.0])
    single = Comparison.of(scored(RUNS[:1]), reference="consensus_tuned", by_student=True)
    assert single.paired["plurality"].difference == student([0.0, 1.0], -1.0, 1.0)
    with pytest.raises(ValueError, match="at least 2 tested tasks, got 1"):
        Comparison.of(scored([{"a": {"q": 1.0}}]), by_student=True)


def test_equal_probabilities_are_not_right_and_wrong():
    scores = {"tuned": {"a": 0.25, "b": 0.5}, "none": {"a": 0.25, "b": 0.5}}
    pair = Comparison.of(scored([scores]), reference="tuned", by_student=True).paired["none"]
    assert (pair.test, pair.p) == ("sign flips, exact", 1.0)


def test_strata_have_means_of_their_own():
    results = Comparison.of(
        [
            *outcomes("a", [RIGHT, RIGHT], stratum="easy"),
            outcome("a", "x", WRONG, stratum="hard"),
            outcome("a", "y", NOT_RUN, stratum="vague"),
        ]
    )
    assert results.methods["a"].strata == {
        "easy": share(2, 2),
        "hard": share(0, 1),
        "vague": Estimate(0),
    }


def test_the_family_of_comparisons_is_adjusted_and_leaves_out_what_cannot_be_compared():
    right, wrong = [RIGHT] * 8, [WRONG] * 8
    results = Comparison.of(
        outcomes("a", right)
        + outcomes("b", wrong)
        + outcomes("c", [*right[1:], WRONG])
        + [outcome("elsewhere", "other task")]
        + outcomes("unrun", [NOT_RUN] * 8),
        reference="a",
    )
    p = {name: (pair.p, pair.p_holm) for name, pair in results.paired.items()}
    assert p == {"b": (2 / 2**8, 4 / 2**8), "c": (1.0, 1.0), "elsewhere": (None, None), "unrun": (None, None)}
    assert results.paired["unrun"].difference == Estimate(0)
    assert results.methods["unrun"].accuracy == Estimate(0)


METHODS = st.lists(st.sampled_from(Verdict), min_size=1, max_size=9)


@given(METHODS, METHODS, st.integers(1, 3), st.lists(st.floats(0, 1e3), min_size=18, max_size=18), st.randoms())
def test_any_order_gives_the_same_bytes(mine, others, epochs, prices, random):
    rows = [
        outcome(
            method, f"q{i}", verdict, group=f"g{i // epochs}", stratum="xyz"[i % 3], usage=Usage(1, i, 2, prices[i])
        )
        for method, verdicts in (("a", mine), ("b", others))
        for i, verdict in enumerate(verdicts)
    ]
    results = Comparison.of(rows, reference="a")
    shuffled = random.sample(rows, len(rows))
    assert written(Comparison.of(shuffled, reference="a")) == written(results)
    for method in results.methods.values():
        assert sum(method.verdicts.values()) == method.tasks
        assert (
            method.accuracy.low is None or 0 <= method.accuracy.low <= method.accuracy.mean <= method.accuracy.high <= 1
        )
    pair, back = results.paired["b"], Comparison.of(rows, reference="b").paired["a"]
    assert (pair.wins, pair.losses, pair.p) == (back.losses, back.wins, pytest.approx(back.p))


def test_sums_of_floats_do_not_tell_who_finished_first():
    rows = [outcome("a", f"q{i}", usage=Usage(1, 1, 1, price)) for i, price in enumerate([1e15, 0.3, 0.3, 0.3])]
    prices = [row.usage.price for row in rows]
    assert sum(prices) != sum(reversed(prices))
    assert written(Comparison.of(reversed(rows))) == written(Comparison.of(rows))


def test_no_difference_has_no_sign():
    """Thirds and sixths of wins against halves of losses, whose sum in floats is just below zero."""
    epochs = [(3, 1), (6, 1), (2, -1)]
    rows = [
        outcome(method, f"g{g}~{epoch}", RIGHT if epoch == 0 and ahead == side else WRONG, group=f"g{g}")
        for method, side in (("a", 1), ("b", -1))
        for g, (count, ahead) in enumerate(epochs)
        for epoch in range(count)
    ]
    results = Comparison.of(rows)
    assert results.paired["b"].difference.mean < 0
    assert repr(results.to_json()["paired"]["b"]["difference"]["mean"]) == "0.0"


def test_timings_alone_tell_fast_runs_from_slow_ones():
    rows = outcomes("a", [RIGHT, WRONG]) + outcomes("b", [WRONG, WRONG])
    slow = [replace(row, usage=replace(row.usage, seconds=9.0)) for row in rows]
    one, other = Comparison.of(rows).to_json(), Comparison.of(slow).to_json()
    assert one.pop("timings") == {name: {"seconds": 3.0} for name in "ab"}
    assert other.pop("timings")["a"]["seconds"] == 18.0
    assert json.dumps(one) == json.dumps(other)
    assert "seconds" not in json.dumps(one)


def test_json_is_what_others_read():
    data = Comparison.of(outcomes("a", [RIGHT, WRONG, RIGHT]) + outcomes("b", [WRONG] * 3)).to_json()
    a = data["methods"]["a"]
    assert (data["reference"], data["level"]) == ("a", 0.95)
    assert (a["tasks"], a["accuracy"]["n"]) == (3, 3)
    assert (a["accuracy"]["mean"], a["accuracy"]["interval"]) == (0.666666667, "Clopper-Pearson")
    calls = {"calls": 6, "prompt_tokens": 30, "completion_tokens": 15, "price": 0.75}
    assert a["usage"] == calls | {"computed_tokens": 45}
    assert (a["tokens_per_task"], a["relative_tokens"], a["verdicts"]) == (15.0, 1.0, {"right": 2, "wrong": 1})


def test_methods_are_compared_by_computed_tokens_and_billed_ones_stand_beside():
    few, all_of_them = Usage(1, 90, 10, computed_tokens=50), Usage(1, 90, 10)
    data = Comparison.of([outcome("a", "q", usage=few), outcome("b", "q", usage=all_of_them)]).to_json()["methods"]
    assert [data["b"][name] for name in ("tokens_per_task", "billed_per_task", "relative_tokens")] == [100, 100, 2]
    assert [data["a"][name] for name in ("tokens_per_task", "billed_per_task", "relative_tokens")] == [50, 100, 1]


def test_json_holds_the_pairs():
    data = Comparison.of(outcomes("a", [RIGHT, WRONG, RIGHT]) + outcomes("b", [WRONG] * 3)).to_json()
    assert data["paired"]["b"]["difference"]["mean"] == 0.666666667
    assert (data["paired"]["b"]["wins"], data["paired"]["b"]["p"], data["paired"]["b"]["p_holm"]) == (2, 0.5, 0.5)


def test_free_methods_have_no_relative_tokens():
    results = Comparison.of([outcome("a", "q", usage=Usage()), outcome("b", "q")])
    assert results.relative_tokens("b") is None


def test_what_is_no_evaluation_is_refused():
    with pytest.raises(ValueError, match="expected at least one outcome, got none"):
        Comparison.of([])
    with pytest.raises(ValueError, match="a second of 'a' for 'q0'"):
        Comparison.of(outcomes("a", [RIGHT]) * 2)
    with pytest.raises(ValueError, match="expected a reference among a, got 'b'"):
        Comparison.of(outcomes("a", [RIGHT]), reference="b")
