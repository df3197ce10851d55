"""What servers say, in all the forms they say it in, every part of it checked."""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nsed_torch.core.engine import MOST_TOKENS, RatingScale
from nsed_torch.core.thoughts import part_thoughts
from nsed_torch.records.files import parse_json

READING_FAULTS = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What reading something else than a completion ends in."""

_LENGTH = {"length", "max_tokens", "max_output_tokens", "model_length"}
_STOP = {"stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete", "completed"}
_THOUGHT_PARTS = {"thinking", "reasoning", "redacted_thinking"}


class ReplyError(Exception):
    """A server's refusal or fault.

    Args:
        reason: its own words.
        status: the HTTP status, or the code within a reply of status 200; None where no reply came.
        after: seconds after which it wants to be asked again; None where it does not say.
        final: whether asking again is of no use, whatever the status.
    """

    def __init__(
        self, reason: str, status: int | None = None, after: float | None = None, *, final: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason, self.status, self.after, self.final = reason, status, after, final


class EndpointReply(NamedTuple):
    """What a server said."""

    text: str  # "" where it said nothing, as where a model only thought or called a tool
    thoughts: str
    reason: str | None  # why the text ended: "stop", "length", or the server's own word
    top: list[tuple[str, float]] | None  # log-probabilities of the likeliest first tokens, where the server says them
    read: int | None  # tokens; None where the server says none, or a number that no call can have
    written: int | None
    refusal: str

    @classmethod
    def of(cls, data: bytes, reasoning: Sequence[str] | None = None) -> "EndpointReply":
        """Read a completion; anything else is one of `READING_FAULTS`, and an error within it a `ReplyError`."""
        whole = parse_json(data, "reply", "correct it", halves=True)
        choice = (whole.get("choices") or [{}])[0]
        if error := whole.get("error") or choice.get("error"):
            code = error.get("code") if isinstance(error, dict) else None
            passing = type(code) is not int or not 400 <= code < 600
            raise ReplyError(reason_of(error) or "an error", 502 if passing else code)
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        content, reason = message.get("content"), choice.get("finish_reason")
        if not isinstance(reason, str | None) or not isinstance(content, str | list | None):
            raise TypeError("expected a text, got something else")
        said, inner = _parts(content) if isinstance(content, list) else (content or "", "")
        outer = message.get("reasoning_content") or message.get("reasoning") or ""
        thoughts, text = part_thoughts(_sound(said), reasoning)
        thoughts = "\n".join(filter(None, [_sound(outer) if isinstance(outer, str) else "", _sound(inner), thoughts]))
        read, written = _usage(whole.get("usage"), bool(text or thoughts))
        refusal, word = message.get("refusal"), (reason or "").lower()
        known = "length" if word in _LENGTH else "stop" if word in _STOP else reason
        return cls(text, thoughts, known, _top(choice), read, written, refusal if isinstance(refusal, str) else "")


def reason_of(body: Any) -> str:
    """The reason in a server's error, in whatever form it comes; "" where there is none."""
    if isinstance(body, str):
        return body
    if isinstance(body, list):
        return "; ".join(filter(None, map(reason_of, body)))
    if not isinstance(body, dict):
        return ""
    place = body.get("loc") or body.get("param")  # of pydantic and of OpenAI
    where = ".".join(str(part) for part in place if part != "body") if isinstance(place, list) else place
    code = next((code for code in (body.get("code"), body.get("type")) if "context" in str(code)), None)
    names = ("message", "msg", "error", "detail", "errors", "title", "error_message", "reason")
    told = next(filter(None, (reason_of(body.get(name)) for name in names)), "")
    front, behind = (f"{where}: " if where and str(where) not in told else ""), (f" ({code})" if code else "")
    return f"{front}{told}{behind}" if told else ""


def error_text(data: bytes) -> str:
    """The reason in an error's body; the body itself where that is no JSON."""
    with contextlib.suppress(*READING_FAULTS):
        if told := reason_of(parse_json(data, "reply", "correct it", halves=True)):
            return told
    return data.decode(errors="replace")


