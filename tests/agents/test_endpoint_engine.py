"""An engine behind an endpoint, against a server that speaks the protocol: no part of the client is replaced."""

import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from nsed_torch.agents import (
    Agent,
    ContextWindowError,
    Decoding,
    EndpointEngine,
    Engine,
    Ensemble,
    GenerateRequest,
    HashedEncoder,
    LikelihoodRequest,
    Message,
    Prompts,
    RateRequest,
    RatingScale,
    ScriptedEngine,
)
from nsed_torch.agents.readings import verdicts
from nsed_torch.agents.requests import SchedulingEngine
from nsed_torch.conductor.executor import Executor, Job
from nsed_torch.conductor.workflow import Step, Workflow
from nsed_torch.deliberation import MacroRNN, MacroRNNCell, VerdictRating
from nsed_torch.nn import ConsensusCell, FixedHalting
from nsed_torch.records import CallLog, Failure, Task

pytest.importorskip("openai")

KEY = "sk-secret-0123456789"
YES_NO = RatingScale(("yes", "no"), (1.0, -1.0))


class Server(BaseHTTPRequestHandler):
    """Answers with what `script` says of a request's body: (status, reply), or a reply alone."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.bodies.append(body)
            server.heads.append({name.lower(): value for name, value in self.headers.items()})
            server.flying += 1
            server.most = max(server.most, server.flying)
        said = server.script(body)
        with server.lock:
            server.flying -= 1
        status, said = said if isinstance(said, tuple) else (200, said)
        text = said if isinstance(said, str) else json.dumps(said)
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if text.startswith("<") else "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def completion(text, *, usage=(7, 3), finish="stop", top=None):
    """A chat completion as servers write it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    if top is not None:
        listed = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in top.items()]
        choice["logprobs"] = {"content": [{"token": text, "logprob": -0.1, "bytes": None, "top_logprobs": listed}]}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    if usage is not None:
        whole["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return whole


def echo(body):
    return completion("said: " + body["messages"][-1]["content"])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    served.daemon_threads = False
    served.script, served.bodies, served.heads, served.lock = echo, [], [], threading.Lock()
    served.flying = served.most = 0
    served.url = f"http://127.0.0.1:{served.server_port}/v1"
    thread = threading.Thread(target=served.serve_forever, args=(0.02,))
    thread.start()
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


def engine(server, **settings):
    return EndpointEngine(**{"url": server.url, "model": "m", "retries": 2, **settings})


def ask(text="Hello?", *, decoding=Decoding(), adapter=None, seed=5):
    return GenerateRequest("a", (Message("system", "Be kind."), Message("user", text)), decoding, seed, adapter)


def judge(*candidates, adapter=None):
    return RateRequest("a", (Message("user", "Good? "),), candidates, YES_NO, seed=1, adapter=adapter)


def test_a_request_says_all_that_decoding_says(server):
    drawn = Decoding(max_new_tokens=9, temperature=0.4, top_p=0.8, repetition_penalty=1.3)
    own = engine(server, extra_body={"top_k": 4})
    (written,) = own.generate([ask(decoding=drawn)])
    assert server.bodies == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello?"}],
            "seed": 5,
            "max_tokens": 9,
            "temperature": 0.4,
            "top_p": 0.8,
            "top_k": 4,
            "repetition_penalty": 1.3,
        }
    ]
    assert (written.text, written.prompt_tokens, written.completion_tokens) == ("said: Hello?", 7, 3)
    assert (written.finish_reason, written.notes) == ("stop", ())
    assert written.seconds > 0
    own.generate([ask(adapter="poet")])
    assert server.bodies[1]["model"] == "poet"
    assert "repetition_penalty" not in server.bodies[1]


