"""`PYTHON -P bench/serve_clients.py URL MODEL`: what clients make of a running `nsed serve`, a line each.

It imports nothing of this library, and PYTHON is that of an environment of its own:
pip install openai litellm langchain-openai langgraph openai-agents pydantic

nsed serve port=8000 models.team='{ensemble: demo}' &
/tmp/clients/bin/python -P bench/serve_clients.py http://localhost:8000/v1 nsed/team
"""

# ruff: noqa: PLC0415 - each library is imported by its own checks

import json
import os
import sys
import time
from collections.abc import Callable

os.environ |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1"}

QUESTION = "What is number 17?"
TURNS = [{"role": "user", "content": QUESTION}]
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}},
}


def openai_checks(url: str, model: str) -> dict[str, Callable[[], object]]:
    """The client of the protocol's own makers."""
    import openai
    from pydantic import BaseModel

    client = openai.OpenAI(base_url=url, api_key=os.environ.get("NSED_API_KEY", "none"), timeout=600)
    chat = client.chat.completions

    class Number(BaseModel):
        number: int

    def whole() -> str:
        return str(chat.create(model=model, messages=TURNS).choices[0].message.content)

    def stream() -> bool:
        parts = chat.create(model=model, messages=TURNS, stream=True)
        return "".join(part.choices[0].delta.content or "" for part in parts) == whole()

    def forced() -> str:
        try:
            chat.create(model=model, messages=TURNS, tools=[TOOL], tool_choice="required")
        except openai.BadRequestError as error:
            return str(error.body)
        raise AssertionError("a forced tool was not refused")

    def events() -> bool:
        with client.responses.stream(model=model, input=QUESTION) as stream:
            kinds = [event.type for event in stream]
            return kinds[-1] == "response.completed" and stream.get_final_response().output_text == whole()

    def schema() -> object:
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
        return json.loads(chat.create(model=model, messages=TURNS, response_format=form).choices[0].message.content)

    def again() -> str:
        start = time.perf_counter()
        whole()
        return f"{time.perf_counter() - start:.3f} s"

    return {
        "openai list": lambda: [listed.id for listed in client.models.list()],
        "openai retrieve": lambda: client.models.retrieve(model).id,
        "openai chat": whole,
        "openai the same chat again": again,
        "openai stream": stream,
        "openai tools": lambda: chat.create(model=model, messages=TURNS, tools=[TOOL]).choices[0].message.content,
        "openai forced tool": forced,
        "openai json schema": schema,
        "openai parse": lambda: (
            chat.parse(model=model, messages=TURNS, response_format=Number).choices[0].message.parsed
        ),
        "openai max_tokens": lambda: chat.create(model=model, messages=TURNS, max_tokens=1).choices[0].finish_reason,
        "openai responses": lambda: client.responses.create(model=model, input=QUESTION).output_text,
        "openai responses parse": lambda: (
            client.responses.parse(model=model, input=QUESTION, text_format=Number).output_parsed
        ),
        "openai responses stream": events,
    }


def litellm_checks(url: str, model: str) -> dict[str, Callable[[], object]]:
    """A client that speaks to many servers."""
    import litellm

    litellm.telemetry = False
    to = {
        "model": f"openai/{model}",
        "messages": TURNS,
        "api_base": url,
        "api_key": os.environ.get("NSED_API_KEY", "none"),
    }

    def stream() -> str:
        parts = litellm.completion(**to, stream=True)
        return "".join(part.choices[0].delta.content or "" for part in parts)

    return {
        "litellm chat": lambda: litellm.completion(**to, tools=[TOOL]).choices[0].message.content,
        "litellm stream": stream,
    }


def langchain_checks(url: str, model: str) -> dict[str, Callable[[], object]]:
    """The client of langchain, and the loop of an agent in langgraph."""
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    chat = ChatOpenAI(base_url=url, model=model, api_key=os.environ.get("NSED_API_KEY", "none"), timeout=600)

    @tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    def loop() -> str:
        return str(create_react_agent(chat, [add]).invoke({"messages": TURNS})["messages"][-1].content)

    return {
        "langchain chat": lambda: chat.invoke(QUESTION).content,
        "langchain stream": lambda: "".join(part.content for part in chat.stream(QUESTION)),
        "langchain schema": lambda: chat.with_structured_output(SCHEMA | {"title": "n"}, method="json_schema").invoke(
            QUESTION
        ),
        "langgraph agent": loop,
    }


def agents_checks(url: str, model: str) -> dict[str, Callable[[], object]]:
    """The loop of OpenAI's agents, over both forms of the protocol."""
    import openai
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool

    client = openai.AsyncOpenAI(base_url=url, api_key=os.environ.get("NSED_API_KEY", "none"), timeout=600)

    @function_tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    def run(kind: Callable[..., object]) -> str:
        agent = Agent(name="a", instructions="Be brief.", model=kind(model, client), tools=[add])
        return str(Runner.run_sync(agent, QUESTION).final_output)

    return {
        "agents over chat": lambda: run(OpenAIChatCompletionsModel),
        "agents over responses": lambda: run(OpenAIResponsesModel),
    }


def main(url: str, model: str) -> int:
    """Print a line for each check; the number of those that failed."""
    failed = 0
    for checks in (openai_checks, litellm_checks, langchain_checks, agents_checks):
        for name, check in checks(url, model).items():
            try:
                told = check()
                bad = told in (None, "", False)
            except Exception as error:  # of any library
                told, bad = f"{type(error).__name__}: {error}", True
            failed += bad
            print(f"{'FAILED' if bad else 'ok'} {name}: {' '.join(str(told).split())[:160]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
