"""What agent frameworks send and read: tools, JSON, responses, a token limit, the same request again."""

import json

import pytest
from served_team import about, serving_team

from nsed_torch.app.serve.formats import check_schema, first_tokens, fitting
from nsed_torch.app.serve.wire import ChatRequest, RefusedError

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


@pytest.fixture(scope="module")
def served():
    with serving_team() as parts:
        yield parts


@pytest.fixture(scope="module")
def openai(served):
    library = pytest.importorskip("openai")
    with library.OpenAI(base_url=f"http://127.0.0.1:{served.client.port}/v1", api_key="none", max_retries=0) as client:
        client.fault = library.BadRequestError
        yield client


def form(schema):
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema, "strict": True}}


def test_a_model_is_retrieved_by_its_name(openai):
    assert openai.models.retrieve("nsed/team").id == "nsed/team"


def test_tools_are_taken_and_not_used_unless_they_are_forced(openai):
    reply = openai.chat.completions.create(**about(1), tools=[TOOL], tool_choice="auto", parallel_tool_calls=False)
    assert reply.choices[0].message.tool_calls is None
    assert reply.nsed["notes"] == ["tools: taken and not used, for a team calls none"]
    forced = {"type": "function", "function": {"name": "add"}}
    for choice in ("required", forced):
        with pytest.raises(openai.fault, match="tool_choice: expected auto or none, for a team calls no tools, got"):
            openai.chat.completions.create(**about(1), tools=[TOOL], tool_choice=choice)


def test_a_conversation_with_calls_of_tools_is_read(openai):
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "17"},
        {"role": "user", "content": "What is number 3?"},
    ]
    assert ChatRequest.of({"model": "m", "messages": turns}).question == (
        "User: Add.\n\nTool: 17\n\nUser: What is number 3?"
    )
    assert openai.chat.completions.create(model="nsed/team", messages=turns).choices[0].message.content


def test_json_is_the_elected_answer_repaired(served, openai):
    said = {"text": 'It is {"number": 5}, I think.'}
    served.engine.write, write = lambda request: said["text"], served.engine.write
    try:
        asked = {"model": "nsed/team", "messages": [{"role": "user", "content": "Which number?"}]}
        reply = openai.chat.completions.create(**asked, response_format=form(NUMBER))
        assert json.loads(reply.choices[0].message.content) == {"number": 5}
        assert '"required": ["number"]' in served.engine.asked[-1]
        said["text"] = "no idea"
        asked["messages"][0]["content"] = "Which one?"
        reply = openai.chat.completions.create(**asked, response_format=form(NUMBER)).choices[0].message
        assert (reply.content, "it elected: no idea" in reply.refusal) == (None, True)
    finally:
        served.engine.write = write


DOUBLING = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$ref": "#/$defs/a0",
    "$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(17)} | {"a17": {"type": "object"}},
}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ('{"number": 5}', NUMBER, {"number": 5}),
        ('Sure:\n```json\n{"number": 5}\n```\nDone.', NUMBER, {"number": 5}),
        ("{'number': 5,}", NUMBER, {"number": 5}),
        ('{"a": 1} then {"number": 5}', NUMBER, {"number": 5}),
        ("The number is 5.", NUMBER, {"number": 5}),
        ("five", NUMBER, None),
        ('{"number": "5"}', NUMBER, {"number": 5}),
        ("[1, 2]", {}, None),
        ("x {'ok': true} y", {}, {"ok": True}),
        ("{'a': {1, 2}}", {}, None),
        ('{"a": NaN}', {}, None),
        ("[" * 5000, {}, None),
        *((f'{{"a": {"[" * depth}{"]" * depth}}}', {"type": "string"}, None) for depth in range(900, 1000, 7)),
        ("7" * 5000, {"properties": {"number": {"type": "integer"}}}, None),
        ('{"a": [{}]}', DOUBLING, None),  # in fewer steps than there are atoms
        ("", {}, None),
    ],
)
def test_what_fits_a_schema_is_found(text, schema, value):
    found = fitting(text, schema)
    assert (found and json.loads(found)) == value


