"""Where a model's text says its final answer, and whether that is right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.questions.answers.kinds import read
from nsed_torch.traces.equality import Equality

RULE = Equality(math_verify=False)


def final_answer(text):
    return read(text).answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"First \boxed{3}, then \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"Answer: 4, so \boxed{5}", "5"),
        (r"\boxed {x_{1} + \{2\}} done", r"x_{1} + \{2\}"),
        (r"\boxed{7} and the unfinished \boxed{8", "7"),
        (r"\boxed{\boxed{9}}", "9"),
        (r"\boxed{} 12", "12"),
        ("Answer: 3\nno, wait.\nAnswer: 42", "42"),
        ("**Answer:** 42", "42"),
        ("**Final answer**: $1,234.50$.", "$1,234.50$"),
        ("ANSWER:\n\n  blue", "blue"),
        ("The answer is **18 dollars**.", "18 dollars"),
        ("The answer is 18. That is because 9 + 9 = 18, of 20.", "18"),
        ("The answer is 3.5 metres.", "3.5 metres"),
        ("the answer is: (B)", "(B)"),
        ("The answers are many: 4", "4"),
        ("An answerer: 5 of 6", "6"),
        ("so\n#### 1,000\n", "1,000"),
        ("#### 7\nThe answer is 8", "8"),
        ("17 + 71 = 88", "88"),
        ("It costs $1,234.50 today", "1,234.50"),
        ("from 5 to -3", "-3"),
        ("5-3", "3"),
        ("it is \u22124", "\u22124"),
        ("half, 1/2", "1/2"),
        ("room b12 on floor 3.", "3"),
        ("no idea", None),
        ("", None),
        ("Answer:", None),
        ("Answer: **\n", None),
    ],
)
def test_the_final_answer_of_a_text(text, answer):
    assert final_answer(text) == answer


@given(st.text())
def test_any_text_has_a_trimmed_answer_or_none(text):
    answer = final_answer(text)
    assert answer is None or (answer and answer.strip() == answer)


@given(st.integers(-(10**9), 10**9), st.sampled_from([r"so \boxed{{{}}}!", "Answer: {}.", "#### {}", "it is {}"]))
def test_a_number_is_found_in_every_form(number, form):
    assert RULE.equal(final_answer(form.format(number)), str(number))


def test_long_texts_are_quick():
    assert final_answer(r"\boxed{" * 20_000 + "answer " * 20_000 + "1," * 20_000 + "* " * 20_000) == "1"
