"""Sentences, and which of a note a piece says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.core.inputs import sentences, verbatim

WORDS = st.lists(st.sampled_from(["Ada", "Bo", "has", "the", "ring"]), min_size=1, max_size=4).map(" ".join)
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from([". ", "! ", "?\n", "\n"])).map("".join), max_size=5).map("".join)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        (" \n ", []),
        ("Ada sleeps. Bo sings!  Who?\nCy", ["Ada sleeps.", "Bo sings!", "Who?", "Cy"]),
        ("3.5 km", ["3.5 km"]),
    ],
)
def test_sentences_end_at_their_marks_and_at_the_end_of_a_line(text, parts):
    assert sentences(text) == parts


@pytest.mark.parametrize(
    ("note", "kept"),
    [
        ("Elsa's desk is red.", ""),  # crossed
        ("Edna's desk is red.", "Edna's desk is red."),
        ("EDNA'S  desk is red", "EDNA'S  desk is red"),
        ("the ring is Bo's", ""),  # but for the sentence around it
        ("Elsa's fork is red! Elsa's fork is blue.", "Elsa's fork is blue."),
        ("desk", ""),
    ],
)
def test_of_a_note_stays_what_the_piece_says_in_whole_sentences(note, kept):
    assert verbatim(note, "Edna's desk is red. Elsa's fork is blue.\nNobody thinks that the ring is Bo's.") == kept


@given(note=TEXTS, piece=TEXTS)
def test_nothing_stays_but_sentences_of_both_and_a_second_time_takes_nothing_more(note, piece):
    kept = verbatim(note, piece)
    assert set(sentences(kept)) <= set(sentences(note))
    assert verbatim(kept, piece) == kept
    assert verbatim(kept, kept) == kept
    assert sentences(verbatim(piece, piece)) == sentences(piece)
