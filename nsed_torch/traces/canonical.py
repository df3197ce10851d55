"""One spelling for an answer: numbers as numbers, everything else as a plain text that common variants share."""

import re
from fractions import Fraction

LONGEST_NUMBER = 64
"""Characters; what is longer is no number, so that no text makes arithmetic expensive."""

LONGEST_ANSWER = 400
"""Characters; what is longer is prose and compares word by word."""

_LOOK_ALIKES = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u00d7": "*", "·": "*", "÷": "/", "π": "\\pi ", "√": "\\sqrt ", "∞": "\\infty ",
        "°": "^\\circ", "²": "^2", "³": "^3", "½": " 1/2", "¼": " 1/4", "¾": " 3/4", "≤": "<=", "≥": ">=",
        "“": '"', "”": '"', "\u2019": "'", "\u00a0": " ", "\u202f": " ",
    }
)  # fmt: skip

_WRAPPERS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"\\boxed\{(.*)\}",
        r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}",
        r"\\\((.*)\\\)",
        r"\\\[(.*)\\\]",
        r"\$\$(.*)\$\$",
        r"\$([^$]*)\$",
        r"\*\*(.*)\*\*",
        r'"([^"]*)"',
        r"'([^']*)'",
        r"(.*[^.])\.",
    )
)

_GROUPED = r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+"
_DECIMAL = rf"(?:{_GROUPED})(?:\.[0-9]*)?|\.[0-9]+"
_CURRENCY = r"(?:\\?\$|€|£|¥|USD|EUR|Rs\.?)"
_MAGNITUDES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_NO_UNIT = (
    "pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|mod|inf|infinity|theta|phi|and|or|to|by|plus|minus|times|over|hundred|dozen"
    "|if|when|where|for|is|more|less|at|not|thousand|million|billion|trillion"
)
_WORDS = rf"(?:\s+(?!(?:{_NO_UNIT})\b)[a-z]{{2,}}(?:\^[23])?(?:[\s/-]+(?!(?:{_NO_UNIT})\b)[a-z]+(?:\^[23])?){{0,3}})"
_MARKED = r"(?:\\(?:text|mathrm|mbox)\{[a-z\s/.]*\})(?:\^\{?[23]\}?)?"
_UNIT = rf"(?:\s*(?:\\?%|\^\{{?\\circ\}}?|{_MARKED}|{_CURRENCY})|{_WORDS})"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)\s*{_CURRENCY}?\s*(?P<inner>-?)(?:(?P<whole>[0-9]+)\s+(?=[0-9]+/))?(?P<top>{_DECIMAL})"
    rf"(?:\s*/\s*(?P<bottom>{_DECIMAL}))?(?:e(?P<power>[+-]?[0-9]{{1,2}}))?"
    rf"(?:\s*(?P<magnitude>{'|'.join(_MAGNITUDES)}))?{_UNIT}?",
    re.IGNORECASE,
)
_DEFINED = re.compile(r"(?:[a-zA-Z](?:_?[0-9a-z])?|[a-zA-Z]\([a-z]\)|[0-9\s.,+*/^()\\$-]+)\s*=\s*([^=]+)", re.DOTALL)


def canonical(answer: str) -> Fraction | str:
    r"""The one spelling that equal answers share; equality of its results is an equivalence by construction.

    `1,234.50`, `$1234.5`, `\$1234.5 dollars` and `x = \frac{2469}{2}` are one number, exactly; `50%` is 50, as graders
    of such benchmarks have it. What is no number loses wrappers, spacing commands, case, and the difference between
    `6\sqrt{2}`, `6*sqrt(2)` and `6√2`. Our reading of "numbers as numbers". "" is an answer without content.
    """
    if len(answer.strip()) > LONGEST_ANSWER:
        return " ".join(answer.split()).casefold()
    text = unwrapped(answer)
    number = _number(text)
    if number is None and (defined := _DEFINED.fullmatch(text)):
        right = unwrapped(defined[1])
        number = _number(right)
        # `12 + 3 = 15 apples` is 15, but `12 + 3 = y` is no definition of anything.
        text = right if text[0].isalpha() else text
    return _plain(text) if number is None else number


def unwrapped(answer: str) -> str:
    """The answer without quotes, math delimiters, boxes, bold marks and a final period around the whole of it."""
    text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", answer.translate(_LOOK_ALIKES)).strip()
    text = re.sub(r"\\left(?![a-z])|\\right(?![a-z])|\\[!,;:]|~", "", text.replace("{,}", ","))
    while inner := next((m[1] for p in _WRAPPERS if (m := p.fullmatch(text)) and _balanced(m[1])), ""):
        text = inner.strip()
    return text


def _balanced(text: str) -> bool:
    r"""Whether no brace closes before it opens: `\boxed{a} and \boxed{b}` is no single box."""
    depth = 0
    for mark in re.findall(r"[{}]", text):
        depth += 1 if mark == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def _number(text: str) -> Fraction | None:
    if len(text) > LONGEST_NUMBER:
        return None
    text = re.sub(r"\\[dt]?frac\s*\{\s*(-?[0-9.]+)\s*\}\s*\{\s*([0-9.]+)\s*\}", r" \1/\2", text)
    text = re.sub(r"\\[dt]?frac\s*([0-9])\s*([0-9])(?![0-9])", r" \1/\2", text)
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return None
    value, bottom = _fraction(found["top"]), _fraction(found["bottom"] or "1")
    if not bottom:
        return None
    value = value / bottom + int(found["whole"] or 0)
    value *= Fraction(10) ** int(found["power"] or 0) * _MAGNITUDES.get((found["magnitude"] or "").lower(), 1)
    return -value if (found["sign"] == "-") != (found["inner"] == "-") else value


def _fraction(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").rstrip("."))


def _plain(text: str) -> str:
    """A text without what only looks different: case, spacing, multiplication signs, LaTeX's names and braces."""
    text = re.sub(r"\\(?:text|mathrm|mbox|textbf|mathbf|operatorname)\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\^\{?\\circ\}?|\\%|\\\$|(?<![a-zA-Z\\])\$", "", text)
    text = re.sub(r"\\sqrt\s*([0-9a-zA-Z]+)", r"\\sqrt{\1}", re.sub(r"\\[dt]frac", r"\\frac", text))
    text = re.sub(r"\\frac\s*([0-9])\s*([0-9])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"(\1)/(\2)", text)
    text = re.sub(r"\\(?:cdot|times)(?![a-zA-Z])", "*", text)
    text = text.replace("\\{", "[").replace("\\}", "]").replace("{", "(").replace("}", ")")
    text = re.sub(r"[\s\\]+", "" if re.search(r"[\\^*/+=()\[\]]", text) else " ", text).strip(" .:;!\"'`").casefold()
    text = re.sub(r"(?<![0-9])\*|\*(?![0-9])", "", text)
    return re.sub(r"(?<![0-9a-z)])\((-?[0-9a-z.]+)\)(?![0-9a-z(^])|(?<=sqrt)\(([0-9a-z]+)\)", r"\1\2", text)
