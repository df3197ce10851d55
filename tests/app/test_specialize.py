"""`nsed specialize` from the command line: adapters that agents load, with cards and numbers."""

import importlib.util
import json

import pytest
import torch
from safetensors.torch import load_file

from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.weights import Weights
from nsed_torch.questions.generated import mixed_tasks
from nsed_torch.records.files import read_json

SMALL = ("training.steps=3", "training.batch=4", "training.save_steps=1", "adapter.rank=2", "max_new_tokens=2")


@pytest.fixture
def backbone(tiny_model):
    return [f"backbone.weights.path={tiny_model}", "backbone.device=cpu", "backbone.dtype=float32"]


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    lines = [{"id": str(i), "question": f"How much is {i} + {i}?", "target": str(2 * i)} for i in range(20)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_specialist_of_a_file_is_trained_tested_and_saved(nsed, backbone, questions, tiny_model, tmp_path):
    arguments = ["specialist=none", "name=doubles", f"questions={questions}", *backbone, *SMALL, "output_dir=out"]
    out = nsed.ok("specialize", *arguments)
    assert out.splitlines()[-1].endswith("out/adapter")
    assert "doubles: held-out answers" in out
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert metrics["name"] == "doubles"
    assert metrics["examples"] + metrics["held_out"]["all"]["n"] == 20
    assert metrics["training"]["steps"] == 3
    log = (tmp_path / "out" / "log.jsonl").read_text().splitlines()
    assert metrics["seconds"] == round(sum(json.loads(line)["seconds"] for line in log), 1)
    for when in ("before", "after"):
        share, low, high = metrics["held_out"]["all"][when]
        assert 0 <= low <= share <= high <= 1
    card = (tmp_path / "out" / "adapter" / "README.md").read_text()
    assert "# doubles" in card
    assert "nsed specialize specialist=none name=doubles" in card
    folder = tmp_path / "out" / "adapter"
    engine = load_backbone(Weights(name="tiny", path=str(tiny_model)), adapters={"doubles": str(folder)}, device="cpu")
    assert engine.identity("doubles")["adapter"]
    # Repeated, nothing is trained or tested on the bare backbone again, and the numbers stay.
    again = nsed.ok("specialize", *arguments)
    assert "testing the bare backbone" not in again
    assert read_json(tmp_path / "out" / "metrics.json") == metrics


def test_one_adapter_can_begin_as_another(nsed, backbone, questions, tmp_path):
    words = ["specialist=none", f"questions={questions}", *backbone, *SMALL, "training.steps=1"]
    nsed.ok("specialize", *words, "name=first", "output_dir=first")
    first = tmp_path / "first" / "adapter"
    words += [f"adapter.start={first}", "adapter.rank=7", "training.learning_rate=1e-12"]
    nsed.ok("specialize", *words, "name=second", "output_dir=second")
    metrics = [read_json(tmp_path / name / "metrics.json") for name in ("first", "second")]
    assert metrics[1]["adapter"] == {**metrics[0]["adapter"], "start": str(first)}  # rank and all
    assert metrics[1]["held_out"]["all"]["before"] == metrics[0]["held_out"]["all"]["before"]
    a, b = (load_file(tmp_path / name / "adapter" / "adapter_model.safetensors") for name in ("first", "second"))
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert f"It began as `{first}`." in (tmp_path / "second" / "adapter" / "README.md").read_text()


def test_an_activated_specialist_says_what_invokes_it(nsed, backbone, questions, tmp_path):
    words = ["specialist=none", f"questions={questions}", *backbone, *SMALL, "memory_share=0.5"]
    words.append("adapter.kind=activated")
    nsed.ok("specialize", *words, "adapter.first_layer=1", "output_dir=out")
    shape = read_json(tmp_path / "out" / "metrics.json")["adapter"]
    assert (shape["layers"], len(shape["invocation"]) > 3) == ([1], True)
    said = nsed.fault("specialize", *words, "adapter.invocation=Speak.", "output_dir=other")
    assert "expected prompts that end with the adapter's invocation, got one that ends with " in said
    for number, word in enumerate(("adapter.kind=strange", "adapter.invocation=", "adapter.first_layer=2")):
        assert "expected an adapter's " in nsed.fault("specialize", *words, word, f"output_dir=refused{number}")


def test_faults_are_one_line(nsed, backbone, questions):
    assert "name one, or choose specialist=" in nsed.fault("specialize", "specialist=none", *backbone)
    both = nsed.fault("specialize", "specialist=none", f"questions={questions}", "families={gcd:{}}", *backbone)
    assert "got both" in both
    assert "steps" in nsed.fault(
        "specialize", "specialist=none", f"questions={questions}", "training.steps=0", *backbone
    )


@pytest.mark.skipif(importlib.util.find_spec("reasoning_gym") is None, reason="needs reasoning-gym")
def test_families_leave_out_what_is_held_out_or_avoided(nsed, backbone, tmp_path):
    families = "families={aiw:{task_type_weights:[1,0,0],max_entities:3}}"
    small = ["training.steps=2", "training.batch=20", "held_out=20", "avoid={2:20,3:20}", "adapter.rank=2"]
    nsed.ok("specialize", "specialist=none", families, *backbone, *small, "max_new_tokens=2", "output_dir=out")
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert metrics["held_out"]["aiw"]["n"] == 20
    options = {"aiw": {"task_type_weights": [1, 0, 0], "max_entities": 3}}
    others = {t.question for seed in (1, 2, 3) for t in mixed_tasks(options, 20, seed).tasks}
    mine = [t for t in mixed_tasks(options, 40, 0).tasks if t.question not in others]
    assert metrics["examples"] == len(mine) < 40
