"""What real servers do, each in one line: their dialects, their replies, their refusals and their bad days."""

import email.utils
import math
import time
from dataclasses import replace

import pytest
from endpoint_server import ask, completion, echo, endpoint, engine

from nsed_torch.core.engine import ContextWindowError, Decoding, LikelihoodRequest, Message, RateRequest, RatingScale

pytest.importorskip("openai")

ASKED = (Message("user", "Good? "),)


@pytest.fixture(scope="module")
def serving():
    with endpoint() as served:
        yield served


@pytest.fixture
def server(serving, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    serving.bodies.clear()
    serving.heads.clear()
    return serving


def refusing(message, refused, status=400):
    """A server that refuses requests by a rule, in one of the forms of an error."""
    return lambda body: (status, message) if refused(body) else judged(body)


def judged(body):
    """A completion, with log-probabilities where they are asked for."""
    most = body.get("top_logprobs") or 0
    top = dict(list({"yes": 0.6, "no": 0.2, "maybe": 0.1}.items())[:most]) if body.get("logprobs") else None
    return completion("said", top=top)


def has(*names):
    return lambda body: any(name in body for name in names)


OPENAI = {
    "error": {
        "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
        "instead.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    }
}
OPENAI_TEMPERATURE = {
    "error": {
        "message": "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value "
        "is supported.",
        "param": "temperature",
        "code": "unsupported_value",
    }
}


def reasoning_model(body):
    """OpenAI's: three refusals, one after the other."""
    if "max_tokens" in body:
        return 400, OPENAI
    if body.get("temperature", 1) != 1:
        return 400, OPENAI_TEMPERATURE
    return completion("said")


PYDANTIC = {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}
MISTRAL = {"object": "error", "message": PYDANTIC, "type": "invalid_request_error", "param": None, "code": None}
TGI = {"error": "Input validation error: `top_p` must be > 0.0 and < 1.0", "error_type": "validation"}
AZURE = {"error": {"code": "BadRequest", "message": "Unrecognized request argument supplied: seed"}}
TOP_5 = {"error": {"message": "top_logprobs: Input should be less than or equal to 5, see https://e.dev/2.11/v/le"}}
VLLM_TOP = {"object": "error", "message": "Requested sample logprobs of 20, which is greater than max allowed: 5"}
NO_LOGPROBS = {"error": {"message": "logprobs is not supported with reasoning models", "param": "logprobs"}}

REFUSALS = {
    "openai": (reasoning_model, {"max_completion_tokens"}, {"temperature"}, 2),
    "openai_seed": (refusing(AZURE, has("seed")), {"max_tokens"}, {"seed"}, 1),
    "pydantic": (refusing(PYDANTIC, has("seed"), 422), {"temperature"}, {"seed"}, 1),
    "mistral": (refusing(MISTRAL, has("seed"), 422), {"temperature"}, {"seed"}, 1),
    "detail_text": (refusing({"detail": "Unknown field: seed"}, has("seed"), 422), {"top_p"}, {"seed"}, 1),
    "plain_text": (refusing("seed is no field", has("seed"), 422), {"top_p"}, {"seed"}, 1),
    "tgi": (refusing(TGI, has("top_p"), 422), {"temperature"}, {"top_p"}, 1),
    "old_azure": (
        refusing(
            {"error": {"message": "Unrecognized request argument supplied: max_completion_tokens"}},
            has("max_completion_tokens"),
        ),
        {"max_tokens"},
        set(),
        0,
    ),
    "penalty": (
        refusing({"message": "property 'repetition_penalty' is unsupported"}, has("repetition_penalty")),
        {"seed"},
        {"repetition_penalty"},
        1,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_field_is_found_out_once_and_left_out_with_a_note(server, name):
    server.script, kept, gone, tries = REFUSALS[name]
    own = engine(server, max_batch=1)
    drawn = Decoding(max_new_tokens=9, repetition_penalty=1.1 if name == "penalty" else 1.0)
    first, second = own.generate([ask(decoding=drawn), ask("Again?", decoding=drawn)])
    assert len(server.bodies) == tries + 2
    assert kept <= set(server.bodies[-1])
    assert not gone & set(server.bodies[-1])
    for written in (first, second):
        assert (written.text, written.failure) == ("said", "")
        assert written.notes == tuple(f"the endpoint refuses {field}: left out" for field in sorted(gone))


@pytest.mark.parametrize(
    "said", ["unknown field response_format", "type json_schema is not supported", "Structured outputs are unavailable"]
)
def test_a_server_that_holds_nobody_to_a_schema_is_found_out(server, said):
    server.script = refusing({"error": {"message": said}}, has("response_format"))
    held = replace(ask(), schema='{"type": "object"}')
    (written,) = engine(server).generate([held])
    assert (written.text, written.notes) == ("said", ("the endpoint refuses response_format: left out",))
    asked = {"name": "reply", "strict": True, "schema": {"type": "object"}}
    assert [body.get("response_format") for body in server.bodies] == [
        {"type": "json_schema", "json_schema": asked},
        None,
    ]


def test_many_calls_at_once_learn_together(server):
    server.script = reasoning_model
    own = engine(server, max_batch=4)
    assert {w.text for w in own.generate([ask(str(i)) for i in range(12)])} == {"said"}
    assert len(server.bodies) <= 12 + 4 + 2


def test_an_old_gateway_is_told_the_other_way_round(server):
    server.script = REFUSALS["old_azure"][0]
    assert engine(server, allowance_field="max_completion_tokens").generate([ask()])[0].text == "said"
    assert "max_tokens" in server.bodies[-1]


@pytest.mark.parametrize("said", [TOP_5, VLLM_TOP], ids=["pydantic", "vllm"])
def test_a_server_that_gives_fewer_logprobs_is_asked_for_as_many(server, said):
    server.script = refusing(said, lambda body: body.get("top_logprobs", 0) > 5)
    own = engine(server, max_batch=1)
    (rated,) = own.rate([RateRequest("a", ASKED, ("x", "y"), RatingScale(("yes", "no"), (1.0, -1.0)))])
    assert rated.values == (pytest.approx(0.5),) * 2
    assert [body["top_logprobs"] for body in server.bodies] == [20, 5, 5]
    assert "top_p" not in server.bodies[0]  # TGI refuses 1, which it is anyway
    server.bodies.clear()
    engine(server, top_logprobs=3).rate([RateRequest("a", ASKED, ("x",))])
    assert [body["top_logprobs"] for body in server.bodies] == [3]


def test_a_server_without_logprobs_rates_nothing_and_says_what_to_do(server):
    server.script = refusing(NO_LOGPROBS, has("logprobs"), 403)
    (rated,) = engine(server).rate([RateRequest("a", ASKED, ("x",))])
    assert rated.values == (None,)
    assert rated.notes == (
        "the endpoint refuses logprobs, top_logprobs: left out",
        "1 of 1 candidates: the endpoint gave no log-probabilities, use rating=critique",
    )


def test_fields_may_be_left_out_from_the_first_call_on(server):
    server.script = echo
    (written,) = engine(server, omit=["seed", "temperature", "top_p"]).generate([ask()])
    assert set(server.bodies[0]) == {"model", "messages", "max_tokens"}
    assert written.notes == ()


def test_a_refusal_that_leaving_out_does_not_mend_is_told_and_nothing_is_learned(server):
    server.script = lambda body: (400, {"error": {"message": "I will not talk about the seed"}})
    own = engine(server)
    with pytest.raises(ConnectionError, match="status 400: I will not talk about the seed: check"):
        own.generate([ask()])
    server.bodies.clear()
    server.script = echo
    own.generate([ask()])
    assert "seed" in server.bodies[0]


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"message": "Unsupported value: 'messages[0].role' does not support 'system' with this model."}},
        {"object": "error", "message": "System role not supported"},
        {"detail": "Conversation roles must alternate user/assistant/user/assistant/..."},
        {"error": {"message": "Only user and assistant roles are supported!"}},
    ],
)
def test_a_model_without_instructions_gets_them_in_front_of_the_question(server, said):
    server.script = refusing(said, lambda body: body["messages"][0]["role"] == "system")
    (written,) = engine(server).generate([ask()])
    assert server.bodies[-1]["messages"] == [{"role": "user", "content": "Be kind.\n\nHello?"}]
    assert written.notes == ("the endpoint knows no instructions: put in front of the question",)


