"""What servers are spoken to with: OpenAI's client, bounded in time and room, and the fields that a server takes."""

import contextlib
import email.utils
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from nsed_torch.core.engine import Message
from nsed_torch.engines.chat import merge_system
from nsed_torch.engines.endpoint_reply import ReplyError, error_text
from nsed_torch.records.deadline import within
from nsed_torch.records.extras import missing

_OF_THE_BODY = {"content-encoding", "content-length", "transfer-encoding"}

MOST_BYTES = 1 << 25
"""The longest reply that is read; 20 log-probabilities of 10^4 tokens are a tenth of it."""

LONGEST_PAUSE = 60.0
"""The longest pause, in seconds, of those that no server asks for."""

_NO_SYSTEM = re.compile(
    r"system\W+(role|messages?)\W.{0,20}(not|un)\W?support|not support \W?system|roles must alternate"
    r"|only user and assistant roles",
    re.IGNORECASE,
)
_OUT_OF_RANGE = re.compile(
    r"int32|uint32|range|less than|at most|<=|too (large|big)|maximum|2147483647|4294967295", re.IGNORECASE
)
_MAY_GO = "response_format", "seed", "temperature", "top_p", "repetition_penalty", "stop", "top_logprobs", "logprobs"
_NO_SCHEMA = re.compile(r"json_schema|structured.{0,3}output|guided|grammar|xgrammar|outlines", re.IGNORECASE)
_NOT_YET = re.compile(r"loading|warming|starting|overloaded|capacity", re.IGNORECASE)

T = TypeVar("T")


