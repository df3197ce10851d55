"""The settings of an endpoint, as far as they can be wrong before anything is asked."""

import json
import math
import re
from typing import Any
from urllib.parse import urlsplit

_SET = {"model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed"}
_SET |= {"repetition_penalty", "logprobs", "top_logprobs", "prompt_logprobs", "echo", "stream", "n"}

HUB = (".huggingface.co", ".hf.space", ".endpoints.huggingface.cloud")
"""Ends of the names of hosts that may be sent the Hub's token."""


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


def check_settings(given: Any) -> None:
    """Refuse an engine whose settings, which YAML may bring in any type, are out of range, with a ValueError."""
    where = f"endpoint {given.url}"
    checks: tuple[tuple[str, Any, Any, str], ...] = (
        ("model", str, lambda text: text.strip(), "the server's name of it, as GET /models lists it"),
        ("timeout_s", int | float, lambda s: 0 < s < math.inf, "seconds above 0"),
        ("patience_s", int | float, lambda s: 0 <= s < math.inf, "seconds, at least 0"),
        ("allowance_field", str, lambda text: text.strip(), "what the server calls the allowance, such as max_tokens"),
        ("top_logprobs", int, lambda n: n >= 1, "a whole number, at least 1"),
        ("measures", bool, lambda yes: True, "true or false"),
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
    if known := sorted(_SET & set(given.extra_body)):
        raise ValueError(f"{where}, extra_body: expected fields that no setting has, got {known}: leave them out")
    try:
        json.dumps(given.extra_body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}, extra_body: expected JSON values, got {error}: correct it") from error
    marks, omit = given.reasoning, given.omit
    if marks is not None and (isinstance(marks, str) or len(marks) != 2 or not marks[1] or len({*marks}) != 2):
        wanted = "expected what opens and what closes thoughts"
        raise ValueError(f"{where}, reasoning: {wanted}, got {marks!r}: set ['<think>', '</think>']")
    if isinstance(omit, str) or not all(isinstance(name, str) for name in omit):
        raise ValueError(f"{where}, omit: expected a list of fields' names, got {omit!r}: set ['seed']")