def test_a_seed_out_of_range_is_shortened(server):
    said = {"error": {"code": 400, "message": "Invalid value at 'generation_config.seed' (TYPE_INT32), 4658787146"}}
    server.script = refusing(said, lambda body: body["seed"] >= 2**31)
    (written,) = engine(server).generate([ask(seed=2**40 + 5)])
    assert (server.bodies[-1]["seed"], written.notes) == (5, ())


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"}),
        (400, {"error": {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}),
        (400, {"message": "The input (9 tokens) is longer than the model's context length (8 tokens)."}),
        (
            400,
            {"message": "Prompt contains 9 tokens, too large for model with 8 maximum context length"},
        ),
    ],
)
def test_a_prompt_that_is_too_long_is_told_apart(server, status, said):
    server.script = lambda body: (status, said)
    with pytest.raises(ContextWindowError, match="shorten the question"):
        engine(server).generate([ask()])


# --- replies ----------------------------------------------------------------------------------------------------------


def reply(content="said", *, finish="stop", usage=(7, 3), choice=(), **message):
    """A completion with some of its parts in other forms."""
    whole = completion(content, finish=finish, usage=usage)
    whole["choices"][0]["message"] |= message
    whole["choices"][0] |= dict(choice)
    return whole


THOUGHT = "thinking was all that the model wrote"
SPENT = "thinking took the whole allowance of 128 tokens: raise max_new_tokens"
ESTIMATED = "the endpoint said no usage: tokens are estimated"
LEGACY = {"choices": [{"index": 0, "text": " said", "finish_reason": "stop"}], "usage": {"prompt_tokens": 7}}
XAI = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 50}
REPLIES = {
    "plain": (reply(), "said", "stop", ()),
    "parts": (reply([{"type": "text", "text": "sa"}, {"type": "text", "text": "id"}]), "said", "stop", ()),
    "parts_with_thoughts": (
        reply([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "said"}]),
        "said", "stop", (),
    ),
    "parts_of_other_kinds": (reply([{"type": "image_url"}, "said"]), "said", "stop", ()),
    "reasoning_content": (reply(reasoning_content="hm"), "said", "stop", ()),
    "reasoning": (reply(reasoning="hm"), "said", "stop", ()),
    "think_in_content": (reply("<think>hm</think>\n\nsaid"), "said", "stop", ()),
    "only_closing": (reply("hm</think>\n\nsaid"), "said", "stop", ()),
    "cut_in_thought": (reply("<think>Try \\boxed{12}", finish="length"), "", "length", (SPENT,)),
    "all_reasoning": (reply(None, reasoning_content="hm", finish="length"), "", "length", (SPENT,)),
    "thought_alone": (reply("", reasoning_content="hm"), "", "stop", (THOUGHT,)),
    "magistral": (reply("[THINK]hm[/THINK]said"), "said", "stop", ()),
    "null": (reply(None), "", "stop", ()),
    "empty": (reply("", usage=(7, 0)), "", "stop", ()),
    "refusal": (reply(None, refusal="I\ncannot."), "", "stop", ("the endpoint refused: I cannot.",)),
    "filter": (
        reply(None, finish="content_filter"), "", "stop",
        ("the endpoint ended the answer with finish_reason 'content_filter'",),
    ),
    "tgi_eos": (reply(finish="eos_token"), "said", "stop", ()),
    "tgi_stop": (reply(finish="stop_sequence"), "said", "stop", ()),
    "upper_case": (reply(finish="MAX_TOKENS"), "said", "length", ()),
    "mistral_length": (reply(finish="model_length"), "said", "length", ()),
    "zero_usage": (reply(usage=(0, 0)), "said", "stop", (ESTIMATED,)),
    "no_usage": (reply(usage=None), "said", "stop", (ESTIMATED,)),
    "legacy": (LEGACY, "said", "stop", (ESTIMATED,)),
    "null_logprobs": (reply(choice={"logprobs": None}), "said", "stop", ()),
    "null_error": ({**reply(), "error": None}, "said", "stop", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_read_in_whatever_form_it_comes(server, name):
    said, text, finish, notes = REPLIES[name]
    server.script = lambda body: said
    (written,) = engine(server).generate([ask()])
    assert (written.text, written.finish_reason, written.notes) == (text, finish, notes)
    assert written.prompt_tokens > 0
    assert (written.completion_tokens > 0) == (name != "empty")


def test_thoughts_count_as_tokens_whoever_counts(server):
    server.script = lambda body: {**reply("<think>" + "x" * 400 + "</think>said"), "usage": None}
    assert engine(server).generate([ask()])[0].completion_tokens == math.ceil(404 / 4)
    server.script = lambda body: {**reply(reasoning_content="hm"), "usage": XAI}
    assert engine(server).generate([ask()])[0].completion_tokens == 43


def test_marks_of_thoughts_may_be_set(server):
    server.script = lambda body: reply("hm", finish="length")
    assert engine(server).generate([ask()])[0].text == "hm"
    (written,) = engine(server, reasoning=["", "</think>"]).generate([ask()])  # the prompt opens them
    assert (written.text, written.notes) == ("", (SPENT,))


def test_labels_are_known_as_a_vocabulary_spells_them(server):
    server.script = lambda body: completion("9", top={"\u25819": 0.5, "\u01200": 0.3})
    assert engine(server).rate([RateRequest("a", ASKED, ("x",))])[0].values == (pytest.approx((0.5 - 0.3) / 0.8),)


@pytest.mark.parametrize("first", ["<think>", "<|channel|>", "[THINK]"])
def test_a_judge_that_thinks_first_is_told_apart(server, first):
    server.script = lambda body: completion("x", top={first: 0.9, "hm": 0.1})
    (rated,) = engine(server).rate([RateRequest("a", ASKED, ("x",))])
    told = "this model thinks first, use rating=critique or turn its thinking off"
    assert (rated.values, rated.notes) == ((None,), (f"1 of 1 candidates: {told}",))


# --- bad days ---------------------------------------------------------------------------------------------------------


class Clock:
    """A server's bad day, in time that passes by pauses alone."""

    def __init__(self, server, lasts, status, said=None, **headers):
        self.now, self.pauses, self.lasts = 0.0, [], lasts
        self.status, self.said, self.headers = status, said or {"error": {"message": "busy"}}, headers
        server.script = self.script

    def pause(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds

    def script(self, body):
        return echo(body) if self.now >= self.lasts else (self.status, self.said, self.headers)


def in_seconds(seconds):
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


BAD_DAYS = {
    "429_for_40_s": (40, 429, None, {}, 7),
    "429_for_5_minutes": (300, 429, None, {}, 12),
    "429_seconds": (40, 429, None, {"Retry-After": "40"}, 1),
    "429_milliseconds": (2, 429, None, {"retry-after-ms": "2000"}, 1),
    "429_wrong_seconds": (40, 429, None, {"Retry-After": "1"}, 20),
    "529": (40, 529, None, {}, 7),
    "503_loading": (40, 503, {"error": {"code": 503, "message": "Loading model"}}, {}, 7),
    "503_seconds": (65, 503, None, {"Retry-After": "65"}, 1),
    "500_burst": (3, 500, None, {}, 3),
    "502_page": (3, 502, "<html>bad gateway</html>", {}, 3),
    "error_in_200": (3, 200, {"error": {"code": 502, "message": "upstream"}}, {}, 3),
    "error_in_choice": (
        3, 200, {"choices": [{"error": {"code": 502, "message": "up"}, "finish_reason": "error"}]}, {}, 3,
    ),
    "429_in_200": (40, 200, {"error": {"code": 429, "message": "slow"}}, {}, 7),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_DAYS)
def test_a_bad_day_is_waited_through(server, name):
    lasts, status, said, headers, pauses = BAD_DAYS[name]
    clock = Clock(server, lasts, status, said, **headers)
    (written,) = engine(server, retries=3, pause=clock.pause).generate([ask()])
    assert (written.text, written.failure) == ("said: Hello?", "")
    assert len(clock.pauses) <= pauses
    assert max(clock.pauses) <= 66


def test_a_date_to_come_again_is_read(server):
    clock = Clock(server, 30, 429, **{"Retry-After": in_seconds(45)})
    engine(server, pause=clock.pause).generate([ask()])
    assert 30 < clock.pauses[0] <= 45


def test_twenty_calls_outlast_a_full_server(server):
    clock = Clock(server, 40, 429)
    written = engine(server, retries=0, max_batch=1, pause=clock.pause).generate([ask(str(i)) for i in range(20)])
    assert all(w.text.startswith("said") for w in written)


def test_patience_and_money_have_an_end(server):
    clock = Clock(server, 1e9, 429)
    with pytest.raises(ConnectionError, match="status 429: busy"):
        engine(server, patience_s=100, pause=clock.pause).generate([ask()])
    assert 50 < clock.now <= 100
    clock = Clock(server, 1e9, 429, {"error": {"message": "no money", "code": "insufficient_quota"}})
    with pytest.raises(ConnectionError, match="status 429: no money"):
        engine(server, pause=clock.pause).generate([ask()])
    assert clock.pauses == []


@pytest.mark.parametrize(
    ("status", "said", "told"),
    [
        (404, {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}, "The model `m` does"),
        (404, {"error": "model 'm' not found, try pulling it first"}, "model 'm' not found, try pulling"),  # Ollama
        (422, {"detail": [{"loc": ["body", "messages", 0], "msg": "wrong"}]}, "messages.0: wrong"),
        (400, {"message": "bad", "object": "error"}, "bad"),
        (400, {"errors": [{"message": "one"}, {"message": "two"}]}, "one; two"),
        (400, [{"error": {"message": "as Google says it"}}], "as Google says it"),
        (400, {"title": "Bad Request", "status": 400}, "Bad Request"),
        (400, "plain words", "plain words"),
        (400, {"code": 7}, r'\{"code": 7\}'),
    ],
)
def test_the_servers_reason_is_shown(server, status, said, told):
    server.script = lambda body: (status, said)
    with pytest.raises(ConnectionError, match=f"^{server.url}: status {status}: {told}.*: check that the server"):
        engine(server).generate([ask()])
    assert len(server.bodies) == 1


# --- likelihoods ------------------------------------------------------------------------------------------------------

LOGS = {"said": -0.5, "x": -1.0, "<end>": -0.25}


def read_prompt(body):
    """vLLM's prompt log-probabilities, of a template in which every word is a token."""
    words = ["<begin>", *(m["content"] for m in body["messages"][:-1])]
    last = body["messages"][-1]
    answered = last["role"] == "assistant"
    words += [] if answered else [last["content"]]
    words += ["<assistant>", *(last["content"].split() if answered else [])]
    words += ["<end>", "\n"] if answered and not body.get("continue_final_message") else []
    row = [None, *({word: {"logprob": LOGS.get(word, -9.0), "rank": 1}} for word in words[1:])]
    return {**completion("z"), "prompt_logprobs": row if "prompt_logprobs" in body else None}


TEXTS = LikelihoodRequest("a", (Message("user", "Hello?"),), ("said x", "x"))


def test_likelihood_is_read_from_prompt_logprobs(server):
    server.script = read_prompt
    (told,) = engine(server, measures=True).measure([TEXTS])
    assert told.values == (pytest.approx(math.exp(-(0.5 + 1 + 0.25) / 3)), pytest.approx(math.exp(-1.25 / 2)))
    assert (told.lengths, told.notes, len(server.bodies)) == ((3, 2), (), 4)
    server.script = echo
    (none,) = engine(server, measures=True).measure([TEXTS])
    assert none.values == (None, None)
    assert none.notes == ("the endpoint gave no log-probabilities of prompts, use rating=verdict",)


WORDS = "{% for m in messages %}{{ m.role }}: {{ m.content }} <end> {% endfor %}"
WORDS += "{% if add_generation_prompt %}assistant: {% endif %}"


def echo_prompt(body):
    """A completion that repeats its prompt, a mark in front of it, every word a token with the blank behind it."""
    words = ["<s>", *(word + " " for word in (body["prompt"] + "z").split())]
    words[-1] = "z"
    offsets = [sum(map(len, words[:i])) for i in range(len(words))]
    logs = [None, *(LOGS.get(word.strip(), -9.0) for word in words[1:])]
    logprobs = {"tokens": words, "token_logprobs": logs, "text_offset": offsets, "top_logprobs": None}
    return {"choices": [{"text": body["prompt"] + "z", "finish_reason": "length", "logprobs": logprobs}]}


def test_likelihood_is_read_from_an_echo(server):
    server.script = echo_prompt
    (told,) = engine(server, measures=True, chat_template=WORDS).measure([TEXTS])
    assert told.values == (pytest.approx(math.exp(-(0.5 + 1 + 0.25) / 3)), pytest.approx(math.exp(-1.25 / 2)))
    assert told.lengths == (3, 2)
    assert "user: Hello? <end> assistant: said x <end> " in {body["prompt"] for body in server.bodies}


def test_base_models_are_asked_for_completions(server):
    server.script = lambda body: {
        "choices": [{"text": " 17\n", "finish_reason": "stop", "logprobs": {"top_logprobs": [{"9": -0.1}]}}]
    }
    own = engine(server, chat_template="plain")
    assert own.generate([ask()])[0].text == "17"
    assert server.bodies[0]["prompt"] == "### System:\nBe kind.\n\n### User:\nHello?\n\n### Assistant:\n"
    assert server.bodies[0]["stop"] == "\n###"
    (rated,) = own.rate([RateRequest("a", ASKED, ("x",))])
    assert rated.values == (1.0,)
    assert server.bodies[1]["logprobs"] == 20
