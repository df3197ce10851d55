"""From a composed config to built parts."""

import gc
import json
import re
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import nsed_torch
from nsed_torch.app.build import build_agents, build_ensemble, build_rnn, consensus_cell, load_models
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import added_dirs, conf_dir
from nsed_torch.core.agent import Agent
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.parts.budget_broker import BudgetBroker
from nsed_torch.parts.halting_rules import EvidenceHalting
from nsed_torch.parts.rating_modes import CritiqueRating, LikelihoodRating
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.files import read_json
from nsed_torch.records.transcript import Task


def composed(nsed, *overrides):
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("deliberate", overrides=[*nsed.tiny, "rating=verdict", "prompts.style=short", *overrides])


@pytest.mark.parametrize("inside", ["smollm2_135m_instruct", "endpoint"])
def test_calls_of_replicas_are_counted_by_the_engine_inside(nsed, tiny_model, inside):
    """Their devices are those of their machines: none of them has to be here."""
    team = ["ensemble=demo", "rating=verdict", "encoder=hashed", "backbone@ensemble.engines.smollm2=ray"]
    place = "ensemble.engines.smollm2.engine"
    local = [f"{place}.weights.path={tiny_model}", f"{place}.device=cuda:7"]
    team += [f"backbone@{place}={inside}", *(local if inside != "endpoint" else [f"{place}.model=any"])]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"), CallLog(None) as log:
        counter = build_rnn(compose("deliberate", overrides=team), log, counting=True).cell.ensemble.engines["smollm2"]
    assert counter.count_tokens("one two") == (2 if inside == "endpoint" else 7)