def test_calls_fly_together_and_come_back_in_order(server):
    together = threading.Barrier(4, timeout=5)

    def script(body):
        together.wait()  # passes only if four calls are in flight
        time.sleep(0.02 * (body["seed"] % 3))
        return echo(body)

    server.script = script
    requests = [ask(f"Number {i}", seed=8 - i) for i in range(8)]
    written = engine(server, max_batch=4).generate(requests)
    assert [w.text for w in written] == [f"said: Number {i}" for i in range(8)]
    assert server.most == 4


def test_what_a_reply_leaves_out_is_noted(server):
    server.script = lambda body: completion(None, usage=None, finish="content_filter")
    (written,) = engine(server).generate([ask("12345")])
    assert (written.text, written.prompt_tokens, written.completion_tokens) == ("", 2 + 2, 0)
    assert written.notes == (
        "the endpoint ended the answer with finish_reason 'content_filter'",
        "the endpoint said no usage: tokens are estimated",
    )
    server.script = lambda body: completion("cut", finish="length")
    assert engine(server).generate([ask()])[0].finish_reason == "length"


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
    with pytest.raises(ContextWindowError, match="a window of 40 tokens with its answer, got one of about 27"):
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


def test_ratings_are_expectations_over_the_likeliest_tokens(server):
    tops = {
        "Good? both": {"yes": 0.6, "no": 0.2, "maybe": 0.1},
        "Good? spaced": {" yes": 0.3, "yes": 0.1, "Yes": 0.5},
        "Good? neither": {"maybe": 0.9},
        "Good? silent": None,
    }
    server.script = lambda body: completion("yes", top=tops[body["messages"][-1]["content"]])
    many, none, one = engine(server).rate([judge("both", "spaced", "neither", "silent"), judge(), judge("both")])
    assert many.values == (pytest.approx(0.5), pytest.approx(1.0), None, None)
    assert many.coverage == (pytest.approx(0.8), pytest.approx(0.4), 0.0, 0.0)
    assert many.prompt_tokens == 4 * 7
    assert many.notes == (
        "1 of 4 candidates: the endpoint gave no log-probabilities, use rating=critique",
        "1 of 4 candidates: no label of the scale is among the 20 likeliest tokens",
    )
    assert (none.values, none.coverage, none.notes) == ((), (), ())
    assert (one.values, one.notes) == ((pytest.approx(0.5),), ())
    asked = server.bodies[0]
    assert [asked[name] for name in ("max_tokens", "logprobs", "top_logprobs", "temperature", "top_p")] == [
        *(1, True, 20, 1.0, 1.0),
    ]


def test_a_rating_is_what_a_model_in_this_process_would_say(server):
    """The same formula, where all labels are among the listed tokens."""
    scale = RatingScale()
    logits = 3 * torch.randn(1, 15, generator=torch.Generator().manual_seed(0))
    value, coverage = verdicts(logits, scale, list(range(10)))
    shares = logits[0].double().softmax(dim=-1).tolist()
    tokens = [*scale.labels, "a", "b", "c", "d", "e"]
    server.script = lambda body: completion("1", top=dict(zip(tokens, shares, strict=True)))
    (rated,) = engine(server).rate([RateRequest("a", (Message("user", "?"),), ("x",), scale)])
    assert 0.01 < coverage.item() < 0.99
    assert rated.values == (pytest.approx(value.item(), abs=1e-6),)
    assert rated.coverage == (pytest.approx(coverage.item(), abs=1e-6),)


def test_likelihood_is_refused(server):
    own = engine(server)
    with pytest.raises(ValueError, match="agent 'a': expected a judge in this process for rating=likelihood, got one"):
        own.measure([LikelihoodRequest("a", (Message("user", "?"),), ("x",))])
    assert own.measure([]) == []
    assert server.bodies == []


