"""Formulas that are written differently and mean the same, by math-verify."""

import cmath
import logging
import re
from fractions import Fraction
from typing import Any

from nsed_torch.traces.canonical import unwrapped

LONGEST_FORMULA = 80
"""Characters; longer answers are prose or derivations, and compare as texts."""

_NAMES = "sqrt|sin|cos|tan|cot|log|ln|pi"
_WORD = re.compile(rf"(?<![\\a-zA-Z])(?!(?:{_NAMES})(?![a-zA-Z]))[a-zA-Z]{{2,}}")
_KNOWN = (
    "frac|dfrac|tfrac|sqrt|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|pi|cdot|times|div|pm|mp|circ|infty|left|right"
    "|text|mbox|mathrm|in|cup|cap|le|leq|ge|geq|neq|alpha|beta|theta"
)
_UNKNOWN = re.compile(rf"\\(?!(?:{_KNOWN})(?![a-zA-Z]))[a-zA-Z]|[^\x00-\x7f]")
_TERM = "[0-9]{0,3}[a-zA-Z]{0,2}"
_QUOTIENT = r"\\[dt]?frac\{-?[0-9a-z]{1,2}\}\{[0-9a-z]{1,2}\}"
# At most one power, and a small one of something short: an algebra system multiplies out whatever it is asked to.
_COSTLY = re.compile(
    rf"[!$]|\*\*|\^.*\^|\^(?!-?(?:[0-9]{{1,3}}(?![0-9])|[a-zA-Z]|\\(?:circ|pi)|{_QUOTIENT}"
    rf"|[({{]-?(?:{_TERM}(?:[-+/]{_TERM}){{,2}}|[0-9]{{,3}}\\(?:circ|pi)|{_QUOTIENT})[)}}]))"
    r"|(?:[(\[{|][^(\[{|]*+){16}|[0-9]{25,}|mod|floor|ceil|\\sqrt\[(?![0-9a-z]\])"
)
# With unknowns, no power from the tenth on, nor of a sum to an unknown, six brackets, three waves, or long multiples.
_EXPANDED = re.compile(
    r"(?<![0-9])\^[({]?-?[0-9]{2}|\^[({]?-?[0-9]{3}|[a-zA-Z][^()]*\)\^[({]?-?[0-9]*[a-zA-Z]|(?:\([^(]*+){6}"
    r"|(?:(?:sin|cos|tan|cot|sec|csc).*?){3}|(?:sin|cos|tan|cot|sec|csc).*?[0-9].*?[0-9]"
)
_FRACTION = re.compile(r"(?:\\frac\{)?(?P<top>-?[0-9]+)(?:\}\{(?P<bottom>[1-9][0-9]*)\})?")


class Formulas:
    """Compares formulas, reading each once.

    math-verify's own timeouts are signals, which only a main thread may set. They are off here, so answers may be
    compared in any thread; what could keep an algebra system busy (commands we do not know, any power but a small one,
    more than 80 characters) is no formula instead. Values are compared first: they differ nearly always, and
    evaluating each formula once is far cheaper than comparing each pair.
    """

    def __init__(self) -> None:
        import math_verify  # noqa: PLC0415 - an extra; costs a second

        # Its one warning tells that timeouts are off; `_COSTLY` is what it asks for in their place.
        logging.getLogger("math_verify").setLevel(logging.ERROR)
        self._library = math_verify
        self._parsed: dict[str, list[Any]] = {}
        self._values: dict[str, complex | None] = {}

    def equal(self, one: str, other: str) -> bool:
        """Whether two formulas, in LaTeX as `latex` gives it, mean the same."""
        value, other_value = self._value(one), self._value(other)
        if value is not None and other_value is not None:
            near = cmath.isclose(value, other_value, rel_tol=1e-6, abs_tol=1e-9)
        else:
            near = value is None and other_value is None and self._symbols(one) == self._symbols(other)
        if not near:
            return False
        return bool(self._library.verify(self._parse(one), self._parse(other), timeout_seconds=None))

    def _parse(self, formula: str) -> list[Any]:
        """What math-verify reads; empty where it cannot."""
        if formula not in self._parsed:
            # LaTeX between dollars alone: its search for plain numbers would read `4 + 25x` as 25.
            self._parsed[formula] = self._library.parse(
                f"${formula}$",
                [self._library.LatexExtractionConfig()],
                fallback_mode="no_fallback",
                parsing_timeout=None,
            )
        return self._parsed[formula]

    def _symbols(self, formula: str) -> Any:
        return next((getattr(parsed, "free_symbols", None) for parsed in self._parse(formula)), None)

    def _value(self, formula: str) -> complex | None:
        """The value of a constant; None for a set, a pair, an equation, anything with symbols, or what is too large."""
        if formula not in self._values:
            number = _number(formula)
            self._values[formula] = _evaluated(self._parse(formula)) if number is None else number
        return self._values[formula]


def latex(answer: str | Fraction) -> str:
    """The answer in LaTeX if it reads as a formula that is cheap to compare, else ""."""
    if isinstance(answer, Fraction):
        return f"\\frac{{{answer.numerator}}}{{{answer.denominator}}}" if answer.denominator > 1 else str(answer)
    text = unwrapped(answer) if len(answer) <= LONGEST_FORMULA else ""
    dense = re.sub(r"\s", "", text)
    if not re.search(r"[0-9a-zA-Z]", text) or _UNKNOWN.search(text) or _COSTLY.search(dense):
        return ""
    if re.search(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", " ", text)) and _EXPANDED.search(dense):
        return ""
    text = re.sub(r"\\sqrt\s*([0-9a-z]+)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\\a-zA-Z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(rf"(?<![\\a-zA-Z])({_NAMES})(?![a-zA-Z])", r"\\\1 ", text)
    return "" if _WORD.search(re.sub(r"\\[a-zA-Z]+", " ", text)) else text.replace("*", " \\cdot ")


def _number(formula: str) -> complex | None:
    """The value of what `latex` makes of a fraction, without an algebra system; None for anything else."""
    found = _FRACTION.fullmatch(formula)
    try:
        return complex(Fraction(int(found["top"]), int(found["bottom"] or 1))) if found else None
    except OverflowError:
        return None


def _evaluated(parsed: list[Any]) -> complex | None:
    try:
        return complex(parsed[0].evalf(15)) if parsed and parsed[0].is_number else None
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None
