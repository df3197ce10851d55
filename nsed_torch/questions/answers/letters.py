"""The letter that an answer names, of options that are known or not."""

import itertools
import re
import string
from collections.abc import Sequence

from nsed_torch.questions.answers.evidence import bare, evidence, first_sentence, own_turn, refuses
from nsed_torch.traces.canonical import LONGEST_ANSWER, canonical, unwrapped

LETTERS = string.ascii_uppercase
STATEMENTS = 100  # looked at in a text; more name no option, they keep the grader busy

_MARK = r"[(\[{\"'`*_]{0,9}"  # of a longer run every place would be a beginning
_SEEMS = r"(?:is|seems(?:\s+to\s+be)?|looks|must\s+be|would\s+be|appears\s+to\s+be)"
_RIGHT = (
    r"(?:(?:therefore|thus|clearly|indeed)\s+)?(?:the\s+)?(?:(?:most|only|single)\s+)?(?:(?:likely|probable)\s+)?"
    r"(?:right|correct|best|true|accurate|appropriate|answer)\b(?!\?)"
)
_CHOSEN = re.compile(
    r"\b(?:choose|chose|pick|select|go(?:ing)?\s+(?:with|for)|settle\s+(?:on|for)|opt\s+for|vote\s+for|leaning\s+towards?"
    r"|answer\s+with)\s+(?:the\s+)?(?=([^\n]{1,200}))",
    re.IGNORECASE,
)
_PRAISED = re.compile(
    r"(?<![\w'\u2019])(?<!if )(?<!hether )(?<!If )(?<!ther )(?<!nor )(?<!and )(?<!or )"
    rf"{_MARK}([A-Z])[)\].*_`\"':]*\s+{_SEEMS}\s+{_RIGHT}"
)
_MANY = re.compile(r"\W*[A-Z]\W*\s*(?:,|/|&|\bor\b|\band\b)\s*\W*[A-HJ-Z](?![\w'\u2019])")
_LINE = re.compile(
    r"^[ \t>*_#$-]*(?:(?i:(?:final\s+)?(?:answer|option|choice)\s+)[*_]*)?([(\[]?[A-Z][)\].:]*)[ \t*_$]*$", re.MULTILINE
)
_SO = re.compile(
    r"\b(?:[Tt]herefore|[Tt]hus|[Hh]ence|[Ss]o),?\s+(?:it(?:'s|\s+is|\s+must\s+be)\s+)?[(\[*_]*([A-Z])[)\]*_]*[.!]?\s*$",
    re.MULTILINE,
)
_LABEL = re.compile(r"^[ \t>*_-]*[(\[]?([A-Z])[)\].:]", re.MULTILINE)
_LISTED = re.compile(r"^[ \t>*_-]*(?:\(([A-Z])\)|([A-Z])[).:])[ \t]+(\S[^\n]*)", re.MULTILINE)
_INLINE = re.compile(r"(?<![\w(])\(?([A-Z])[).:]\s+(.+?)(?=[,;]?\s+\(?[A-Z][).:]\s|\s*$)")
_LEAD = re.compile(
    r"^(?:that\s+|as\s+|most\s+likely\s+|probably\s+|clearly\s+|definitely\s+|simply\s+|the\s+)*(?:(?:right|correct|best)\s+)?"
    r"(?:(?:option|choice|letter|answer|alternative|statement)\s{0,40}(?:is\s{1,40})?(?:[:#]\s{0,40})?)(?=\W{0,40}[A-Za-z]\b)",
    re.IGNORECASE,
)
_ADVERB = re.compile(
    r"^(?:most\s+likely|probably|clearly|definitely|simply|indeed|therefore|thus|likely)[,:]?\s+", re.IGNORECASE
)
_WORDING = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathsf|boldsymbol)\{([^{}]*)\}")
_LONE = re.compile(r"[(\[]?\s*([A-Za-z])\s*[)\]]?[.:]?")
# A letter in front of more words: marked off, or followed by a word that no article has behind it; "A or B" names none.
_FRONT = re.compile(
    r"[(\[]?([A-Z])"
    r"(?:[)\].:]+(?=\s|$)|[)\]]|(?=[,;]|\s*$)|(?=\s+(?:[-\u2013\u2014=]\s|\())|(?=\s+is\s+(?:the\s+)?(?:most\s+)?(?:right|correct|best|answer|true)\b)"
    r"|(?=\s+(?:because|since|as|which|where|that|with|from|in|for|by|and|but|not|if|when|given|due)\b))"
    r"(?!\s*(?:,|/|&|or\b|and\b)\s*[(\[]?[A-HJ-Z][)\]]?(?![\w'\u2019]))"
)


