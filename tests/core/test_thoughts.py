"""Thoughts and answers are parted, however a model marks them."""

import pytest

from nsed_torch.core.thoughts import MARKS, Parted, part_thoughts


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        ("17", "", "17"),
        (" 17\n", "", "17"),
        ("", "", ""),
        ("<think>a</think>b", "a", "b"),
        ("<think>\n\n</think>\n\nb", "", "b"),
        ("a</think>\n\nb", "a", "b"),  # the template opened it
        ("<think>a \\boxed{12}", "a \\boxed{12}", ""),  # cut off
        ("a <think>b</think> c <think>d</think> e", "b\nd", "e"),
        ("<think>a<think>b</think>c</think>d", "a\nb\nc", "d"),
        ("<THINK>a</Think>b", "a", "b"),
        ("b<think>a</think>", "a", "b"),
        ("<think>a</think>", "a", ""),
        ("I think <b>so</b>", "", "I think <b>so</b>"),
        *((f"{opening}a{closing}b", "a", "b") for opening, closing in MARKS),
        *((f"a{closing}b", "a", "b") for _, closing in MARKS),
        *((f"{opening}a", "a", "") for opening, _ in MARKS),
    ],
)
def test_thoughts_are_no_part_of_the_answer(text, thoughts, answer):
    assert part_thoughts(text) == Parted(thoughts, answer)


def test_marks_and_what_opened_them_can_be_told():
    assert part_thoughts("{a}b <think>", ("{", "}")) == Parted("a", "b <think>")
    assert part_thoughts("a", ("", "</think>")) == Parted("a", "")
    assert part_thoughts("a", opened=True) == Parted("a", "")
    assert part_thoughts("a</think>b", opened=True) == Parted("a", "b")
    assert part_thoughts("<think>a</think>b", opened=True) == Parted("a", "b")
