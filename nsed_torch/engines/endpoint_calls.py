"""Calls to a server: several at once, each as patient as it may be, in the fields that the server takes."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from nsed_torch.core.engine import ContextWindowError
from nsed_torch.engines.endpoint_client import Dialect, bounded_client, openai_library, patiently, posted
from nsed_torch.engines.endpoint_reply import READING_FAULTS, ReplyError
from nsed_torch.records.lookalikes import one_line

_TOO_LONG = re.compile(
    r"context[ _]?(length|window|size)|(maximum|max)[ _](model|context)[ _]len|prompt is too long"
    r"|token count .{0,20}exceeds|tokens.{0,40} must be <=",
    re.IGNORECASE,
)
"""How OpenAI, vLLM, llama.cpp, TGI and Google say that a prompt does not fit."""

_REFUSALS = {400, 403, 404, 422, 501}
"""Statuses by which servers say that they do not take a field."""

MOST_FAILURES = 8
"""Calls that may fail before the first reply; then the server counts as gone and is asked nothing more."""

Lost = ConnectionError | ContextWindowError
"""Why a server said nothing."""


class Reply(NamedTuple):
    """What came of one call."""

    said: Any  # as read, or a `Lost`
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass
class Calls:
    """What calls to one server have in common."""

    url: str
    key_name: str  # of the environment variable
    key: Callable[[], str]  # "" for none
    first: Dialect  # as set
    timeout_s: float
    retries: int
    patience_s: float
    max_batch: int
    pause: Callable[[float], object] | None  # None for a real wait

    def __post_init__(self) -> None:
        self.dialect = self.first  # as found out so far

    def grouped(
        self, asked: Sequence[Sequence[Mapping[str, Any]]], read: Callable[[bytes], Any]
    ) -> Iterator[tuple[int, list[Reply]]]:
        """All replies to each request's calls, in the calls' order, once they are there."""
        places = [(i, k) for i, bodies in enumerate(asked) for k in range(len(bodies))]
        replies: list[dict[int, Reply]] = [{} for _ in asked]
        yield from ((i, []) for i, bodies in enumerate(asked) if not bodies)
        for n, reply in self.replies([asked[i][k] for i, k in places], read):
            i, k = places[n]
            replies[i][k] = reply
            if len(replies[i]) == len(asked[i]):
                yield i, [replies[i][k] for k in range(len(asked[i]))]

    def replies(self, bodies: Sequence[Mapping[str, Any]], read: Callable[[bytes], Any]) -> Iterator[tuple[int, Reply]]:
        """Replies as they come, under the indices of what the server was asked."""
        if not bodies:
            return
        width = min(self.max_batch, len(bodies))
        # The client counts time for each part of a reply; what bounds the whole is in front of it.
        settings = {"base_url": self.url, "timeout": 2 * self.timeout_s, "max_retries": 0}
        # Without a key the client would take OPENAI_API_KEY, and send it to whoever the url names.
        client = openai_library().OpenAI(
            api_key=self.key() or "none", http_client=bounded_client(self.timeout_s), **settings
        )
        failures: list[Reply] = []
        came, gone, learning = False, threading.Event(), threading.Lock()
        ask = partial(self._ask, client, read=read, width=width, gone=gone, learning=learning)
        with client, ThreadPoolExecutor(width) as pool:
            calls = {pool.submit(ask, body): i for i, body in enumerate(bodies)}
            try:
                for call in as_completed(calls):
                    reply = failures[-1] if call.cancelled() else call.result()
                    came |= not isinstance(reply.said, Lost)
                    failures += [reply] if isinstance(reply.said, Lost) else []
                    if not came and len(failures) == MOST_FAILURES:
                        for waiting in calls:
                            waiting.cancel()
                    yield calls[call], reply
            finally:
                gone.set()
                pool.shutdown(cancel_futures=True)  # whoever listened may have gone

    def _ask(
        self,
        client: Any,
        body: Mapping[str, Any],
        *,
        read: Callable[[bytes], Any],
        width: int,
        gone: threading.Event,
        learning: threading.Lock,
    ) -> Reply:
        """One call, in the server's dialect as far as that is known, and asked again where it was not."""
        start = time.perf_counter()

        def pause(seconds: float) -> bool:
            (self.pause or gone.wait)(seconds)
            return gone.is_set()

        def said(dialect: Dialect) -> Reply:
            got = patiently(
                lambda: self._once(client, dialect.spoken(body), read), self.retries, self.patience_s, pause
            )
            notes = tuple(dialect.notes(self.first, body))
            return Reply(got, (time.perf_counter() - start) / width, notes)

        try:
            dialect = self.dialect
            try:
                return said(dialect)
            except ReplyError as error:
                corrected = dialect.corrected(error.reason, body) if error.status in _REFUSALS else None
                if corrected is None:
                    raise
            with learning:  # one call finds out for all
                dialect = corrected if self.dialect is dialect else self.dialect
                while True:
                    try:
                        reply = said(dialect)
                    except ReplyError as error:
                        corrected = dialect.corrected(error.reason, body) if error.status in _REFUSALS else None
                        if corrected is None:
                            raise
                        dialect = corrected
                    else:
                        self.dialect = dialect
                        return reply
        except ReplyError as error:
            return Reply(self._failure(error, body["model"]))

    def _once(self, client: Any, body: Mapping[str, Any], read: Callable[[bytes], Any]) -> Any:
        data = posted(client, body)
        try:
            return read(data)
        except READING_FAULTS:
            raise ReplyError(f"expected a chat completion, got {data.decode(errors='replace')}", 200) from None

    def _failure(self, error: ReplyError, model: str) -> Lost:
        """A server's refusal as what the rest of the code expects, in one line."""
        status, said = error.status, self.shown(error.reason)
        if status in {401, 403}:  # servers repeat parts of the key
            source = f"in the environment variable {self.key_name}" if self.key_name else "named by api_key_env"
            return ConnectionError(f"{self.url}: status {status}: expected a key {source} that may use {model}")
        if status in {400, 413, 422} and _TOO_LONG.search(error.reason):
            return ContextWindowError(
                f"{self.url}: status {status}: {said}: shorten the question, lower memory_tokens or max_new_tokens"
            )
        if status == 200:
            return ConnectionError(f"{self.url}: {said}: check the url")
        where = "" if status is None else f"status {status}: "
        return ConnectionError(f"{self.url}: {where}{said}: check that the server is up and serves {model}")

    def shown(self, said: object) -> str:
        """A server's words in one line, without the key."""
        text = str(said)
        return one_line(text.replace(key, "[key]") if (key := self.key()) else text)
