"""The letter that an answer names, the order of options, and grading by letters."""

import random
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.questions.answers import letters
from nsed_torch.questions.answers.letters import listed
from nsed_torch.questions.choice_tasks import ChoiceGrader, shuffled
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task


def chosen_letter(text, options):
    return letters.chosen_letter(text, options)[0]


CITIES = ("Paris", "Rome", "Oslo", "Bern")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"So \boxed{B}.", "B"),
        (r"\boxed{A} no, \boxed{(C)}", "C"),
        (r"\boxed{\text{B}}", "B"),
        (r"$\boxed{\textbf{(D) }\text{Bern}}$", "D"),
        (r"\boxed{B. Rome}", "B"),
        (r"\boxed{Oslo}", "C"),
        (r"\boxed{42} and the answer is D", "D"),
        ("The answer is (B).", "B"),
        ("The answer is **B**", "B"),
        ("**Answer:** B) Rome", "B"),
        ("Answer: b", "B"),
        ("answer: (c)", "C"),
        ("Answer:\nD", "D"),
        ("The answer is B. A is wrong, because Paris lies in France.", "B"),
        ("The answer is A because of the river.", "A"),
        ("The correct answer is option C", "C"),
        ("The correct option is D, Bern.", "D"),
        ("The answer is not A. The answer is B", "B"),
        ("Is the answer is A? No, the answer is C.", "C"),
        ("The answer is Rome.", "B"),
        ("The answer is Oslo. It lies in Norway.", "C"),
        ("The answer would be B", "B"),
        ("I think about it.\n\nC\n", "C"),
        ("It is a city.\n(B)\nbecause it is old", "B"),
        ("B", "B"),
        ("b", "B"),
        ("B)", "B"),
        ("(B)", "B"),
        ("B) Rome", "B"),
        ("B. Rome is the one.", "B"),
        ("B: Rome", "B"),
        ("B (Rome)", "B"),
        ("(D) because of the bears", "D"),
        ("A because it is so", "A"),
        ("It lies in the north.\nOslo", "C"),
        ("Rome", "B"),
        ("**Rome.**", "B"),
    ],
)
def test_what_names_a_letter(text, letter):
    assert chosen_letter(text, CITIES) == letter


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A man walks into a bar.",
        "A city in the north",
        "I do not know",
        "Answer: A city in the north",
        "The answer is a city.",
        "The answer is not A",
        "The answer is A or B",
        "Answer: A, B",
        "Answer: B and C",
        "Answer: B/C",
        "Answer: E",
        r"\boxed{E}",
        "F",
        "Both Rome and Oslo are cities.",
        "Because of that",
        "C++ is a language",
        "B-cells are cells",
        "A) Paris\nB) Rome\nC) Oslo\nD) Bern",
        "Option A might be right, but option B too",
    ],
)
def test_what_names_none(text):
    assert chosen_letter(text, CITIES) is None


def test_an_option_that_begins_like_a_letter_is_read_whole():
    options = ("E. coli", "C. elegans", "mouse", "yeast")
    assert chosen_letter("The answer is C. elegans", options) == "B"
    assert chosen_letter("C. elegans", options) == "B"
    assert chosen_letter("The answer is C.", options) == "C"


def test_options_that_are_equal_or_letters_are_named_by_their_letters_alone():
    assert chosen_letter("Answer: 4.0", ("2", "4", "3", "5")) == "B"
    assert chosen_letter("Answer: 4", ("4.0", "4", "3", "5")) is None
    assert chosen_letter("Answer: B", ("B", "C", "D", "A")) == "B"
    assert chosen_letter("Answer: w", ("x", "w", "y", "z")) == "B"
    assert chosen_letter("Answer: D", ("0", "1")) is None


FORMS = [
    "{}", "({})", "{})", "{}.", "**{}**", "{}) {option}", "({}) {option}", "Answer: {}", "The answer is ({}).",
    "Let me see.\nAnswer: {}. {option}", r"Thus \boxed{{{}}}", r"\boxed{{\text{{{}}}}}", "So.\n\n{}\n", "Option: {}",
]  # fmt: skip
WORDS = st.lists(
    st.sampled_from(["man", "walks", "old", "city", "river", "the", "a", "is", "I"]), min_size=1, max_size=8
)
OPTIONS = st.lists(st.text(string.ascii_lowercase, min_size=3, max_size=9), min_size=2, max_size=10, unique=True)


@given(options=OPTIONS, form=st.sampled_from(FORMS), place=st.integers(0, 9))
def test_every_form_names_every_letter_and_no_other(options, form, place):
    letter = string.ascii_uppercase[place]
    expected = letter if place < len(options) else None
    option = options[place] if expected else "else"
    assert chosen_letter(form.format(letter, option=option), options) == expected


@given(words=WORDS, form=st.sampled_from(["A {}", "Answer: A {}.", "The answer is A {}", "I say:\n\nA {}\n", "{} A"]))
def test_the_article_is_no_answer(words, form):
    assert chosen_letter(form.format(" ".join(words)), CITIES) is None


@given(text=st.text(string.printable + "\u2028\u00d7\u201cé\\(){}*$", max_size=200), options=OPTIONS)
def test_any_text_gives_a_listed_letter_or_none(text, options):
    assert chosen_letter(text, options) in {None, *string.ascii_uppercase[: len(options)]}


@given(options=OPTIONS, data=st.data(), seed=st.integers(0, 99), name=st.text(string.printable, min_size=1, max_size=9))
def test_shuffling_is_a_permutation_that_follows_the_right_option(options, data, seed, name):
    right = data.draw(st.integers(0, len(options) - 1))
    random.seed(data.draw(st.integers()))  # the global stream has no say
    order, letter = shuffled(options, right, seed, name)
    assert sorted(order) == sorted(options)
    assert order[string.ascii_uppercase.index(letter)] == options[right]
    assert shuffled(options, right, seed, name) == (order, letter)
    assert shuffled(options, 0, seed, name)[0] == order


def test_letters_are_balanced_and_change_with_seed_and_id():
    found = [shuffled(CITIES, 0, 0, f"q{i}")[1] for i in range(4000)]
    assert all(920 <= count <= 1080 for count in Counter(found).values())
    other = [shuffled(CITIES, 0, 1, f"q{i}")[1] for i in range(4000)]
    assert 900 <= sum(a == b for a, b in zip(found, other, strict=True)) <= 1100


def test_options_are_listed_from_a():
    assert listed(CITIES) == "A) Paris\nB) Rome\nC) Oslo\nD) Bern"


def test_letters_are_graded_classed_and_found_in_every_epoch():
    grader = ChoiceGrader({"q": CITIES})
    task, again = Task("Which?", "q", "B"), Task("Which?", "q~2", "B")
    assert grader.extract(task, "Rome") == grader.extract(again, "(B)") == "B"
    assert grader.classes(task, ["B", None, "A", "B"]) == [0, -1, 1, 0]
    assert grader.grade([(task, "B"), (again, "C")]) == [Verdict.RIGHT, Verdict.WRONG]
    assert grader.identity() == {"rule": "letter of an option, 2"}
    with pytest.raises(ValueError, match="expected the letter of the right option as target of 'q', got none"):
        grader.grade([(Task("Which?", "q"), "B")])
