"""Judges tuned from a composed config: numbers with intervals, and adapters that agents load afterwards."""

import json
import re

import pytest
import torch
from omegaconf import OmegaConf
from rich.console import Console

from nsed_torch.config import conf_dir, instantiate
from nsed_torch.data import load_recorded
from nsed_torch.evaluation.statistics import Estimate
from nsed_torch.experiments.build import build_ensemble
from nsed_torch.experiments.train_judges import held_out, show, summary, train_judges
from nsed_torch.records import Task, read_json
from nsed_torch.training.judge_training import JudgeScores, JudgeTrainer
from studies.needle import write_candidates

AGENTS = ("solver", "skeptic")


def load(*parts):
    return OmegaConf.load(conf_dir().joinpath(*parts))


@pytest.fixture
def cfg(tiny_model, tmp_path):
    """What `nsed train-judges` composes, small."""
    tasks = [Task(f"{i} + {i} = ?", f"t{i}", str(2 * i)) for i in range(16)]
    write_candidates(tmp_path / "data", tasks, count=2)
    engine = load("backbone", "smollm2_135m_instruct.yaml")
    engine.update({"quantization": "nf4", "dtype": "float32", "device": "cpu"})
    engine.weights.path = str(tiny_model)
    lora = load("lora", "default.yaml")
    lora.update({"rank": 2, "steps": 2, "batch": 2, "every": 1, "validation_tasks": 2, "test_tasks": 3})
    agents = {name: {"backbone": "tiny", "persona": name} for name in AGENTS}
    return OmegaConf.create(
        {
            "data_dir": str(tmp_path / "data"),
            "output_dir": str(tmp_path / "out"),
            "ensemble": {"engines": {"tiny": engine}, "agents": agents},
            "rating": load("rating", "verdict.yaml"),
            "prompts": {"_target_": "nsed_torch.agents.Prompts", "folder": None},
            "lora": lora,
        }
    )


def test_it_trains_measures_saves_and_says_so(cfg, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    heard = []
    metrics = train_judges(cfg, report=heard.append)
    assert read_json(tmp_path / "out" / "metrics.json") == metrics
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
    assert heard[:2] == ["loading models", "judging 3 held-out tasks"]
    assert "consensus" in capsys.readouterr().out
    steps = [json.loads(line) for line in (tmp_path / "out" / "judges.jsonl").read_text().splitlines()]
    assert [line["step"] for line in steps if "gradient" in line] == [1, 2]

    # The same agents, told where their adapters are, are the judges that were measured.
    cfg.ensemble.engines.tiny.adapters = {name: str(tmp_path / "out" / "adapters" / name) for name in AGENTS}
    for name in AGENTS:
        cfg.ensemble.agents[name].adapter = name
    ensemble = build_ensemble(cfg.ensemble)
    for agent in ensemble.agents:
        assert ensemble.engine(agent).identity(agent.adapter) == metrics["judges"][agent.name]
    trainer = JudgeTrainer(ensemble, rating=instantiate(cfg.rating), prompts=instantiate(cfg.prompts), seed=0)
    scores = trainer.evaluate(held_out(load_recorded(cfg.data_dir), 2, 3)["test"], batch=2)
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
    show(rows, console)
    assert "+0.250 [+0.250, +0.250]" in console.export_text()


def test_faults_are_one_line(cfg):
    with pytest.raises(ValueError, match=r"^expected 2 or more tasks to test on, got 1: raise lora\.test_tasks$"):
        train_judges(OmegaConf.merge(cfg, {"lora": {"test_tasks": 1}}))
    cfg.rating = load("rating", "critique.yaml")
    line = "expected a verdict that is read off logits, got CritiqueRating: set rating=verdict"
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        train_judges(cfg)


def test_the_verb_trains_the_judges_of_an_ensemble(nsed):
    tasks = [Task(f"{i} + {i} = ?", f"t{i}", str(2 * i)) for i in range(16)]
    write_candidates(nsed.folder / "pairs", tasks, count=2)
    small = "lora.steps=1", "lora.batch=2", "lora.validation_tasks=1", "lora.test_tasks=2", "lora.rank=2"
    out = nsed.ok("train-judges", "data_dir=pairs", "output_dir=out", *nsed.tiny[1:], *small)
    assert "judges on 2 held-out tasks" in out
    assert set(read_json(nsed.folder / "out/metrics.json")["judges"]) == {"solver", "skeptic", "explainer"}
    assert (nsed.folder / "out/adapters/skeptic/adapter_model.safetensors").is_file()
    assert nsed.fault("train-judges") == "expected recorded answers, got no folder: pass data_dir=DIR"
