"""One spelling for an answer: numbers as numbers, everything else as a plain text that common variants share."""

import re
import unicodedata
from fractions import Fraction

LONGEST_NUMBER = 64
"""Characters; what is longer is no number, so that no text makes arithmetic expensive."""

LONGEST_ANSWER = 400
"""Characters; what is longer is prose and compares word by word."""

_LOOK_ALIKES = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u2010": "-", "\u2011": "-", "\u00d7": "*", "\u00b7": "*", "\u22c5": "*",
        "\u00f7": "/",
        "\u2044": "/", "\u03c0": "\\pi ", "\u221a": "\\sqrt ", "\u221e": "\\infty ", "\u00b1": "\\pm ",
        "\u222a": "\\cup ",
        "\u2229": "\\cap ", "\u2208": "\\in ", "\u2205": "\\emptyset ", "\u2260": "\\neq ", "\u03b8": "\\theta ",
        "\u00b0": "^\\circ", "\u00bd": " 1/2", "\u00bc": " 1/4", "\u00be": " 3/4", "\u2153": " 1/3", "\u2154": " 2/3",
        "\u2264": "<=", "\u2265": ">=", "\u201c": '"', "\u201d": '"', "\u201e": '"',
        "\u2018": "'", "\u2019": "'", "\u00a0": " ", "\u202f": " ",
    }
)  # fmt: skip
_RAISED = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b\u207a", "0123456789-+")
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: " ", 0x3010: "[", 0x3011: "]"}
_HIDDEN = dict.fromkeys(
    [0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF, 0xFE0E, 0xFE0F, 0x20E3]
)

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
    rf"(?:\s*/\s*(?P<bottom>{_DECIMAL}))?(?:(?:e|\s*(?:\*|x|\\times|\\cdot)\s*10\s*\^\s*)\{{?(?P<power>[+-]?[0-9]{{1,3}})\}}?)?"
    rf"(?:\s*(?P<magnitude>{'|'.join(_MAGNITUDES)}))?{_UNIT}?",
    re.IGNORECASE,
)
_DEFINED = re.compile(r"(?:[a-zA-Z](?:_?[0-9a-z])?|[a-zA-Z]\([a-z]\)|[0-9\s.,+*/^()\\$-]+)\s*=\s*([^=]+)", re.DOTALL)


_POWER = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207a\u207b]+")
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMERALS = {word: n for n, word in enumerate(_SMALL.split())} | {w: 10 * n for n, w in enumerate(_TENS.split(), 2)}
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6}
_PLAIN_WORDS = re.compile(r"[^\W\d_][^\W_]*(?:[\s'\".:!?-]+[^\W_]+)*[\s'\".:!?-]*")
_BETWEEN = re.compile(r"\s*[,;]\s*(?:and\s+|or\s+)?|\s+(?:and|or)\s+|(?<=[0-9])or(?=[-0-9])")
_SYMBOLS = {
    "km": "kilometer kilometre", "m": "meter metre", "cm": "centimeter centimetre", "mm": "millimeter millimetre",
    "mi": "mile", "ft": "foot feet", "in": "inch inche", "yd": "yard", "kg": "kilogram", "g": "gram", "mg": "milligram",
    "lb": "pound lbs", "s": "second sec", "min": "minute mins", "h": "hour hr", "day": "", "week": "", "month": "",
    "year": "", "l": "liter litre L", "ml": "milliliter millilitre mL", "%": "percent \\%", "deg": "degree ^\\circ",
    "$": "dollar USD \\$", "\u20ac": "euro EUR", "\u00a3": "GBP", "\u00a5": "yen JPY", "cent": "", "rad": "radian",
    "N": "newton", "J": "joule", "kJ": "kilojoule", "W": "watt", "kW": "kilowatt", "V": "volt", "Pa": "pascal",
    "kPa": "kilopascal", "Hz": "hertz", "kHz": "", "MHz": "", "K": "kelvin", "mol": "mole",
}  # fmt: skip
_UNITS = {
    name: symbol
    for symbol, names in _SYMBOLS.items()
    for word in (symbol, *names.split())
    for name in (word, f"{word}s")
}
_MEASURE = re.compile(
    r"[0-9.})]\s*(?:\\?\s)?(?:\\(?:text|mathrm|mbox)\{\s*)?(?:square |cubic )?"
    r"(\\?%|\^\{?\\circ|\\?\$|[\u20ac\u00a3\u00a5]|[a-zA-Z]+)\}?\s*[.$*)]*$"
    r"|^\W{0,3}?(\\?\$|[\u20ac\u00a3\u00a5])\s*[0-9]"
)


