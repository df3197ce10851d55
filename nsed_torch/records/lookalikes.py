"""What a text looks like, whatever characters it is spelled with: how forged marks and control tokens are found."""

import re
import unicodedata
from functools import cache

_ALIKE = str.maketrans(
    "аеорсухіѕјԁһԛԝвкмтɡıαοντικχρε‹〈⟨❮ᐸ›〉⟩❯ᐳǀ│∣❘¦⁄∕‐‑‒–—−▁",  # noqa: RUF001 - Cyrillic, Greek, brackets, bars
    "aeopcyxisjdhqwbkmtgiaovtikxpe<<<<<>>>>>|||||//------_",
)
"""Characters that Unicode's compatibility forms do not bring together, though eyes do."""


CONTROL = re.compile(
    r"<\|[^<>\s]{1,48}>"  # ChatML, Llama 3, Phi, GLM, DeepSeek, Command: <|im_start|>
    r"|<[^<>|\s]{1,48}\|>"
    r"|</?(?:s|bos|eos|pad|unk|cls|sep|mask|sop|eop|think|tool_call|tool_response|endoftext)>"
    r"|<(?:start|end)_of_[a-z]+>|<[a-z_]+_token>|<(?:unused|extra_id_|reserved_)\d+>"  # Gemma, Nemotron, Baichuan
    r"|<</?sys>>|\[/?(?:inst|system_prompt|available_tools|tool_[a-z]+|think|args|gmask|bos|eos)\]"  # Llama 2, Mistral
)
"""Control tokens of the known families of chat models, as `skeleton` spells them."""


def skeleton(text: str) -> tuple[str, list[int]]:
    """What a text looks like, in small letters, and where each of its characters stands in the text.

    Compatibility forms are decomposed; accents and what has no width are left out; look-alikes are one.
    """
    if text.isascii():
        return text.lower(), list(range(len(text)))
    pairs = [(shape, i) for i, character in enumerate(text) for shape in _shapes(character)]
    return "".join(shape for shape, _ in pairs), [i for _, i in pairs]


def spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """Where a text looks like a pattern of small ASCII letters: starts and ends."""
    shape, places = skeleton(text)
    return [(places[found.start()], places[found.end() - 1] + 1) for found in pattern.finditer(shape)]


def replaced(pattern: re.Pattern[str], text: str, new: str) -> str:
    """The text with all that looks like the pattern replaced."""
    for start, end in reversed(spans(pattern, text)):
        text = text[:start] + new + text[end:]
    return text


def broken(pattern: re.Pattern[str], text: str) -> str:
    """The text with a space behind the first character of all that looks like the pattern."""
    while found := spans(pattern, text):  # breaking one may leave another
        for start, _ in reversed(found):
            text = f"{text[: start + 1]} {text[start + 1 :]}"
    return text


def one_line(said: object, most: int = 300) -> str:
    """A stranger's text in one line, without the control characters that a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(said)[:4000]).split())[:most]


@cache
def _shapes(character: str) -> str:
    forms = unicodedata.normalize("NFKD", character).lower().translate(_ALIKE)
    return "".join(c for c in forms if unicodedata.category(c) not in {"Mn", "Me", "Cf", "Cc"} or c in "\t\n\r")
