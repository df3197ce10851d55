"""Judges tuned from a composed config: numbers with intervals, and adapters that agents load afterwards."""

import json

import pytest
import torch
from omegaconf import OmegaConf
from rich.console import Console

from nsed_lab.studies.needle import write_candidates
from nsed_torch.app.build import build_ensemble
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.verbs.train_judges import held_out, summary, table
from nsed_torch.evaluation.statistics import Estimate
from nsed_torch.records.files import read_json
from nsed_torch.records.transcript import Task
from nsed_torch.traces.recorded import load_recorded
from nsed_torch.tuning.judge_training import JudgeScores, JudgeTrainer

AGENTS = ("solver", "skeptic")


@pytest.fixture
def words(tiny_model, tmp_path):
    """A small training of the demo's judges, without one of them."""
    tasks = [Task(f"{i} + {i} = ?", f"t{i}", str(2 * i)) for i in range(16)]
    write_candidates(tmp_path / "data", tasks, count=2)
    small = {"rank": 2, "steps": 2, "batch": 2, "every": 1, "validation_tasks": 2, "test_tasks": 3}
    engine = {"weights.path": tiny_model, "quantization": "nf4", "dtype": "float32", "device": "cpu"}
    return [
        *("train-judges", "data_dir=data", "output_dir=out", "ensemble=demo", "~ensemble.agents.explainer"),
        *(f"lora.{key}={value}" for key, value in small.items()),
        *(f"ensemble.engines.smollm2.{key}={value}" for key, value in engine.items()),
    ]


def test_it_trains_measures_saves_and_says_so(nsed, words, tmp_path):
    out = nsed.ok(*words)
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert metrics["tasks"]["validation"] == 2
    assert metrics["tasks"]["test"] == 3
    assert set(metrics["judges"]) == set(AGENTS)
    assert set(metrics["test"]) == {
        *(f"{kind}, {who}" for kind in ("pairs", "signs") for who in (*AGENTS, "all judges")),
        "consensus",
    }
    for row in metrics["test"].values():
        assert row["difference"]["mean"] == pytest.approx(row["after"]["mean"] - row["before"]["mean"])
        assert all(cell["n"] == 3 and cell["low"] <= cell["mean"] <= cell["high"] for cell in row.values())
    for line in ("loading models", "judging 3 held-out tasks", "judges on 3 held-out tasks"):
        assert line in out
    steps = [json.loads(line) for line in (tmp_path / "out" / "judges.jsonl").read_text().splitlines()]
    assert [line["step"] for line in steps if "gradient" in line] == [1, 2]

    # The same agents, told where their adapters are, are the judges that were measured.
    cfg = OmegaConf.load(tmp_path / "out/.hydra/config.yaml")
    cfg.ensemble.engines.smollm2.adapters = {name: str(tmp_path / "out" / "adapters" / name) for name in AGENTS}
    for name in AGENTS:
        cfg.ensemble.agents[name].adapter = name
    ensemble = build_ensemble(cfg.ensemble)
    for agent in ensemble.agents:
        assert ensemble.engine(agent).identity(agent.adapter) == metrics["judges"][agent.name]
    trainer = JudgeTrainer(ensemble, rating=instantiate(cfg.rating), prompts=instantiate(cfg.prompts), seed=0)
    scores = trainer.evaluate(held_out(load_recorded("data"), 2, 3)["test"], batch=2)
    assert float(scores.consensus.mean()) == pytest.approx(metrics["test"]["consensus"]["after"]["mean"])
    assert float(scores.pairs.mean()) == pytest.approx(metrics["test"]["pairs, all judges"]["after"]["mean"])


def test_differences_are_paired_by_task():
    one = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    before = JudgeScores(one, one, torch.tensor([0.0, 1.0]), torch.zeros(2))
    after = JudgeScores(one + 0.25, one, torch.tensor([1.0, 1.0]), torch.zeros(2))
    rows = summary(before, after, ["a", "b"])
    assert rows["pairs, a"]["difference"] == Estimate(2, 0.25, 0.25, 0.25, "Student")
    assert rows["signs, b"]["difference"].mean == 0
    assert rows["consensus"]["after"] == Estimate(2, 1.0, 1.0, 1.0, "Student")
    console = Console(record=True, width=120)
    console.print(table(rows))
    assert "+0.250 [+0.250, +0.250]" in console.export_text()


def test_faults_are_one_line(nsed, words):
    assert nsed.fault("train-judges") == "expected recorded answers, got no folder: pass data_dir=DIR"
    line = "expected 2 or more tasks to test on, got 1: raise lora.test_tasks"
    assert nsed.fault(*words, "lora.test_tasks=1") == line
    line = "expected a verdict that is read off logits, got CritiqueRating: set rating=verdict"
    assert nsed.fault(*words, "rating=critique") == line
