"""Chat completions as they come in and go out: what a request may say, and how a deliberation is told in them."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from nsed_torch.app.door import cut, question_of
from nsed_torch.app.serve.formats import FinalAnswer, check_schema, final, instruction
from nsed_torch.app.view import visible
from nsed_torch.records.checked import plain_data
from nsed_torch.records.files import parse_json
from nsed_torch.records.transcript import Round, Transcript

UNABLE = ("audio", "logprobs")
"""What a team has no way to give; other fields that are not read, such as `temperature`, are its agents' own affair."""

OTHERS = """audio frequency_penalty function_call functions include logit_bias logprobs metadata min_p modalities
parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_retention reasoning reasoning_effort
repetition_penalty response_format safety_identifier service_tier store temperature text tool_choice tools top_k
top_logprobs top_p truncation user verbosity web_search_options""".split()  # noqa: SIM905 - in few lines
"""Fields that clients send and no team reads, or that are read otherwise than one by one."""

_KINDS = {429: "rate_limit_error", 401: "authentication_error"}


class RefusedError(Exception):
    """A request that gets no answer: an HTTP status, and one line that says why."""

    def __init__(self, status: int, message: str, code: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, " ".join(message.split()), code
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}

    def body(self) -> dict[str, Any]:
        """As OpenAI's clients read it."""
        kind = _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": None, "code": self.code}}


class Strict(BaseModel):
    """Read as it stands: no text, truth value or fraction becomes a number."""

    model_config = ConfigDict(strict=True)


class TextPart(Strict):
    """A piece of a message; pictures and sound are none."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: str


class ChatTurn(Strict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[TextPart] | None = None  # None of a turn that called a tool

    @property
    def text(self) -> str:
        """What it says."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content or ())


class StreamOptions(Strict):
    """What a stream ends with."""

    include_usage: bool = False


class ChatRequest(Strict):
    """What a team reads of a request; `rounds`, `halting`, `task_id` and `transcript` are ours."""

    model: str
    messages: list[ChatTurn] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    seed: int | None = Field(None, ge=0, lt=2**63)
    stop: str | list[str] | None = None
    n: int | None = Field(None, ge=1, le=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)  # the newer name
    rounds: int | None = Field(None, ge=1)
    halting: Literal["fixed", "evidence", "fatigue"] | None = None
    task_id: str | None = Field(None, min_length=1, max_length=200)  # names the task in seeds, as in `nsed evaluate`
    transcript: bool = False  # whether rounds come as data, too, in the field `nsed`
    _schema: dict[str, Any] | None = PrivateAttr(None)  # that the answer has to fit
    _notes: list[str] = PrivateAttr(default_factory=list)  # what a client is told of its request

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Read a body that anybody may have written."""
        try:
            data = parse_json(body, "body", "correct it")
            return cls.of(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "body"
            raise RefusedError(400, f"{place}: {first['msg']}, got {repr(first['input'])[:60]}: correct it") from error
        except ValueError as error:
            raise RefusedError(400, str(error)[:300]) from error

    @classmethod
    def of(cls, data: Any) -> Self:
        """Read a request; a `RefusedError` or a ValueError for what a team cannot give or nobody knows."""
        if not isinstance(data, dict):
            return cls.model_validate(data)
        given = {name: value for name, value in data.items() if value is not None}
        known = [*cls.model_fields, *OTHERS]
        if unknown := sorted(set(given) - set(known)):
            near = "".join(f"{name} or " for name in get_close_matches(unknown[0], known, 1))
            raise RefusedError(400, f"{unknown[0][:60]}: expected a known field, got another: {near}leave it out")
        asked = cls.model_validate(given)
        for name in UNABLE:
            if given.get(name):
                told = f"{name}: expected none, for a team answers in plain text: leave it out"
                raise RefusedError(400, told)
        choice = given.get("tool_choice", given.get("function_call", "auto"))
        if choice not in ("auto", "none"):
            told = f"tool_choice: expected auto or none, for a team calls no tools, got {json.dumps(choice)[:60]}"
            raise RefusedError(400, f"{told}: force none, or ask another model")
        if given.get("tools") or given.get("functions"):
            asked._notes.append("tools: taken and not used, for a team calls none")
        asked._schema = schema_of(given.get("response_format"))
        return asked

    @property
    def most(self) -> int | None:
        """Tokens that the answer may have."""
        return self.max_completion_tokens or self.max_tokens

    def final(self, transcript: Transcript, count: Callable[[str], int]) -> FinalAnswer:
        """The team's answer in the form asked for."""
        return final(transcript, self._schema, self.cut, self.most, count)

    @property
    def question(self) -> str:
        """The conversation as one text: a question as it is, instructions in front of it, turns by their names."""
        turns = self.messages
        if turns[-1].role != "user" or not turns[-1].text.strip():
            raise RefusedError(400, "messages: expected a user's text at the end, got none: put the question last")
        told = question_of((turn.role, turn.text) for turn in turns)
        return told if self._schema is None else f"{told}\n\n{instruction(self._schema)}."

    def cut(self, answer: str) -> str:
        """An answer up to the first of the request's stop texts."""
        return cut(answer, [self.stop] if isinstance(self.stop, str) else self.stop or [])


