"""Chat completions as they come in and go out: what a request may say, and how a deliberation is told in them."""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nsed_torch.app.door import cut, question_of
from nsed_torch.app.view import visible
from nsed_torch.records.checked import plain_data
from nsed_torch.records.files import parse_json
from nsed_torch.records.transcript import Round, Transcript

UNABLE = ("audio", "functions", "logprobs", "tools")
"""What a team has no way to give; other fields that are not read, such as `temperature`, are its agents' own affair."""

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

    type: Literal["text"]
    text: str


class ChatTurn(Strict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """What it says."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


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
    rounds: int | None = Field(None, ge=1)
    halting: Literal["fixed", "evidence", "fatigue"] | None = None
    task_id: str | None = Field(None, min_length=1, max_length=200)  # names the task in seeds, as in `nsed evaluate`
    transcript: bool = False  # whether rounds come as data, too, in the field `nsed`

    @classmethod
    def read(cls, body: bytes) -> "ChatRequest":
        """Read a body that anybody may have written.

        Raises:
            RefusedError: 400, with the first thing that is wrong.
        """
        try:
            data = parse_json(body, "body", "correct it")
            asked = cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "body"
            raise RefusedError(400, f"{place}: {first['msg']}, got {repr(first['input'])[:60]}: correct it") from error
        except ValueError as error:
            raise RefusedError(400, str(error)[:300]) from error
        given = [name for name in UNABLE if data.get(name)]
        if (data.get("response_format") or {"type": "text"}) != {"type": "text"}:
            given.append("response_format")
        if given:
            raise RefusedError(400, f"{given[0]}: expected none, for a team answers in plain text: leave it out")
        return asked

    @property
    def question(self) -> str:
        """The conversation as one text: a question as it is, instructions in front of it, turns by their names."""
        turns = self.messages
        if turns[-1].role != "user" or not turns[-1].text.strip():
            raise RefusedError(400, "messages: expected a user's text at the end, got none: put the question last")
        return question_of((turn.role, turn.text) for turn in turns)

    def cut(self, answer: str) -> str:
        """An answer up to the first of the request's stop texts."""
        return cut(answer, [self.stop] if isinstance(self.stop, str) else self.stop or [])


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

    def end(self, transcript: Transcript) -> Iterator[bytes]:
        """The last chunks: answer, reason, and the usage where it is wanted."""
        yield self._chunk({"content": self.asked.cut(transcript.answer)})
        yield self._chunk({}, reason="stop", nsed=_summary(transcript))
        if self.asked.stream_options and self.asked.stream_options.include_usage:
            yield sse({**self.head, "object": "chat.completion.chunk", "choices": [], "usage": usage_of(transcript)})
        yield b"data: [DONE]\n\n"

    def whole(self, transcript: Transcript) -> dict[str, Any]:
        """All of it at once."""
        reasoning = "".join(map(round_text, transcript.rounds))
        content = self.asked.cut(transcript.answer)
        message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        data = plain_data(transcript) if self.asked.transcript else _summary(transcript)
        usage = usage_of(transcript)
        return {**self.head, "object": "chat.completion", "choices": [choice], "usage": usage, "nsed": data}

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


def _summary(transcript: Transcript) -> dict[str, Any]:
    last = transcript.rounds[-1] if transcript.rounds else None
    conviction = last.conviction if last else None
    told = {"rounds": len(transcript.rounds), "stop_reason": transcript.stop_reason, "conviction": conviction}
    return {**told, "calls": transcript.usage.calls}
