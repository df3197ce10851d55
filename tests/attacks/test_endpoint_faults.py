"""Faults of an endpoint and of its settings: tried again or told in one line, at no cost to answers that came."""

import json
import math
import random
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
from endpoint_server import KEY, ask, completion, echo, endpoint, engine

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import ContextWindowError, Decoding, Message, RateRequest, RatingScale
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.endpoint import EndpointEngine
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.parts.budget_broker import BudgetBroker
from nsed_torch.parts.rating_modes import CritiqueRating
from nsed_torch.parts.telemetry import Telemetry
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.deadline import within
from nsed_torch.records.transcript import Task, Transcript

pytest.importorskip("openai")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with endpoint() as served:
        yield served


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
        ((400, {"error": {"message": "no: unknown"}}), "status 400: .*no: unknown"),
        (
            (401, {"error": {"message": f"Incorrect API key {KEY[:4]}***"}}),
            "status 401: expected a key in the .* THE_API_KEY",
        ),
        ((500, {"error": {"message": f"not for {KEY}"}}), r"status 500: .*not for \[key\]"),
        ((200, "<html>another service</html>"), "expected a chat completion, got <html>"),
        ((200, {"error": {"message": "overloaded"}}), "status 502: overloaded"),
        ((200, "{half"), "expected a chat completion, got {half"),
        ((200, []), "expected a chat completion, got "),
        ((200, "[" * 200_000), r"expected a chat completion, got \[+: check the url"),
        ((200, {"choices": {"0": 1}}), "expected a chat completion, got "),
        ((200, completion([{"text": "no kind"}])), "expected a chat completion, got .*no kind"),
        ((200, completion(17)), "expected a chat completion, got "),
        *(((200, completion("x", finish=odd)), "expected a chat completion, got ") for odd in (["stop"], [], 0, False)),
        (
            (500, {"error": {"message": "\x1b]0;owned\x07\x1b[31m red \u202e" + "x" * 9000}}),
            r"status 500: .*owned \[31m red x+",
        ),
    ],
)
def test_a_lasting_fault_is_one_line_without_the_key(server, monkeypatch, said, expected):
    monkeypatch.setenv("THE_API_KEY", KEY)
    server.script = lambda body: said
    with pytest.raises(ConnectionError, match=f"^{server.url}: {expected}") as caught:
        engine(server, api_key_env="THE_API_KEY", retries=1).generate([ask()])
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    assert KEY[:4] not in str(caught.value)
    assert caught.value.__cause__ is None
    again = said[0] in {500, 503} or "overloaded" in str(said)
    assert len(server.bodies) == (15 if said[0] == 429 else 2 if again else 1)
    assert server.heads[0]["authorization"] == f"Bearer {KEY}"


def test_nobody_at_home_and_nobody_in_time(server):
    server.script = lambda body: time.sleep(0.3) or echo(body)
    with pytest.raises(ConnectionError, match=r"expected a whole reply within 0\.05 s, got none: raise timeout_s"):
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
    server.script = lambda body: (400, {"error": error}) if len(body["messages"][-1]["content"]) > 9 else echo(body)
    own = engine(server, max_batch=1)
    with pytest.raises(ContextWindowError, match=r"status 400: .*shorten the question"):
        own.generate([ask("x" * 10)])
    assert len(server.bodies) == 1
    came = {i: r for part in own.generations([ask("x" * 10), ask("short")]) for i, r in part.items()}
    assert came[1].text == "said: short"
    assert came[0].finish_reason == "failed"


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
    own, requests = engine(server, max_batch=2), [ask(text) for text in texts]
    came = {i: result for part in own.generations(requests) for i, result in part.items()}
    assert [came[i].text for i in range(len(texts))] == ["" if text == "bad" else f"said: {text}" for text in texts]
    assert "status 400" in came[1].failure
    assert (came[1].finish_reason, len(server.bodies)) == ("failed", len(texts))
    with pytest.raises(ConnectionError, match="status 400"):
        own.generate(requests)


def test_a_server_that_only_fails_is_soon_asked_nothing_more(server):
    server.script = lambda body: (400, {"error": {"message": "no"}})
    own = engine(server, max_batch=1)
    came = list(own.generations([ask(str(i)) for i in range(50)]))
    assert sorted(i for part in came for i in part) == list(range(50))
    assert all("status 400" in result.failure for part in came for result in part.values())
    assert len(server.bodies) < 12


# --- what a hostile server says --------------------------------------------------------------------------------------


def test_half_a_character_becomes_a_mark_that_files_can_hold(server):
    server.script = lambda body: json.dumps(completion("a \ud800 b \U0001f600 \udc00"))
    (written,) = engine(server).generate([ask()])
    assert written.text == "a \ufffd b \U0001f600 \ufffd"


def test_half_a_character_is_never_committed(tmp_path):
    """Whatever engine says it: a log that held it would break every run to come."""
    with CallLog(tmp_path / "calls.sqlite") as log, pytest.raises(ValueError, match="surrogates"):
        log.put({"key": {"text": "\ud800"}})
    with CallLog(tmp_path / "calls.sqlite") as log:
        assert len(log) == 0


