"""A language model that lives elsewhere, behind an OpenAI-compatible endpoint."""

import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from nsed_torch.core.engine import (
    MOST_TOKENS,
    ContextWindowError,
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    Message,
    RateRequest,
    Ratings,
    RatingScale,
    allowance,
    failed,
    shrunk,
)
from nsed_torch.core.prompts import CONTROL, broken, one_line
from nsed_torch.engines.endpoint_client import bounded_client, checked_url, openai_library
from nsed_torch.records.files import parse_json

TOP_LOGPROBS = 20
"""The most log-probabilities of one place that such servers give."""

_SET = {"model", "messages", "max_tokens", "temperature", "top_p", "seed", "repetition_penalty"}
_SET |= {"logprobs", "top_logprobs", "stream", "n"}

_TOO_LONG = re.compile(
    r"context[ _]?(length|window|size)|(maximum|max)[ _](model|context)[ _]len|prompt is too long", re.IGNORECASE
)
"""How OpenAI, vLLM and llama.cpp say that a prompt does not fit."""


HUB = (".huggingface.co", ".hf.space", ".endpoints.huggingface.cloud")
"""Ends of the names of hosts that may be sent the Hub's token."""

MOST_FAILURES = 8
"""Calls that may fail before the first reply; then the server counts as gone and is asked nothing more."""


