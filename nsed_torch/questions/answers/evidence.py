r"""Where a text says its answer: every way in which models mark one, the strongest first."""

import itertools
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from nsed_torch.core.thoughts import part_thoughts
from nsed_torch.traces.canonical import shown


class Evidence(NamedTuple):
    """A passage of a text that gives an answer, as it was written, and what marks it."""

    answer: str
    mark: str  # "box", "tag", "field", "brackets", "call", "sentence", "heading"; weaker ones are named by `kinds`


LONGEST_PHRASE = 2000
"""Characters of a sentence that are looked at behind its mark."""

_BRACES = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{|\\?[{}]")
_TAG = re.compile(r"<((?:final[_ -]?)?answer|result)>(.{0,4000}?)(?:</\1\s*>|(?=<\1>)|\Z)", re.IGNORECASE | re.DOTALL)
_CLOSED = re.compile(r"</answer\s*>", re.IGNORECASE)
_FIELD = re.compile(
    r"[\"'](?:final[_ ]?answer|answer|correct[_ ]?(?:answer|option)|choice)[\"']\s*:\s*"
    r"(?:\"((?:[^\"\\]|\\.){0,4000})\"|'((?:[^'\\]|\\.){0,4000})'|(\[[^\[\]]{0,4000}\])|([^\s,\"'}\[{][^,}\n]{0,200}))",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"(?<!\[)\[\[\s*((?:[^\[\]]|\[[^\[\]]{0,400}\]){1,2000}?)\s*\]\](?!\])")
_CALL = re.compile(r"\bfinal_answer\(\s*([^()\n]{1,400}?)\s*\)")
_HASHED = re.compile(r"####(?!#)[^\S\n]*([^\n]{1,2000})")
_IS = (
    r"(?:\b(?:is|are|equals)\b|\b(?:would|will|must|should|can only)\s+be\b|\bcomes?\s+(?:out\s+)?to\b"
    r"|[:=\u2192\u21d2]|[-=]+>|\s[\u2013\u2014-](?=\s))"
)
# Bounded runs: where three may share the same spaces, the time grows with the square of their number.
_ABOUT = r"(?:\s{1,40}(?:to|for|of|in)\b[^.:\n]{0,120}?)?(?:\s{0,40}\([^()\n]{0,60}\))?(?:\s{0,40},[^,.\n]{0,40},)?"
_QUOTES = r"[\"'`*_\s]{0,40}"
_REST = rf"[*_:\s]*(?=([^\n]{{1,{LONGEST_PHRASE}}}))"
_SAID = re.compile(rf"\b(?:answer|option|choice)s?{_QUOTES}{_ABOUT}{_QUOTES}{_IS}{_REST}", re.IGNORECASE)
# "Answer" and "is" in other languages; what is no Latin letter has no spaces around it.
_LATIN = (
    "antwort|antwoord|r\xe9ponse|respuesta|resposta|risposta|odpowied\u017a|odpov\u011b\u010f|svaret|svar|vastaus|cevap"
    "|v\xe1lasz|r\u0103spunsul|r\u0103spuns|jawabannya|jawaban|c\xe2u tr\u1ea3 l\u1eddi|\u0111\xe1p \xe1n"
    "|\u043e\u0442\u0432\u0435\u0442"
    "|\u0432\u0456\u0434\u043f\u043e\u0432\u0456\u0434\u044c|\u03b1\u03c0\u03ac\u03bd\u03c4\u03b7\u03c3\u03b7"
)
_FINAL = "finale?|corre[ct]+[ae]?|correta|juste|richtige|endg\xfcltige"
_OTHERS = (
    "\u7b54\u6848|\u7b54\u3048|\u6b63\u89e3|\u89e3\u7b54"
    "|\uc815\ub2f5|\ub2f5|\u0627\u0644\u0625\u062c\u0627\u0628\u0629|\u0627\u0644\u062c\u0648\u0627\u0628"
    "|\u0909\u0924\u094d\u0924\u0930|\u05d4?\u05ea\u05e9\u05d5\u05d1\u05d4"
)
_COPULAS = (
    "(?:ist|lautet|w\xe4re|est|es|\xe9|\xe8|is|to|brzmi|je|\xe4r|er|on|este|adalah|l\xe0|\u03b5\u03af\u03bd\u03b1\u03b9)(?!\\w)"
    "|\u5e94\u8be5\u662f|\u5e94\u4e3a|\u662f|\u4e3a|\u70ba|\u306f|\uc740|\ub294|\u0647\u064a|\u0647\u0648|\u0939\u0948|\u05d4\u05d9\u05d0"
)
_FOREIGN = re.compile(
    rf"(?:\b(?:{_LATIN})|{_OTHERS})(?:[*_\s]+(?:{_FINAL}))?[*_\s]*"
    rf"(?:(?:{_COPULAS})\s*:?|[:=\u2014\u2013]|->){_REST}"
    rf"|(?:\u9009|\u9009\u62e9){_REST}",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"^[#>*_\s-]{0,12}(?:final\s+|correct\s+)?answer[*_]*\s*$\s*^[ \t>*_-]*([^\n]{1,2000})",
    re.IGNORECASE | re.MULTILINE,
)
_NEGATED = re.compile(r"(?:certainly |definitely )?(?:not|n't|never|neither)\b", re.IGNORECASE)
_INSTEAD = re.compile(
    r"\b(?:it(?:'s|\s+is)|that(?:'s|\s+is)|but(?:\s+rather)?|instead|rather)[:,]?\s+(?!not\b)(.+)", re.IGNORECASE
)
# A sentence ends at a period that is no abbreviation's and no initial's.
_SENTENCE_END = re.compile(
    r"(?:(?<![A-Z])(?<!\b[A-Z][a-z])(?<!\bvs)(?<!\bMrs)\."
    r"|(?<=[A-Z])\.(?=[*_)\s]+(?:It|The|This|That|Because|Since|So|Thus|As|We|Its|Here|In)\b)|[;!?])(?:[*_)\"'\u201d]*\s|$)"
    r"|[\u3002\uff01\uff1f\u0964]"
)
_ASKED = "question|problem|exercise|instruction|user|human|input"
_TURN = re.compile(
    rf"^[ \t>*_#]*(?:(?:next\s+|new\s+)?(?:{_ASKED}|student)(?:\s*#?[0-9]{{1,4}})?[*_]*\s*[:.](?!\w)"
    rf"|Q\s?[0-9]{{0,3}}[:.](?!\w)"
    rf"|\[INST\]|###[ \t]*$|###[ \t]+(?:{_ASKED}|example|task)\b)"
    r"|<\|(?:im_start|im_end|eot_id|end|user|endoftext|start_header_id)\|>|</s>|<(?:end|start)_of_turn>",
    re.IGNORECASE | re.MULTILINE,
)
_CANNOT = (
    r"can(?:'|\s?no)t|could(?:n't|\s+not)|do(?:n't|\s+not)|wo(?:n't|uld\s+rather\s+not)|will\s+not"
    r"|am\s+(?:unable|not\s+able)"
)
_REFUSAL = re.compile(
    r"i(?:'m|\s+am)?\s+(?:\w+\s+)?(?:sorry|afraid)"
    rf"|(?:i|we)\s+(?:(?:really|simply|just)\s+)?(?:{_CANNOT})(?:\s+\w+)?\s+"
    r"(?:help|assist|answer|know|determine|provide|tell|say|find|solve|comply|do\s+that|be)"
    r"|i(?:'m|\s+am)\s+(?:unable|not\s+(?:sure|able))|as\s+an\s+ai\b|no\s+idea\b"
    r"|(?:it\s+is\s+)?(?:not\s+possible|impossible)\s+to\s+(?:say|tell|answer|determine|know)"
    r"|(?:it\s+)?cannot\s+be\s+(?:determined|answered|known)|(?:n/?a|unknown|none\s+given|undetermined)[.!]?$",
    re.IGNORECASE,
)
_ENCLOSED = re.compile(r"\[[^\[\],;]*\]")
_MARKDOWN = re.compile(r"~~[^~\n]{1,200}~~|</?(?:b|i|em|strong|u|p|span|code|mark|br|div)\s*/?>", re.IGNORECASE)
_SYMBOL = "[\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\\s]"
# A run is looked at from its beginning alone, or a long one within a text would be tried from each of its places.
_SYMBOLS = re.compile(f"^{_SYMBOL}+|(?<!{_SYMBOL}){_SYMBOL}+$")
_POLITE = re.compile(
    r"(?:(?<!\s)\s+)?(?:\u3067\u3059|\u3067\u3042\u308b|\u3060|\uc785\ub2c8\ub2e4|\uc774\ub2e4|\u0939\u0948)?[\u3002\u0964\uff0e]?$"
)


def readable(text: str) -> str:
    """A text as it is to be read: without thoughts, struck words and characters that do not show, digits as 0 to 9."""
    text = shown(part_thoughts(text).answer.replace("\r\n", "\n").replace("\r", "\n"))
    return _MARKDOWN.sub(" ", text) if "<" in text or "~~" in text else text


def evidence(text: str) -> Iterator[Evidence]:
    """The passages that mark an answer, in the order in which they are believed; `text` is `readable`.

    First boxes, tags, fields of JSON, double brackets and calls of `final_answer`, of which the last is believed most;
    then what follows "the answer is" in any of a score of languages, then a line behind `####` or the heading Answer.
    Of several the last; but where a text goes on with another question, what follows that is not the text's own.
    """
    text = own_turn(text)
    strong = sorted(_strong(text), reverse=True)
    sentences = sorted(
        ((m.start(), next(filter(None, m.groups()))) for rule in (_SAID, _FOREIGN) for m in rule.finditer(text)),
        reverse=True,
    )
    passages = itertools.chain(
        ((said, mark) for _, said, mark in strong),
        ((phrase, "sentence") for _, said in sentences for phrase in _phrase(said, text)),
        ((said, "heading") for said in reversed(_HASHED.findall(text))),
        ((said, "heading") for said in reversed(_HEADING.findall(text))),
    )
    for said, mark in passages:
        if (answer := bare(said)) and not refuses(answer):
            yield Evidence(answer, mark)


def own_turn(text: str) -> str:
    """A text up to where it begins another question or turn, once it has given an answer."""
    if (turn := _TURN.search(text)) is None:
        return text
    marks = (m.start() for rule in (_SAID, _FOREIGN, _HASHED, _TAG, _FIELD, _BRACKETS) if (m := rule.search(text)))
    first = min(itertools.chain(marks, (start for start, _ in boxes(text))), default=None)
    while turn is not None and (first is None or turn.start() < first):
        turn = _TURN.search(text, turn.end())
    return text[: turn.start()] if turn else text


def boxes(text: str) -> Iterator[tuple[int, str]]:
    r"""Where every closed `\boxed{...}` opens and what it holds, in one pass; the one that opens last comes first."""
    opened: list[int] = []  # where boxes begin; -1 for a brace of their own
    closed: list[tuple[int, int]] = []
    for mark in _BRACES.finditer(text):
        if mark[0] == "}":
            start = opened.pop() if opened else -1
            if start >= 0:
                closed.append((start, mark.start()))
        elif mark[0] not in (r"\{", r"\}"):
            opened.append(-1 if mark[0] == "{" else mark.end())
    return ((start, text[start:end]) for start, end in sorted(closed, reverse=True))


def bare(answer: str) -> str:
    """Without blanks, marks of emphasis and code, symbols and a final period around it."""
    text = answer.strip()
    for _ in range(3):
        text = _SYMBOLS.sub("", text).strip().strip("*_`").strip()
        text = text.removesuffix(".") if not text.endswith("..") else text
        text = _POLITE.sub("", text) if not text.isascii() else text
    text = text.lstrip("> ").strip("*_` ")
    return text[1:-1].strip() if _ENCLOSED.fullmatch(text) else text


def refuses(text: str) -> bool:
    """Whether a text says that there is no answer."""
    return bool(_REFUSAL.match(text.replace("\u2019", "'")))


def first_sentence(text: str) -> str:
    """A text up to the end of its first sentence."""
    return _SENTENCE_END.split(text, maxsplit=1)[0]


def last_line(text: str) -> str | None:
    """The last line that says anything, without marks of emphasis and a final period."""
    return next((answer for line in reversed(text.splitlines()) if (answer := bare(line))), None)


def _strong(text: str) -> Iterator[tuple[int, str, str]]:
    """Where passages begin that only mean an answer, what they hold, and their mark."""
    yield from ((start, held, "box") for start, held in boxes(text))
    yield from ((m.start(), m[2], "tag") for m in _TAG.finditer(text))
    if "<answer" not in text.lower() and (closed := _CLOSED.search(text)):  # where a prompt opened the tag
        yield 0, text[: closed.start()], "tag"
    yield from ((m.start(), _unquoted(m), "field") for m in _FIELD.finditer(text))
    yield from ((m.start(), m[1], "brackets") for m in _BRACKETS.finditer(text))
    yield from ((m.start(), m[1].strip("\"'"), "call") for m in _CALL.finditer(text))


def _unquoted(field: re.Match[str]) -> str:
    """A field's value; LaTeX in it may have been written with one backslash, which JSON takes for an escape."""
    double, single, listed, plain = field.groups()
    if double is None:
        return single or listed or (plain or "").strip().rstrip("`")
    try:
        decoded = str(json.loads(f'"{double}"', strict=False))
    except ValueError:
        decoded = "\f"
    return re.sub(r"\\([\"\\/])", r"\1", double) if re.search(r"[\b\f\r\t]|\n[a-z]", decoded) else decoded


def _phrase(said: str, text: str) -> Iterator[str]:
    """What a sentence gives as the answer: nothing where it says what the answer is not, unless it says what is."""
    if (negated := _NEGATED.match(said)) is None:
        yield first_sentence(said)
    elif instead := _INSTEAD.search(said, negated.end()):
        yield first_sentence(instead[1])
