"""Outcomes: one line each, back as they went."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage

TEXTS = st.text(max_size=20)


@given(
    method=TEXTS,
    answer=st.none() | TEXTS,
    text=TEXTS,
    verdict=st.sampled_from(Verdict),
    tokens=st.integers(0, 10**9),
    seconds=st.floats(0, 1e6),
)
def test_a_line_comes_back_as_it_went(method, answer, text, verdict, tokens, seconds):
    outcome = Outcome(method, "q1~2", "q1", "hard", answer, text, verdict, Usage(1, tokens, 2, 0.5, seconds), "why")
    line = outcome.to_line()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    again = Outcome.from_line(line, "here")
    assert again == outcome
    assert again.usage.seconds == seconds
    assert again.verdict is verdict


def test_only_what_is_right_scores_and_what_was_not_run_has_no_score():
    assert {verdict: verdict.score for verdict in Verdict if verdict.score != 0} == {
        Verdict.RIGHT: 1.0,
        Verdict.NOT_RUN: None,
    }


@pytest.mark.parametrize("change", [{"verdict": "perfect"}, {"text": 3}, {"usage": None}, {"task": ...}])
def test_what_is_no_outcome_is_named(change):
    data = json.loads(Outcome("m", "t", "t", "", None, "", Verdict.WRONG, Usage()).to_line()) | change
    line = json.dumps({key: value for key, value in data.items() if value is not ...})
    with pytest.raises(ValueError, match=r"file:7: not an outcome .*; rerun the nsed evaluate that wrote it"):
        Outcome.from_line(line, "file:7")
    with pytest.raises(ValueError, match="file:8: not valid JSON"):
        Outcome.from_line("{", "file:8")