_FAULTS = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What reading something else than a chat completion ends in."""


class ChatReply(NamedTuple):
    """What a server said, every part of it checked."""

    text: str  # "" where it said nothing, as where a model only thought or called a tool
    reason: str | None  # why the text ended
    top: list[tuple[str, float]] | None  # log-probabilities of the likeliest first tokens, where the server says them
    read: int | None  # tokens; None where the server says none, or a number that no call can have
    written: int | None
    seconds: float

    @classmethod
    def of(cls, data: bytes, seconds: float) -> "ChatReply":
        """Read a chat completion; anything else is one of `_FAULTS`."""
        whole = parse_json(data, "reply", "correct it", halves=True)
        choice = whole["choices"][0]
        text, reason = choice["message"].get("content"), choice.get("finish_reason")
        places = (choice.get("logprobs") or {}).get("content") or [{}]
        # Some vocabularies open a turn with a space in front of a label.
        top = [(token["token"].strip(), token["logprob"]) for token in places[0].get("top_logprobs") or ()]
        numbers = all(type(log) in {int, float} and math.isfinite(log) for _, log in top)
        if not (isinstance(reason, str | None) and numbers):
            raise TypeError("expected a text and finite numbers, got others")
        said = whole.get("usage") if isinstance(whole.get("usage"), dict) else {}
        counts = [said.get(name) for name in ("prompt_tokens", "completion_tokens")]
        read, written = (n if type(n) is int and 0 <= n <= MOST_TOKENS else None for n in counts)
        # JSON spells halves of characters, too, which no file can hold.
        text = (text or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return cls(text, reason, top or None, read, written, seconds)


Lost = ConnectionError | ContextWindowError
"""Why a server said nothing."""

Reply = ChatReply | Lost


class EndpointEngine(Engine):
    """One model behind `/v1/chat/completions`: vLLM, llama.cpp's server, any hosted one.

    Up to `max_batch` calls are in flight at once, and results are handed out as they come. A call that fails is handed
    out as one, and no other is lost by it. A seed is passed on; whether equal calls get equal answers is up to the
    server, but the call log keeps the first. What looks like a control token is broken, as `Chat.neutralize` does,
    by what the known families have (`CONTROL`), for the server's tokenizer is unknown. Ratings are read from the 20
    likeliest tokens. The likelihood of given texts cannot be asked for. An adapter is a model name, as vLLM serves
    adapters: it replaces `model`.

    Args:
        url: of the API, with its version: "http://localhost:8000/v1".
        model: as the server names it.
        api_key_env: name of the environment variable that holds the key, ending in _API_KEY or _TOKEN; "" sends none.
            The key itself is read for every batch and kept nowhere.
        timeout_s: seconds that one attempt may take, whatever trickles in meanwhile.
        retries: further attempts after lost connections, timeouts and the statuses 408, 409, 429 and from 500.
        max_batch: calls at the same time.
        context_window: tokens the model takes; None leaves it to the server to refuse what is too long. Prompts are
            measured by `count_tokens`, an estimate.
        extra_body: further fields of every request, JSON values; part of the identity, hence no place for secrets.

    Raises:
        ValueError: for a setting out of range, a key that is not in the environment, or if openai is not installed.
    """

    measures = False

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key_env: str = "",
        timeout_s: float = 120.0,
        retries: int = 3,
        max_batch: int = 16,
        context_window: int | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self.url = checked_url(url)
        self.model = model
        self.api_key_env = api_key_env
        self.timeout_s = timeout_s
        self.retries = retries
        self.max_batch = max_batch
        self.context_window = context_window
        self.extra_body = dict(extra_body or {})
        self._check()
        self._key()
        openai_library()

    def identity(self, adapter: str | None) -> dict[str, Any]:
        """Where the model is, which one it is, and what shapes its answers; an adapter is a model of its own."""
        return {
            "endpoint": self.url,
            "model": adapter or self.model,
            "context_window": self.context_window,
            "extra_body": self.extra_body,
        }

    def generations(self, requests: Sequence[GenerateRequest]) -> Iterator[dict[int, Generation]]:
        """Answer all requests and hand the answers out as they come, each under its request's index.

        Raises:
            ContextWindowError: if a prompt leaves fewer than 16 tokens (or the fewer asked for) for the answer by our
                own estimate. One that is too long by the server's word is a failed call, for it may say so of any.
        """
        bodies = [self._writing(request) for request in requests]
        for i, reply in self._replies(bodies):
            yield {i: self._generation(requests[i], reply, bodies[i]["max_tokens"])}

    def ratings(self, requests: Sequence[RateRequest]) -> Iterator[dict[int, Ratings]]:
        """Rate all requests' candidates, one call each, and hand ratings out once all their candidates are through.

        A rating is the expected value of the scale under the probabilities of its labels, its coverage their sum, as
        in `TransformersEngine`; but a label that is not among the 20 likeliest tokens counts as impossible (our
        reading). Where none is, or the server gives no log-probabilities, there is no rating. What candidates share is
        read, and counted, with every one of them. Raises as `generations`.
        """
        yield from ({i: Ratings(())} for i, request in enumerate(requests) if not request.candidates)
        places = [(i, k) for i, request in enumerate(requests) for k in range(len(request.candidates))]
        bodies = [self._judging(requests[i], requests[i].candidates[k]) for i, k in places]
        replies: list[dict[int, Reply]] = [{} for _ in requests]
        for n, reply in self._replies(bodies):
            i, k = places[n]
            replies[i][k] = reply
            if len(replies[i]) == len(requests[i].candidates):
                yield {i: self._rating(requests[i], [replies[i][k] for k in sorted(replies[i])])}

    def likelihoods(self, requests: Sequence[LikelihoodRequest]) -> Iterator[dict[int, Likelihood]]:
        """Refused: chat completions cannot score a given text."""
        if requests:
            raise ValueError(
                f"agent {requests[0].agent!r}: expected a judge in this process for rating=likelihood, got one behind "
                f"{self.url}: use rating=verdict or rating=critique"
            )
        return iter(())

    def _writing(self, request: GenerateRequest) -> dict[str, Any]:
        drawn = request.decoding
        drawing = {"temperature": drawn.temperature, "top_p": drawn.top_p}
        body = self._body(request, request.messages, drawn.max_new_tokens, **drawing)
        if drawn.repetition_penalty != 1:
            body["extra_body"]["repetition_penalty"] = drawn.repetition_penalty
        return body

    def _judging(self, request: RateRequest, candidate: str) -> dict[str, Any]:
        # Some servers give log-probabilities of what they draw from: at 1 they are the model's own.
        drawn = {"temperature": 1.0, "top_p": 1.0, "logprobs": True, "top_logprobs": TOP_LOGPROBS}
        return self._body(request, request.about(candidate), 1, **drawn)

    def _body(
        self, request: GenerateRequest | RateRequest, messages: Sequence[Message], wanted: int, **drawn: Any
    ) -> dict[str, Any]:
        """What the client is called with."""
        window = self.context_window
        return {
            "model": request.adapter or self.model,
            "messages": [{"role": m.role, "content": broken(CONTROL, m.content)} for m in messages],
            "seed": request.seed,
            "max_tokens": wanted
            if window is None
            else allowance(self.count_prompt(messages), wanted, window, self.model),
            "extra_body": dict(self.extra_body),
            **drawn,
        }

    def _generation(self, request: GenerateRequest, reply: Reply, allowed: int) -> Generation:
        if not isinstance(reply, ChatReply):
            return failed(request, reply)  # type: ignore[no-any-return]
        text, reason, _, read, written, seconds = reply
        notes = [*shrunk(request.decoding.max_new_tokens, allowed)]
        if reason not in {"stop", "length"}:
            notes.append(f"the endpoint ended the answer with finish_reason {self._shown(repr(reason))}")
        if read is None or written is None:
            notes.append("the endpoint said no usage: tokens are estimated")
        return Generation(
            text=text.strip(),
            prompt_tokens=self.count_prompt(request.messages) if read is None else read,
            completion_tokens=self.count_tokens(text) if written is None else written,
            finish_reason="length" if reason == "length" else "stop",
            notes=tuple(notes),
            seconds=seconds,
        )

    def _rating(self, request: RateRequest, came: Sequence[Reply]) -> Ratings:
        if lost := [reply for reply in came if not isinstance(reply, ChatReply)]:
            return failed(request, lost[0])  # type: ignore[no-any-return]
        replies = [reply for reply in came if isinstance(reply, ChatReply)]
        verdicts = [_verdict(reply.top, request.scale) for reply in replies]
        read = [reply.read for reply in replies]
        estimated = [self.count_prompt(request.about(candidate)) for candidate in request.candidates]
        counts = {
            "the endpoint gave no log-probabilities, use rating=critique": sum(v is None for v in verdicts),
            f"no label of the scale is among the {TOP_LOGPROBS} likeliest tokens": verdicts.count((None, 0.0)),
            "the endpoint said no usage, tokens are estimated": read.count(None),
        }
        values, coverage = zip(*(verdict or (None, 0.0) for verdict in verdicts), strict=True)
        return Ratings(
            values=values,
            coverage=coverage,
            prompt_tokens=sum(guess if said is None else said for said, guess in zip(read, estimated, strict=True)),
            notes=tuple(f"{n} of {len(replies)} candidates: {what}" for what, n in counts.items() if n),
            seconds=sum(reply.seconds for reply in replies),
        )

    def _replies(self, bodies: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Reply]]:
        """Replies as they come, under the indices of what `chat.completions.create` was called with."""
        if not bodies:
            return
        width = min(self.max_batch, len(bodies))
        # The client counts time for each part of a reply; what bounds the whole is in front of it.
        settings = {"base_url": self.url, "timeout": 2 * self.timeout_s, "max_retries": self.retries}
        # Without a key the client would take OPENAI_API_KEY, and send it to whoever the url names.
        client = openai_library().OpenAI(
            api_key=self._key() or "none", http_client=bounded_client(self.timeout_s), **settings
        )
        failures: list[Lost] = []
        came = False
        with client, ThreadPoolExecutor(width) as pool:
            calls = {pool.submit(self._ask, client, body, width): i for i, body in enumerate(bodies)}
            try:
                for call in as_completed(calls):
                    reply = failures[-1] if call.cancelled() else call.result()
                    came |= isinstance(reply, ChatReply)
                    failures += [] if isinstance(reply, ChatReply) else [reply]
                    if not came and len(failures) == MOST_FAILURES:
                        for waiting in calls:
                            waiting.cancel()
                    yield calls[call], reply
            finally:
                pool.shutdown(cancel_futures=True)  # whoever listened may have gone

    def _ask(self, client: Any, body: Mapping[str, Any], width: int) -> Reply:
        start = time.perf_counter()
        try:
            data = client.chat.completions.with_raw_response.create(**body).content
        except (openai_library().OpenAIError, OSError) as error:
            return self._failure(error, body["model"])
        try:
            return ChatReply.of(data, (time.perf_counter() - start) / width)
        except _FAULTS:
            got = self._shown(data.decode(errors="replace"))
            return ConnectionError(f"{self.url}: expected a chat completion, got {got}: check the url")

    def _failure(self, error: Exception, model: str) -> Lost:
        """The client's error as what the rest of the code expects, in one line."""
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
        text = str(said)
        return one_line(text.replace(key, "[key]") if (key := self._key()) else text)

    def _key(self) -> str:
        if self.api_key_env and not os.environ.get(self.api_key_env):
            raise ValueError(f"expected a key in the environment variable {self.api_key_env}, got none: export it")
        return os.environ[self.api_key_env] if self.api_key_env else ""

    def _check(self) -> None:
        where = f"endpoint {self.url}"
        given: Any = self  # from YAML it may be anything
        checks: tuple[tuple[str, Any, Any, str], ...] = (
            ("model", str, lambda text: text.strip(), "the server's name of it, as GET /models lists it"),
            ("timeout_s", int | float, lambda s: 0 < s < math.inf, "seconds above 0"),
            ("retries", int, lambda n: n >= 0, "a whole number, at least 0"),
            ("max_batch", int, lambda n: n >= 1, "a whole number, at least 1"),
            ("context_window", int | None, lambda n: n is None or n >= 1, "a number of tokens or null"),
        )
        for name, kind, valid, expected in checks:
            value = getattr(given, name)
            if not isinstance(value, kind) or not valid(value):
                raise ValueError(f"{where}, {name}: expected {expected}, got {value!r}: correct it")
        if not isinstance(given.api_key_env, str) or not re.fullmatch(r"(\w+_(API_KEY|TOKEN))?", given.api_key_env):
            # Not shown: what stands in place of a name may be the key itself.
            raise ValueError(
                f"{where}, api_key_env: expected the name of an environment variable that ends in _API_KEY or _TOKEN, "
                "for no other is sent to a server: export the key under such a name"
            )
        host = urlsplit(given.url).hostname or ""
        if re.match("HF_|HUGGING", given.api_key_env.upper()) and not f".{host}".endswith(HUB):
            raise ValueError(
                f"{where}, api_key_env: expected the Hub's token to be for the Hub, got it beside another's url: "
                "export that server's key under a name of its own"
            )
        if known := sorted(_SET & set(self.extra_body)):
            raise ValueError(f"{where}, extra_body: expected fields that no setting has, got {known}: leave them out")
        try:
            json.dumps(self.extra_body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}, extra_body: expected JSON values, got {error}: correct it") from error


def _verdict(top: Sequence[tuple[str, float]] | None, scale: RatingScale) -> tuple[float | None, float] | None:
    """Expected value of a scale and its labels' share of the probability; None without log-probabilities."""
    if top is None:
        return None
    worth = {label.strip(): value for label, value in zip(scale.labels, scale.values, strict=True)}
    on_scale = [(math.exp(min(log, 0.0)), worth[token]) for token, log in top if token in worth]
    coverage = sum(p for p, _ in on_scale)
    if coverage == 0:
        return None, 0.0
    return max(-1.0, min(1.0, sum(p * v for p, v in on_scale) / coverage)), min(coverage, 1.0)