def test_identity_tells_models_apart_and_no_secrets(server, monkeypatch):
    monkeypatch.setenv("THE_KEY", KEY)
    own = engine(server, url=server.url + "/", api_key_env="THE_KEY", extra_body={"top_k": 4})
    assert own.identity(None) == {
        "endpoint": server.url,
        "model": "m",
        "context_window": None,
        "extra_body": {"top_k": 4},
    }
    assert own.identity("poet")["model"] == "poet"
    assert KEY not in repr(vars(own))
    assert (own.memory_bytes(), own.count_tokens(""), own.count_tokens("12345")) == (0, 0, 2)
    assert isinstance(own, Engine)
    assert isinstance(own, SchedulingEngine)


def test_without_a_name_no_key_of_the_environment_is_sent(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    engine(server).generate([ask()])
    assert KEY not in str(server.heads)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"url": "localhost:8000"}, "expected an endpoint's url as http://localhost:8000/v1, got 'localhost:8000'"),
        ({"url": f"http://me:{KEY}@host/v1"}, "without user, password or query, got one with it at host"),
        ({"url": f"http://host/v1?key={KEY}"}, "without user, password or query, got one with it at host"),
        ({"model": ""}, "model: expected the server's name of it, got ''"),
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


PROMPTS = Prompts(style="direct")
TASK = Task("How much is 17 plus 54?", "t")


def voices(server):
    """Two agents elsewhere and one here, and what speaks for them."""

    def script(body):
        if body.get("logprobs"):
            likeliest = "7" if "says 71." in body["messages"][-1]["content"] else "0"
            return completion("7", top={likeliest: 0.5, "9": 0.25, "well": 0.25}, usage=(11, 1))
        return completion(f"{body['model']} says 71.")

    server.script = script
    here = ScriptedEngine(lambda request: "70", lambda request, candidate: 0.0)
    agents = [Agent("near", "there"), Agent("far", "there", adapter="poet"), Agent("here", "here")]
    return Ensemble({"there": engine(server), "here": here}, agents, call_log=CallLog(None))


def test_agents_elsewhere_deliberate_with_one_here(server):
    ensemble = voices(server)
    assert not list(ensemble.parameters())
    consensus = ConsensusCell(8, agents=3).double()
    cell = MacroRNNCell(
        ensemble, HashedEncoder(8), consensus, prompts=PROMPTS, rating=VerdictRating(listed=False), seed=0
    )
    rnn = MacroRNN(cell, halting=FixedHalting(1))
    (transcript,) = rnn([TASK]).transcripts
    assert transcript.answer in {"m says 71.", "poet says 71."}
    assert [record.identity.get("model") for record in transcript.agents] == ["m", "poet", None]
    liked, disliked = (2 / 3) * (5 / 9) + 1 / 3, (2 / 3) * -1 + 1 / 3
    (record,) = transcript.rounds
    rated = {
        v: dict(zip(record.proposers, row, strict=True)) for v, row in zip(record.voters, record.ratings, strict=True)
    }
    assert rated["near"] == {"near": None, "far": pytest.approx(liked), "here": pytest.approx(disliked)}
    assert rated["far"] == {"near": pytest.approx(liked), "far": None, "here": pytest.approx(disliked)}
    asked = len(server.bodies)
    assert asked == 2 + 4
    assert rnn([TASK]).transcripts[0].answer == transcript.answer
    assert len(server.bodies) == asked  # the second time the call log answers


def test_workers_elsewhere_do_the_steps_of_a_workflow(server):
    ensemble = voices(server)
    executor = Executor(ensemble, prompts=PROMPTS)
    steps = (Step(0, "Add the tens.", ()), Step(1, "Add the rest.", "all"))
    (done,) = executor.run([Job(TASK, Workflow(steps), ("near", "far"))])
    assert done.answer == "poet says 71."
    assert "m says 71." in str(server.bodies[1]["messages"])
    server.script = lambda body: (400, {"error": {"message": "no such thing"}})
    (failed,) = executor.run([Job(Task("And 1 plus 1?", "u"), Workflow(steps[:1]), ("near",))])
    (step,) = failed.levels[0].steps
    assert step.failure is Failure.ENGINE
    assert "status 400" in " ".join(step.notes)
