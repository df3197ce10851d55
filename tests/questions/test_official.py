"""Benchmarks' own rules: what each reads, and what it calls right."""

import pytest

from nsed_torch.questions.answers.official import OFFICIAL
from nsed_torch.questions.generated import generated_tasks
from nsed_torch.questions.graded import file_tasks, recorded_tasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task


@pytest.mark.parametrize(
    ("reading", "text", "answer"),
    [
        ("mmlu_pro", "I think the answer is (B). No, the answer is (C).", "B"),
        ("mmlu_pro", "The answer is (B).\n\nQuestion: another\nThe answer is (D).", "B"),
        ("mmlu_pro", "Answer: C, or rather Answer: D\nAnswer: E", "D"),
        ("mmlu_pro", "answer: \nF", "F"),
        ("mmlu_pro", "Either A or, more likely, G", "G"),
        ("mmlu_pro", "the answer is (b)", None),
        ("mmlu_pro_first", "The answer is J", "J"),
        ("mmlu_pro_first", "Answer: C", None),
        ("zero_eval", 'So:\n{"reasoning": "3 {sic}\n",\n "answer": 12}\n{"answer": "13"}', "12"),
        ("zero_eval", '{"reasoning": "broken "quotes"", "answer": "14"}', "14"),
        ("zero_eval", '{"answer": 15, "and then it', "15"),
        ("zero_eval", "It works out.\nThe final answer is: $\\boxed{16}$", "16"),
        ("zero_eval", "The final answer is: $\\boxed{-16}$", None),
        ("zero_eval", "It is 17.", None),
        ("reasoning_gym", "<answer>1</answer> no, <answer>\n2 3\n</answer> done", "2 3"),
        ("reasoning_gym", "<answer>4</answer> and then <answer>5", "4"),
        ("reasoning_gym", "The answer is 6.</answer>", None),
    ],
)
def test_what_is_read(reading, text, answer):
    assert OFFICIAL[reading].read(Task("Which?", "one"), text) == answer


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


def test_a_set_is_graded_by_the_rule_that_is_named(tmp_path):
    (tmp_path / "questions.jsonl").write_text('{"id": "one", "question": "Which? A) an ox B) an ass", "target": "B"}\n')
    text = "The answer is (A). Sorry: the answer is (B)."
    for tasks, verdict in (
        (file_tasks(str(tmp_path / "questions.jsonl"), reading="mmlu_pro"), Verdict.WRONG),
        (recorded_tasks(str(tmp_path), reading="mmlu_pro"), Verdict.WRONG),
        (recorded_tasks(str(tmp_path)), Verdict.RIGHT),
    ):
        task = tasks.tasks[0]
        assert tasks.verdicts([(task, tasks.grader.extract(task, text))]) == [verdict]
    assert tasks.identity.get("reading") is None
    assert recorded_tasks(str(tmp_path), reading="mmlu_pro").identity["reading"] == "mmlu_pro"
    with pytest.raises(ValueError, match=r"^reading: expected general or one of mmlu_pro, .*, got 'mmlu': "):
        file_tasks(str(tmp_path / "questions.jsonl"), reading="mmlu")


def test_generated_tasks_are_read_by_their_tags():
    pytest.importorskip("reasoning_gym")
    tasks = generated_tasks("chain_sum", 1, reading="reasoning_gym")
    task, grader = tasks.tasks[0], tasks.grader
    assert grader.extract(task, f"It is {task.target}.") is None
    answer = grader.extract(task, f"<answer> {task.target} </answer> for all I know of 99")
    assert answer == task.target
    assert tasks.verdicts([(task, answer), (task, "no number")]) == [Verdict.RIGHT, Verdict.WRONG]
    assert tasks.identity["reading"] == "reasoning_gym"