def listed(options: Sequence[str]) -> str:
    """Options as agents see them, `A) ...` a line."""
    return "\n".join(f"{letter}) {option}" for letter, option in zip(LETTERS, options, strict=False))


def options_in(question: str) -> tuple[str, ...]:
    """The options that a question lists under letters from A on, a line each or in one line; none where it does not."""
    for found in (
        [(one or other, option) for one, other, option in _LISTED.findall(question)],
        _INLINE.findall(question[-2000:].replace("\n", " ")),
    ):
        # The last list that begins with A: examples may stand before it.
        start = max((i for i, (letter, _) in enumerate(found) if letter == "A"), default=0)
        options = [
            option.strip() for letter, (mark, option) in zip(LETTERS, found[start:], strict=False) if letter == mark
        ]
        if len(options) >= 2 and len(options) == len(found[start:]):
            return tuple(options)
    return ()


def chosen_letter(text: str, options: Sequence[str]) -> tuple[str | None, str]:
    r"""The option that a text names, as its letter, and by which evidence; None and "" where it names no single one.

    First what marks an answer (`evidence`), then "I choose B" and "B is correct", then a line that is a letter. Each
    may name a letter, `B`, `(B)`, `B) ...`, or be an option's full text. Then the text itself, if it begins with a
    letter that is no word (and is no list of options); then its last line, if it is an option's full text. The article
    in "A man" is no answer, and a letter beyond the options is none. Our reading of how models name options.
    """
    whole = own_turn(text).strip()
    marked = ((found.answer, found.mark) for found in evidence(text))
    chosen = ((said, "choice") for said in reversed(_CHOSEN.findall(whole)))
    praised = ((letter + ".", "choice") for letter in reversed(_PRAISED.findall(whole)))
    lines = ((said, "line") for said in reversed(_LINE.findall(whole)))
    concluded = ((letter + ".", "choice") for letter in reversed(_SO.findall(whole)))
    for said, mark in itertools.islice(itertools.chain(marked, praised, chosen, lines, concluded), STATEMENTS):
        if mark != "line" and _MANY.match(said):
            return None, ""
        if (letter := _named(said, options)) and not refuses(said):
            return (letter, mark) if letter in LETTERS[: len(options)] else (None, "")
    if len(set(_LABEL.findall(whole))) < 2 and (letter := _named(whole, options)):
        return (letter, "whole text") if letter in LETTERS[: len(options)] else (None, "")
    letter = _same(whole.rpartition("\n")[2], options)
    return (letter, "last line") if letter else (None, "")


def _named(said: str, options: Sequence[str]) -> str:
    """The letter that a statement names; "" for none, and a letter beyond the options where it is all that is said."""
    said = _LEAD.sub("", _ADVERB.sub("", _bare(said)))
    letters = LETTERS[: len(options)]
    lone, front = _LONE.fullmatch(said), _FRONT.match(said)
    if lone and lone[1].upper() in letters:
        return lone[1].upper()
    if same := _same(said, options) or _same(first_sentence(said), options):
        return same
    if lone:
        return lone[1].upper()
    return front[1] if front and front[1] in letters else ""


def _same(said: str, options: Sequence[str]) -> str:
    """The letter of the only option whose full text this is."""
    text = canonical(_bare(said))
    found = [letter for letter, option in zip(LETTERS, options, strict=False) if option and canonical(option) == text]
    return found[0] if len(found) == 1 and text != "" else ""


def _bare(said: str) -> str:
    """Without marks of emphasis, LaTeX's words for text, math delimiters, quotes and a final period."""
    text = bare(_WORDING.sub(r"\1", said).replace("*", "").replace("`", ""))
    return unwrapped(text) if len(text) <= LONGEST_ANSWER else text