def prompt_logprobs(data: bytes) -> list[tuple[str, float]]:
    """Every token of a chat as a server read it, with its log-probability; the first has none, hence 0 (vLLM)."""
    whole = parse_json(data, "reply", "correct it", halves=True)
    places = whole.get("prompt_logprobs") or whole["choices"][0]["prompt_logprobs"]
    tokens = []
    for place in places:
        told = [(str(token), float(said["logprob"])) for token, said in (place or {"": {"logprob": 0.0}}).items()]
        # A server may list likelier tokens too; the prompt's own comes first.
        tokens.append(told[0])
    return tokens


def echoed_logprobs(data: bytes) -> list[tuple[int, float]]:
    """Every token of an echoed prompt: where in the text it begins, and its log-probability."""
    said = parse_json(data, "reply", "correct it", halves=True)["choices"][0]["logprobs"]
    pairs = zip(said["text_offset"], said["token_logprobs"], strict=True)
    return [(int(offset), 0.0 if log is None else float(log)) for offset, log in pairs]


def echoed_place(row: Sequence[tuple[int, float]], start: int, end: int, whole: int) -> tuple[int, int]:
    """The tokens at which a text of an echoed prompt begins, and behind which it ends.

    Args:
        row: as `echoed_logprobs` reads them, the one written token the last.
        start: the text's first character in the prompt.
        end: the first character behind it.
        whole: the prompt's length; a server may put a mark in front of it.
    """
    shift = row[-1][0] - whole
    begins = [offset - shift for offset, _ in row]
    return (
        next(i for i, behind in enumerate(begins[1:]) if behind > start),
        next(i for i, begin in enumerate(begins) if begin >= end),
    )


def verdict(top: Sequence[tuple[str, float]] | None, scale: RatingScale) -> tuple[float | None, float] | None:
    """Expected value of a scale and its labels' share of the probability; None without log-probabilities."""
    if top is None:
        return None
    worth = {label.strip(): value for label, value in zip(scale.labels, scale.values, strict=True)}
    on_scale = [(math.exp(min(log, 0.0)), worth[token]) for token, log in top if token in worth]
    coverage = sum(p for p, _ in on_scale)
    if coverage == 0:
        return None, 0.0
    return max(-1.0, min(1.0, sum(p * v for p, v in on_scale) / coverage)), min(coverage, 1.0)


def thinks_first(reply: EndpointReply) -> bool:
    """Whether a model's turn opens with thoughts, so that its first token is no rating."""
    likeliest = max(reply.top or [("", 0.0)], key=lambda pair: pair[1])[0]
    return bool(reply.thoughts) or bool(re.match(r"<\W?(?:seed:)?th(?:ink|ought)|<\|channel|\[THINK", likeliest))


def _parts(content: Sequence[Any]) -> tuple[str, str]:
    """Texts and thoughts of a content that comes in parts."""
    texts, thoughts = [], []
    for part in content:
        kind = "text" if isinstance(part, str) else part["type"]
        if kind in _THOUGHT_PARTS:
            inner = part.get("thinking") or part.get("reasoning") or part.get("text") or ""
            thoughts.append(_parts(inner)[0] if isinstance(inner, list) else str(inner))
        elif kind in {"text", "output_text"}:
            texts.append(part if isinstance(part, str) else str(part["text"]))
    return "".join(texts), "\n".join(thoughts)


def _sound(text: str) -> str:
    """A text that files can hold: JSON spells halves of characters, too."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _top(choice: Mapping[str, Any]) -> list[tuple[str, float]] | None:
    said = choice.get("logprobs") or {}
    if places := said.get("content"):
        listed = [(token["token"], token["logprob"]) for token in places[0].get("top_logprobs") or ()]
    else:  # of completions without chat
        listed = list(((said.get("top_logprobs") or [None])[0] or {}).items())
    # Some vocabularies open a turn with a space in front of a label, and some servers show how they spell it.
    top = [(token.strip().lstrip("\u2581\u0120"), log) for token, log in listed]
    if not all(type(log) in {int, float} and math.isfinite(log) for _, log in top):
        raise TypeError("expected finite numbers, got others")
    return top or None


def _usage(said: Any, wrote: bool) -> tuple[int | None, int | None]:
    """Tokens read and written; zeros beside a text are no usage."""
    told = said if isinstance(said, dict) else {}
    counts = [told.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    read, written, whole = (n if type(n) is int and 0 <= n <= MOST_TOKENS else None for n in counts)
    if read is not None and written is not None and whole is not None:
        written = max(written, whole - read)  # some servers count thoughts in the total alone
    return read or None, None if written == 0 and wrote else written