def test_no_garbage_is_looked_for_while_models_are_loaded(monkeypatch):
    during = []
    monkeypatch.setattr("nsed_torch.app.build.fetch_weights", lambda *given, **how: {})
    monkeypatch.setattr("nsed_torch.app.build.build_ensemble", lambda *given: during.append(gc.isenabled()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        load_models(OmegaConf.create({"ensemble": {}}), None, lambda text: None)
    assert during == [False]
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("around", "own"),
    [("ray", {"replicas", "cpus", "gpus", "address", "retries", "start_s"}), ("vllm", {"cache_gb", "options"})],
)
def test_what_a_team_says_of_its_backbone_is_of_the_engine_inside(monkeypatch, around, own):
    nodes = []
    engine = ScriptedEngine(lambda request: "", lambda request, candidate: 0.0)
    monkeypatch.setattr("nsed_torch.app.build.instantiate", lambda node: nodes.append(node) or engine)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose("deliberate", overrides=["ensemble=experts", f"backbone@ensemble.engines.smollm2={around}"])
    build_ensemble(cfg.ensemble)
    (node,) = nodes
    built = instantiate(node.pop("engine"))
    assert set(node) == {"_target_", *own}
    assert built.func is load_backbone
    given = built.keywords
    assert (given["quantization"], given["prefix_tokens"], given["adapters"]["sums"]) == ("none", 16384, "experts:sums")


def test_the_whole_network_as_configured(nsed):
    with CallLog(None) as log:
        rnn = build_rnn(composed(nsed, "seed=3", "memory_tokens=9", "rounds=2", "consensus.slots=5"), log)
        assert rnn.cell.ensemble.call_log is log
        assert (rnn.cell.seed, rnn.cell.protocol) == (3, Protocol(memory_tokens=9))
        assert rnn.cell.prompts.style == "short"
        assert isinstance(rnn.halting, FixedHalting)
        assert rnn.halting.rounds == 2
        assert rnn.broker is None
        assert isinstance(rnn.cell.rating, VerdictRating)
        assert isinstance(rnn.cell.encoder, HashedEncoder)
        assert rnn.cell.consensus.slots == 5
        # Three agents share one backbone, whose weights are the network's own.
        assert len(rnn.cell.ensemble) == 3
        (backbone,) = rnn.cell.ensemble.backbones.values()
        own = sum(p.numel() for p in rnn.cell.consensus.parameters())
        assert sum(p.numel() for p in rnn.parameters()) == own + sum(p.numel() for p in backbone.parameters())


def test_every_option_has_its_class(nsed):
    options = "rating=critique", "halting=evidence", "broker=knapsack", "broker.budget.tokens=5000", "rounds=6"
    with CallLog(None) as log:
        rnn = build_rnn(composed(nsed, *options), log)
    assert isinstance(rnn.cell.rating, CritiqueRating)
    assert isinstance(rnn.halting, EvidenceHalting)
    assert rnn.halting.rounds == 6
    assert isinstance(rnn.broker, BudgetBroker)
    assert rnn.broker.budget.tokens == 5000
    with CallLog(None) as log:
        rnn = build_rnn(composed(nsed, "rating=likelihood", "rating.temperature=4"), log)
    assert rnn.cell.rating == LikelihoodRating(temperature=4)


def test_the_protocols_switches_and_the_style_reach_the_cell(nsed):
    for name in ("diagonal_mask", "anonymous", "shuffled"):
        with CallLog(None) as log:
            rnn = build_rnn(composed(nsed, f"protocol.{name}=false", "protocol.judges=2", "prompts.style=worked"), log)
        switches = {key: getattr(rnn.cell.protocol, key) for key in ("diagonal_mask", "anonymous", "shuffled")}
        assert [key for key, on in switches.items() if not on] == [name]
        assert rnn.cell.protocol.judges == 2
        assert rnn.cell.prompts.style == "worked"


def test_real_engines_and_scripted_ones_give_the_same_kinds_of_record(nsed):
    """A batch of tasks on the tiny model: each transcript is whole."""
    with CallLog(None) as log:
        rnn = build_rnn(composed(nsed, "rounds=2"), log)
        with torch.no_grad():
            transcripts = rnn([Task("Why?", id="a"), Task("What is 2 + 2?", id="b")]).transcripts
        assert len(log) == 24
    for transcript in transcripts:
        for record in transcript.rounds:
            assert all((r is None) is (i == j) for i, row in enumerate(record.ratings) for j, r in enumerate(row))


def test_a_consensus_cell_starts_at_the_published_values_in_float64():
    cell = consensus_cell(dim=3, agents=2)
    assert {value.dtype for value in cell.state_dict().values()} == {torch.float64}
    assert torch.sigmoid(cell.gate.bias).item() == pytest.approx(0.8, abs=1e-15)
    assert cell.gate.weight.tolist() == [0.0] * 4
    assert cell.beta.item() == 1
    assert cell.slots == 4
    leaky = consensus_cell(dim=3, agents=2, slots=2, leak=0.9, gate="leaky")
    assert leaky.gate.leak.item() == 0.9
    assert leaky.slots == 2
    trusted = consensus_cell(dim=3, agents=2, trust=[2.5, -1])
    assert (trusted.trust.bias + 1).tolist() == [2.5, -1]
    for faulty in ([1.0], [1.0, float("nan")]):
        with pytest.raises(ValueError, match="consensus trust: expected a number for each of 2 agents"):
            consensus_cell(dim=3, agents=2, trust=faulty)


def test_an_agent_is_what_its_node_says():
    ada = {"backbone": "b", "persona": "p", "decoding": {"temperature": 0.1}, "prompt_price": 2.0}
    bob = {"backbone": "b", "roles": ["proposer", "judge"], "judge_adapter": "x"}  # roles come as a list
    assert build_agents(OmegaConf.create({"agents": {"ada": ada, "bob": bob}, "engines": {"b": None}})) == [
        Agent("ada", "b", "p", Decoding(temperature=0.1), prompt_price=2.0),
        Agent("bob", "b", roles=("proposer", "judge"), judge_adapter="x"),
    ]


def test_the_experts_name_adapters_of_the_package():
    """A missing adapter is found when it is loaded, in one line that says where it was looked for."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose("deliberate", overrides=["ensemble=experts"]).ensemble
    agents = build_agents(config)
    assert {agent.decoding for agent in agents} == {Decoding(max_new_tokens=24, temperature=0)}
    engine = config.engines.smollm2
    assert engine.quantization == "none"
    assert {agent.adapter for agent in agents} == set(engine.adapters)
    assert all(path == f"experts:{name}" for name, path in engine.adapters.items())
    engine.adapters = {"nobody": "experts:nobody"}
    with pytest.raises(ValueError, match=r"expected experts:nobody in a clone .* pip install .*experts"):
        build_ensemble(config)


def test_every_adapter_that_a_config_names_ships():
    folders = conf_dir(), *added_dirs()
    texts = [path.read_text() for folder in folders for path in folder.rglob("*.yaml")]
    named = {name for text in texts for name in re.findall(r": experts:([\w/]+)", text)}
    experts = Path(nsed_torch.__file__).parent / "experts"
    assert {"sums", "workers/sums", "conductor", "reader"} <= named
    assert [name for name in sorted(named) if not (experts / name / "adapter_model.safetensors").is_file()] == []


def test_the_shipped_conductor_speaks_for_itself_and_fits_the_package():
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose("conduct", overrides=["conductor=experts"])
    adapters = config.ensemble.engines.smollm2.adapters
    assert adapters[config.conductor.adapter] == "experts:conductor_words"
    assert config.conductor.backbone == "smollm2"
    assert config.conductor.name not in {agent.name for agent in build_agents(config.ensemble)}
    weights = Path(nsed_torch.__file__).parent / "experts/conductor_words/adapter_model.safetensors"
    assert 0 < weights.stat().st_size <= 5_000_000


@pytest.mark.parametrize(
    ("ensemble", "line"),
    [
        ({}, "expected an ensemble of at least 2 agents, got 0: add agents to it"),
        ({"agents": {"a": {"backbone": "b"}}}, "expected an ensemble of at least 2 agents, got 1: add agents to it"),
        ({"agents": ["a", "b"]}, "ensemble.agents: expected names with their settings, got ['a', 'b']"),
        (
            {"agents": {"a": {"backbone": "b"}}, "engines": 3},
            "ensemble.engines: expected names with their settings, got 3",
        ),
        ({"agents": {"a": 1, "b": 2}}, "agent 'a': expected its settings by name, got 1"),
        (
            {"agents": {"a": {}, "b": {}}},
            "agent 'a': nsed_torch.core.agent.Agent: missing a required argument: 'backbone'; it takes name, ",
        ),
        (
            {"agents": {"a": {"backbone": "x"}, "b": {"backbone": "x"}}},
            "agent 'a': expected a backbone out of b, got 'x'",
        ),
        (
            {"agents": {"a": {"backbone": "b", "roles": "judge"}, "b": {"backbone": "b"}}},
            "agent 'a': nsed_torch.core.agent.Agent: roles: expected a list with a text each, got",
        ),
        (
            {"agents": {name: {"backbone": "b", "roles": ["judge"]} for name in "ab"}},
            "expected an agent that may propose, got 2 judges: give one the role proposer",
        ),
        (
            {"agents": {"a": {"backbone": "x", "decoding": {"top_k": 1}}}},
            "agent 'a': nsed_torch.core.engine.Decoding: got an unexpected",
        ),
    ],
)
def test_a_faulty_ensemble_is_refused_before_weights_are_touched(ensemble, line):
    """The engine's node would fail if anything tried to build it."""
    config = OmegaConf.create({"engines": {"b": {"_target_": "os.system"}}, **ensemble})
    for build in (build_agents, build_ensemble):
        with pytest.raises(ValueError, match=r"^") as caught:
            build(config)
        assert str(caught.value).startswith(line)


def test_telemetry_is_a_file_that_runs_pass_on(nsed, tmp_path):
    """Agents by name: whom the file does not know starts fresh; a broken file is refused before weights are touched."""
    path = tmp_path / "new" / "telemetry.json"
    options = "broker=knapsack", f"broker.telemetry={path}", "rounds=1"
    with CallLog(None) as log:
        rnn = build_rnn(composed(nsed, *options), log)
        names = rnn.broker.telemetry.agents
        assert names == tuple(agent.name for agent in rnn.cell.ensemble.agents)
        assert not path.exists()
        with torch.no_grad():
            rnn([Task("Why?")])
        content = read_json(path)
        assert set(content["agents"]) == set(names)
        del content["agents"][names[0]]
        content["agents"][names[1]]["strikes"] = 3
        path.write_text(json.dumps(content))
        again = build_rnn(composed(nsed, *options), log).broker.telemetry
        assert [again.records[name].strikes for name in names[:2]] == [0, 3]
        path.write_text("[]")
        faulty = composed(nsed, *options, "ensemble.engines.smollm2.weights.path=/nowhere")
        with pytest.raises(ValueError, match=r"telemetry.json: expected the telemetry that `save` writes"):
            build_rnn(faulty, log)
