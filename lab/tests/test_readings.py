"""ZeroEval's and KOR-Bench's own rules: what each reads, and what it calls right."""

import pytest

from nsed_torch.questions.answers.official import known_readings
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.transcript import Task

OFFICIAL = known_readings()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('So:\n{"reasoning": "3 {sic}\n",\n "answer": 12}\n{"answer": "13"}', "12"),
        ('{"reasoning": "broken "quotes"", "answer": "14"}', "14"),
        ('{"answer": 15, "and then it', "15"),
        ("It works out.\nThe final answer is: $\\boxed{16}$", "16"),
        ("The final answer is: $\\boxed{-16}$", None),
        ("It is 17.", None),
    ],
)
def test_what_zero_eval_reads(text, answer):
    assert OFFICIAL["zero_eval"].read(Task("Which?", "one"), text) == answer


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("cipher/3", "[[ABC]] or [[DEF]]", "ABC"),
        ("cipher/3", "so $\\boxed{ABC}$", "ABC"),
        ("cipher/3", "[ABC]", "ABC"),
        ("puzzle/3", "[ABC]", None),
        ("puzzle/3~2", "[[ABC", None),
    ],
)
def test_brackets_of_kor(name, text, answer):
    assert OFFICIAL["kor"].read(Task("Which?", name), text) == answer


@pytest.mark.parametrize(
    ("name", "answer", "target", "right"),
    [
        ("cipher/3", '"A B\nC"', "ABC", True),
        ("cipher/3", "abc", "ABC", False),
        ("logic/3", "A . B", "AB", True),
        ("logic/3", "A];[B", "[A];[B]", True),
        ("logic/3", "B];[A", "[A];[B]", False),
        ("logic/45", "p;q;r", "p;q;r", True),
        ("operation/3", "3 or 5", "5or3", True),
        ("operation/200", "3 \\text{ or } 5", "5or3", True),
        ("operation/3", "4", "5", False),
        ("operation/18", "x =2\\left(3\\right)", "2(3)", True),
        ("operation/18", "x = 6", "6", False),
        ("operation/19", "6 ", "6", True),
        ("operation/178", "x \u2265 3, x \u2264 9", "\u2264 9 and \u2265 4", False),
        ("operation/178", "x \u2264 9, x \u2265 3", "\u22653;\u22649", True),
        ("operation/175", "{2, 1}", "{1,2}", True),
        ("operation/225", "(1, 2) then 30", "1, 2, 30", True),
        ("operation/225", "(2, 1)", "1, 2", False),
        ("puzzle/3", "Big Cat", "bigcat", True),
        ("puzzle/13", "Cat", "dog,cat", True),
        ("puzzle/13", "Cow", "dog,cat", False),
        ("puzzle/23", "two, ONE", "one two", True),
        ("puzzle/33", "cat", "the cat", True),
        ("puzzle/43", "b, a", "a,b", True),
        ("puzzle/83", "2 + 4 \u00d7 3 = 14", "5+3*3=14", True),
        ("puzzle/83", "2 * 4 + 6 = 14", "5+3*3=14", False),
        ("puzzle/83", "2 + 4 * 4 = 14", "5+3*3=14", False),
        ("puzzle/93", "(8 / 2 + 8) * 2", "2*(8+8/2)", True),
        ("puzzle/93", "8 + 8 + 2 * 2", "2*(8+8/2)", False),
        ("puzzle/93", "__import__('os')", "2*(8+8/2)", False),
        ("puzzle/173", "1 2,\n3", "1,2,3", True),
        ("puzzle/173", "1 2; 3", "1,2,3", False),
        ("puzzle/200", "1 2; 3", "[[1,2,3]]", True),
    ],
)
def test_what_kor_calls_right(name, answer, target, right):
    assert OFFICIAL["kor"].right(answer, Task("Which?", name, target)) is right


def test_an_id_of_no_category_is_told():
    with pytest.raises(ValueError, match=r"^reading=kor: expected ids such as operation/18, got 'three': "):
        AnswerGrader(reading="kor").extract(Task("Which?", "three", "3"), "[[3]]")


@pytest.mark.parametrize(
    ("answer", "target", "right"),
    [
        ("$1,200.00", "1200", True),
        ("6/4", "1.5", True),
        ("12 apples and 3 pears", "12", True),
        ("3 of 12", "12", False),
        ("x", "y", False),
        ("x", "x", True),
    ],
)
def test_first_numbers(answer, target, right):
    assert OFFICIAL["zero_eval"].right(answer, Task("Which?", "one", target)) is right
