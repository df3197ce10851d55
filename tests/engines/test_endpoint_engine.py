"""An engine behind an endpoint, against a server that speaks the protocol: no part of the client is replaced."""

import threading
import time

import pytest
import torch
from endpoint_server import KEY, ask, completion, echo, engine

from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.executor import WorkflowJob as Job
from nsed_torch.conductor.workflow import Workflow
from nsed_torch.conductor.workflow import WorkflowStep as Step
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding, Engine, LikelihoodRequest, Message, RateRequest, RatingScale
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.readout import verdicts
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.parts.rating_modes import LikelihoodRating
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.execution import Failure
from nsed_torch.records.transcript import Task

pytest.importorskip("openai")

YES_NO = RatingScale(("yes", "no"), (1.0, -1.0))


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
    assert [asked[name] for name in ("max_tokens", "logprobs", "top_logprobs", "temperature")] == [
        *(1, True, 20, 1.0),
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


def test_a_judge_behind_an_endpoint_is_refused_for_likelihoods_before_anything_is_asked(server):
    def cell(**roles):
        engines = {"remote": engine(server), "here": ScriptedEngine(lambda request: "x", lambda request, text: 0.5)}
        ensemble = Ensemble(engines, [Agent("a", "remote", **roles), Agent("b", "here"), Agent("c", "here")])
        return MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(8, agents=3), rating=LikelihoodRating())

    with pytest.raises(ValueError, match="agent 'a': expected a judge in this process for rating=likelihood, got one"):
        cell()
    assert server.bodies == []
    assert cell(roles=("proposer",)).rating == LikelihoodRating()


def test_identity_tells_models_apart_and_no_secrets(server, monkeypatch):
    monkeypatch.setenv("THE_API_KEY", KEY)
    own = engine(server, url=server.url + "/", api_key_env="THE_API_KEY", extra_body={"top_k": 4})
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


def test_without_a_name_no_key_of_the_environment_is_sent(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    engine(server).generate([ask()])
    assert KEY not in str(server.heads)


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_API_KEY"])
def test_the_hubs_token_goes_to_the_hub_alone(server, name, monkeypatch):
    monkeypatch.setenv(name, KEY)
    for url in (server.url, "https://huggingface.co.evil.example/v1", "https://nothuggingface.co/v1"):
        with pytest.raises(ValueError, match="api_key_env: expected the Hub's token to be for the Hub, got it beside"):
            engine(server, url=url, api_key_env=name)
    engine(server, url="https://router.huggingface.co/v1", api_key_env=name)


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
