"""The server from the outside: what it answers, and what it does not let in."""

import contextlib
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from served_team import CHAT, NAMES, PATIENCE, about, serving_team, until

from nsed_torch.app.serve.app import Limits
from nsed_torch.app.serve.batches import Batches, QueuedQuestion
from nsed_torch.app.serve.wire import ChatRequest


@pytest.fixture(scope="module")
def served():
    with serving_team(limits=Limits(body_bytes=4096, body_s=2, rounds=8)) as parts:
        yield parts


def answer(reply):
    return reply["choices"][0]["message"]["content"]


def test_models_and_health(served):
    status, text = served.client.get("/v1/models")
    listed = json.loads(text)
    assert (status, listed["object"]) == (200, "list")
    assert [(model["id"], model["object"]) for model in listed["data"]] == [("nsed/team", "model")]
    assert served.client.get("/health") == (200, '{"status":"ok"}')


def test_a_completion_has_the_shape_that_clients_read(served):
    status, reply = served.client.chat(about(17, seed=3, transcript=True, temperature=0, max_tokens=5))
    assert status == 200
    assert (reply["object"], reply["model"]) == ("chat.completion", "nsed/team")
    (choice,) = reply["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    transcript = reply["nsed"]
    assert choice["message"]["content"] == transcript["answer"]
    assert choice["message"]["content"].startswith("17 says ")
    assert transcript["seed"] == 3
    usage = transcript["usage"]
    assert reply["usage"] == {
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "total_tokens": usage["prompt_tokens"] + usage["completion_tokens"],
    }
    assert usage["calls"] == 2 * (3 + 3)
    assert usage["completion_tokens"] == 2 * 3 * 5
    for record in transcript["rounds"]:
        assert f"Round {record['index']}\n" in choice["message"]["reasoning_content"]
        for proposal in record["proposals"]:
            assert f"- {proposal['agent']}: {proposal['text']} [" in choice["message"]["reasoning_content"]


def test_a_stream_tells_the_rounds_and_ends_with_what_the_whole_says(served):
    asked = about(18, seed=1)
    whole = served.client.chat(asked)[1]
    *chunks, usage, done = served.client.stream(asked | {"stream_options": {"include_usage": True}})
    assert done == "[DONE]"
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == answer(whole)
    thoughts = [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]
    assert thoughts[0] == "Round 1: agents propose ...\n"
    assert (
        "".join(text for text in thoughts if not text.endswith("...\n"))
        == (whole["choices"][0]["message"]["reasoning_content"])
    )
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert not any("nsed" in chunk for chunk in chunks[:-1])


def test_rounds_come_as_data_for_who_wants_them(served):
    chunks = served.client.stream(about(19, rounds=3, transcript=True))
    rounds = [chunk["nsed"]["round"] for chunk in chunks[:-1] if "round" in chunk.get("nsed", {})]
    assert [record["index"] for record in rounds] == [1, 2, 3]
    assert [proposal["agent"] for proposal in rounds[0]["proposals"]] == list(NAMES)
    assert chunks[-2]["nsed"] == {
        "rounds": 3, "stop_reason": "rounds", "conviction": rounds[2]["conviction"], "calls": 18,
    }  # fmt: skip


def test_the_openai_client_reads_it(served):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{served.client.port}/v1", api_key="none") as client:
        asked = about(20, seed=1)
        whole = client.chat.completions.create(**asked, extra_body={"rounds": 1})
        parts = list(client.chat.completions.create(**asked, extra_body={"rounds": 1}, stream=True))
        assert whole.choices[0].message.content.startswith("20 says")
        assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.choices[0].message.content
        assert [model.id for model in client.models.list()] == ["nsed/team"]
        with pytest.raises(openai.NotFoundError, match="model: expected one of nsed/team, got 'gpt'"):
            client.chat.completions.create(**asked | {"model": "gpt"})


def test_rounds_seed_and_halting_are_the_requests_own_for_once(served):
    def transcript(**fields):
        return served.client.chat(about(21, transcript=True, **fields))[1]["nsed"]

    plain, other = transcript(), transcript(seed=5)
    assert (plain["seed"], other["seed"]) == (0, 5)
    assert plain["answer"] != other["answer"]
    assert len(transcript(rounds=4)["rounds"]) == 4
    evidence = transcript(rounds=8, halting="evidence")
    assert "min_rounds=3" in evidence["settings"]["halting"]
    assert transcript() | {"usage": None, "rounds": None} == plain | {"usage": None, "rounds": None}


def test_a_client_may_name_its_task_and_stop_texts(served):
    one, two = (served.client.chat(about(22, task_id=name, transcript=True))[1] for name in ("a", "b"))
    assert one["nsed"]["task"]["id"] == "a"
    assert answer(one) != answer(two)  # the name is part of the seeds
    assert answer(served.client.chat(about(22, task_id="a", stop=[" by", " says"]))[1]) == "22"


@pytest.mark.parametrize("number", [64])
def test_many_clients_share_batches_and_nobody_hears_anothers_answer(number):
    with serving_team() as served:
        alone = {i: answer(served.client.chat(about(i, seed=2))[1]) for i in range(3)}
        until(lambda: not served.batches.running)
        served.engine.gate.clear()
        with ThreadPoolExecutor(number) as pool:
            first = pool.submit(served.client.chat, about(1000, seed=2))
            until(lambda: served.batches.running)
            waiting = [pool.submit(served.client.chat, about(i, seed=2)) for i in range(number - 1)]
            until(lambda: served.batches.waiting == number - 1)
            before = served.batches.batches
            served.engine.gate.set()
            replies = [future.result() for future in waiting]
            assert answer(first.result()[1]).startswith("1000 says")
        assert [status for status, _ in replies] == [200] * (number - 1)
        assert [answer(reply).split(" says")[0] for _, reply in replies] == [str(i) for i in range(number - 1)]
        assert {i: answer(replies[i][1]) for i in alone} == alone  # whatever else is in the batch
        until(lambda: served.batches.batches == before + 2)
        status, text = served.client.get("/metrics")
        assert status == 200
        assert 'nsed_requests_total{model="nsed/team",status="200"} 67\n' in text
        assert f"nsed_batch_tasks_total {number + 3}\n" in text
        assert "# TYPE nsed_queue_length gauge\nnsed_queue_length 0\n" in text


def test_a_batch_waits_while_newcomers_come_and_no_longer(monkeypatch):
    batches = Batches({"nsed/team": SimpleNamespace(halting=None, cell=SimpleNamespace(seed=0))})
    asked = [QueuedQuestion(ChatRequest(**about(i)), print) for i in range(4)]
    coming, waits = iter(asked[1:]), []

    def wait(seconds):
        waits.append(seconds)
        batches._waiting += [question for question in [next(coming, None)] if question]

    monkeypatch.setattr(batches._changed, "wait", wait)
    batches._waiting = asked[:1]
    assert batches._take() == asked
    assert waits == [batches.gather_s] * 4  # one a newcomer, and one in which nobody came


def test_equal_questions_are_one_task():
    with serving_team() as served:
        served.engine.gate.clear()
        with ThreadPoolExecutor(4) as pool:
            pool.submit(served.client.chat, about(1))
            until(lambda: served.batches.running)
            same = [pool.submit(served.client.chat, about(5)) for _ in range(3)]
            until(lambda: served.batches.waiting == 3)
            served.engine.gate.set()
            replies = [future.result()[1] for future in same]
        assert len({answer(reply) for reply in replies}) == 1
        assert len([text for text in served.engine.asked if "number 5?" in text]) == 3 * 2


def test_a_full_queue_says_when_to_come_again():
    with serving_team(max_queue=1) as served:
        served.engine.gate.clear()
        with ThreadPoolExecutor(2) as pool:
            pool.submit(served.client.chat, about(1))
            until(lambda: served.batches.running)
            waits = pool.submit(served.client.chat, about(2))
            until(lambda: served.batches.waiting)
            reply = served.client.send("POST", CHAT, about(3))
            assert (reply.status, reply.headers["Retry-After"]) == (429, "1")
            assert json.loads(reply.text)["error"] == {
                "message": "expected at most 1 waiting questions, got another: ask again in 1 s",
                "type": "rate_limit_error", "param": None, "code": "queue_full",
            }  # fmt: skip
            served.engine.gate.set()
            assert waits.result()[0] == 200


def leave(served, number, there, **fields):
    """Ask, and hang up without an answer once the question is there."""
    body = json.dumps(about(number, **fields)).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    connection = served.client.raw(head.encode() + b"\r\n" + body)
    until(there)
    connection.close()


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_before_its_batch_is_not_asked_about(stream):
    with serving_team() as served:
        served.engine.gate.clear()
        with ThreadPoolExecutor(2) as pool:
            runs = pool.submit(served.client.chat, about(1))
            until(lambda: served.batches.running)
            waits = pool.submit(served.client.chat, about(2))
            until(lambda: served.batches.waiting == 1)
            leave(served, 13, lambda: served.batches.waiting == 2, stream=stream)
            until(lambda: served.batches._waiting[1].gone)
            served.engine.gate.set()
            assert (runs.result()[0], waits.result()[0]) == (200, 200)
        assert not any("number 13" in text for text in served.engine.asked)
        assert 'nsed_requests_total{model="nsed/team",status="499"} 1\n' in served.client.get("/metrics")[1]


def test_a_batch_that_everybody_left_ends_with_its_phase():
    with serving_team(rounds=8) as served:
        served.engine.gate.clear()
        leave(served, 13, served.engine.begun.is_set)
        until(lambda: "499" in served.client.get("/metrics")[1])
        served.engine.gate.set()
        assert served.client.chat(about(2, rounds=1))[0] == 200
        assert len([text for text in served.engine.asked if "number 13" in text]) == 3


def test_what_fails_for_one_fails_for_it_alone(caplog):
    with serving_team() as served:
        served.engine.gate.clear()
        with ThreadPoolExecutor(3) as pool:
            pool.submit(served.client.chat, about(1))
            until(lambda: served.batches.running)
            futures = [pool.submit(served.client.chat, about(number)) for number in (5, 666)]
            until(lambda: served.batches.waiting == 2)
            served.engine.gate.set()
            (status, reply), (failed, error) = (future.result() for future in futures)
        assert (status, failed) == (200, 500)
        assert answer(reply).startswith("5 says")
        assert error["error"]["message"] == "the deliberation failed (RuntimeError): the server's log says more"
        assert "a devil of a question" in caplog.text
        *_, last = served.client.stream(about(666))
        assert last["error"]["type"] == "server_error"
        assert served.client.chat(about(7))[0] == 200


def test_a_prompt_that_does_not_fit_is_the_clients_fault():
    from nsed_torch.core.engine import ContextWindowError

    with serving_team() as served:
        served.engine.write = lambda request: (_ for _ in ()).throw(
            ContextWindowError("a prompt of 9 tokens\ntoo long")
        )
        assert served.client.fault(about(1)) == (400, "a prompt of 9 tokens too long")


def test_an_answer_that_takes_too_long_is_given_up():
    with serving_team(limits=Limits(request_s=0.5)) as served:
        served.engine.gate.clear()
        told = "expected an answer within 0.5 s, got none: ask for fewer rounds"
        assert served.client.fault(about(1)) == (504, told)
        assert served.client.stream(about(2))[-1]["error"]["message"] == told
        assert served.client.get("/health")[0] == 200


def test_a_key_is_wanted_where_one_is_set():
    with serving_team(key="sésame") as served:
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Basic sésame".encode()}):
            status, line = served.client.fault(about(1), **headers)
            assert (status, line) == (401, "expected the server's key as a bearer token, got none or another: pass it")
            assert served.client.get("/v1/models", **headers)[0] == 401
            assert served.client.get("/metrics", **headers)[0] == 401
        known = {"Authorization": "Bearer sésame".encode(), "Host": "example.org"}
        assert served.client.chat(about(1), **known)[0] == 200
        assert served.client.get("/health")[0] == 200


@pytest.mark.parametrize("host", ["evil.example:8000", "", "localhost.evil.example", "[::1", "user@evil.example"])
def test_without_a_key_no_page_gets_in_under_a_name_of_its_own(served, host):
    status, line = served.client.fault(about(1), Host=host)
    assert (status, line.split(",")[0]) == (403, "expected a request to localhost")
    assert served.client.get("/v1/models", Host="[::1]:80")[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_what_a_page_can_send_unasked_is_refused(served, kind):
    told = "expected Content-Type: application/json, got another: set it"
    assert served.client.fault(about(1), **{"Content-Type": kind}) == (415, told)


DEEP = b"[" * 4000
USER = {"role": "user", "content": "Why?"}
FAULTS = [
    (b"", 400, r"body: not valid JSON \(Expecting value"),
    (b"{", 400, "body: not valid JSON"),
    (b"\xff\xfe", 400, "body: not valid JSON"),
    (DEEP, 400, "body: not valid JSON"),
    (b"[]", 400, "body: Input should be .*, got"),
    (b'{"messages": NaN}', 400, "body: not valid JSON .NaN is no JSON number.; correct it"),
    ({"model": "nsed/team"}, 400, "messages: Field required, got "),
    ({"messages": [USER]}, 400, "model: Field required"),
    (about(1, messages=[]), 400, "messages: List should have at least 1 item"),
    (
        about(1, messages=[USER, {"role": "assistant", "content": "So."}]),
        400,
        "messages: expected a user's text at the",
    ),
    (about(1, messages=[{"role": "user", "content": " "}]), 400, "messages: expected a user's text"),
    (about(1, messages=[{"role": "owner", "content": "x"}]), 400, "messages.0.role: Input should be 'system'"),
    (about(1, messages=[{"role": "tool", "content": "x"}]), 400, "messages: expected a user's text at the"),
    (about(1, messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 400, r"messages\.0\.content\..*: "),
    (b'{"model": "nsed/team", "messages": [{"role": "user", "content": "\\ud800"}]}', 400, ".*surrogates not allowed"),
    (about(1, logprobs=True), 400, "logprobs: expected none, for a team answers in plain text: leave it out"),
    (about(1, response_format={"type": "xml"}), 400, "response_format: expected text, json_object or json_schema, got"),
    (about(1, n=2), 400, "n: Input should be less than or equal to 1, got 2: correct it"),
    (about(1, n=True), 400, "n: Input should be a valid integer, got True: correct it"),
    (about(1, n=1.0), 400, "n: Input should be a valid integer, got 1.0: correct it"),
    (about(1, seed="7"), 400, "seed: Input should be a valid integer, got '7'"),
    (about(1, rounds=True), 400, "rounds: Input should be a valid integer, got True"),
    (about(1, stream="yes"), 400, "stream: Input should be a valid boolean, got 'yes'"),
    (about(1, transcript=1), 400, "transcript: Input should be a valid boolean, got 1"),
    (b'{"model": "a", "model": "b", "messages": []}', 400, "body: not valid JSON .a name comes twice"),
    (about(1, seed=-1), 400, "seed: Input should be greater than or equal to 0, got -1"),
    (about(1, seed=2**63), 400, "seed: Input should be less than"),
    (about(1, rounds=0), 400, "rounds: Input should be greater than"),
    (about(1, rounds=9), 400, "rounds: expected at most 8, got 9: ask for fewer"),
    (about(1, rounds=10**30), 400, "rounds: "),
    (about(1, halting="never"), 400, "halting: Input should be 'fixed', 'evidence' or 'fatigue'"),
    (about(1, halting="evidence", rounds=1), 400, "halting min_rounds: expected a value from 1 to rounds=1, got 3"),
    (about(1, model="x" * 500), 404, "model: expected one of nsed/team, got 'x{60}'$"),
    (about(1, user="x" * 5000), 413, "expected a body of at most 4096 bytes, got more: shorten it"),
]


@pytest.mark.parametrize(("body", "status", "line"), FAULTS, ids=lambda value: str(value)[:40])
def test_malformed_bodies_are_one_line(served, body, status, line):
    got, told = served.client.fault(body)
    assert (got, bool(re.match(line, told))) == (status, True), told


def head(*lines):
    return "\r\n".join([f"POST {CHAT} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines, "", ""])


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (head("Content-Length: 100") + '{"model": ', 408),  # the rest never comes
        (head("Content-Length: 99999999999"), 413),
        (head("Transfer-Encoding: chunked") + "1001\r\n" + "x" * 4097, 413),
        (head("Content-Length: -1"), 400),
        ("what is this\r\n\r\n", 400),
        (head("X: " + "x" * 70000), 400),
    ],
    ids=["slow", "long", "chunks", "negative", "noise", "headers"],
)
def test_hostile_connections_are_refused_and_leave_it_running(served, sent, status):
    with served.client.raw(sent.encode()) as connection:
        assert connection.recv(4096).startswith(f"HTTP/1.1 {status} ".encode())
    assert served.client.get("/health")[0] == 200


def test_half_sent_heads_keep_nobody_else_out(served):
    half = head()[:40].encode()
    with contextlib.ExitStack() as held:
        silent = held.enter_context(served.client.raw(b""))
        connections = [held.enter_context(served.client.raw(half)) for _ in range(400)]
        assert served.client.get("/health")[0] == 200
        for connection in (silent, connections[0], connections[-1]):
            connection.settimeout(30)
            assert connection.recv(4096) == b""  # closed


def test_only_questions_of_the_same_terms_share_a_batch():
    terms = [
        {},
        {"seed": 1},
        {"rounds": 1},
        {"halting": "fixed"},
        {"seed": 2},
        {},
        {"model": "nsed/other"},
        {"seed": 1},
    ]
    queue = Batches({"nsed/team": None, "nsed/other": None}, gather_s=0)
    for number, own in enumerate(terms):
        asked = ChatRequest.read(json.dumps(about(number, **own)).encode())
        queue.submit(QueuedQuestion(asked, lambda event: None))
    batches = [[question.terms for question in queue._take()] for _ in range(6)]
    assert [len(batch) for batch in batches] == [2, 2, 1, 1, 1, 1]
    assert all(len(set(batch)) == 1 for batch in batches)
    assert queue.waiting == 0


def test_a_body_that_drips_is_cut_off(served):
    stop = threading.Event()
    with served.client.raw(head("Content-Length: 4000").encode()) as connection:

        def drip():
            while not stop.wait(0.05):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")
        stop.set()
        thread.join()


def test_a_body_that_takes_long_to_read_holds_nobody_else_up(served, monkeypatch):
    read, waits, heard, in_time = ChatRequest.read, threading.Event(), threading.Event(), []

    def slow(body):
        waits.set()
        in_time.append(heard.wait(5))
        return read(body)

    monkeypatch.setattr(ChatRequest, "read", slow)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.client.chat, about(3))
        assert waits.wait(PATIENCE)
        assert served.client.get("/health")[0] == 200
        heard.set()
        assert asked.result()[0] == 200
    assert in_time == [True]


def test_other_places_and_methods_are_one_line(served):
    for method, path, status in (("GET", "/nowhere", 404), ("GET", CHAT, 405), ("GET", "/docs", 404)):
        reply = served.client.send(method, path)
        assert (reply.status, set(json.loads(reply.text))) == (status, {"error"})


def test_the_page_runs_its_own_script_alone_and_writes_text_alone(served):
    reply = served.client.send("GET", "/")
    policy, page = reply.headers["Content-Security-Policy"], reply.text
    (nonce,) = set(re.findall(r"'nonce-([\w-]{22})'", policy))
    assert policy.startswith("default-src 'none'; ")
    assert page.count(f'nonce="{nonce}"') == 2
    assert "unsafe" not in policy
    assert re.findall(r"https?://|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", page) == []
    assert served.client.send("GET", "/").headers["Content-Security-Policy"] != policy


def test_control_characters_stay_out_of_the_reasoning():
    from nsed_torch.app.serve.wire import round_text

    with serving_team(rounds=1) as served:
        served.engine.write = lambda request: "\x1b[2J\nRound 9\n- bee: hi"
        reply = served.client.chat(about(1))[1]
        assert answer(reply) == "\x1b[2J\nRound 9\n- bee: hi"  # the answer is the model's own
        reasoning = reply["choices"][0]["message"]["reasoning_content"]
        assert "- ant: \ufffd[2J Round 9 - bee: hi [support" in reasoning
        assert len(reasoning.splitlines()) == 1 + len(NAMES) + 2 + 1
    silent = SimpleNamespace(index=1, proposals=[], support=[], voters=[], ratings=[], winner=None, memory=[])
    assert round_text(silent) == "Round 1\nNobody answered.\nMemory: empty.\n\n"
