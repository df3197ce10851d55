"""Formulas that are written differently and mean the same, by math-verify."""

import ast
import atexit
import json
import operator
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path

from nsed_torch.traces.canonical import canonical, unwrapped

PATIENCE = 20.0
"""Seconds until a pair is given up where its process does not stop by itself."""

STARTING = 120.0
"""Seconds until the process must have started."""

LONGEST_FORMULA = 80
"""Characters; longer answers are prose or derivations, and compare as texts."""

LONGEST_POWER = 4096
"""Bits of a power that is computed."""

_NAMES = "sqrt|sin|cos|tan|cot|log|ln|pi"
_WORD = re.compile(rf"(?<![\\a-zA-Z])(?!(?:{_NAMES})(?![a-zA-Z]))[a-zA-Z]{{2,}}")
_KNOWN = (
    "frac|dfrac|tfrac|sqrt|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|pi|cdot|times|div|pm|mp|circ|infty|left|right"
    "|text|mbox|mathrm|in|cup|cap|le|leq|ge|geq|neq|alpha|beta|theta|lambda|mu|phi|emptyset|varnothing|setminus|mathbb"
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
_RELATION = re.compile(r"[=<>]|\\(?:in|leq?|geq?|neq?|pm|mp)(?![a-zA-Z])")
_OPERATION = re.compile(r"[-+*/^=<>:]|\\(?![{}])")
# A grid, a program's list of texts, a table of assignments or a row of letters.
_NO_FORMULA = re.compile(r"[\";]|(?<![\\a-zA-Z0-9 ])[0-9]+\s+[0-9]+(?!/)|(?<![a-zA-Z])[A-Z]\s+[A-Z0-9]\b|(?:[^=]*=){3}")
_LISTED = re.compile(r"(\(|\[|\\\{)[^()\[\]]*,[^()\[\]]*(?:\)|\]|\\\})")
_MATRIX = re.compile(r"\\(begin|end)\{[pb]?matrix\}|\\(begin|end)\{array\}(?:\{[clr|]+\})?")


_OPERATORS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Formulas:
    """Compares formulas in a process of its own, which is stopped where a pair takes too long or too much memory.

    A pair that it stopped at is not the same. A point is no interval and no set, and a bare list equals it in its own
    order alone. What could keep an algebra system busy (commands we do not know, any
    power but a small one, more than 80 characters) is no formula to begin with, and pairs whose unknowns or brackets
    differ are never asked about.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        atexit.register(self.close)

    def equal(self, one: str, other: str) -> bool:
        """Whether two formulas, in LaTeX as `latex` gives it, mean the same."""
        if (known := _decided(one, other)) is not None:
            return known
        with self._lock:
            return self._asked(f"{json.dumps([one, other])}\n", PATIENCE) == "1\n"

    def close(self) -> None:
        """End the process, if there is one."""
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()
            child.communicate()

    def _asked(self, line: str, patience: float) -> str:
        """The process's answer to a line; "" where it did not live to give one."""
        if self._child is None:
            command = [sys.executable, "-P", str(Path(__file__).with_name("formulas_child.py"))]
            pipe = subprocess.PIPE
            self._child = subprocess.Popen(  # noqa: S603 - our own words
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
            )
            if self._asked("", STARTING) != "ready\n":
                raise ValueError(
                    "math-verify: expected a process that compares formulas, got none: set math_verify=false"
                )
        child = self._child
        timer = threading.Timer(patience, child.kill)
        timer.start()
        try:
            if child.stdin is None or child.stdout is None:
                return ""
            child.stdin.write(line)
            child.stdin.flush()
            answer = child.stdout.readline()
        except OSError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            self.close()
        return answer


@cache
def formulas(process: int) -> Formulas:
    """The one that all comparisons of a process share; a forked process has its own."""
    return Formulas()


def latex(answer: str | Fraction) -> str:
    """The answer in LaTeX if it reads as a formula that is cheap to compare, else ""."""
    if isinstance(answer, Fraction):
        return f"\\frac{{{answer.numerator}}}{{{answer.denominator}}}" if answer.denominator > 1 else str(answer)
    text = unwrapped(answer) if len(answer) <= LONGEST_FORMULA else ""
    text = re.sub(r"\*\*\s*(\(-?[0-9/]{1,5}\)|-?[0-9]{1,3})", r"^{\1}", text)
    dense = re.sub(r"\s", "", text)
    # A matrix is bounded by its length.
    plain = _MATRIX.sub(" ", text)
    if _NO_FORMULA.search(plain) or len(re.findall(r"[(\[{]", text)) != len(re.findall(r"[)\]}]", text)):
        return ""
    if not re.search(r"[0-9a-zA-Z]", text) or _UNKNOWN.search(plain) or _COSTLY.search(dense):
        return ""
    if re.search(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", " ", plain)) and _EXPANDED.search(dense):
        return ""
    text = _MATRIX.sub(lambda m: f"\\{m[1] or m[2]}{{pmatrix}}", text)
    text = re.sub(r"^\{([^{}\\]*,[^{}\\]*)\}$", r"\\{\1\\}", text.replace("<=", r"\le ").replace(">=", r"\ge "))
    text = re.sub(r"\\sqrt\s*([0-9a-z]+)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\\a-zA-Z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(rf"(?<![\\a-zA-Z])({_NAMES})(?![a-zA-Z])", r"\\\1 ", text)
    plain = re.sub(r"\\[a-zA-Z]+(?:\{pmatrix\})?", " ", text)
    return "" if _WORD.search(plain) else text.replace("*", " \\cdot ")


def _decided(one: str, other: str) -> bool | None:
    """Whether two formulas mean the same, where brackets, unknowns or arithmetic tell; None where they do not."""
    related = _RELATION.search(one) or _RELATION.search(other)
    opens = {_opening(one), _opening(other)}
    same = None
    if one == other:
        same = True
    elif len(opens) == 2 and "" not in opens:
        same = False
    elif len(opens) == 2 and "\\{" not in opens and not related:
        same = _dense(one.strip("()[] ")) == _dense(other.strip("()[] "))
    elif not related and _unknowns(one) != _unknowns(other):
        same = False
    elif not (_OPERATION.search(one) or _OPERATION.search(other)):
        same = opens <= {"", "\\{"} and _items(one) == _items(other)
    elif None not in (values := (arithmetic(one), arithmetic(other))):
        same = values[0] == values[1]
    return same


def _opening(formula: str) -> str:
    r"""The brackets around the whole of a formula: `(`, `[`, `\{`; "" where it is no list in brackets."""
    found = _LISTED.fullmatch(formula.strip())
    return found[1] if found else ""


def _items(formula: str) -> list[str]:
    """The parts of a set or a bare list, which have no order."""
    return sorted(str(canonical(part)) for part in formula.strip("\\{} ").split(","))


def arithmetic(formula: str) -> Fraction | None:
    """What sums, products, quotients and small powers of numbers come to, exactly; None for anything else."""
    if "**" in formula or "//" in formula:
        return None
    text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"((\1)/(\2))", formula.rstrip("\\ "))
    text = re.sub(r"\\div(?![a-z])", "/", re.sub(r"\\(?:cdot|times)(?![a-z])", "*", text))
    text = re.sub(r"\s*\^\s*(?:\{(-?[0-9]{1,2})\}|([0-9]))", r"**(\1\2)", text).strip()
    if not re.fullmatch(r"[-+*/()0-9.\s]{1,120}", text):
        return None
    with suppress(SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return _computed(ast.parse(re.sub(r"\b0+(?=[0-9])", "", text), mode="eval").body)
    return None


def _computed(node: ast.AST) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as value):
            return Fraction(str(value))
        case ast.UnaryOp(operand=operand):
            return -_computed(operand) if isinstance(node.op, ast.USub) else _computed(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, power = _computed(left), _computed(right)
            if power.denominator == 1 and abs(power) * (base.numerator * base.denominator).bit_length() < LONGEST_POWER:
                return base**power.numerator
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_computed(left), _computed(right))
    raise ValueError("expected arithmetic")


def _dense(text: str) -> str:
    return re.sub(r"\s", "", text)


def _unknowns(formula: str) -> set[str]:
    """Letters that stand for something unknown."""
    return set(re.findall(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", " ", formula)))