@pytest.mark.parametrize("usage", [(-1000, -5), (10**12, 3), (7, 10**30), (True, 3), ("7", "3"), (7.5, None)])
def test_counts_that_no_call_has_are_estimated(server, usage):
    said = completion("said")
    said["usage"] = dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=True))
    server.script = lambda body: said
    (written,) = engine(server).generate([ask("12345")])
    assert 0 <= written.prompt_tokens <= 7
    assert 0 <= written.completion_tokens <= 3
    assert "the endpoint said no usage: tokens are estimated" in written.notes
    said["usage"] = "much"
    assert engine(server).generate([ask("12345")])[0].prompt_tokens == 2 + 2


def judged(server, top):
    said = completion("7", top={"7": 0.5})
    said["choices"][0]["logprobs"]["content"][0]["top_logprobs"] = top
    server.script = lambda body: json.dumps(said)
    request = RateRequest("a", (Message("user", "?"),), ("x",), RatingScale())
    return engine(server).rate([request])[0]


@pytest.mark.parametrize(
    "logprob", [math.nan, math.inf, -math.inf, "-0.1", None, True, [], 10**400], ids=lambda value: str(value)[:5]
)
def test_a_logprob_that_is_no_number_is_a_failed_call(server, logprob):
    with pytest.raises(ConnectionError, match="expected a chat completion, got "):
        judged(server, [{"token": "7", "logprob": logprob}])


def test_a_logprob_above_0_forges_no_rating(server):
    rated = judged(server, [{"token": "9", "logprob": 900.0}, {"token": "0", "logprob": 0.0}])
    assert rated.values == (0.0,)
    assert rated.coverage == (1.0,)
    assert judged(server, [{"token": "9", "logprob": -9999}]).values == (None,)


@pytest.mark.parametrize("top", ["7", {"7": 1}, [["7", -1]], [{"token": 7, "logprob": -1}], [None]])
def test_tokens_in_another_form_are_a_failed_call(server, top):
    with pytest.raises(ConnectionError, match="expected a chat completion, got "):
        judged(server, top)


