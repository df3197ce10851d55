"""`tune_broker` from recorded answers to table, JSON and plot."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from nsed_torch.experiments.broker import BrokerSettings, priced_pool, tune_broker
from nsed_torch.training.partial import Pool, replay

from nsed_torch.data import RecordedAnswers, load_recorded, split
from nsed_torch.nn import ConsensusCell, LearnedBroker
from nsed_torch.records import read_traces


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
            {
                "id": n,
                "output": f"{agent} thinks that the answer is {1 if r else 2 + i % 3}",
                "answer": "1" if r else str(2 + i % 3),
                "correct": r,
            }
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


def test_the_saved_broker_decides_live_as_on_the_recorded_answers(nsed: Any) -> None:
    """From recorded answers to a broker of the command line, which asks the same agents of the same team."""
    recorded = folder(nsed.folder / "data")
    quick = "data_dir=data", "encoder=hashed", "training.epochs=1", "seeds=1", "output_dir=out"
    told = nsed.ok("tune", *quick, "cost_curve=true", "budgeting.budgets=[0.4]", "budgeting.steps=20")
    out = nsed.folder / "out/broker"
    assert f"broker=learned broker.learned={out}/SHARE.safetensors cell={out}/cell rounds=8\n" in told
    broker = LearnedBroker.from_pretrained(nsed.folder / "out/broker/0.40.safetensors")
    agents = ", ".join(f"{name}: {{backbone: recorded}}" for name in broker.agents)
    nsed.ok(
        "evaluate", "benchmark=recorded", "data_dir=data", "ensemble=recorded",
        "ensemble.engines.recorded.data_dir=data", f"+ensemble.agents={{{agents}}}",
        "encoder=hashed", "broker=learned", "broker.learned=out/broker/0.40.safetensors", "cell=out/broker/cell",
        "rounds=3", "methods=[deliberation]", "output_dir=live",
    )  # fmt: skip
    everybody = Pool.of(recorded)
    pool = everybody.select(agents=[everybody.agents.index(name) for name in broker.agents])
    cell = ConsensusCell.from_pretrained(nsed.folder / "out/broker/cell", agents=broker.agents)
    outcome = replay(broker, cell, pool)
    assert 1 < float(outcome.asked.sum(1).double().mean()) < 3
    traces = {trace.transcript.task.id: trace for trace in read_traces(nsed.folder / "live")}
    for i, task in enumerate(recorded.tasks):
        last, grades = traces[task.id].transcript.rounds[-1], traces[task.id].grades[-1]
        assert set(last.proposers) == {broker.agents[a] for a in outcome.asked[i].nonzero()[:, 0].tolist()}
        assert grades[last.winner or 0] == bool(outcome.right[i])
        assert traces[task.id].transcript.stop_reason in {"broker", "rounds"}


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
