"""Programs are found in texts and told apart; what they print and return is compared with what is expected."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsed_torch.questions.programs import ProgramGrader, same_text, same_value
from nsed_torch.records.transcript import Task

TASK = Task("?", "t")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Here:\n```python\nx = 1\n```\nor\n```py\nx = 2\n```\nrun it:\n```bash\nls\n```", "x = 2\n"),
        ("```\nx = 1\n```\n```\nx = 2\n```", "x = 2\n"),
        ("```Python\nx = 1\n```\n```\noutput: 3\n```", "x = 1\n"),
        ("```python3 title=a\nx = 1\n", "x = 1\n"),
        ("1. so\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y\n"),
        ("```python\n    return 1\n```", "    return 1\n"),
        ("```python\nx = 1\n```\n```python\n\n```", "x = 1\n"),
        ("```java\nint x = 1;\n```", None),
        ("print(1)", "print(1)"),
        ("\nimport sys\nx = 3\n", "import sys\nx = 3"),
        ("def f(x):\n    return x", "def f(x):\n    return x"),
        ("42", None),
        ("yes", None),
        ("'a text'", None),
        ("The answer is x = 1.", None),
        ("x + 1", None),
        ("# nothing", None),
        ("", None),
        ("(" * 5000, None),
    ],
)
def test_programs_are_found_in_texts(text, code):
    assert ProgramGrader({}).extract(TASK, text) == code


def test_a_text_may_continue_the_prefix():
    grader = ProgramGrader({}, prefix={"t": 'def f(x):\n    """Doc."""\n'})
    assert grader.extract(Task("?", "t~3"), "    return x") == "    return x"
    assert grader.extract(TASK, "  42") is None
    assert grader.extract(Task("?", "u"), "    return x") is None


@given(st.text(alphabet="`\npython x=1 ", max_size=60))
def test_any_text_is_read(text):
    code = ProgramGrader({}).extract(TASK, text)
    assert code is None or code.strip()


def test_layout_comments_and_quotes_make_no_other_program():
    grader = ProgramGrader({})
    answers = [
        "x = 1",
        "x=1  # one",
        "x = 'a'",
        None,
        'x = "a"',
        "x = (",
        "x = ( ",
        "def f():\n  return 1",
        "def f(): return 1",
    ]
    assert grader.classes(TASK, answers) == [0, 0, 1, -1, 1, 2, 3, 4, 4]
    assert grader.classes(TASK, ["'\\d'", "(" * 9999 + ")" * 9999, "x\0", "-" * 99999 + "1"]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1 2\n3\n", "1 2\n3", True),
        ("1  2 \n3 \n\n", "1 2\n3", True),
        ("1 2 3", "1 2\n3", False),
        ("1\n\n3", "1\n3", False),
        ("", "", True),
        ("", "0", False),
        ("YES", "Yes", False),
        ("3.0", "3", True),
        ("3", "3.0", True),
        ("0.1", "0.10000000001", True),
        ("0.1", "0.1000001", False),
        ("1000000000.4", "1000000000.5", True),
        ("1000000001", "1000000000", False),
        ("2.9999999999", "3", False),
        ("2.9999999999", "3.0", True),
        ("010", "10", False),
        ("nan", "nan", True),
        ("nan", "1.0", False),
        ("1e-7", "0.0000001", True),
        ("1e999", "1.0", False),
        ("-0.0", "0.0", True),
        ("1_0", "10", False),
        ("٣", "3", False),
        ("1/2", "0.5", False),
    ],
)
def test_outputs_are_compared_word_by_word(printed, expected, same):
    assert same_text(printed, expected, 1e-9) is same


def test_no_tolerance_asks_for_equal_numbers():
    assert same_text("0.50", "0.5", 0)
    assert not same_text("0.1", "0.10000000001", 0)
    assert not same_value(0.1, 0.10000000001, 0)


@given(
    st.lists(
        st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from("ab"), min_size=1),
        min_size=1,
    )
)
def test_outputs_equal_themselves_in_any_layout(rows):
    plain = "\n".join(" ".join(map(str, row)) for row in rows)
    wide = "\n".join("  ".join(map(str, row)) + " \t" for row in rows) + "\n\n"
    assert same_text(wide, plain, 0)
    assert same_text(plain, wide, 1e-9)
    assert not same_text(plain + "\nmore", plain, 1e-9)


@given(st.integers(), st.integers())
@example(10**17, 10**17 + 1)
def test_integers_are_never_near_enough(one, other):
    assert same_text(str(one), str(other), 1e-9) == (one == other)
    assert same_value(one, other, 1e-9) == (one == other)


@pytest.mark.parametrize(
    ("result", "expected", "same"),
    [
        ([1, [2.0]], [1, [2]], True),
        ([1, 2], [1, 2, 3], False),
        ({"a": 0.1}, {"a": 0.1 + 1e-12}, True),
        ({"a": 1}, {"b": 1}, False),
        (None, None, True),
        (None, 0, False),
        ("1", 1, False),
        ([], "", False),
        (10**400, 0.5, False),
        (float("nan"), 0.5, False),
    ],
)
def test_values_are_compared_as_json(result, expected, same):
    assert same_value(result, expected, 1e-9) is same
