"""`nsed fit-asking` from recorded answers to table, JSON, plot and a broker that runs live."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_team import ensemble_of

from nsed_lab.asking import replay, without_questions
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.parts.budget_broker import BudgetBroker
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.questions.graders import AnswerGrader, GradersAnswers
from nsed_torch.records.files import read_json
from nsed_torch.traces.episodes import recorded_episodes
from nsed_torch.traces.recorded import RecordedAnswers, load_recorded
from nsed_torch.traces.rounds import Rounds


def folder(root: Path, parameters: bool = True) -> RecordedAnswers:
    """Three agents and 60 tasks; the dear one is right most often."""
    draw = torch.Generator().manual_seed(0)
    names = [f"q{i}" for i in range(60)]
    lines = [json.dumps({"id": n, "question": f"What is {n}?", "target": "1"}) for n in names]
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


QUICK = (
    "data_dir=data",
    "encoder=hashed",
    "output_dir=out",
    "divisions=2",
    "steps=5",
    "ridges=[3.0,30.0]",
    "budgets=[0.3,1.0]",
)


def test_results_of_recorded_answers_are_written(nsed: Any) -> None:
    folder(nsed.folder / "data")
    told = nsed.ok("fit-asking", *QUICK)
    assert told.rstrip().endswith("out/cost.json")
    assert [f"broker, seed {seed}: ridge" in told for seed in range(3)] == [True, True, False]
    out = nsed.folder / "out"
    found = read_json(out / "cost.json")
    assert (out / "cost.png").read_bytes().startswith(b"\x89PNG")
    assert set(found["curves"]) == {"tuned broker", "static best-k", "static best subset", "random-k", "oracle"}
    for points in found["curves"].values():
        assert [p["budget"] for p in points] == [0.3, 1.0]
        assert all(0 <= p["accuracy"]["mean"] <= 1 for p in points)
    best = [p["accuracy"]["mean"] for p in found["curves"]["oracle"]]
    assert all(p["accuracy"]["mean"] <= best[1] for p in found["curves"]["tuned broker"])
    for share in ("0.30", "1.00"):
        broker = LearnedBroker.from_pretrained(out / "broker" / f"{share}.safetensors")
        assert (broker.rounds, broker.one_by_one, broker.dim) == (len(broker.agents), True, 0)
        cell = ConsensusCell.from_pretrained(out / "broker/cell", agents=broker.agents)
        assert cell.dim == 64


def test_what_is_used_may_learn_from_all_tasks(nsed: Any) -> None:
    folder(nsed.folder / "data")
    quick = "data_dir=data", "encoder=hashed", "divisions=1", "steps=5", "budgets=[0.5]"
    nsed.ok("fit-asking", *quick, "output_dir=first", "refit=false")
    nsed.ok("fit-asking", *quick, "output_dir=whole")
    files = [nsed.folder / name / "broker/0.50.safetensors" for name in ("first", "whole")]
    assert files[0].read_bytes() != files[1].read_bytes()


def test_the_saved_broker_decides_live_as_on_the_recorded_answers(nsed: Any) -> None:
    """From recorded answers to files, with which the same agents are asked of the same team."""
    recorded = folder(nsed.folder / "data")
    told = nsed.ok(
        "fit-asking", "data_dir=data", "encoder=hashed", "divisions=1", "output_dir=out", "budgets=[0.4]", "steps=20"
    )
    out = nsed.folder / "out/broker"
    assert f"broker=learned broker.learned={out}/SHARE.safetensors cell={out}/cell rounds=8\n" in told
    broker = LearnedBroker.from_pretrained(out / "0.40.safetensors")
    team = recorded.select(range(len(recorded)), [recorded.agents.index(name) for name in broker.agents])
    cell = ConsensusCell.from_pretrained(out / "cell", agents=broker.agents)
    macro = MacroRNNCell(ensemble_of(team), HashedEncoder(64), cell, answers=GradersAnswers(AnswerGrader()))
    live = MacroRNN(macro, halting=FixedHalting(3), broker=BudgetBroker(learned=broker))
    with torch.no_grad():
        transcripts = live(team.tasks).transcripts
    outcome = replay(broker, cell, without_questions(Rounds.of(recorded_episodes(team, HashedEncoder(64)))))
    assert 1 < float(outcome.asked.sum(1).double().mean()) < 3
    for i, transcript in enumerate(transcripts):
        last = transcript.rounds[-1]
        assert set(last.proposers) == {broker.agents[a] for a in outcome.asked[i].nonzero()[:, 0].tolist()}
        winner = team.agents.index(last.proposers[last.winner or 0])
        assert bool(team.correct[i, winner]) == bool(outcome.right[i])
        assert transcript.stop_reason in {"broker", "rounds"}


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["budgets=[]"], "expected budgets above 0, got []"),
        (["pool=11"], "expected a pool of 1 to 10 agents and steps above 0, got 11 and 5"),
        (["data_dir="], "pass data_dir=DIR"),
        (["data_dir=[data,data]"], "expected one folder of recorded answers, got 2 folders: nsed fit-broker learns"),
        ([], "expected parameters_b of every agent, got none of large: choose others by agents or max_parameters_b"),
    ],
)
def test_faults_are_one_line(nsed: Any, overrides: list[str], fault: str) -> None:
    folder(nsed.folder / "data", parameters=False)
    assert fault in nsed.fault("fit-asking", *QUICK, *overrides)
