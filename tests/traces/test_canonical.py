"""Spellings: what counts as one number, what as one text, and what must never be confused."""

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.traces.canonical import canonical


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("18", 18),
        ("1,234.50", Fraction("1234.5")),
        ("$20,000", 20000),
        ("\\$880", 880),
        ("-$3.00", -3),
        ("$-3", -3),
        ("\u2212128", -128),
        ("48%", 48),
        ("48 \\%", 48),
        ("225 minutes", 225),
        ("72 cubic inches", 72),
        ("$2 per pair", 2),
        ("60.5 meters per second", Fraction("60.5")),
        ("5\\text{ cm}^2", 5),
        ("90^\\circ", 90),
        ("90°", 90),
        ("20/7", Fraction(20, 7)),
        ("1 1/2", Fraction(3, 2)),
        ("2½", Fraction(5, 2)),
        ("-\\frac{1985}{6}", Fraction(-1985, 6)),
        ("\\dfrac12", Fraction(1, 2)),
        ("\\\\frac{5}{2}", Fraction(5, 2)),
        ("3\\frac{1}{4}", Fraction(13, 4)),
        ("\\boxed{42}", 42),
        ("$\\boxed{42}$.", 42),
        ("**7**", 7),
        ('"$2,664"', 2664),
        ("\\(10{,}000\\)", 10000),
        ("x = 5", 5),
        ("12 * 0.75 = 9", 9),
        ("5 million", 5 * 10**6),
        ("1.5e3", 1500),
        (".5", Fraction(1, 2)),
        ("007", 7),
    ],
)
def test_numbers_are_numbers(answer, number):
    assert canonical(answer) == number
    assert isinstance(canonical(answer), Fraction)


@pytest.mark.parametrize(
    "answer",
    [
        "5 or 6", "2, 5", "(1, 2)", "25 pi", "3 sqrt", "4x", "5R - 4", "20 flashlights and 36 candles", "1/0", "",
        "12,34", "1,2345", "1e999999999", "9" * 100, "5!", "x = 3, y = 4", "x^2 + y^2 = 25", "-", "2 dozen",
        "no 5",
    ],
)  # fmt: skip
def test_what_is_no_single_number_stays_a_text(answer):
    assert isinstance(canonical(answer), str)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("6\\sqrt{2}", "6*sqrt(2)"),
        ("6\\sqrt{2}", "6√2"),
        ("7 + \\\\sqrt{69}", "7+\\sqrt{69}"),
        ("\\dfrac{\\pi}{3}", "\\frac{\\pi}{3}"),
        ("4\\pi", "4π"),
        ("\\left( 1, 2 \\right)", "(1,2)"),
        ("A", "(A)"),
        ("\\text{Evelyn}", "evelyn."),
        ("y = 2x + 1", "2x+1"),
        ("No solution", "no  solution"),
    ],
)
def test_variants_of_a_text_are_one(one, other):
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("6\\sqrt{2}", "62"),
        ("2*3*x", "23x"),
        ("x^2 + y^2 = 25", "x^2 - y^2 = 25"),
        ("(1,2)", "(1,3)"),
        ("\\boxed{a} + \\boxed{b}", "a} + \\boxed{b"),
        ("f(2)", "f(3)"),
        ("no solution", "nosolution"),
    ],
)
def test_different_texts_stay_different(one, other):
    assert canonical(one) != canonical(other)


@settings(max_examples=30)
@given(st.fractions(-(10**6), 10**6, max_denominator=999), st.integers(0, 2))
def test_every_way_to_write_a_number_reads_back(number, style):
    sign, top = ("-" if number < 0 else ""), abs(number.numerator)
    ways = (f"{sign}{top:,}/{number.denominator}", f"${sign}\\frac{{{top}}}{{{number.denominator}}}$", str(number))
    assert canonical(ways[style]) == number


@settings(max_examples=30)
@given(st.text(alphabet="0123456789.,-+/$%\\{}()[]^*= \"'xepisqrtfac√π½", max_size=80) | st.text(max_size=80))
def test_any_text_has_a_spelling(answer):
    assert canonical(answer) == canonical(f" {answer} ")


@pytest.mark.parametrize(
    "piece", ["1 ", "{", "$", "**", "\\boxed{", "(1", "1,", "\\frac", "a = ", "sqrt(", '"', "}{", "^"]
)
def test_no_text_takes_long(piece):
    start = time.perf_counter()
    for length in (15, 60, 900, 100_000):
        canonical(piece * (length // len(piece)))
    assert time.perf_counter() - start < 5  # milliseconds, unless a pattern backtracks
