"""`nsed conduct conductor=prompted`: workers and the Conductor behind a server, or in local folders."""

import json

import pytest
from endpoint_server import completion, endpoint

from nsed_torch.records.execution import Execution

pytest.importorskip("openai")

QUESTION = "How much is 17 + 25, in words?"
PLAN = {"plan": "Add, then write.", "model_id": [1, 0], "subtasks": ["Add 17 and 25.", "Write the number in words."]}
PLAN["access_list"] = [[], "all"]
SAID = {"adder": "42", "writer": "forty-two"}
TEAM = """
defaults: [{/backbone@engines.server: endpoint}]
agents:
  writer: {backbone: server, adapter: writer, description: writes, completion_price: 1.0}
  adder: {backbone: server, adapter: adder, description: adds two numbers, completion_price: 3.0}
"""


@pytest.fixture
def served(nsed, monkeypatch):
    """Runs the verb on two workers and a Conductor, all behind one server; returns output and execution."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (nsed.folder / "conf_of_mine" / "ensemble").mkdir(parents=True)
    (nsed.folder / "conf_of_mine" / "ensemble" / "mine.yaml").write_text(TEAM)
    with endpoint() as server:

        def run(writes, *arguments):
            def script(body):
                return completion(SAID[body["model"]]) if body["model"] in SAID else writes(body)

            server.script = script
            engines = [f"ensemble.engines.{name}.url={server.url}" for name in ("server", "conductor")]
            own = ["--config-dir", "conf_of_mine", "ensemble=mine", "ensemble.engines.server.model=adder"]
            big = ["conductor=prompted", "ensemble.engines.conductor.model=big", "output_dir=run"]
            out = nsed.ok("conduct", QUESTION, *own, *big, *engines, *arguments)
            return out, Execution.load(nsed.folder / "run/conduct.json")

        run.server = server
        yield run


def asked(server):
    """The requests for workflows."""
    return [body for body in server.bodies if body["model"] == "big"]


def test_a_larger_model_conducts_models_behind_a_server(served):
    thought = "<think>The adder first.</think>"
    out, execution = served(lambda body: completion(thought + json.dumps(PLAN)))
    assert out.endswith("\nforty-two\n")
    assert "workflow 0: models 0 writer, 1 adder\n" in out
    (body,) = asked(served.server)
    assert "Model 1: adds two numbers" in body["messages"][-1]["content"]
    shape = body["response_format"]["json_schema"]["schema"]["properties"]
    assert shape["model_id"]["items"]["enum"] == [0, 1]
    assert not any("response_format" in other for other in served.server.bodies if other["model"] != "big")
    assert execution.levels[0].plan.text == json.dumps(PLAN)
    many = len(served.server.bodies)
    assert served(lambda body: pytest.fail("asked again"))[1] == execution
    assert len(served.server.bodies) == many


def test_a_server_without_schemas_is_read_leniently(served):
    def writes(body):
        if "response_format" in body:
            return 400, {"error": {"message": "This response_format type is unavailable now"}}
        lists = "\n".join(f"{name}: {json.dumps(values)}" for name, values in PLAN.items())
        return completion(f"Sure!\n{lists}")

    out, execution = served(writes)
    assert out.endswith("\nforty-two\n")
    assert execution.levels[0].plan.notes == ["the endpoint refuses response_format: left out"]


def test_no_workflow_twice_is_the_strongest_worker(served):
    out, execution = served(lambda body: completion("I am afraid I cannot do that."))
    assert out.endswith("\n42\n")
    assert "workflow 0: note: asked again: expected complete lists " in out
    assert "; adder answers the question alone\n" in out
    assert [step.worker for step in execution.levels[0].steps] == ["adder"]
    assert execution.usage.calls == len(served.server.bodies) == 3


def test_a_conductor_that_is_not_there_is_one_line_and_the_rest_is_kept(served, nsed):
    with pytest.raises(AssertionError, match=r"nsed conduct: .*the model is gone"):
        served(lambda body: (404, {"error": {"message": "the model is gone"}}))


def test_a_folder_of_the_team_conducts(nsed):
    out = nsed.ok(
        *("conduct", QUESTION, *nsed.tiny, "conductor=prompted", "conductor.backbone=smollm2"),
        *("conductor.decoding.max_new_tokens=8", "output_dir=run"),
    )
    assert "\n3 calls, " in out
    assert "; solver answers the question alone\n" in out
