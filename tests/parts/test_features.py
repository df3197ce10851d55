import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.parts.features import (
    GROUPS,
    feature_names,
    groups_of,
    letters_of,
    meaningful,
    options,
    proposal_features,
)

QUESTION = "What is 6 times 7?\nA. 36\nB.  42 apples\nC. 48\nD. none of these"


def shared_letters(texts):
    """A unit vector per text, of how often it has each of a few characters."""
    counts = torch.tensor([[1.0 + text.count(x) for x in "36428anop"] for text in texts])
    return torch.nn.functional.normalize(counts, dim=-1)


def row(text, letter, group, others=()):
    found = proposal_features(QUESTION, [text, *others], [letter] + [None] * len(others), [group], shared_letters)[0]
    return dict(zip(GROUPS[group], found, strict=True))


def test_what_others_wrote_speaks_for_an_answer_though_they_gave_none():
    texts = ["So it is 1, 2.", "1,2", "not 1,2 but 3", "so 77", ""]
    rows = proposal_features("Sort 2 and 1.", texts, ["1, 2", None, "3", "77", None], ["answer"], lengths=[500.0] * 5)
    found = dict(zip(GROUPS["answer"], rows[0], strict=True))
    assert [found[name] for name in ("silent_same", "silent_holds", "others_hold")] == [1, 1, 1]
    assert found["whole_length"] == pytest.approx(math.log(520))
    assert rows[3][:3] == [0, 0, 0]
    assert math.isnan(rows[1][0])
    assert (rows[2][5], rows[0][5], rows[2][8]) == (1, 0, 0)


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


def test_what_an_option_means_beside_the_others():
    stem, *texts = meaningful(QUESTION)
    assert (stem, texts) == ("What is 6 times 7?", ["36", "42 apples", "48", "none of these"])
    vectors = shared_letters([stem, *texts]).double()
    near = vectors[1:] @ vectors[0]
    others = vectors[[1, 3, 4]].mean(0)
    told = row("x", "B", "meaning")
    assert told["near_question"] == pytest.approx((near[1] - near.mean()).item())
    assert told["near_options"] == pytest.approx((vectors[2] @ others / others.norm()).item())
    assert all(math.isnan(value) for value in row("x", "Z", "meaning").values())


def test_meaning_without_an_encoder_is_refused():
    with pytest.raises(ValueError, match="expected an encoder for the group meaning, got none"):
        proposal_features(QUESTION, ["x"], ["B"], ["meaning"])


def test_what_is_not_known_is_nan():
    found = proposal_features("How are you?", ["", "fine"], [None, None], tuple(GROUPS), shared_letters)
    assert all(math.isnan(value) for value in found[0])
    known = dict(zip(feature_names(tuple(GROUPS)), found[1], strict=True))
    assert math.isnan(known["letter_A"])
    assert math.isnan(known["own_words"])
    assert not math.isnan(known["length"])
    assert letters_of(["B", " C ", "42", None, "AB"]) == ["B", "C", None, None, None]


@given(st.text(max_size=400), st.lists(st.text(max_size=300), min_size=1, max_size=4))
def test_any_text_has_features(question, texts):
    rows = proposal_features(question, texts, ["A"] * len(texts), tuple(GROUPS), shared_letters)
    assert {len(found) for found in rows} == {len(feature_names(tuple(GROUPS)))}
    assert all(math.isnan(value) or math.isfinite(value) for found in rows for value in found)


@given(st.permutations(range(3)))
def test_the_order_of_proposals_does_not_matter(order):
    texts, letters = ["It is 42, (B).", "36 is right", "The answer is C"], ["B", "A", "C"]
    here = proposal_features(QUESTION, texts, letters, tuple(GROUPS), shared_letters)
    there = proposal_features(
        QUESTION, [texts[i] for i in order], [letters[i] for i in order], tuple(GROUPS), shared_letters
    )
    for mine, i in zip(there, order, strict=True):
        assert mine == pytest.approx(here[i], nan_ok=True)


def test_groups_of_names():
    assert groups_of(feature_names(["support", "text"])) == ("support", "text")
    with pytest.raises(ValueError, match="expected those of whole groups"):
        groups_of(["stated"])
    with pytest.raises(
        ValueError, match="expected groups out of text, support, answer, letter, option, meaning, got tone"
    ):
        proposal_features("q", ["a"], [None], ["tone"])
