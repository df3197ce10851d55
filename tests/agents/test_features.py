import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.agents.features import (
    GROUPS,
    feature_names,
    groups_of,
    letters_of,
    options,
    proposal_features,
)

QUESTION = "What is 6 times 7?\nA. 36\nB.  42 apples\nC. 48\nD. none of these"


def row(text, letter, group, others=()):
    found = proposal_features(QUESTION, [text, *others], [letter] + [None] * len(others), [group])[0]
    return dict(zip(GROUPS[group], found, strict=True))


def test_options_are_read_without_their_blanks():
    assert {letter: option.text for letter, option in options(QUESTION).items()} == {
        "A": "36", "B": "42 apples", "C": "48", "D": "none of these",
    }  # fmt: skip
    assert options("What is A. good for?") == {}


def test_how_a_text_is_written():
    told = row("We may add: 6*7 = 42. So the answer is (B).", "B", "text")
    assert (told["stated"], told["changed"], told["clean_end"]) == (1, 0, 1)
    assert told["equations"] == pytest.approx(math.log(2))
    assert told["hedges"] == pytest.approx(math.log(2))
    assert row("The answer is (A). No, the answer is (B).", "B", "text")["changed"] == 1
    assert row("It is 42.", "B", "text")["stated"] == 0


def test_whether_a_text_supports_its_option():
    told = row("6 times 7 makes 42. The answer is (B).", "B", "support", ["There are 42 apples.", "36"])
    assert told["own_number"] == 1
    assert told["own_words"] == 0.5
    assert told["others_quote"] == 0.5
    assert told["others_number"] == 0.5
    assert row("I say 36, so the answer is (B).", "B", "support")["own_number"] == 0


def test_the_option_itself():
    told = row("x", "B", "option")
    assert (told["option_number"], told["option_middle"], told["option_largest"]) == (1, 1, 0)
    assert row("x", "C", "option")["option_largest"] == 1
    assert row("x", "D", "option")["option_number"] == 0


def test_what_is_not_known_is_nan():
    found = proposal_features("How are you?", ["", "fine"], [None, None])
    assert all(math.isnan(value) for value in found[0])
    known = dict(zip(feature_names(tuple(GROUPS)), found[1], strict=True))
    assert math.isnan(known["letter_A"])
    assert math.isnan(known["own_words"])
    assert not math.isnan(known["length"])
    assert letters_of(["B", " C ", "42", None, "AB"]) == ["B", "C", None, None, None]


@given(st.text(max_size=400), st.lists(st.text(max_size=300), min_size=1, max_size=4))
def test_any_text_has_features(question, texts):
    rows = proposal_features(question, texts, ["A"] * len(texts))
    assert {len(found) for found in rows} == {len(feature_names(tuple(GROUPS)))}
    assert all(math.isnan(value) or math.isfinite(value) for found in rows for value in found)


@given(st.permutations(range(3)))
def test_the_order_of_proposals_does_not_matter(order):
    texts, letters = ["It is 42, (B).", "36 is right", "The answer is C"], ["B", "A", "C"]
    here = proposal_features(QUESTION, texts, letters)
    there = proposal_features(QUESTION, [texts[i] for i in order], [letters[i] for i in order])
    for mine, i in zip(there, order, strict=True):
        assert mine == pytest.approx(here[i], nan_ok=True)


def test_groups_of_names():
    assert groups_of(feature_names(["support", "text"])) == ("support", "text")
    with pytest.raises(ValueError, match="expected those of whole groups"):
        groups_of(["stated"])
    with pytest.raises(ValueError, match="expected groups out of text, support, letter, option, got tone"):
        proposal_features("q", ["a"], [None], ["tone"])
