"""Compares formulas by math-verify, in a process of its own: what takes too long or too much is stopped from outside.

It reads pairs of formulas, a JSON list a line, and answers each with a line: whether they mean the same.
"""

import contextlib
import json
import logging
import signal
import sys
from functools import lru_cache
from typing import Any

SECONDS = 2.0
"""Of processor time for a pair, so that no answer depends on how busy the machine is."""

MEMORY = 2 << 30
"""Bytes."""


class _TooLongError(BaseException):
    """No `Exception`, which a library might catch."""


def _stop(*_: object) -> None:
    raise _TooLongError


@lru_cache(4096)
def _parsed(formula: str) -> list[Any]:
    """What math-verify reads; empty where it cannot."""
    import math_verify  # noqa: PLC0415 - an extra; costs a second

    # LaTeX between dollars alone: its search for plain numbers would read `4 + 25x` as 25.
    found: list[Any] = math_verify.parse(
        f"${formula}$", [math_verify.LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None
    )
    return found


def _exact(formula: Any) -> Any:
    """With decimals as the fractions that they were written as."""
    import sympy  # type: ignore[import-untyped] # noqa: PLC0415 - comes with math-verify

    return formula.xreplace({number: sympy.Rational(str(number)) for number in formula.atoms(sympy.Float)})


@lru_cache(4096)
def _value(formula: str) -> Any:
    """What a formula comes to, to sixty digits, at a point where its unknowns are no special numbers; None of a set."""
    import sympy  # noqa: PLC0415 - as above

    read = _parsed(formula)
    if not read or not isinstance(read[0], sympy.Expr):
        return None
    names = sorted(read[0].free_symbols, key=str)
    # The same unknown has the same value in every formula.
    point = {name: sympy.Rational(sum(map(ord, str(name))) % 97 + 7, 101) for name in names}
    value = _exact(read[0]).subs(point).evalf(60)
    return value if value.is_number and value.is_finite else None


def equal(one: str, other: str) -> bool:
    """Whether two formulas mean the same: constants by their values, others by math-verify where values agree."""
    import math_verify  # noqa: PLC0415 - as above

    values, read = [_value(one), _value(other)], [_parsed(one), _parsed(other)]
    if None not in values:
        if {str(s) for s in read[0][0].free_symbols} != {str(s) for s in read[1][0].free_symbols}:
            return False
        size = max(abs(value) for value in values)
        near = values[0] == values[1] or bool(abs(values[0] - values[1]) <= size * 10**-50)
        if not near or not read[0][0].free_symbols:
            return near
    # It reads the first of two as the right answer: an interval may be written as an inequality, but not the reverse.
    return any(math_verify.verify(*pair, timeout_seconds=None) for pair in (read, read[::-1]))


def main() -> None:
    """Answer line by line until there are no more."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - of Unix

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    timed = hasattr(signal, "setitimer")
    if timed:
        signal.signal(signal.SIGVTALRM, _stop)
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(2000)
    equal("x", "y+1")  # what it imports is no part of any pair
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        same = False
        try:
            if timed:
                signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            same = equal(*json.loads(line))
        except (Exception, _TooLongError):  # whatever a formula does to an algebra system, it is no equal of another
            same = False
        finally:
            if timed:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        sys.stdout.write("1\n" if same else "0\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
