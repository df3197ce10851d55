"""A family of a user's own, from a file to a team's table: what the page shows, as it stands, with a tiny model."""

import json
import runpy
import shlex

import pytest
from pages import ROOT, commands, files

from nsed_torch import tasks
from nsed_torch.records.files import read_json

PAGE = ROOT / "docs" / "steps_and_reading.md"
SMALL = ("training.steps=1", "training.batch=2", "adapter.rank=2", "max_new_tokens=2", "examples=4")


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The files that the page shows, where they belong, and its commands about them."""
    monkeypatch.chdir(tmp_path)
    shown = {name: text for name, text in files(PAGE).items() if "coins" in name}
    for name, text in shown.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    runpy.run_path("coins.py")
    return [list(command) for command in commands(PAGE) if "coins" in shlex.join(command)]


def test_the_page_s_commands_run_from_a_file_to_a_table(nsed, page, tiny_model, tmp_path):
    python, learn, compare = page
    assert python == ["python", "-m", "coins"]
    lines = (tmp_path / "coins_test.jsonl").read_text().splitlines()
    (tmp_path / "coins_test.jsonl").write_text("\n".join(lines[:6]) + "\n")
    lessons = (tmp_path / "coins.jsonl").read_text().splitlines()
    (tmp_path / "coins.jsonl").write_text("\n".join(lessons[:20]) + "\n")
    tiny = [f"backbone.weights.path={tiny_model}", "backbone.device=cpu", "backbone.dtype=float32"]
    nsed.ok(*learn[1:], *tiny, *SMALL)
    data = [read_json(tmp_path / "runs" / "forms" / str(i) / "metrics.json")["data"] for i in range(3)]
    assert {d["learns"] for d in data} == {"to write the next step"}
    assert [d.get("form", "plain") for d in data] == ["plain", "placed", "counted"]
    own = ["rounds=2", "limit=2", f"ensemble.engines.smollm2.weights.path={tiny_model}"]
    out = nsed.ok(*compare[1:], *own)
    assert "wrong steps, of those whose work was right: plain " in out
    results = read_json(tmp_path / "runs" / "coins" / "results.json")
    assert set(results["insight"]["steps"]["wrong"]) == {"plain", "placed", "counted", "the vote"}
    (trace, _) = map(json.loads, (tmp_path / "runs" / "coins" / "traces.jsonl").read_text().splitlines())
    assert trace["settings"]["unit"] == "step"


def test_what_the_page_makes_is_a_family(page, tmp_path):
    lessons, test = tasks("coins.jsonl"), tasks("coins_test.jsonl")
    assert {t.question for t in lessons.tasks}.isdisjoint({t.question for t in test.tasks})
    (task,) = [t for t in (*lessons.tasks, *test.tasks) if t.start == "67 left"]
    known = lessons if task in lessons.tasks else test
    assert known.chain(task) == (
        *("17 left, paid 50", "7 left, paid 50 10", "2 left, paid 50 10 5", "0 left, paid 50 10 5 2"),
        "Answer: 50 10 5 2",
    )


MADE = """
import nsed_torch

def made(size, seed):
    rows = [{"id": f"{seed}-{i}", "question": f"{seed + i} + 1?", "answer": seed + i + 1} for i in range(size)]
    return nsed_torch.tasks(rows)
"""

READ = {
    "question": "Who?",
    "inputs": ["It was Ada. It rained.", "It was dry."],
    "answer": "Ada",
    "needed": ["It was Ada."],
}
HOPS = {"question": "1 + 2 + 3?", "answer": 6}
HOPS["hops"] = [{"subtask": "1 + 2?", "reply": 3, "kind": "sums"}, {"subtask": "Add 3.", "reply": 6}]


@pytest.mark.parametrize(
    ("row", "learns", "tested"),
    [
        (READ, "to note what matters and to answer from notes", "notes, all"),
        (HOPS, "to answer, and to do a step of a workflow", "hop: sums"),
    ],
    ids=["reading", "workflows"],
)
def test_readings_and_workflows_of_a_file_are_learned(nsed, tiny_model, tmp_path, row, learns, tested):
    tiny = [f"backbone.weights.path={tiny_model}", "backbone.device=cpu", "backbone.dtype=float32"]
    rows = [{**row, "id": str(i), "question": f"{i}: {row['question']}"} for i in range(12)]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    nsed.ok("specialize", "questions=own.jsonl", *tiny, *SMALL, "output_dir=out")
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert metrics["data"]["learns"] == learns
    assert tested in metrics["held_out"]
    fault = nsed.fault("specialize", "questions=own.jsonl", "form=placed", *tiny, "output_dir=other")
    assert "expected form=plain where no steps are known, got placed" in fault


def test_a_generator_makes_lessons_and_others_to_test_on(nsed, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("NSED_TARGETS", "family_of_mine.made")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "family_of_mine.py").write_text(MADE)
    (tmp_path / "mine" / "tasks").mkdir(parents=True)
    (tmp_path / "mine" / "tasks" / "sums.yaml").write_text("_target_: family_of_mine.made\nsize: 5\nseed: 0\n")
    tiny = [f"backbone.weights.path={tiny_model}", "backbone.device=cpu", "backbone.dtype=float32"]
    own = ["--config-dir", "mine", "tasks=sums", "held_out=3", "seeds={train: 0, held_out: 100}", "avoid={2: 1, 3: 0}"]
    nsed.ok("specialize", *own, *tiny, *SMALL, "output_dir=out")
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert (metrics["examples"], metrics["held_out"]["all"]["n"]) == (3, 3)  # one of four is to be avoided
