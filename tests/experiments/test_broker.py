"""`tune_broker` from recorded answers to table, JSON and plot."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nsed_torch.benchmarks import RecordedAnswers, load_recorded, split
from nsed_torch.experiments.broker import BrokerSettings, priced_pool, tune_broker
from nsed_torch.nn import ConsensusCell, LearnedBroker
from nsed_torch.training.partial import Pool


def folder(root: Path, parameters: bool = True) -> RecordedAnswers:
    """Three agents and 60 tasks; the dear one is right most often."""
    draw = torch.Generator().manual_seed(0)
    names = [f"q{i}" for i in range(60)]
    lines = [json.dumps({"id": n, "question": f"What is {n}?", "gold": "1"}) for n in names]
    (root / "answers").mkdir(parents=True)
    with gzip.open(root / "questions.jsonl.gz", "wt") as file:
        file.write("\n".join(lines))
    for agent, chance in (("small", 0.6), ("middle", 0.7), ("large", 0.8)):
        right = (torch.rand(60, generator=draw) < chance).tolist()
        rows = [
            {"id": n, "output": "x" * 40, "answer": "1" if r else str(2 + i % 3), "correct": r}
            for i, (n, r) in enumerate(zip(names, right, strict=True))
        ]
        (root / "answers" / f"{agent}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    facts = {"small": {"parameters_b": 1}, "middle": {"parameters_b": 3}}
    (root / "agents.json").write_text(json.dumps({**facts, "large": {"parameters_b": 8}} if parameters else facts))
    return load_recorded(root)


def test_results_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    recorded = folder(tmp_path / "data")
    splits = [split([task.id for task in recorded.tasks], turn=0.2 * i) for i in range(2)]
    told: list[str] = []
    settings = BrokerSettings(budgets=[0.3, 1.0], steps=5, ridges=[3.0, 30.0])
    found = tune_broker(Pool.of(recorded), out, splits, dim=16, settings=settings, report=told.append)
    assert [line.split(":")[0] for line in told] == ["broker, seed 0", "broker, seed 1"]
    assert json.loads((out / "cost.json").read_text()) == json.loads(json.dumps(found))
    assert (out / "cost.png").read_bytes().startswith(b"\x89PNG")
    assert set(found["curves"]) == {"tuned broker", "static best-k", "static best subset", "random-k", "oracle"}
    for points in found["curves"].values():
        assert [p["budget"] for p in points] == [0.3, 1.0]
        assert all(0 <= p["accuracy"]["mean"] <= 1 for p in points)
    best = [p["accuracy"]["mean"] for p in found["curves"]["oracle"]]
    assert all(p["accuracy"]["mean"] <= best[1] for p in found["curves"]["tuned broker"])
    assert "tuned broker" in capsys.readouterr().out
    # What is saved is the first split's, with the cell that it goes with.
    for share in ("0.30", "1.00"):
        broker = LearnedBroker.from_pretrained(out / "broker" / f"{share}.safetensors")
        assert (broker.rounds, broker.one_by_one, broker.dim) == (len(broker.agents), True, 0)
        cell = ConsensusCell.from_pretrained(out / "broker/cell", agents=broker.agents)
        assert cell.dim == 16


def test_what_is_used_may_learn_from_all_tasks(tmp_path: Path) -> None:
    recorded = folder(tmp_path / "data")
    ids, settings = [task.id for task in recorded.tasks], BrokerSettings(budgets=[0.5], steps=5)
    whole = split(ids, (0.8, 0.2, 0.0))
    for name, refit in (("first", None), ("whole", whole)):
        tune_broker(Pool.of(recorded), tmp_path / name, [split(ids)], dim=8, settings=settings, refit=refit)
    files = [tmp_path / name / "broker/0.50.safetensors" for name in ("first", "whole")]
    assert files[0].read_bytes() != files[1].read_bytes()


def test_unknown_parameters_are_named(tmp_path: Path) -> None:
    recorded = folder(tmp_path / "data", parameters=False)
    with pytest.raises(ValueError, match="expected parameters_b of every agent, got none of large: choose others"):
        priced_pool(recorded)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"budgets": [0.5, 0]}, "budgets above 0"),
        ({"pool": 11}, "a pool of 1 to 10 agents, got 11"),
        ({"ridges": []}, "steps and ridges above 0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        BrokerSettings(**settings)
