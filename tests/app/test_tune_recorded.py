"""`nsed tune` on recorded multiple choice: the field's rules, trust that reads, sets of answers, several folders."""

import json
import random

import pytest

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.parts.conformal import ConformalSets
from nsed_torch.records.files import read_json

QUICK = ["divisions=2", "training.epochs=3", "training.firmness=[10.0]"]


def write(folder, tasks, seed, agents=("ant", "bee", "cat")):
    """Agents state their answer in words where they are right, and mumble where they are wrong; law is bee's."""
    draw = random.Random(seed)
    (folder / "answers").mkdir(parents=True)
    questions, lines = [], {name: [] for name in agents}
    for i in range(tasks):
        category = draw.choice(["law", "physics"])
        question = f"Which of {i}?\nA. one\nB. two\nC. three"
        questions.append({"id": f"q{i}", "question": question, "target": "B", "category": category})
        for name, rows in lines.items():
            right = draw.random() < (0.9 if name == "bee" and category == "law" else 0.45)
            letter = "B" if right else draw.choice("AC")
            stated = right == (draw.random() < 0.9)
            text = f"Clearly two. The answer is ({letter})." if stated else f"Perhaps {letter}, hm"
            rows.append({"id": f"q{i}", "output": text, "answer": letter, "correct": right})
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    for name, rows in lines.items():
        (folder / "answers" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("NSED_CACHE", str(tmp_path / "cache"))
    return write(tmp_path / "choices", 200, 0)


def test_rules_of_the_field_stand_in_the_same_table(nsed, data):
    rules = "rules=[best_by_category,log_odds,plurality]"
    out = nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", rules, *QUICK)
    metrics = read_json(nsed.folder / "out/metrics.json")
    assert (
        metrics["methods"]["best_by_category"]["accuracy"]["n"]
        == metrics["methods"]["consensus_tuned"]["accuracy"]["n"]
    )
    assert "log_odds" in metrics["paired"]
    assert out.count("plurality") == 1
    assert "log_odds: " in out
    assert "fallback" not in metrics["methods"]  # everybody answers


def test_a_category_is_never_in_fit_and_test(nsed, data):
    """What law has taught is of no use to physics, nor the other way round; gaps are filled beside it."""
    path = data / "answers/ant.jsonl"
    path.write_text(path.read_text().replace('"answer": "C"', '"answer": ""'))
    words = "folds.by=category", "fractions=[0.5,0,0.5]", "refit=false", "rules=[best_by_category]"
    nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", *words, *QUICK)
    kinds = {q["id"]: q["category"] for q in map(json.loads, (data / "questions.jsonl").read_text().splitlines())}
    tested = [read_json(nsed.folder / f"out/seed_{i}/result.json")["scores"] for i in range(2)]
    found = [{kinds[task] for task in scores["consensus_tuned"]} for scores in tested]
    assert sorted(map(sorted, found)) == [["law"], ["physics"]]
    assert all(scores["best_by_category"] == scores["best_single"] for scores in tested)
    assert all(sum(scores["fallback"].values()) >= sum(scores["best_single"].values()) for scores in tested)


def test_trust_that_reads_learns_who_states_what_it_knows(nsed, data):
    nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=plain", *QUICK)
    nsed.ok(
        "tune", f"data_dir={data}", "encoder=hashed", "output_dir=reads", "reading=[text]", "categories=true", *QUICK
    )
    plain, reads = (read_json(nsed.folder / name / "metrics.json")["methods"] for name in ("plain", "reads"))
    assert reads["consensus_tuned"]["accuracy"]["mean"] > plain["consensus_tuned"]["accuracy"]["mean"] + 0.1
    cell = ConsensusCell.from_pretrained(nsed.folder / "reads/cell")
    assert cell.reading.categories == ("law", "physics")
    assert cell.reading.features[0] == "stated"
    assert cell.reading.category[1, 0] > cell.reading.category[1, 1]
    (cached,) = (nsed.folder / "cache/features").iterdir()
    before = cached.stat().st_mtime_ns
    nsed.ok(
        "tune", f"data_dir={data}", "encoder=hashed", "output_dir=again", "reading=[text]", "categories=true", *QUICK
    )
    assert cached.stat().st_mtime_ns == before
    assert read_json(nsed.folder / "again/metrics.json")["methods"]["consensus_tuned"] == reads["consensus_tuned"]


def test_sets_are_calibrated_and_stand_beside_the_cell(nsed, data):
    out = nsed.ok(
        "tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", "coverage=0.8", "by_category=true", *QUICK
    )
    assert "sets of answers, promised 80%" in out
    found = read_json(nsed.folder / "out/metrics.json")["sets"]
    assert found["covered"]["mean"] >= 0.7
    assert set(found["by_category"]) == {"law", "physics"}
    assert found["surest"]["1"]["mean"] == pytest.approx(found["accuracy"]["mean"])
    assert ConformalSets.from_pretrained(nsed.folder / "out/cell").coverage == 0.8
    nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", *QUICK)
    assert not (nsed.folder / "out/cell/conformal.safetensors").exists()


def test_several_folders_are_compared_one_by_one(nsed, data, tmp_path):
    other = write(tmp_path / "others", 60, 1, agents=("dog", "eel", "fox", "gnu"))
    nsed.ok("tune", f"data_dir=[{data},{other}]", "encoder=hashed", "output_dir=out", *QUICK)
    for name, agents in (("choices", 3), ("others", 4)):
        assert len(read_json(nsed.folder / "out" / name / "metrics.json")["agents"]) == agents


def test_a_team_is_held_against_others(nsed, data):
    nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", "agents=[ant,bee]", "against=[cat]", *QUICK)
    metrics = read_json(nsed.folder / "out/metrics.json")
    assert metrics["agents"] == ["ant", "bee"]
    assert metrics["methods"]["cat"]["accuracy"]["n"] == metrics["methods"]["consensus_tuned"]["accuracy"]["n"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["rules=[magic]"], "rules: expected names out of best_single, "),
        (
            ["reading=[tone]"],
            "features: expected groups out of text, support, answer, letter, option, meaning, got tone",
        ),
        (["folds.by=author"], "folds.by: expected question or category, got 'author'"),
        (["coverage=1.5"], "coverage: expected a share in (0, 1), got 1.5"),
        (["consensus.pooling=median"], "expected pooling to be mean, sum or logsumexp, got 'median'"),
        (["against=[yak]"], "expected agents out of ant, bee, cat, got yak"),
    ],
)
def test_faults_are_one_line(nsed, data, overrides, words):
    assert words in nsed.fault("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", *overrides, *QUICK)