@dataclass(frozen=True)
class Dialect:
    """The fields that a server takes, of those that a request may have."""

    allowance_field: str  # what the allowance is called
    omit: frozenset[str]
    top_logprobs: int
    seed_bits: int = 63
    merges_system: bool = False  # whether instructions go in front of the first user's text

    def spoken(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A request's body in this dialect."""
        said = {self.allowance_field if name == "max_tokens" else name: value for name, value in body.items()}
        if "seed" in said:
            said["seed"] &= (1 << self.seed_bits) - 1
        if self.merges_system and "messages" in said:
            turns = merge_system([Message(turn["role"], turn["content"]) for turn in said["messages"]])
            said["messages"] = [turn._asdict() for turn in turns]
        for name in ("top_logprobs", "logprobs"):
            if type(said.get(name)) is int:
                said[name] = min(said[name], self.top_logprobs)
        return {name: value for name, value in said.items() if name not in self.omit}

    def corrected(self, refusal: str, body: Mapping[str, Any]) -> "Dialect | None":
        """What to speak after a refusal that names a field; None where it names none that could be changed."""
        told, said = re.sub(r"https?://\S+", "", refusal), self.spoken(body)
        named = {name for name in said if re.search(rf"(?<![\w-]){name}(?![\w-])", told)}
        if not self.merges_system and _NO_SYSTEM.search(told):
            return replace(self, merges_system=True)
        if self.allowance_field in named and self.allowance_field in {"max_tokens", "max_completion_tokens"}:
            other = {"max_tokens": "max_completion_tokens"}.get(self.allowance_field, "max_tokens")
            if other in told or re.search("unsupported|not supported|unknown|unrecognized|extra", told, re.IGNORECASE):
                return replace(self, allowance_field=other)
        capped = "top_logprobs" if "top_logprobs" in said else "logprobs"
        if named & {"logprobs", "top_logprobs"} and type(said.get(capped)) is int:
            fewer = [int(n) for n in re.findall(r"(?<![\w.])\d{1,2}(?![\w])", told) if 0 < int(n) < said[capped]]
            if fewer:
                return replace(self, top_logprobs=max(fewer))
        if "seed" in named and self.seed_bits == 63 and _OUT_OF_RANGE.search(told):
            return replace(self, seed_bits=31)
        named |= {"response_format"} if "response_format" in said and _NO_SCHEMA.search(told) else set()
        for name in _MAY_GO:
            if name in named:
                also = {"top_logprobs"} if name == "logprobs" else set()
                return replace(self, omit=self.omit | {name} | also)
        return None

    def notes(self, first: "Dialect", body: Mapping[str, Any]) -> list[str]:
        """What became of a request's fields that its server refused, against what was set."""
        gone = sorted((self.omit - first.omit) & set(body))
        merged = self.merges_system and any(turn["role"] == "system" for turn in body.get("messages", ()))
        return [
            *([f"the endpoint refuses {', '.join(gone)}: left out"] if gone else ()),
            *(["the endpoint knows no instructions: put in front of the question"] if merged else ()),
        ]


def patiently(ask: Callable[[], T], retries: int, patience_s: float, pause: Callable[[float], object]) -> T:
    """What `ask` returns, asked again after faults and waits.

    A fault is a lost connection, a timeout, or one of the statuses 408, 409 and from 500. Statuses 429 and 529, and 503
    with a time to come again or while it loads a model, are no faults: who says so is only waited for. Pauses double.

    Args:
        ask: raises a `ReplyError`.
        retries: faults that are forgiven.
        patience_s: seconds of all waits together.
        pause: waits some seconds; what it returns is true where nobody listens any more.
    """
    faults, waits, waited = 0, 0, 0.0
    while True:
        try:
            return ask()
        except ReplyError as error:
            if error.final:
                raise
            if error.status in {429, 529} or (
                error.status == 503 and (error.after is not None or _NOT_YET.search(error.reason))
            ):
                # Who says when is believed, and less and less where it was wrong.
                own = 2.0 ** (waits if error.after is None else waits - 4)
                waits += 1
                seconds = max(error.after or 0.0, min(own, LONGEST_PAUSE))
                waited += seconds
                if waited > patience_s:
                    raise
            elif error.status is None or error.status in {408, 409} or error.status >= 500:
                seconds = max(error.after or 0.0, min(2.0**faults / 2, LONGEST_PAUSE))
                faults += 1
                if faults > retries or seconds > patience_s:
                    raise
            else:
                raise
            if pause(seconds):
                raise


def posted(client: Any, body: Mapping[str, Any]) -> bytes:
    """The body of a reply with status 200 to a chat, or to a prompt; anything else is a `ReplyError`."""
    library = openai_library()
    place, kind = (client.chat.completions, "messages") if "messages" in body else (client.completions, "prompt")
    others = {name: value for name, value in body.items() if name not in {"model", kind}}
    try:
        data: bytes = place.with_raw_response.create(
            model=body["model"], **{kind: body[kind]}, extra_body=others
        ).content
    except library.APIStatusError as error:
        told = error_text(error.response.content) or f"no reason ({error})"
        # Who has no money left has none in a minute either.
        final = "insufficient_quota" in error.response.text
        raise ReplyError(told, error.status_code, _after(error.response.headers), final=final) from None
    except (library.OpenAIError, OSError) as error:
        raise ReplyError(f"{type(error).__name__}: {error}") from None
    return data


def _after(headers: Mapping[str, str]) -> float | None:
    """Seconds after which a server wants to be asked again, as it says them: a number or a date."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        with contextlib.suppress(KeyError, ValueError):
            return max(0.0, float(headers[name]) / unit)
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())


def bounded_client(timeout_s: float) -> Any:
    """The client's own HTTP client, but no reply takes longer, or more room, than it may."""
    kind = openai_library().DefaultHttpxClient

    class Bounded(kind):  # type: ignore[misc, valid-type]
        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            try:
                return within(timeout_s, partial(self._whole, request, **options))
            except TimeoutError:
                said = f"expected a whole reply within {timeout_s:g} s, got none: raise timeout_s"
                raise ConnectionError(said) from None

        def _whole(self, request: Any, **options: Any) -> Any:
            reply, body = super().send(request, stream=True, **options), bytearray()
            with contextlib.closing(reply):
                for part in reply.iter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise ConnectionError(f"expected a reply of at most {MOST_BYTES} bytes, got more")
            plain = [(k, v) for k, v in reply.headers.multi_items() if k.lower() not in _OF_THE_BODY]
            return type(reply)(reply.status_code, headers=plain, content=bytes(body), request=request)

    return Bounded()


def openai_library() -> Any:
    """The package that speaks to such servers; a `ValueError` where it is not installed."""
    try:
        import openai  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ValueError(missing("the package openai", "an endpoint", "endpoint", error)) from error
    return openai
