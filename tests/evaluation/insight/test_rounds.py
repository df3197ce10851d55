"""What rounds do to the answer, counted by hand."""

import math

import pytest
from team_traces import trace, turn

from nsed_torch.evaluation.competence_law import fit_fatigue_law
from nsed_torch.evaluation.insight import insight
from nsed_torch.evaluation.statistics import plain

YES, NO = "yes", "no"


@pytest.fixture(scope="module")
def course():
    return insight(
        [
            trace(
                "one",
                turn([YES, NO, NO], 0, tokens=10),
                turn([YES, NO, NO], 1, tokens=20),
                turn([YES, YES, YES], None, tokens=30),
            ),
            trace("two", turn([NO, YES], 1, tokens=5)),  # stops early
            trace("three", turn([NO, NO, NO], None, tokens=3), turn([NO, NO, YES], 2, tokens=4)),
        ]
    )["course"]


def test_the_standing_answer_and_what_it_cost(course):
    assert [r["accuracy"].mean for r in course["rounds"]] == [2 / 3] * 3
    assert [r["accuracy"].n for r in course["rounds"]] == [3] * 3
    assert [r["deliberating"] for r in course["rounds"]] == [3, 2, 1]
    assert [r["tokens"] for r in course["rounds"]] == [6, 14, 24]
    assert course["gain"].mean == 0
    assert course["gain"].low < 0 < course["gain"].high


def test_right_proposals_that_nobody_took(course):
    assert (course["oracle_gap"].mean, course["oracle_gap"].n) == (1 / 3, 3)


def test_flips(course):
    """From right to right, right to wrong, wrong to right, wrong to wrong, by the first round of a pair."""
    assert [tuple(flip.values()) for flip in course["flips"]] == [(1, 0, 1, 1, 0), (2, 0, 0, 0, 1)]


def rising(rights, tasks):
    """Every task holds a round for each count; the answer is right in as many tasks as counted."""
    return [trace(f"t{i}", *(turn([YES if i < right else NO]) for right in rights)) for i in range(tasks)]


def test_the_law_is_the_librarys_fit():
    rights = [54, 66, 72, 75, 75, 72]
    law = insight(rising(rights, 100))["course"]["law"]
    assert law["fit"] == fit_fatigue_law([right / 100 for right in rights], 100)
    assert 3 < law["fit"].t_opt < 6
    assert law["notes"] == law["fit"].notes


@pytest.mark.parametrize(
    ("rights", "reason"), [([1, 2, 3], "needs at least 4 rounds, got 3"), ([2] * 5, "accuracy is the same after every")]
)
def test_a_law_that_cannot_be_fitted_says_why(rights, reason):
    law = insight(rising(rights, 4))["course"]["law"]
    assert law["fit"] is None
    assert reason in law["notes"][0]


def test_a_law_without_bound_is_null_in_json():
    found = insight(rising([50, 70, 80, 85, 87], 100))
    law = plain(found)["course"]["law"]
    assert math.isinf(found["course"]["law"]["fit"].t_opt_interval.high)
    assert law["fit"]["t_opt_interval"]["high"] is None
    assert law["fit"]["k"] == round(found["course"]["law"]["fit"].k, 9)
    assert any("beta may be 0" in note for note in law["notes"])