@pytest.mark.parametrize(
    "schema",
    [
        *({"type": "nothing"}, 7, True, False, [], None, {"enum": ["x" * 40_000]}),
        *({"properties": {"a": {"pattern": "(a+)+$"}}}, {"$ref": "http://127.0.0.1:9/x"}),
        {"items": {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#"}},
    ],
)
def test_a_schema_that_is_none_or_reaches_out_is_refused(schema):
    with pytest.raises(ValueError, match=r"expected a .*schema"):
        check_schema(schema)
    with pytest.raises(RefusedError, match="response_format: expected a "):
        ChatRequest.read(json.dumps(about(1, response_format=form(schema))).encode())


def test_max_tokens_is_honoured(openai):
    whole = openai.chat.completions.create(**about(7)).choices[0]
    assert (whole.finish_reason, len(whole.message.content.split())) == ("stop", 5)
    for name in ("max_tokens", "max_completion_tokens"):
        short = openai.chat.completions.create(**about(7), **{name: 2}).choices[0]
        assert (short.finish_reason, short.message.content.split()) == ("length", whole.message.content.split()[:2])
    parts = [part.choices[0] for part in openai.chat.completions.create(**about(7), max_tokens=2, stream=True)]
    assert parts[-1].finish_reason == "length"
    assert first_tokens("a b c", 9, lambda text: len(text.split())) == "a b c"


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({"round": 3}, "round: expected a known field, got another: rounds or leave it out"),
        ({"haltings": "fixed"}, "haltings: expected a known field, got another: halting or leave it out"),
        ({"zzz": 1}, "zzz: expected a known field, got another: leave it out"),
    ],
)
def test_an_unknown_extension_is_refused(served, field, told):
    assert served.client.fault(about(1, **field)) == (400, told)
    assert served.client.chat(about(1, zzz=None, user="me"))[0] == 200


def test_the_same_request_again_costs_nothing(served):
    first = served.client.chat(about(99, seed=4))[1]
    asked = len(served.engine.asked)
    again = served.client.chat(about(99, seed=4))[1]
    assert again["choices"] == first["choices"]
    assert len(served.engine.asked) == asked
    served.client.chat(about(99, seed=5))
    assert len(served.engine.asked) > asked


# --- responses --------------------------------------------------------------------------------------------------------


def test_responses_say_what_chats_say(openai):
    chat = openai.chat.completions.create(**about(8, seed=1))
    reply = openai.responses.create(model="nsed/team", input="What is number 8?", extra_body={"seed": 1}, tools=[TOOL])
    assert reply.output_text == chat.choices[0].message.content
    assert (reply.status, reply.usage.total_tokens) == ("completed", chat.usage.total_tokens)
    assert reply.output[0].summary[0].text == chat.choices[0].message.reasoning_content
    assert reply.nsed["notes"]


def test_responses_stream(openai):
    asked = {"model": "nsed/team", "instructions": "Be brief.", "input": "What is number 9?"}
    whole = openai.responses.create(**asked)
    events = list(openai.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == whole.output_text
    with openai.responses.stream(**asked) as stream:  # the client's own reading of the events
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == whole.output_text


def test_responses_take_turns_limits_and_formats(served, openai):
    turns = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
        {"type": "function_call_output", "call_id": "1", "output": "17"},
        {"role": "user", "content": "What is number 4?"},
    ]
    short = openai.responses.create(model="nsed/team", input=turns, max_output_tokens=1)
    assert (short.status, short.incomplete_details.reason, short.output_text.strip()) == (
        *("incomplete", "max_output_tokens", "4"),
    )
    wanted = {"type": "json_schema", "name": "form", "schema": NUMBER}
    reply = openai.responses.create(model="nsed/team", input="What is number 6?", text={"format": wanted})
    assert isinstance(json.loads(reply.output_text)["number"], int)
    none = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    reply = openai.responses.create(
        model="nsed/team", input="What is number 5?", text={"format": wanted | {"schema": none}}
    )
    assert reply.output[1].content[0].refusal.startswith("no answer of the team fits")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id: expected none, for nothing is kept"),
        ({"input": []}, "messages: List should have at least 1 item"),
        ({"input": 7}, "messages: List should have at least 1 item"),
        ({"tool_choice": "required"}, "tool_choice: expected auto or none"),
        ({"messages": []}, "messages: expected turns under"),
        ({"rouds": 1}, "rouds: expected a known field, got another: rounds or leave it out"),
    ],
)
def test_faults_of_responses_are_one_line(openai, fields, told):
    with pytest.raises(openai.fault, match=told):
        openai.responses.create(model="nsed/team", input="What is number 1?", extra_body=fields)


def test_a_stream_of_responses_that_fails_ends_in_an_error(openai):
    events = list(openai.responses.create(model="nsed/team", input="What is number 666?", stream=True))
    assert events[-1].type == "error"
