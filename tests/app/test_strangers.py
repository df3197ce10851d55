"""A gate and a vote of the user's own, named by `_target_`: tuned, swept, saved, and deliberated with."""

import json
import random

import pytest
import strangers

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.records.files import read_json

GATE = "consensus.gate={_target_: strangers.Gate, patience: 3.0}"
VOTE = "consensus.vote={_target_: strangers.Vote}"


@pytest.fixture
def allowed(monkeypatch):
    monkeypatch.setenv("NSED_TARGETS", "strangers.Gate,strangers.Vote")


QUICK = "encoder=hashed", "waves=3", "divisions=1", "training.epochs=2", "optimizer=adam", "training.frozen=[]"


@pytest.fixture
def data(tmp_path):
    """Recorded answers of three to forty questions."""
    draw, folder = random.Random(0), tmp_path / "data"
    (folder / "answers").mkdir(parents=True)
    asked = [{"id": f"q{i}", "question": f"How much is {i} + {i}?", "target": str(2 * i)} for i in range(40)]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    for agent in ("ant", "bee", "cat"):
        said = [(row["id"], str(int(row["target"]) + draw.choice((0, 0, 1)))) for row in asked]
        rows = [{"id": i, "output": text, "answer": text, "correct": int(text) % 2 == 0} for i, text in said]
        (folder / "answers" / f"{agent}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_they_are_tuned_saved_and_loaded_into_what_is_given(nsed, data, allowed):
    nsed.ok("tune", f"data_dir={data}", "output_dir=out", GATE, VOTE, *QUICK, "refit=false")
    gate = strangers.Gate()
    cell = ConsensusCell.from_pretrained(nsed.folder / "out/cell", gate=gate, vote=strangers.Vote())
    assert cell.gate is gate
    assert gate.patience.item() == pytest.approx(3, abs=0.5)
    assert read_json(nsed.folder / "out/metrics.json")["tasks"] == 40
    with pytest.raises(ValueError, match="never imported"):
        ConsensusCell.from_pretrained(nsed.folder / "out/cell")


def test_a_sweep_holds_one_against_none(nsed, data, allowed):
    nsed.ok(
        "tune", "-m", f"data_dir={data}", "output_dir=sweep", "consensus.gate=none,{_target_: strangers.Gate}", *QUICK
    )
    methods = read_json(nsed.folder / "sweep/sweep.json")["methods"]
    assert list(methods) == ["consensus.gate=none", "consensus.gate={_target_:strangers.Gate}"]


def test_a_team_deliberates_with_them_fresh_and_tuned(nsed, allowed):
    _, transcript = nsed.deliberate("How much is 2 + 3?", "rounds=2", GATE, VOTE)
    (agents,) = {tuple(turn["proposers"]) for turn in transcript["rounds"]}
    for turn in transcript["rounds"]:
        for i, row in enumerate(turn["ratings"]):
            said = [2 * rating if rating is not None else 0 for rating in row]
            assert turn["ballots"][i] == pytest.approx(said)
    kept = [slot["gate"] for slot in transcript["rounds"][1]["memory"] if slot["round"] == 1]
    assert kept
    assert all(0.8 < factor < 1 for factor in kept)
    ConsensusCell(64, 3, gate=strangers.Gate(-30.0), vote=strangers.Vote()).save_pretrained(
        nsed.folder / "cell", agent_names=agents
    )
    _, tuned = nsed.deliberate("How much is 2 + 3?", "rounds=2", "cell=cell", GATE, VOTE, folder="tuned")
    assert tuned["rounds"][0]["ratings"] == transcript["rounds"][0]["ratings"]
    assert all(slot["gate"] < 1e-9 for slot in tuned["rounds"][1]["memory"] if slot["round"] == 1)
    assert "never imported" in nsed.fault("deliberate", *nsed.tiny, "Why?", "cell=cell")


def test_what_nobody_allowed_is_refused(nsed, data):
    assert "strangers.Gate" in nsed.fault("tune", f"data_dir={data}", GATE, *QUICK)
    assert "strangers.Gate" in nsed.fault("deliberate", *nsed.tiny, "Why?", GATE)
