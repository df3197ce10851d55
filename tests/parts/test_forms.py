"""A form says the same: whatever is written in it comes back in plain words."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsed_torch.parts.forms import FORMS, form_named

texts = st.text() | st.text("0123abz +:AB#")


@pytest.mark.parametrize("name", sorted(set(FORMS) - {"backwards"}))
@given(text=texts)
@example(text="5b a1 1a2 b12 " + "7" * 60)
@example(text="A# A#b #A#A A#A# B#a [A# #A]" + " #B" * 60)
@example(text="b1 to b2: a3 b2 way 123 small")
@example(text="Answer: a1; b1")
@example(text="; ")
@example(text="\u0661\u0662 \u0665b")  # digits of no form
def test_what_is_written_comes_back(name, text):
    own = FORMS[name]
    assert own.plain(own.written(text)) == text
    assert own.shown(text) == (text if name == "scanned" else own.written(text))


@given(text=st.text("0123456789 +"))
def test_who_counts_writes_no_digit_twice_running(text):
    assert not re.search(r"([0-9])\1", FORMS["counted"].written(text))


def test_who_counts_writes_no_token_twice_running():
    assert FORMS["counted"].written("start: A# A# A# [A# #B] #B #B") == "start: A#c [A# #B] #Bb"


@given(text=texts)
def test_no_text_of_a_model_is_too_odd(text):
    for own in FORMS.values():
        assert isinstance(own.plain(text), str | None)


@pytest.mark.parametrize("text", ["17", "a1c7", "b1", "a1b7 + 5", "a1b77"])
def test_places_that_are_missing_or_out_of_order_are_not_of_the_form(text):
    assert FORMS["placed"].plain(text) is None


def test_backwards_is_read_and_not_written():
    own = FORMS["backwards"]
    assert (own.shown("1 + 2: 3"), own.written("1 + 2: 3"), own.plain("3")) == ("3 2: + 1", "1 + 2: 3", "3")


@pytest.mark.parametrize(
    ("plain", "written"),
    [
        ("start: a1 b1 way 132 small", "start: a1 b1 way 132 small"),
        ("a1 to a3: a3 b1 c1 way 132 large", "a1 to a3: a3 b1 c1 way 132 large"),
        ("c1 to c2: a3 b3 c2 way 132 small", "a3 b3; c1 to c2: a3 b3 c2 way 132 small"),
        ("Answer: a2 b2 c2", "a2 b2 c2; Answer: a2 b2 c2"),
    ],
)
def test_who_scans_names_the_disks_that_stay(plain, written):
    own = FORMS["scanned"]
    assert (own.shown(plain), own.written(plain)) == (plain, written)


def test_an_unknown_form_is_named():
    forms = "plain, backwards, counted, placed, scanned"
    with pytest.raises(ValueError, match=f"expected a form out of {forms}, got 'morse'"):
        form_named("morse")
