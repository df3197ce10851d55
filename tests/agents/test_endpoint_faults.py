"""Faults of an endpoint and of its settings: tried again or told in one line, at no cost to answers that came."""

import math
import time

import pytest
from endpoint_server import KEY, ask, echo, engine

from nsed_torch.agents import Decoding, EndpointEngine
from nsed_torch.agents.requests import ContextWindowError

pytest.importorskip("openai")


@pytest.mark.parametrize("status", [429, 500])
def test_a_passing_fault_is_tried_again(server, status):
    left = [(status, {"error": {"message": "busy"}})]
    server.script = lambda body: left.pop() if left else echo(body)
    assert engine(server).generate([ask()])[0].text == "said: Hello?"
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((429, {"error": {"message": "slow down"}}), "status 429: .*slow down"),
        ((503, "<html>down</html>"), "status 503: "),
        ((404, {"error": {"message": "no model m"}}), "status 404: .*no model m"),
        ((400, {"error": {"message": "seed: unknown"}}), "status 400: .*seed: unknown"),
        (
            (401, {"error": {"message": f"Incorrect API key {KEY[:4]}***"}}),
            "status 401: expected a key in the .* THE_KEY",
        ),
        ((500, {"error": {"message": f"not for {KEY}"}}), r"status 500: .*not for \[key\]"),
        ((200, "<html>another service</html>"), "expected a chat completion, got <html>"),
        ((200, {"error": {"message": "overloaded"}}), "expected a chat completion, got .*overloaded"),
        ((200, "{half"), "JSONDecodeError: "),
        ((200, []), "expected a chat completion, got "),
    ],
)
def test_a_lasting_fault_is_one_line_without_the_key(server, monkeypatch, said, expected):
    monkeypatch.setenv("THE_KEY", KEY)
    server.script = lambda body: said
    with pytest.raises(ConnectionError, match=f"^{server.url}: {expected}") as caught:
        engine(server, api_key_env="THE_KEY", retries=1).generate([ask()])
    assert "\n" not in str(caught.value)
    assert KEY[:4] not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(server.bodies) == (2 if said[0] in {429, 500, 503} else 1)
    assert server.heads[0]["authorization"] == f"Bearer {KEY}"


def test_nobody_at_home_and_nobody_in_time(server):
    server.script = lambda body: time.sleep(0.3) or echo(body)
    with pytest.raises(ConnectionError, match="APITimeoutError: Request timed out"):
        engine(server, timeout_s=0.05, retries=0).generate([ask()])
    with pytest.raises(
        ConnectionError, match=r"http://127.0.0.1:9/v1: APIConnectionError: .*check that the server is up"
    ):
        engine(server, url="http://127.0.0.1:9/v1", retries=0).generate([ask()])


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "message": "Reduce the messages."},
        {"code": 400, "message": "This model's maximum context length is 64 tokens. However, you requested 99."},
        {"code": 400, "message": "Too many tokens", "type": "exceed_context_size_error"},
    ],
)
def test_too_long_by_the_servers_word(server, error):
    server.script = lambda body: (400, {"error": error})
    with pytest.raises(ContextWindowError, match=r"status 400: .*shorten the question"):
        engine(server).generate([ask()])
    assert len(server.bodies) == 1


def test_too_long_by_our_own_estimate(server):
    own = engine(server, context_window=40)
    (written,) = own.generate([ask("x" * 40, decoding=Decoding(max_new_tokens=100))])
    assert server.bodies[0]["max_tokens"] == 40 - 2 - 10
    assert written.notes == ("answer allowance shrunk from 100 to 28 tokens to fit the window",)
    with pytest.raises(
        ContextWindowError, match="of 27 tokens plus an answer needs at least 43 tokens, the window of m is 40"
    ):
        own.generate([ask("fits"), ask("x" * 100)])
    assert len(server.bodies) == 1


def test_a_failure_costs_no_answer_that_came(server):
    def script(body):
        if body["messages"][-1]["content"] == "bad":
            time.sleep(0.1)
            return 400, {"error": {"message": "no"}}
        return echo(body)

    server.script = script
    texts = ["one", "bad", "two", *map(str, range(40))]
    came = {}
    parts = engine(server, max_batch=2).generations([ask(text) for text in texts])
    with pytest.raises(ConnectionError, match="status 400"):
        came.update(item for part in parts for item in part.items())
    assert {0, 2} <= set(came)
    assert all(came[i].text == f"said: {texts[i]}" for i in came)
    assert len(server.bodies) == len(came) + 1


def test_after_a_failure_nothing_new_is_asked(server):
    server.script = lambda body: (400, {"error": {"message": "no"}})
    with pytest.raises(ConnectionError):
        engine(server, max_batch=1).generate([ask(str(i)) for i in range(50)])
    assert len(server.bodies) < 50


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"url": "localhost:8000"}, "expected an endpoint's url as http://localhost:8000/v1, got 'localhost:8000'"),
        ({"url": f"http://me:{KEY}@host/v1"}, "without user, password or query, got one with it at host"),
        ({"url": f"http://host/v1?key={KEY}"}, "without user, password or query, got one with it at host"),
        ({"model": ""}, "model: expected the server's name of it, as GET /models lists it, got ''"),
        ({"timeout_s": 0}, "timeout_s: expected seconds above 0, got 0"),
        ({"timeout_s": "soon"}, "timeout_s: expected seconds above 0, got 'soon'"),
        ({"retries": -1}, "retries: expected a whole number, at least 0, got -1"),
        ({"max_batch": 0}, "max_batch: expected a whole number, at least 1, got 0"),
        ({"context_window": 0}, "context_window: expected a number of tokens or null, got 0"),
        ({"api_key_env": KEY}, "api_key_env: expected the name of an environment variable"),
        ({"api_key_env": "NOT_SET"}, "expected a key in the environment variable NOT_SET, got none: export it"),
        ({"extra_body": {"model": "x"}}, r"extra_body: expected fields that no setting has, got \['model'\]"),
        ({"extra_body": {"x": math.nan}}, "extra_body: expected JSON values, got "),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, expected):
    with pytest.raises(ValueError, match=expected) as caught:
        EndpointEngine(**{"url": "http://host/v1", "model": "m", **settings})
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(ValueError, match=r"expected the package openai .* pip install nsed_torch\[endpoint\]"):
        EndpointEngine("http://host/v1", "m")