def canonical(answer: str) -> Fraction | str:
    r"""The one spelling that equal answers share; equality of its results is an equivalence by construction.

    `1,234.50`, `$1234.5`, `\$1234.5 dollars` and `x = \frac{2469}{2}` are one number, exactly; `50%` is 50, as graders
    of such benchmarks have it. What is no number loses wrappers, spacing commands, case, and the difference between
    `6\sqrt{2}`, `6*sqrt(2)` and `6\u221a2`; lists lose their last "and", and words what SQuAD's normal form leaves out.
    Our reading of "numbers as numbers". "" is an answer without content.
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
    if number is not None:
        return number
    return _words(text) or _plain(_listed(text))


def unit(answer: str) -> str:
    """The unit of measurement or currency behind a number, by its symbol; "" for none, or one that we do not know.

    Examples:
        >>> unit("5 kilometers"), unit("5 km"), unit("$5"), unit("17 apples")
        ('km', 'km', '$', '')
    """
    found = _MEASURE.search(answer.translate(_LOOK_ALIKES)) if len(answer) <= LONGEST_NUMBER else None
    name = next(filter(None, found.groups()), "") if found else ""
    return _UNITS.get(name, _UNITS.get(name.lower(), ""))


def shown(text: str) -> str:
    """A text with letters of one width, digits from 0 to 9, and no characters that do not show."""
    if text.isascii():
        return text
    text = text.translate(_WIDE).translate(_HIDDEN)
    return "".join(str(unicodedata.decimal(c)) if not c.isascii() and c.isdecimal() else c for c in text)


def unwrapped(answer: str) -> str:
    """The answer without quotes, math delimiters, boxes, bold marks and a final period around the whole of it."""
    text = _POWER.sub(lambda m: f"^{{{m[0].translate(_RAISED)}}}", shown(answer)).translate(_LOOK_ALIKES)
    text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text).strip()
    text = re.sub(
        r"\\left(?![a-z])|\\right(?![a-z])|\\(?:big|Big|bigg|Bigg)[lr]?(?![a-z])|\\[!,;:]", "", text.replace("{,}", ",")
    )
    text = re.sub(r"\\ |~|\\q?quad(?![a-z])", " ", text)
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
        return _spelled_out(text)
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
    text = text.replace("\\{", "\u27e8").replace("\\}", "\u27e9").replace("{", "(").replace("}", ")")
    text = (
        re.sub(r"[\s\\]+", "" if re.search(r"[\\^*/+=()\[\]\u27e8]", text) else " ", text).strip(" .:;!\"'`").casefold()
    )
    text = re.sub(r"(?<![0-9])\*|\*(?![0-9])", "", text)
    return re.sub(r"(?<![0-9a-z)])\((-?[0-9a-z.]+)\)(?![0-9a-z(^])|(?<=sqrt)\(([0-9a-z]+)\)", r"\1\2", text)


def _spelled_out(text: str) -> Fraction | None:
    """A number in English words, up to millions; None for anything else."""
    words = [word for word in re.split(r"[\s-]+", text.strip().lower()) if word != "and"]
    total = part = 0
    if not words or words[0] in _SCALES or not all(word in _NUMERALS or word in _SCALES for word in words):
        return None
    last = 1000
    for word in words:
        if word in _SCALES:
            part *= _SCALES[word]
            if _SCALES[word] > 100:
                total, part = total + part, 0
            last = 100
            continue
        # "twenty three" is a number, "three twenty" and "one two" are not.
        value = _NUMERALS[word]
        if value >= last:
            return None
        part, last = part + value, 10 if value >= 20 else 1
    return Fraction(total + part)


def _words(text: str) -> str:
    """Plain words as SQuAD compares them: no case, punctuation or articles; "" for what is more than words."""
    if not _PLAIN_WORDS.fullmatch(text):
        return ""
    # The last word of "vitamin A" is no article.
    text = re.sub(r"(?<![\w-])(?:the|an?|The|An|THE)\s+(?=\w)|^A\s+(?=\w)", "", text.strip())
    return " ".join(re.sub(r"['\".:!?]", "", re.sub(r"[\s-]+", " ", text)).casefold().split())


def _listed(text: str) -> str:
    """A list with commas alone between its parts; several values of one unknown as the list of these values."""
    if len(text) > 200 or not re.search(r",|;|or|\band\b", text):
        return text
    if braced := re.fullmatch(r"\\?\{([^{}\\]*)\\?\}", text):  # a set has no order
        return "\\{" + ", ".join(sorted({part.strip() for part in _BETWEEN.split(braced[1])})) + "\\}"
    if nested := re.fullmatch(r"\[(\[[^\[\]]*\](?:\s*;\s*\[[^\[\]]*\])+)\]", text):
        text = nested[1]  # two answers, each in brackets
    wrapped = re.fullmatch(r"\[([^\[\]]*)\]", text)
    inner = wrapped[1] if wrapped else text
    parts = [part.strip() for part in _BETWEEN.split(inner)]
    if len(parts) < 2 or not all(parts) or any(len(part.split()) > 4 for part in parts):
        return text
    values = [re.fullmatch(r"([a-zA-Z])(?:_\{?[0-9]\}?)?\s*=\s*([^=]+)", part) for part in parts]
    if len({found[1] if found else "" for found in values}) == 1 and values[0]:
        parts = sorted(found[2].strip() for found in values if found)
    # Of several unknowns, or one of several values; "or" may be a word of a list.
    elif all(values) or (re.search(r"\bor\b|[0-9]or", text) and all(re.search("[0-9]", part) for part in parts)):
        parts.sort()
    quoted = [re.sub(r"^(['\"])(.*)\1$", r"\2", part) for part in parts]
    if all(re.fullmatch(r"[^\W\d][\w\s'.-]*", part) for part in quoted):
        return ", ".join(_words(part) or part for part in quoted)  # words in brackets are the same words
    joined = ", ".join(parts)
    return f"[{joined}]" if wrapped else joined