@pytest.mark.parametrize("sent", ["HTTP/1.1 200 OK\r\nX-Long: ", "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_headers_or_a_body_that_trickle_in_are_left_at_the_deadline(server, sent):
    left = []

    def dripping(handler):
        """One byte every few milliseconds, for as long as anybody reads."""
        handler.wfile.write(sent.encode())
        try:
            for _ in range(1000):
                handler.wfile.write(b"x")
                time.sleep(0.01)
        except OSError:
            left.append(time.monotonic())
        handler.close_connection = True

    server.script = lambda body: dripping
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=r"expected a whole reply within 0\.2 s, got none: raise timeout_s"):
        engine(server, timeout_s=0.2, retries=0).generate([ask()])
    assert time.monotonic() - start < 5
    while not left and time.monotonic() - start < 9:
        time.sleep(0.01)
    assert left, "the connection was left open"


@pytest.mark.parametrize("status", [200, 400])
def test_a_body_without_end_is_left_at_its_most(server, monkeypatch, status):
    monkeypatch.setattr("nsed_torch.engines.endpoint_client.MOST_BYTES", 1000)
    server.script = lambda body: (status, "x" * 1001)
    with pytest.raises(ConnectionError, match="expected a reply of at most 1000 bytes, got more"):
        engine(server, retries=0).generate([ask()])


@pytest.mark.attack
def test_no_reply_drawn_at_random_is_a_traceback(server):
    """Parts of a sound reply in each other's places: an answer or a failed call, and the next call works."""
    parts = [None, True, -1, 1e999, "", "\ud800", [], {}, [[]], {"content": []}, 10**30, "\x1b[2J"]
    draw, whole = random.Random(0), completion("yes", top={"7": 0.5})

    def spoiled(value):
        if draw.random() < 0.12:
            return draw.choice(parts)
        if isinstance(value, dict):
            return {k: spoiled(v) for k, v in value.items()}
        return [spoiled(v) for v in value] if isinstance(value, list) else value

    server.script = lambda body: json.dumps(spoiled(whole))
    own, rate = engine(server, retries=0), RateRequest("a", (Message("user", "?"),), ("x",))
    for _ in range(100):
        for part in (*own.generations([ask()]), *own.ratings([rate])):
            (result,) = part.values()
            assert all(note.isprintable() for note in result.notes)
            assert result.prompt_tokens >= 0
            assert getattr(result, "text", "").encode() is not None


# --- a deliberation with somebody who fails -------------------------------------------------------------------------

TASKS = [Task("How much is 17 plus 54?", "t"), Task("And 1 plus 1?", "u")]


def team(server, log=None, *, rating=None, broker=None, rounds=1):
    """Two models elsewhere and an agent here."""
    here = ScriptedEngine(lambda request: "2" if "1 plus 1" in str(request.messages) else "71", lambda request, c: 0.5)
    agents = [Agent("near", "there"), Agent("far", "there", adapter="poet"), Agent("here", "here")]
    ensemble = Ensemble({"there": engine(server, retries=0), "here": here}, agents, call_log=log)
    cell = MacroRNNCell(
        ensemble, HashedEncoder(8), ConsensusCell(8, agents=3).double(), rating=rating or VerdictRating()
    )
    return MacroRNN(cell, halting=FixedHalting(rounds), broker=broker)


def without_poet(body, status=404, said="no \x1b[31mpoet"):
    if body["model"] == "poet":
        return status, {"error": {"message": said}}
    return completion("71", top={"7": 0.5})


TOO_LONG = {"status": 400, "said": "This model's maximum context length is 4 tokens."}


@pytest.mark.parametrize("lie", [{}, TOO_LONG], ids=["absent", "too long"])
@pytest.mark.parametrize("rating", [VerdictRating(), CritiqueRating()])
def test_an_agent_that_fails_is_a_silent_member(server, rating, lie):
    server.script = partial(without_poet, **lie)
    transcripts = team(server, rating=rating, rounds=2)(TASKS).transcripts
    for transcript in transcripts:
        assert transcript.answer
        for record in transcript.rounds:
            lost = record.proposals[1]
            assert (lost.agent, lost.text, lost.finish_reason) == ("far", "", "failed")
            assert record.ratings[1] == [None] * 3
            assert record.ratings[0][2] is not None or isinstance(rating, CritiqueRating)
            status = f"status {lie.get('status', 404)}"
            assert sum("far: the call failed: " in note and status in note for note in record.notes) >= 2
            assert all(note.isprintable() for note in record.notes)
        assert Transcript.from_line(transcript.to_line(), "here") == transcript


def test_an_agent_that_fails_sits_on_the_bench(server):
    server.script = without_poet
    telemetry = Telemetry(["near", "far", "here"])
    team(server, broker=BudgetBroker(telemetry=telemetry))(TASKS[:1])
    assert telemetry.benched() == {"far": 1}


def test_a_failed_call_is_no_answer_when_the_run_goes_on(server):
    log = CallLog(None)
    server.script = without_poet
    first = team(server, log)(TASKS).transcripts
    kept = len(log)
    server.script = lambda body: completion("71", top={"7": 0.5})
    server.bodies.clear()
    second = team(server, log)(TASKS).transcripts
    assert {body["model"] for body in server.bodies} == {"m", "poet"}  # others judge what the poet says now
    assert len(log) > kept
    assert all("failed" not in str(t.rounds) for t in second)
    assert "failed" in str(first[0].rounds)
    server.bodies.clear()
    assert team(server, log)(TASKS).transcripts == second
    assert server.bodies == []
    assert log.refused == 0  # no failure is written, which reading would refuse


def test_where_nobody_answers_the_deliberation_fails_in_one_line(server):
    server.script = lambda body: (503, "<html>down</html>")
    rnn = team(server)
    rnn.cell.ensemble.engines["here"].write = lambda request: raised()
    with pytest.raises(ConnectionError, match=r"^task 't': nobody answered: http://.*status 503") as caught:
        rnn(TASKS)
    assert str(caught.value).isprintable()


def test_where_nobody_rates_the_deliberation_fails_in_one_line(server):
    """An answer that was elected by no rating at all would pass for one of the team."""
    server.script = lambda body: (503, "") if body.get("logprobs") else completion("71")
    rnn = team(server)
    rnn.cell.ensemble.engines["here"].judge = lambda request, candidate: raised()
    with pytest.raises(ConnectionError, match=r"^task 't': nobody rated: http://.*status 503"):
        rnn(TASKS)


def raised():
    raise ConnectionError("gone")


def test_others_than_deliberations_are_told_of_a_failure(server):
    """A baseline with a hole in it would be no baseline; what others said is kept."""
    server.script = without_poet
    ensemble = team(server).cell.ensemble
    requests = [
        replace(ask(text, adapter=model), agent="near") for text, model in (("1", None), ("2", "poet"), ("3", None))
    ]
    with pytest.raises(ConnectionError, match="status 404"):
        ensemble.generate(requests)
    assert len(ensemble.call_log) == 2


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
        ({"api_key_env": "AWS_SECRET_ACCESS_KEY"}, "that ends in _API_KEY or _TOKEN, for no other is sent to a server"),
        ({"api_key_env": "X_API_KEY"}, "expected a key in the environment variable X_API_KEY, got none: export it"),
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
    with pytest.raises(ValueError, match=r"expected the package openai .* pip install .*\[endpoint\]"):
        EndpointEngine("http://host/v1", "m")


def test_what_is_too_late_is_stopped_and_not_left_to_run():
    before, left = set(threading.enumerate()), 10**7  # it ends by itself, some seconds later
    with pytest.raises(TimeoutError):
        within(0.05, lambda: [sum(range(10)) for _ in range(left)])
    for thread in set(threading.enumerate()) - before:
        thread.join(1)
        assert not thread.is_alive()
