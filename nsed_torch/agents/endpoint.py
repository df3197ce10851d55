"""The way to a server that speaks OpenAI's protocol: its address, its key, calls side by side, and how they fail."""

import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from nsed_torch.agents.requests import ContextWindowError

_TOO_LONG = re.compile(
    r"context[ _]?(length|window|size)|(maximum|max)[ _](model|context)[ _]len|prompt is too long", re.IGNORECASE
)
"""How OpenAI, vLLM and llama.cpp say that a prompt does not fit."""


class Reply(NamedTuple):
    """A chat completion and the share of seconds that it took."""

    completion: Any
    seconds: float

    @property
    def text(self) -> str:
        """What was said; nothing counts as "", as where a model only thought or called a tool."""
        return getattr(self.of_choice("message"), "content", None) or ""

    def of_choice(self, name: str) -> Any:
        """A part of the one answer; the client checks no reply, so any may be missing."""
        return getattr(self.completion.choices[0], name, None)

    def tokens(self, name: str) -> int | None:
        """A count of the usage, where the server says it."""
        count = getattr(getattr(self.completion, "usage", None), name, None)
        return count if isinstance(count, int) else None


@dataclass(frozen=True)
class Endpoint:
    """A server and how patiently it is asked.

    Args:
        url: of the API, with its version: "http://localhost:8000/v1".
        api_key_env: name of the environment variable that holds the key; "" sends none. The key itself is read for
            every batch and kept nowhere.
        timeout_s: seconds that one attempt may take.
        retries: further attempts after lost connections, timeouts and the statuses 408, 409, 429 and from 500.
        calls: at the same time.

    Raises:
        ValueError: for a setting out of range, a key that is not in the environment, or if openai is not installed.
    """

    url: str
    api_key_env: str = ""
    timeout_s: float = 120.0
    retries: int = 3
    calls: int = 16

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _checked(self.url))
        given: Any = self  # from YAML it may be anything
        for name, value, kind, valid, expected in (
            ("timeout_s", given.timeout_s, int | float, lambda s: 0 < s < math.inf, "seconds above 0"),
            ("retries", given.retries, int, lambda n: n >= 0, "a whole number, at least 0"),
            ("max_batch", given.calls, int, lambda n: n >= 1, "a whole number, at least 1"),
            ("api_key_env", given.api_key_env, str, lambda name: True, "the name of an environment variable"),
        ):
            if not isinstance(value, kind) or not valid(value):
                raise ValueError(f"endpoint {self.url}, {name}: expected {expected}, got {value!r}: correct it")
        if not re.fullmatch(r"\w*", self.api_key_env):
            # Not shown: what stands in place of a name may be the key itself.
            raise ValueError(
                f"endpoint {self.url}, api_key_env: expected the name of an environment variable: correct it"
            )
        self._key()
        _openai()

    def replies(self, bodies: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Reply]]:
        """Replies as they come, under their bodies' indices; after a failure no call begins, but those begun end.

        Args:
            bodies: what the client's `chat.completions.create` takes, one mapping a call.

        Raises:
            ContextWindowError: if the server says that a prompt is too long.
            ConnectionError: if a call failed for another reason, and failed again in every further attempt.
        """
        if not bodies:
            return
        width = min(self.calls, len(bodies))
        settings = {"base_url": self.url, "timeout": self.timeout_s, "max_retries": self.retries}
        # Without a key the client would take OPENAI_API_KEY, and send it to whoever the url names.
        client = _openai().OpenAI(api_key=self._key() or "none", **settings)
        failures: dict[int, BaseException] = {}
        with client, ThreadPoolExecutor(width) as pool:
            calls: dict[Future[Reply], int] = {
                pool.submit(self._ask, client, b, width): i for i, b in enumerate(bodies)
            }
            try:
                for call in as_completed(calls):
                    if call.cancelled():
                        continue
                    if error := call.exception():
                        failures[calls[call]] = error
                        _cancel(calls)
                    else:
                        yield calls[call], call.result()
            finally:
                _cancel(calls)  # whoever listened may have gone
        if failures:
            raise failures[min(failures)]

    def _ask(self, client: Any, body: Mapping[str, Any], width: int) -> Reply:
        start = time.perf_counter()
        try:
            completion = client.chat.completions.create(**body)
        except (_openai().OpenAIError, ValueError) as error:  # a reply that is no JSON is a ValueError
            # Not `from error`: it holds the request.
            raise self._failure(error, body["model"]) from None
        if not getattr(completion, "choices", None):
            raise ConnectionError(
                f"{self.url}: expected a chat completion, got {self._shown(completion)}: check the url"
            )
        return Reply(completion, (time.perf_counter() - start) / width)

    def _failure(self, error: Exception, model: str) -> Exception:
        """What the rest of the code takes the client's error for, in one line."""
        status = getattr(error, "status_code", None)
        if status in {401, 403}:  # servers repeat parts of the key
            source = f"in the environment variable {self.api_key_env}" if self.api_key_env else "named by api_key_env"
            return ConnectionError(f"{self.url}: status {status}: expected a key {source} that may use {model}")
        said = self._shown(error)
        if status in {400, 413, 422} and _TOO_LONG.search(f"{error} {getattr(error, 'body', None)}"):
            return ContextWindowError(
                f"{self.url}: status {status}: {said}: shorten the question, lower memory_tokens or max_new_tokens"
            )
        what = type(error).__name__ if status is None else f"status {status}"
        return ConnectionError(f"{self.url}: {what}: {said}: check that the server is up and serves {model}")

    def _shown(self, said: object) -> str:
        text = " ".join(str(said).split())
        return (text.replace(key, "[key]") if (key := self._key()) else text)[:300]

    def _key(self) -> str:
        if self.api_key_env and not os.environ.get(self.api_key_env):
            raise ValueError(f"expected a key in the environment variable {self.api_key_env}, got none: export it")
        return os.environ[self.api_key_env] if self.api_key_env else ""


def _checked(url: str) -> str:
    """The address without a slash at its end."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(
            f"expected an endpoint's url without user, password or query, got one with it at {parts.hostname}: put the "
            "key into an environment variable and name that in api_key_env"
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"expected an endpoint's url as http://localhost:8000/v1, got {url!r}: correct it")
    return url.rstrip("/")


def _cancel(calls: Mapping[Future[Reply], int]) -> None:
    for call in calls:
        call.cancel()


def _openai() -> Any:
    try:
        import openai  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ValueError(
            f"expected the package openai for an endpoint, got {error}: pip install nsed_torch[endpoint]"
        ) from error
    return openai
