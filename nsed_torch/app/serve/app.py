"""The server's doors: what is let in, and how a question's events become an answer."""

import asyncio
import contextlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from nsed_torch.app.serve.batches import Batches, Event, QueuedQuestion
from nsed_torch.app.serve.metrics import Metrics
from nsed_torch.app.serve.responses import ResponseReply, ResponsesRequest
from nsed_torch.app.serve.wire import ChatRequest, Completion, RefusedError, model_list, usage_of
from nsed_torch.records.transcript import Round, Transcript

Form = Completion | ResponseReply
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
SIGN_OF_LIFE = 15.0
"""Seconds after which a silent stream sends a comment, so that nothing between takes it for dead."""


@dataclass(frozen=True)
class Limits:
    """What one request may take."""

    body_bytes: int = 262_144
    body_s: float = 10.0  # from first byte to last
    request_s: float = 600.0  # from the request to the end of its answer
    rounds: int = 16


class Entrance:
    """Lets requests in and answers out, between HTTP and the thread of the models.

    With a key, models and metrics are for those who know it. Without one, only requests that name this machine are
    let in, so that no web page can reach the server under a name of its own (DNS rebinding).
    """

    def __init__(self, batches: Batches, limits: Limits, key: str) -> None:
        self.batches, self.limits, self.metrics, self.since = batches, limits, Metrics(), int(time.time())
        self._key = key.encode()

    def admit(self, request: Request) -> None:
        """Refuse with 401 who does not know the key, and with 403 who was not sent to this machine."""
        if self._key:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), self._key):
                raise RefusedError(401, "expected the server's key as a bearer token, got none or another: pass it")
        else:
            host = request.headers.get("host", "")
            with contextlib.suppress(ValueError):
                if urlsplit(f"//{host}").hostname in LOOPBACK:
                    return
            raise RefusedError(
                403, f"expected a request to localhost, got one to {host[:60]!r}: set a key to serve others"
            )

    async def chat(self, request: Request) -> Response:
        """Answer a chat completion."""
        return await self._answer(request, ChatRequest, Completion)

    async def responses(self, request: Request) -> Response:
        """Answer in the newer form."""
        return await self._answer(request, ResponsesRequest, ResponseReply)

    async def _answer(self, request: Request, reads: type[ChatRequest], form: type[Form]) -> Response:
        self.admit(request)
        began, known = time.perf_counter(), "none"
        try:
            # A web page can send other types to any address without asking.
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise RefusedError(415, "expected Content-Type: application/json, got another: set it")
            # A long body takes seconds to check, in which others are heard.
            asked = await asyncio.to_thread(reads.read, await self._body(request))
            known = asked.model if asked.model in self.batches.teams else known
            events: asyncio.Queue[Event] = asyncio.Queue()
            question = self._enter(asked, events)
        except RefusedError as error:
            self.metrics.add("requests_total", model=known, status=error.status)
            raise
        told = _Told(self.metrics, known, began)
        if asked.stream:
            stream = self._stream(form(asked), question, events, told)
            headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
            return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
        return await self._whole(form(asked), question, events, told, request)

    def known(self, name: str) -> None:
        """Refuse a model's name that there is no team for, with 404."""
        if name not in self.batches.teams:
            names = ", ".join(self.batches.teams)
            raise RefusedError(404, f"model: expected one of {names}, got {name[:60]!r}", "model_not_found")

    async def _body(self, request: Request) -> bytes:
        """A request's body, as far as it is no longer and no slower than allowed."""
        most, body = self.limits.body_bytes, bytearray()
        with contextlib.suppress(ValueError):
            if int(request.headers.get("content-length", "0")) > most:
                body += bytes(most + 1)  # refused unread
        try:
            async with asyncio.timeout(self.limits.body_s):
                stream = request.stream()
                while len(body) <= most and (part := await anext(stream, None)) is not None:
                    body += part
        except TimeoutError as error:
            told = f"expected the body within {self.limits.body_s:g} s, got a part of it: send it faster"
            raise RefusedError(408, told) from error
        except ClientDisconnect as error:
            raise RefusedError(400, "expected a whole body, got a part of it: send it again") from error
        if len(body) > most:
            raise RefusedError(413, f"expected a body of at most {most} bytes, got more: shorten it")
        return bytes(body)

    def _enter(self, asked: ChatRequest, events: asyncio.Queue[Event]) -> QueuedQuestion:
        """Put a request's question into the queue, if there is a model that can deliberate on it so."""
        self.known(asked.model)
        if (asked.rounds or 1) > self.limits.rounds:
            raise RefusedError(400, f"rounds: expected at most {self.limits.rounds}, got {asked.rounds}: ask for fewer")
        loop = asyncio.get_running_loop()

        def tell(event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the server closed before its models were done
                loop.call_soon_threadsafe(events.put_nowait, event)

        question = QueuedQuestion(asked, tell)
        try:
            question.terms.team(self.batches.teams[asked.model])
        except ValueError as error:
            raise RefusedError(400, str(error)) from error
        self.batches.submit(question)
        return question

    async def _heard(self, events: asyncio.Queue[Event]) -> AsyncIterator[str | Round | Transcript | None]:
        """What happens to a question, its transcript last; None now and then as a sign of life."""
        end = time.monotonic() + self.limits.request_s
        while (left := end - time.monotonic()) > 0:
            try:
                event = await asyncio.wait_for(events.get(), min(left, SIGN_OF_LIFE))
            except TimeoutError:
                yield None
                continue
            if isinstance(event, RefusedError):
                raise event
            yield event
            if isinstance(event, Transcript):
                return
        raise RefusedError(
            504, f"expected an answer within {self.limits.request_s:g} s, got none: ask for fewer rounds"
        )

    async def _stream(
        self, completion: Form, question: QueuedQuestion, events: asyncio.Queue[Event], told: "_Told"
    ) -> AsyncIterator[bytes]:
        try:
            yield completion.start()
            async for event in self._heard(events):
                if isinstance(event, Transcript):
                    told.done(event)
                    for chunk in completion.end(event, question.answer):
                        yield chunk
                else:
                    yield b": waiting\n\n" if event is None else completion.think(event)
        except RefusedError as error:
            told.status = error.status
            yield completion.fault(error)
        finally:
            question.gone = True
            told.count()

    async def _whole(
        self, completion: Form, question: QueuedQuestion, events: asyncio.Queue[Event], told: "_Told", request: Request
    ) -> Response:
        async def listen() -> Transcript:
            return [event async for event in self._heard(events) if isinstance(event, Transcript)][-1]

        async def leave() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        answer, left = asyncio.ensure_future(listen()), asyncio.ensure_future(leave())
        try:
            await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                return Response(status_code=told.status)  # that nobody reads
            transcript = answer.result()
            told.done(transcript)
            return Response(json.dumps(completion.whole(transcript, question.answer)), media_type="application/json")
        except RefusedError as error:
            told.status = error.status
            raise
        finally:
            question.gone = True
            answer.cancel()
            left.cancel()
            told.count()


class _Told:
    """What the metrics hear of one request; it counts as left until something else is known."""

    def __init__(self, metrics: Metrics, model: str, began: float) -> None:
        self.metrics, self.model, self.began, self.status = metrics, model, began, 499

    def done(self, transcript: Transcript) -> None:
        self.status = 200
        for kind, count in usage_of(transcript).items():
            if kind != "total_tokens":
                self.metrics.add("tokens_total", count, model=self.model, kind=kind.removesuffix("_tokens"))

    def count(self) -> None:
        self.metrics.add("requests_total", model=self.model, status=self.status)
        self.metrics.add("request_seconds_total", time.perf_counter() - self.began, model=self.model)


def application(batches: Batches, *, limits: Limits = Limits(), key: str = "") -> FastAPI:
    """The server as an ASGI application; its models begin and end with it."""
    door = Entrance(batches, limits, key)
    page = (Path(__file__).parent / "page.html").read_text("utf-8")

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        batches.start()
        yield
        await asyncio.to_thread(batches.close)

    app = FastAPI(title="nsed_torch", lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    app.add_api_route("/v1/chat/completions", door.chat, methods=["POST"], response_model=None)
    app.add_api_route("/v1/responses", door.responses, methods=["POST"], response_model=None)

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        door.admit(request)
        return {"object": "list", "data": model_list(list(batches.teams), door.since)}

    @app.get("/v1/models/{name:path}")
    async def model(request: Request, name: str) -> dict[str, Any]:
        door.admit(request)
        door.known(name)
        return model_list([name], door.since)[0]

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics(request: Request) -> PlainTextResponse:
        door.admit(request)
        work = {"batches_total": batches.batches, "batch_tasks_total": batches.tasks}
        now = {"queue_length": batches.waiting, "running": batches.running, "batch_seconds_total": batches.seconds}
        return PlainTextResponse(door.metrics.text(**work, **now), media_type="text/plain; version=0.0.4")

    @app.get("/")
    async def live() -> HTMLResponse:
        nonce = secrets.token_urlsafe(16)
        policy = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'"
        headers = {"Content-Security-Policy": f"{policy}; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"}
        return HTMLResponse(page.replace("NONCE", nonce), headers={**headers, "X-Content-Type-Options": "nosniff"})

    return app


def _refused(request: Request, error: Exception) -> Response:
    """Every refusal, ours and the framework's, as OpenAI's clients read it."""
    if isinstance(error, HTTPException):
        error = RefusedError(error.status_code, f"{request.method} {request.url.path[:60]}: {error.detail}")
    refused = error if isinstance(error, RefusedError) else RefusedError(500, "expected an answer, got an error")
    body = json.dumps(refused.body())
    return Response(body, refused.status, headers=refused.headers, media_type="application/json")
