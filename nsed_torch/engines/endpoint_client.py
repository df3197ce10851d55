"""What servers are spoken to with: OpenAI's client, whose replies take no longer, and no more room, than they may."""

import contextlib
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from nsed_torch.records.deadline import within
from nsed_torch.records.extras import missing

_OF_THE_BODY = {"content-encoding", "content-length", "transfer-encoding"}

MOST_BYTES = 1 << 25
"""The longest reply that is read; 20 log-probabilities of 10^4 tokens are a tenth of it."""


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


def checked_url(url: str) -> str:
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


def openai_library() -> Any:
    """The package that speaks to such servers; a `ValueError` where it is not installed."""
    try:
        import openai  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ValueError(missing("the package openai", "an endpoint", "endpoint", error)) from error
    return openai