def schema_of(wanted: Any) -> dict[str, Any] | None:
    """The schema that an answer has to fit, {} for any object, None for a text; a ValueError for another format."""
    kind = wanted.get("type") if isinstance(wanted, dict) else wanted
    if kind in (None, "text"):
        return None
    if kind not in ("json_object", "json_schema"):
        expected = "text, json_object or json_schema"
        raise ValueError(f"response_format: expected {expected}, got {json.dumps(wanted)[:60]}: correct it")
    if kind == "json_object":
        return {}
    schema = wanted.get("json_schema", wanted)  # the latter in responses
    schema = schema.get("schema") if isinstance(schema, dict) else None
    try:
        check_schema(schema)
    except ValueError as error:
        raise ValueError(f"response_format: {error}") from error
    return dict(schema or {})


def round_text(record: Round) -> str:
    """A round in lines: who said what, how it was rated, who won, what the memory holds."""
    lines = [f"Round {record.index}"]
    for j, (proposal, support) in enumerate(zip(record.proposals, record.support, strict=True)):
        pairs = zip(record.voters, (row[j] for row in record.ratings), strict=True)
        rated = ", ".join(f"{voter} {rating:+.2f}" for voter, rating in pairs if rating is not None)
        said = " ".join(visible(proposal.text).split()) or "(no answer)"
        lines.append(f"- {proposal.agent}: {said} [support {support:+.2f}{f'; rated by {rated}' if rated else ''}]")
    if record.winner is None:
        lines.append("Nobody answered.")
    else:
        lines.append(f"{record.proposals[record.winner].agent} wins, conviction {record.conviction:+.2f}.")
    kept = ", ".join(f"{slot.agent} of round {slot.round} ({slot.retention:.2f})" for slot in record.memory)
    return "\n".join([*lines, f"Memory: {kept or 'empty'}.", ""]) + "\n"


def usage_of(transcript: Transcript) -> dict[str, int]:
    """All calls of a deliberation, as a metered endpoint would bill them."""
    usage = transcript.usage
    read, written = usage.prompt_tokens, usage.completion_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


class Completion:
    """One answer on its way out: whole, or in chunks under the same id."""

    def __init__(self, asked: ChatRequest) -> None:
        self.asked = asked
        self.head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model}
        self.reasoning = ""

    def start(self) -> bytes:
        """The first chunk."""
        return self._chunk({"role": "assistant", "content": ""})

    def think(self, said: Round | str) -> bytes:
        """A chunk for a round that is over, or for a line of progress."""
        text = round_text(said) if isinstance(said, Round) else f"{said}\n"
        data = {"round": plain_data(said)} if self.asked.transcript and isinstance(said, Round) else None
        return self._chunk({"reasoning_content": text}, nsed=data)

    def end(self, transcript: Transcript, answer: FinalAnswer) -> Iterator[bytes]:
        """The last chunks: answer, reason, and the usage where it is wanted."""
        yield self._chunk({"refusal": answer.refusal} if answer.refusal else {"content": answer.text})
        yield self._chunk({}, reason=answer.reason, nsed=summary(transcript, self.asked))
        if self.asked.stream_options and self.asked.stream_options.include_usage:
            yield sse({**self.head, "object": "chat.completion.chunk", "choices": [], "usage": usage_of(transcript)})
        yield b"data: [DONE]\n\n"

    def whole(self, transcript: Transcript, answer: FinalAnswer) -> dict[str, Any]:
        """All of it at once."""
        reasoning = "".join(map(round_text, transcript.rounds))
        content = {"content": None if answer.refusal else answer.text, "refusal": answer.refusal or None}
        message = {"role": "assistant", **content, "reasoning_content": reasoning}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.reason}
        data = plain_data(transcript) if self.asked.transcript else summary(transcript, self.asked)
        usage = usage_of(transcript)
        return {**self.head, "object": "chat.completion", "choices": [choice], "usage": usage, "nsed": data}

    def fault(self, error: RefusedError) -> bytes:
        """How a stream ends that has no answer."""
        return sse(error.body())

    def _chunk(self, delta: dict[str, str], *, reason: str | None = None, nsed: Any = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        chunk = {**self.head, "object": "chat.completion.chunk", "choices": [choice]}
        return sse(chunk if nsed is None else {**chunk, "nsed": nsed})


def sse(data: Any) -> bytes:
    """A server-sent event; JSON has no line breaks of its own, so no text can begin another."""
    return f"data: {json.dumps(data)}\n\n".encode()


def model_list(names: Sequence[str], since: int) -> list[dict[str, Any]]:
    """Models as OpenAI's clients list them."""
    return [{"id": name, "object": "model", "created": since, "owned_by": "nsed_torch"} for name in names]


def summary(transcript: Transcript, asked: ChatRequest) -> dict[str, Any]:
    """What a deliberation came to, with what a client has to know of its request."""
    last = transcript.rounds[-1] if transcript.rounds else None
    conviction = last.conviction if last else None
    told = {"rounds": len(transcript.rounds), "stop_reason": transcript.stop_reason, "conviction": conviction}
    notes = {"notes": asked._notes} if asked._notes else {}
    return {**told, "calls": transcript.usage.calls, **notes}
