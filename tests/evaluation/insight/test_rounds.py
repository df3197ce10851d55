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
    assert [(r["oracle_gap"].mean, r["oracle_gap"].n) for r in course["rounds"]] == [(0, 3), (0.5, 2), (1, 1)]
    assert (course["oracle_gap"].mean, course["oracle_gap"].n) == (1 / 3, 3)


def counts(flips):
    """The round and how often answers went from right to right, right to wrong, wrong to right, wrong to wrong."""
    return [tuple(flip.values()) for flip in flips]


def test_flips(course):
    assert counts(course["flips"]) == [(1, 0, 1, 1, 0), (2, 0, 0, 0, 1)]
    assert {name: counts(flips) for name, flips in course["agent_flips"].items()} == {
        "a": [(1, 1, 0, 0, 1), (2, 1, 0, 0, 0)],
        "b": [(1, 0, 0, 0, 2), (2, 0, 0, 1, 0)],
        "c": [(1, 0, 0, 1, 1), (2, 0, 0, 1, 0)],
    }


def test_conformity_is_of_those_who_answered_otherwise():
    traces = [
        trace("one", turn(["x", YES, None, "x"], 0), turn(["x", "x", "x", YES])),  # b gives in to a wrong winner
        trace("two", turn([YES, "p", "q"], 0), turn([NO, YES, "q"])),  # b gives in to a right one, c does not
        trace("three", turn([None, "p"], 0), turn(["p", "p"])),  # the winner has no answer to give in to
        trace("four", turn(["p", "q"], None), turn(["p", "p"])),
    ]
    conformity = insight(traces)["course"]["conformity"]
    assert [(v.mean, v.n) for v in (conformity["pooled"], conformity["winner_right"], conformity["winner_wrong"])] == [
        (2 / 3, 3),
        (1 / 2, 2),
        (1, 1),
    ]


def test_equal_answers_are_the_graders_business():
    traces = [trace("one", turn(["4", "4.0", "5"], 0), turn(["4", "4.0", "4.00"]))]

    def numbers(task, answers):
        assert (task.id, answers) == ("one", ["4", "4.0", "5", "4", "4.0", "4.00"])
        return [int(float(answer)) for answer in answers]

    conformity = insight(traces, numbers)["course"]["conformity"]
    assert (conformity["pooled"].mean, conformity["pooled"].n) == (1, 1)
    assert insight(traces)["course"]["conformity"]["pooled"].n == 2


def rising(rights, tasks):
    """Every task holds a round for each count; the answer is right in as many tasks as counted."""
    return [trace(f"t{i}", *(turn([YES if i < right else NO]) for right in rights)) for i in range(tasks)]


def test_the_law_is_the_librarys_fit():
    rights = [54, 66, 72, 75, 75, 72]
    law = insight(rising(rights, 100))["course"]["law"]
    assert law["fit"] == fit_fatigue_law([right / 100 for right in rights], [100] * 6)
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
