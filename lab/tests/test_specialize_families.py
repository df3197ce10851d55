"""`nsed specialize` with the laboratory's lesson generators."""

import importlib.util

import pytest

from nsed_torch.records.files import read_json

SMALL = ("training.steps=3", "training.batch=4", "training.save_steps=1", "adapter.rank=2", "max_new_tokens=2")
STEPS = "lesson={_target_:nsed_lab.generated_lessons.step_lesson}"
HOPS = "lesson={_target_:nsed_lab.hop_lesson.hop_lesson,step_share:0.5,train:20,held_out:6}"


@pytest.fixture
def backbone(tiny_model):
    return [f"backbone.weights.path={tiny_model}", "backbone.device=cpu", "backbone.dtype=float32"]


def test_steps_of_generated_tasks_are_learned(nsed, backbone, tmp_path):
    pytest.importorskip("reasoning_gym")
    families = "families={chain_sum:{min_terms:2,max_terms:4,max_digits:1},ab:{length:3}}"
    words = ["specialist=none", STEPS, "name=steps", families, "held_out=6", "avoid={2:6,3:6}"]
    arguments = [*words, *backbone, *SMALL, "output_dir=out"]
    out = nsed.ok("specialize", *arguments)
    assert "learning from 12 examples" in out
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert metrics["data"]["learns"] == "to write the next step"
    assert {name: row["n"] for name, row in metrics["held_out"].items()} == {"chain_sum": 3, "ab": 3}
    other = [word for word in arguments[:-1] if word != STEPS]
    nsed.ok("specialize", *other, f"{STEPS[:-1]},of:2,take:1,form:placed,by_length:0.5}}", "output_dir=other")
    data = read_json(tmp_path / "other" / "metrics.json")["data"]
    assert data == {**metrics["data"], "part": [1, 2], "form": "placed", "by_length": 0.5}
    assert "got part 2 of 2" in nsed.fault("specialize", *other, f"{STEPS[:-1]},of:2,take:2}}", "output_dir=none")
    assert "expected families=... or questions=FILE to learn from, got neither" in nsed.fault(
        "specialize", "specialist=steps", "families=null"
    )


def test_whole_works_are_learned_too(nsed, backbone, tmp_path):
    pytest.importorskip("reasoning_gym")
    families = "families={chain_sum:{min_terms:2,max_terms:3,max_digits:1}}"
    words = [
        "specialist=none",
        "lesson={_target_:nsed_lab.generated_lessons.whole_lesson}",
        "name=monologue",
        families,
        "held_out=4",
        "avoid={2:6,3:6}",
    ]
    assert "every step, chain_sum" in nsed.ok("specialize", *words, *backbone, *SMALL, "output_dir=out")
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert metrics["data"]["learns"] == "to write all steps in one text"
    assert {name: row["n"] for name, row in metrics["held_out"].items()} == {"chain_sum": 4, "every step, chain_sum": 4}


def test_a_reader_learns_notes_nothing_and_answers(nsed, backbone, tmp_path):
    words = ["specialist=reading", "held_out=7", "examples=24", "avoid={0: 7}", *backbone, *SMALL, "output_dir=out"]
    assert "reading: held-out answers" in nsed.ok("specialize", *words)
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert metrics["data"]["learns"] == "to note what matters and to answer from notes"
    assert set(metrics["held_out"]) >= {"notes, chains", "nothing, needles", "answers, hidden_profile"}
    fault = nsed.fault("specialize", *words[:-1], "families=null", "output_dir=other")
    assert "expected families=... or questions=FILE to learn from, got neither" in fault


@pytest.mark.skipif(importlib.util.find_spec("reasoning_gym") is None, reason="needs reasoning-gym")
def test_a_specialist_learns_its_part_of_a_workflow(nsed, backbone, tmp_path):
    sums = "families={mine:{family:basic_arithmetic,max_terms:2,max_digits:2,operators:[+],allow_parentheses:false}}"
    small = [*backbone, *SMALL, "held_out=4", "adapter.kind=activated", HOPS]
    nsed.ok("specialize", "specialist=none", sums, *small, "output_dir=out")
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert set(metrics["held_out"]) == {"mine", "hop: sums"}
    assert metrics["data"]["hops"]["kinds"] == ["sums"]
    assert [metrics["data"]["hops"][part]["seed"] for part in ("tasks", "held_out")] == [0, 1]
    again = nsed.ok("specialize", "specialist=none", sums, *small, "output_dir=out")
    assert "testing the bare backbone" not in again
    other = nsed.fault("specialize", "specialist=none", "families={gcd:{}}", *small, "output_dir=b")
    assert "0 and 0 of no kind: name families of composite questions" in other
