"""`conductor=head` is trained, goes on, is asked, compared and sits as a broker, by the verbs that know a Conductor."""

import json

import pytest
from safetensors.torch import load_file

from nsed_torch.records.execution import Execution
from nsed_torch.records.files import read_json

pytest.importorskip("cma")

WHO = ("solver", "skeptic", "explainer")


@pytest.fixture
def small(tiny_model, tmp_path):
    path = tmp_path / "questions.jsonl"
    lines = [{"id": str(i), "question": f"How much is {i} + {i}?", "target": str(2 * i)} for i in range(6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    engine = "ensemble.engines.smollm2"
    return [
        *("ensemble=demo", "tasks=file", f"questions={path}", "pools.size=2", "conductor=head", "max_steps=2"),
        *(f"{engine}.weights.path={tiny_model}", f"{engine}.quantization=none", f"{engine}.dtype=float32"),
        *(f"ensemble.agents.{name}.decoding.max_new_tokens=4" for name in WHO),
        *("evolution.generations=2", "evolution.population=4", "evolution.questions=2", "evolution.rank=2"),
    ]


def test_it_is_trained_goes_on_and_is_used(nsed, small, tmp_path):
    out = nsed.ok("train-conductor", *small, "output_dir=out")
    folder = tmp_path / "out"
    assert out.splitlines()[-1].endswith("out/head")
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(len(line["fitness"]) == 4 and line["policy_tokens"] > 0 for line in lines)
    assert read_json(folder / "metrics.json")["numbers"] == 2 * 2 * 32 + 6 * 2 + 3
    card = (folder / "head/README.md").read_text()
    assert "A linear head of 143 numbers, of rank 2," in card
    assert "2 generations of 4 heads, 2 questions each" in card
    before = load_file(folder / "head/head.safetensors")

    # A kill in the second generation, in the midst of its line.
    first, second = (folder / "log.jsonl").read_text().splitlines()
    (folder / "log.jsonl").write_text(first + "\n" + second[:40])
    assert "generation 1 of 2" in nsed.ok("train-conductor", *small, "output_dir=out")
    after = load_file(folder / "head/head.safetensors")
    assert all(after[name].equal(before[name]) for name in before)
    again = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["fitness"] for line in again] == [line["fitness"] for line in lines]

    ours = ["conductor=head", "conductor.weights=out/head"]
    nsed.ok("conduct", "How much is 1 + 1?", *nsed.tiny, *ours, "max_steps=2", "output_dir=conducted")
    (level,) = Execution.load(tmp_path / "conducted/conduct.json").levels
    assert {step.worker for step in level.steps} <= set(WHO)
    assert len(level.plan.text.splitlines()) == len(level.steps)

    asked = ["tasks=file", f"tasks.questions={tmp_path / 'questions.jsonl'}", "limit=2", "rounds=1"]
    asked += ["methods=[conductor,random_routing]", "budget=own", "method.conductor.max_steps=2", *nsed.tiny, *ours]
    assert "conductor" in nsed.ok("evaluate", *asked, "dry_run=true", "output_dir=dry")
    nsed.ok("evaluate", *asked, "output_dir=evaluated")
    assert read_json(tmp_path / "evaluated/results.json")["methods"]["conductor"]["accuracy"]["n"] == 2

    seat = ["broker=conductor", "conductor@broker.conductor=head", "broker.conductor.weights=out/head"]
    _, transcript = nsed.deliberate("How much is 1 + 1?", *seat, "rounds=1")
    assert transcript["rounds"][0]["notes"][0].startswith("team of the Conductor: proposers ")


def test_a_dry_run_says_how_many_calls_it_could_take(nsed, small, tmp_path):
    out = nsed.ok("train-conductor", *small, "dry_run=true", "output_dir=out")
    assert "at most 32 turns, each a call and a prompt read" in out
    assert not (tmp_path / "out/head").exists()


def test_without_a_head_it_is_one_clear_line(nsed):
    said = nsed.fault("conduct", "Why?", *nsed.tiny, "conductor=head", "output_dir=out")
    assert "expected the folder of a trained head, got none: pass conductor.weights=FOLDER" in said
