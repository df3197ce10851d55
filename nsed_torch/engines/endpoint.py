"""A language model that lives elsewhere, behind an OpenAI-compatible endpoint."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nsed_torch.core.engine import (
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    Message,
    RateRequest,
    Ratings,
    Request,
    allowance,
    failed,
    shrunk,
)
from nsed_torch.core.thoughts import Parted, unanswered
from nsed_torch.engines.chat import PLAIN_STOP, PLAIN_TEMPLATE, ChatTemplateError
from nsed_torch.engines.endpoint_calls import Calls, Lost, Reply
from nsed_torch.engines.endpoint_client import Dialect, openai_library
from nsed_torch.engines.endpoint_reply import (
    READING_FAULTS,
    EndpointReply,
    echoed_logprobs,
    echoed_place,
    prompt_logprobs,
    thinks_first,
    verdict,
)
from nsed_torch.engines.endpoint_settings import check_settings, checked_url
from nsed_torch.records.ledger import common_prefix
from nsed_torch.records.lookalikes import CONTROL, broken, one_line
from nsed_torch.records.rendering import BadTemplateError, rendered

TOP_LOGPROBS = 20
"""The most log-probabilities of one place that such servers give."""


class EndpointEngine(Engine):
    """One model behind an OpenAI-compatible server: vLLM, llama.cpp's, any hosted one.

    Up to `max_batch` calls are in flight at once, and results are handed out as they come. A call that fails is handed
    out as one, and no other is lost by it. A seed is passed on; whether equal calls get equal answers is up to the
    server, but the call log keeps the first. What looks like a control token is broken, as `Chat.neutralize` does,
    by what the known families have (`CONTROL`), for the server's tokenizer is unknown. A field that the server refuses
    by name is renamed, lowered or left out from then on, and every result says so. Thoughts are no part of an answer.
    An adapter is a model name, as vLLM serves adapters: it replaces `model`.

    Args:
        url: of the API, with its version: "http://localhost:8000/v1".
        model: as the server names it.
        api_key_env: name of the environment variable that holds the key, ending in _API_KEY or _TOKEN; "" sends none.
            The key itself is read for every batch and kept nowhere.
        timeout_s: seconds that one attempt may take, whatever trickles in meanwhile.
        retries: further attempts after lost connections, timeouts and the statuses 408, 409 and from 500.
        patience_s: seconds that one call waits, in all, while the server says that it has too much to do (429).
        max_batch: calls at the same time.
        context_window: tokens the model takes; None leaves it to the server to refuse what is too long. Prompts are
            measured by `count_tokens`, an estimate.
        allowance_field: what the server calls the allowance: "max_tokens" or "max_completion_tokens".
        omit: fields to leave out, such as ["seed", "top_p"].
        top_logprobs: how many of the likeliest tokens ratings are read from, as many as the server gives.
        reasoning: the marks that thoughts stand between; None for those of the known families. An empty first one says
            that the prompt opens the thoughts, so that a text without the second is all thought.
        measures: whether the server tells log-probabilities of prompts, which rating=likelihood needs: vLLM's
            `prompt_logprobs`, or `echo` where there is a `chat_template`.
        chat_template: Jinja text, or "plain": chats become prompts here and go to `/completions`. None leaves that to
            the server.
        extra_body: further fields of every request, JSON values; part of the identity, hence no place for secrets.
        pause: waits some seconds; None for a real wait.

    Raises:
        ValueError: for a setting out of range, a key that is not in the environment, or if openai is not installed.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key_env: str = "",
        timeout_s: float = 120.0,
        retries: int = 5,
        patience_s: float = 600.0,
        max_batch: int = 16,
        context_window: int | None = None,
        allowance_field: str = "max_tokens",
        omit: Sequence[str] = (),
        top_logprobs: int = TOP_LOGPROBS,
        reasoning: Sequence[str] | None = None,
        measures: bool = False,
        chat_template: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.url = checked_url(url)
        self.model = model
        self.api_key_env = api_key_env
        self.timeout_s, self.retries, self.patience_s = timeout_s, retries, patience_s
        self.max_batch = max_batch
        self.context_window = context_window
        self.allowance_field, self.omit, self.top_logprobs = allowance_field, omit, top_logprobs
        self.reasoning, self.measures, self.chat_template = reasoning, measures, chat_template
        self.extra_body = dict(extra_body or {})
        check_settings(self)
        dialect = Dialect(allowance_field, frozenset(omit), top_logprobs)
        patience = (timeout_s, retries, patience_s, max_batch, pause)
        self._calls = Calls(self.url, api_key_env, self._key, dialect, *patience)
        self._key()
        openai_library()

    def identity(self, adapter: str | None) -> dict[str, Any]:
        """Where the model is, which one it is, and what shapes its answers; an adapter is a model of its own."""
        set_ = {
            "allowance_field": self.allowance_field != "max_tokens" and self.allowance_field,
            "omit": sorted(self.omit),
            "top_logprobs": self.top_logprobs != TOP_LOGPROBS and self.top_logprobs,
            "reasoning": list(self.reasoning or ()),
            "chat_template": self.chat_template,
        }
        return {
            "endpoint": self.url,
            "model": adapter or self.model,
            "context_window": self.context_window,
            "extra_body": self.extra_body,
            **{name: value for name, value in set_.items() if value},
        }

    def generations(self, requests: Sequence[GenerateRequest]) -> Iterator[dict[int, Generation]]:
        """Answer all requests and hand the answers out as they come, each under its request's index.

        Raises:
            ContextWindowError: if a prompt leaves fewer than 16 tokens (or the fewer asked for) for the answer by our
                own estimate. One that is too long by the server's word is a failed call, for it may say so of any.
        """
        bodies = [self._writing(request) for request in requests]
        for i, reply in self._calls.replies(bodies, self._read):
            yield {i: self._generation(requests[i], reply, bodies[i]["max_tokens"])}

    def ratings(self, requests: Sequence[RateRequest]) -> Iterator[dict[int, Ratings]]:
        """Rate all requests' candidates, one call each, and hand ratings out once all their candidates are through.

        A rating is the expected value of the scale under the probabilities of its labels, its coverage their sum, as
        in `TransformersEngine`; but a label that is not among the `top_logprobs` likeliest tokens counts as impossible
        (our reading). Where none is, or the server gives no log-probabilities, there is no rating. What candidates
        share is read, and counted, with every one of them. Raises as `generations`.
        """
        asked = [[self._judging(request, candidate) for candidate in request.candidates] for request in requests]
        for i, replies in self._calls.grouped(asked, self._read):
            yield {i: self._rating(requests[i], replies)}

    def likelihoods(self, requests: Sequence[LikelihoodRequest]) -> Iterator[dict[int, Likelihood]]:
        """Measure how likely all requests' texts are, one call each and two more for a chat.

        A text's end is what the chat template puts behind it first. Raises as `generations`, and a ValueError without
        `measures`.
        """
        if requests and not self.measures:
            raise ValueError(
                f"agent {requests[0].agent!r}: expected a judge in this process for rating=likelihood, got one behind "
                f"{self.url}: use rating=verdict or rating=critique, or measures=true where the server is vLLM"
            )
        asked = [self._measuring(request) for request in requests]
        for i, replies in self._calls.grouped(asked, self._measured):
            yield {i: self._likelihood(requests[i], replies)}

    def _writing(self, request: GenerateRequest) -> dict[str, Any]:
        drawn = request.decoding
        drawing: dict[str, Any] = {"temperature": drawn.temperature, "top_p": drawn.top_p}
        if drawn.repetition_penalty != 1:
            drawing["repetition_penalty"] = drawn.repetition_penalty
        if request.schema and self.chat_template is None:
            held = {"name": "reply", "strict": True, "schema": json.loads(request.schema)}
            drawing["response_format"] = {"type": "json_schema", "json_schema": held}
        return self._body(request, request.messages, drawn.max_new_tokens, **drawing)

    def _judging(self, request: RateRequest, candidate: str) -> dict[str, Any]:
        # Some servers give log-probabilities of what they draw from: at 1 they are the model's own. top_p is 1 where it
        # is left out, and some refuse 1.
        chat = {"logprobs": True, "top_logprobs": self.top_logprobs}
        asked = chat if self.chat_template is None else {"logprobs": self.top_logprobs}
        return self._body(request, request.about(candidate), 1, temperature=1.0, **asked)

    def _measuring(self, request: LikelihoodRequest) -> list[dict[str, Any]]:
        """Calls that read a chat: as it opens the assistant's turn, with a text in an open turn, and with each text."""
        asked = {"temperature": 0.0, "prompt_logprobs": 0}
        if self.chat_template is not None:
            asked = {"temperature": 0.0, "echo": True, "logprobs": 1}
        chats = [[*request.messages, Message("assistant", text)] for text in request.texts]
        bodies = [self._body(request, chat, 1, add_generation_prompt=False, **asked) for chat in chats]
        if self.chat_template is not None or not bodies:
            return bodies
        opening = self._body(request, request.messages, 1, **asked)
        return [opening, {**bodies[0], "continue_final_message": True}, *bodies]

    def _body(self, request: Request, messages: Sequence[Message], wanted: int, **fields: Any) -> dict[str, Any]:
        """What the server is asked, before its own dialect."""
        window, opens = self.context_window, fields.get("add_generation_prompt", True)
        if self.chat_template is None:
            fields |= {"messages": turns_of(messages)}
        else:
            fields |= {"prompt": prompt_of(self.chat_template, messages, opens=opens)}
            fields |= {"stop": PLAIN_STOP} if self.chat_template == "plain" else {}
            fields.pop("add_generation_prompt", None)
        if isinstance(request, GenerateRequest | RateRequest):
            fields["seed"] = request.seed
        allowed = wanted if window is None else allowance(self.count_prompt(messages), wanted, window, self.model)
        return {"model": request.adapter or self.model, "max_tokens": allowed, **fields, **self.extra_body}

    def _generation(self, request: GenerateRequest, reply: Reply, allowed: int) -> Generation:
        said = reply.said
        if not isinstance(said, EndpointReply):
            return failed(request, said)  # type: ignore[no-any-return]
        notes = [*shrunk(request.decoding.max_new_tokens, allowed), *reply.notes]
        if said.refusal:
            notes.append(f"the endpoint refused: {self._calls.shown(said.refusal)}")
        notes += unanswered(Parted(said.thoughts, said.text), allowed, cut=said.reason == "length")
        if said.reason not in {"stop", "length"}:
            notes.append(f"the endpoint ended the answer with finish_reason {self._calls.shown(repr(said.reason))}")
        if said.read is None or said.written is None:
            notes.append("the endpoint said no usage: tokens are estimated")
        return Generation(
            text=said.text,
            prompt_tokens=self.count_prompt(request.messages) if said.read is None else said.read,
            completion_tokens=self.count_tokens(said.thoughts + said.text) if said.written is None else said.written,
            finish_reason="length" if said.reason == "length" else "stop",
            notes=tuple(notes),
            seconds=reply.seconds,
        )

    def _rating(self, request: RateRequest, came: Sequence[Reply]) -> Ratings:
        replies = [reply.said for reply in came]
        if lost := [said for said in replies if not isinstance(said, EndpointReply)]:
            return failed(request, lost[0])  # type: ignore[no-any-return]
        verdicts = [verdict(said.top, request.scale) for said in replies]
        thinking = [not (v and v[1]) and thinks_first(said) for v, said in zip(verdicts, replies, strict=True)]
        none = [v for v, thinks in zip(verdicts, thinking, strict=True) if not thinks]
        estimated = [self.count_prompt(request.about(candidate)) for candidate in request.candidates]
        counts = {
            "this model thinks first, use rating=critique or turn its thinking off": sum(thinking),
            "the endpoint gave no log-probabilities, use rating=critique": none.count(None),
            f"no label of the scale is among the {self._calls.dialect.top_logprobs} likeliest tokens": none.count(
                (None, 0.0)
            ),
            "the endpoint said no usage, tokens are estimated": sum(said.read is None for said in replies),
        }
        values, coverage = zip(*(v or (None, 0.0) for v in verdicts), strict=True) if verdicts else ((), ())
        told = dict.fromkeys(note for reply in came for note in reply.notes)
        return Ratings(
            values=values,
            coverage=coverage,
            prompt_tokens=sum(said.read or guess for said, guess in zip(replies, estimated, strict=True)),
            notes=(*told, *(f"{n} of {len(replies)} candidates: {what}" for what, n in counts.items() if n)),
            seconds=sum(reply.seconds for reply in came),
        )

    def _likelihood(self, request: LikelihoodRequest, came: Sequence[Reply]) -> Likelihood:
        rows = [reply.said for reply in came]
        if lost := [said for said in rows if isinstance(said, Lost)]:
            return failed(request, lost[0])  # type: ignore[no-any-return]
        if not request.texts or None in rows:
            note = "the endpoint gave no log-probabilities of prompts, use rating=verdict"
            return Likelihood((None,) * len(request.texts), notes=(note,) * bool(request.texts))
        if self.chat_template is None:
            opening, unclosed, *closed = rows
            ids = [[token for token, _ in row] for row in (opening, *closed)]
            behind = len(closed[0]) - len(unclosed)  # what the template puts behind a text
            places = [(common_prefix(ids[0], row), len(row) - behind) for row in ids[1:]]
        else:
            closed = rows
            start = len(prompt_of(self.chat_template, request.messages))
            prompts = [body["prompt"] for body in self._measuring(request)]
            ends = [start + len(turn["content"]) for turn in turns_of([Message("assistant", x) for x in request.texts])]
            spots = zip(rows, ends, map(len, prompts), strict=True)
            places = [echoed_place(row, start, end, whole) for row, end, whole in spots]
        spans = [row[start : end + 1] for row, (start, end) in zip(closed, places, strict=True)]
        return Likelihood(
            values=tuple(math.exp(min(0.0, sum(log for _, log in span) / len(span))) for span in spans),
            prompt_tokens=sum(map(len, rows)),
            seconds=sum(reply.seconds for reply in came),
            lengths=tuple(map(len, spans)),
        )

    def _read(self, data: bytes) -> EndpointReply:
        return EndpointReply.of(data, self.reasoning)

    def _measured(self, data: bytes) -> list[tuple[Any, float]] | None:
        """A prompt's tokens with their log-probabilities; None where the server gives none."""
        EndpointReply.of(data)  # an error within a reply is one
        try:
            return prompt_logprobs(data) if self.chat_template is None else echoed_logprobs(data)
        except READING_FAULTS:
            return None

    def _key(self) -> str:
        if self.api_key_env and not os.environ.get(self.api_key_env):
            raise ValueError(f"expected a key in the environment variable {self.api_key_env}, got none: export it")
        return os.environ[self.api_key_env] if self.api_key_env else ""


def turns_of(messages: Sequence[Message]) -> list[dict[str, str]]:
    """A chat as servers take it, without what their tokenizers could take for marks."""
    return [{"role": m.role, "content": broken(CONTROL, m.content)} for m in messages]


def prompt_of(template: str, messages: Sequence[Message], *, opens: bool = True) -> str:
    """A chat as the text that a model reads, up to where the assistant speaks if it `opens` a turn."""
    options = {"bos_token": "", "eos_token": "", "add_generation_prompt": opens}
    text = PLAIN_TEMPLATE if template == "plain" else template
    try:
        return rendered("chat", template=text, messages=turns_of(messages), options=options)
    except BadTemplateError as error:
        raise ChatTemplateError(f"chat template: {one_line(error)}: correct it or set chat_template=plain") from error
