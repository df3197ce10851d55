"""The newer form of requests and replies, `/v1/responses`: the same questions and answers under other names."""

import time
import uuid
from collections.abc import Iterator
from typing import Any, Self

from nsed_torch.app.serve.formats import FinalAnswer
from nsed_torch.app.serve.wire import ChatRequest, RefusedError, round_text, sse, summary, usage_of
from nsed_torch.records.checked import plain_data
from nsed_torch.records.transcript import Round, Transcript

_UNKEPT = ("previous_response_id", "conversation", "background", "prompt")


class ResponsesRequest(ChatRequest):
    """A request whose turns are called `input`, and its instructions by their name."""

    @classmethod
    def of(cls, data: Any) -> Self:
        """Read a request as a chat; raises as `ChatRequest.of`."""
        if not isinstance(data, dict):
            raise RefusedError(400, f"body: expected an object, got {str(data)[:60]}: correct it")
        given = {name: value for name, value in data.items() if value is not None}
        if kept := [name for name in _UNKEPT if given.get(name)]:
            raise RefusedError(400, f"{kept[0]}: expected none, for nothing is kept between requests: send all turns")
        if "messages" in given:
            raise RefusedError(400, "messages: expected turns under their name here, got a chat's: call them input")
        said = given.pop("input", [])
        items = [{"role": "user", "content": said}] if isinstance(said, str) else said
        instructions = given.pop("instructions", "")
        turns = [{"role": "system", "content": instructions}] if instructions else []
        turns += [turn for item in items for turn in _turns(item)] if isinstance(items, list) else []
        if "max_output_tokens" in given:
            given["max_completion_tokens"] = given.pop("max_output_tokens")
        if isinstance(form := given.pop("text", None), dict):
            given["response_format"] = form.get("format")
        given = {name: value for name, value in given.items() if name not in _UNKEPT}
        return super().of(given | {"messages": turns})


def _turns(item: Any) -> list[Any]:
    """The turns of a chat that an item is: one, or none where it is a thought or the call of a tool."""
    if not isinstance(item, dict) or item.get("type", "message") == "message":
        return [{name: item[name] for name in ("role", "content") if name in item} if isinstance(item, dict) else item]
    kind = item["type"]
    return [{"role": "tool", "content": str(item.get("output"))}] if kind == "function_call_output" else []


class ResponseReply:
    """One answer on its way out: whole, or in events under the same id."""

    def __init__(self, asked: ChatRequest) -> None:
        self.asked, self.id, self.since = asked, f"resp_{uuid.uuid4().hex}", int(time.time())
        self._number = 0
        self._thoughts: list[str] = []

    def start(self) -> bytes:
        """The first events."""
        begun = {"response": self._response("in_progress", [])}
        thought = self._thought("in_progress", [])
        part = {"type": "summary_text", "text": ""}
        return b"".join(
            [
                self._event("response.created", **begun),
                self._event("response.in_progress", **begun),
                self._event("response.output_item.added", output_index=0, item=thought),
                self._event("response.reasoning_summary_part.added", **self._at(0, "summary_index"), part=part),
            ]
        )

    def think(self, said: Round | str) -> bytes:
        """An event for a round that is over, or for a line of progress."""
        text = round_text(said) if isinstance(said, Round) else f"{said}\n"
        self._thoughts.append(text)
        data = {"nsed": {"round": plain_data(said)}} if self.asked.transcript and isinstance(said, Round) else {}
        return self._event("response.reasoning_summary_text.delta", **self._at(0, "summary_index"), delta=text, **data)

    def end(self, transcript: Transcript, answer: FinalAnswer) -> Iterator[bytes]:
        """The last events: answer and the whole."""
        thoughts = "".join(self._thoughts)
        done = {"type": "summary_text", "text": thoughts}
        thought, message = self._thought("completed", [done]), self._message(answer)
        yield self._event("response.reasoning_summary_text.done", **self._at(0, "summary_index"), text=thoughts)
        yield self._event("response.reasoning_summary_part.done", **self._at(0, "summary_index"), part=done)
        yield self._event("response.output_item.done", output_index=0, item=thought)
        empty = message | {"status": "in_progress", "content": []}
        yield self._event("response.output_item.added", output_index=1, item=empty)
        (part,) = message["content"]
        kind = "refusal" if answer.refusal else "output_text"
        name = "refusal" if answer.refusal else "text"
        extra: dict[str, Any] = {} if answer.refusal else {"logprobs": []}
        place = self._at(1, "content_index")
        yield self._event("response.content_part.added", **place, part=part | {name: ""})
        yield self._event(f"response.{kind}.delta", **place, delta=part[name], **extra)
        yield self._event(f"response.{kind}.done", **place, **{name: part[name]}, **extra)
        yield self._event("response.content_part.done", **place, part=part)
        yield self._event("response.output_item.done", output_index=1, item=message)
        whole = self._ended(transcript, answer, [thought, message])
        yield self._event(f"response.{whole['status']}", response=whole)

    def whole(self, transcript: Transcript, answer: FinalAnswer) -> dict[str, Any]:
        """All of it at once."""
        text = "".join(map(round_text, transcript.rounds))
        thought = self._thought("completed", [{"type": "summary_text", "text": text}])
        return self._ended(transcript, answer, [thought, self._message(answer)])

    def fault(self, error: RefusedError) -> bytes:
        """How a stream ends that has no answer."""
        return self._event("error", code=error.code, message=error.message, param=None)

    def _ended(self, transcript: Transcript, answer: FinalAnswer, output: list[Any]) -> dict[str, Any]:
        usage = usage_of(transcript)
        data = plain_data(transcript) if self.asked.transcript else summary(transcript, self.asked)
        whole = self._response("incomplete" if answer.reason == "length" else "completed", output)
        return whole | {
            "incomplete_details": {"reason": "max_output_tokens"} if answer.reason == "length" else None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
            "nsed": data,
        }

    def _response(self, status: str, output: list[Any]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.since,
            "model": self.asked.model,
            "status": status,
            "output": output,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
            "temperature": None,
            "top_p": None,
            "usage": None,
        }

    def _thought(self, status: str, parts: list[Any]) -> dict[str, Any]:
        return {"type": "reasoning", "id": f"rs_{self.id[5:]}", "status": status, "summary": parts}

    def _message(self, answer: FinalAnswer) -> dict[str, Any]:
        text = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        part = {"type": "refusal", "refusal": answer.refusal} if answer.refusal else text
        status = "incomplete" if answer.reason == "length" else "completed"
        return {
            "type": "message", "id": f"msg_{self.id[5:]}", "role": "assistant", "status": status, "content": [part],
        }  # fmt: skip

    def _at(self, output: int, part: str) -> dict[str, Any]:
        return {"item_id": f"{('rs', 'msg')[output]}_{self.id[5:]}", "output_index": output, part: 0}

    def _event(self, kind: str, **data: Any) -> bytes:
        self._number += 1
        return f"event: {kind}\n".encode() + sse({"type": kind, "sequence_number": self._number - 1, **data})
