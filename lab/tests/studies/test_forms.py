"""Two questions are of one form if nothing but names, or the words of a list, tells them apart."""

from nsed_lab.studies.forms import form

NAMES = {"Ann", "Anna", "Bob", "Chloe"}


def test_names_are_replaced_by_their_places():
    asked = form("Anna has 3 sisters. How many has Bob, Anna's brother?", NAMES)
    assert asked == form("Chloe has 3 sisters. How many has Ann, Chloe's brother?", NAMES)
    assert asked != form("Anna has 4 sisters. How many has Bob, Anna's brother?", NAMES)
    assert asked != form("Anna has 3 sisters. How many has Bob, Bob's brother?", NAMES)


def test_sums_in_another_order_are_of_one_form():
    assert form("What is 17 + 4?", ()) == form("What is 4 + 17?", ()) != form("What is 4 + 18?", ())


def test_a_list_of_words_is_of_its_length():
    assert form("Reverse: a, b, c", (), listed=True) == form("Reverse: q, r, s", (), listed=True)
    assert form("Reverse: a, b, c", (), listed=True) != form("Reverse: a, b, c, d", (), listed=True)
