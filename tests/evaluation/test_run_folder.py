"""What a run folder comes to on its page, counted by hand."""

import dataclasses
import json

import pytest
from report_pages import example, outcome, trace

from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.evaluation.run_folder import Run, TaskEntry
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.withholding import WITHHELD


def write(folder, traces=(), outcomes=(), results=None):
    folder.mkdir(exist_ok=True)
    for name, lines in {"traces.jsonl": traces, "outcomes.jsonl": outcomes}.items():
        if lines:
            (folder / name).write_text("".join(line.to_line() for line in lines), encoding="utf-8")
    if results is not None:
        (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


def graded():
    """Two methods on three tasks; deliberation is ahead by one."""
    return [
        outcome(method, task, Verdict.RIGHT if right else Verdict.WRONG)
        for method, rights in {"deliberation": (1, 1, 0), "single:Ben": (0, 1, 0)}.items()
        for task, right in zip(("one", "two", "three"), rights, strict=True)
    ]


@pytest.mark.parametrize(
    ("first", "last", "curve", "tags"),
    [
        (True, True, [True, True, True], ["right", "disagree"]),
        (True, False, [True, True, False], ["wrong", "lost", "disagree"]),
        (False, True, [False, False, True], ["right", "won", "disagree"]),
        (False, False, [False, False, False], ["wrong", "disagree"]),
    ],
)
def test_tags_follow_the_answer_that_stood(first, last, curve, tags):
    entry = TaskEntry("one", trace("one", first, last))
    assert (entry.curve, entry.tags) == (curve, tags)


def test_right_answers_are_one_answer_however_written():
    found = trace("one", True, True)
    agreed = dataclasses.replace(
        found, grades=[[True] * 3, *found.grades[1:]], answers=[["1/2", "0.5", ".5"], *found.answers[1:]]
    )
    assert "disagree" not in TaskEntry("one", agreed).tags
    same = dataclasses.replace(
        found, grades=[[False] * 3, *found.grades[1:]], answers=[["7", "7", "7"], *found.answers[1:]]
    )
    assert "disagree" not in TaskEntry("one", same).tags


def test_the_reference_s_verdict_stands_for_the_task():
    found = trace("one", True, True)
    graded = outcome("deliberation", "one", Verdict.TIME_LIMIT)
    assert TaskEntry("one", found, (graded,)).tags[0] == "wrong"
    not_run = outcome("deliberation", "one", Verdict.NOT_RUN)
    assert TaskEntry("one", found, (not_run,)).tags == ["disagree", "ungraded"]
    assert TaskEntry("one", found, (graded,), "plurality").verdict is Verdict.RIGHT  # no such outcome: the trace's
    assert TaskEntry("one", None, (graded,), "plurality").verdict is None


def test_single_agents_disagree_where_nobody_deliberated():
    one, two = outcome("single:a", "x", Verdict.WRONG, answer="7"), outcome("single:b", "x", Verdict.WRONG, answer="8")
    right = [outcome(f"single:{name}", "x", Verdict.RIGHT, answer=name) for name in "ab"]
    assert "disagree" in TaskEntry("x", None, (one, two)).tags
    assert "disagree" not in TaskEntry("x", None, (one, one)).tags
    assert "disagree" not in TaskEntry("x", None, tuple(right)).tags


def test_texts_that_stand_in_the_deliberation_are_found_there():
    proposals = example().rounds[2].proposals
    texts = {"deliberation": proposals[0].text, "plurality": proposals[2].text, "debate": "something else"}
    outcomes = tuple(outcome(method, "one", Verdict.WRONG, text) for method, text in texts.items())
    assert TaskEntry("one", trace("one", True, True), outcomes).sources == {
        "deliberation": "r3-p0",
        "plurality": "r3-p2",
    }


def test_withheld_tasks_keep_numbers_and_lose_texts():
    told = (outcome("debate", "one", Verdict.RIGHT, "Because 71.", "71"),)
    entry = TaskEntry("one", trace("one", True, False), told)
    (hidden,) = Run({"withheld": True}, [], [entry], []).shown().tasks
    assert hidden.outcomes[0].answer == hidden.question == WITHHELD
    assert (hidden.curve, hidden.verdict, hidden.tokens, hidden.sources) == (
        entry.curve,
        entry.verdict,
        entry.tokens,
        {},
    )
    assert Run({}, [], [entry], []).shown().tasks == [entry]


def test_an_evaluation_is_read_whole(tmp_path):
    folder = write(
        tmp_path / "run",
        [trace("two", True, False), trace("one", True, True)],
        graded(),
        {"benchmark": {"name": "digits"}, **Comparison.of(graded()).to_json()},
    )
    (folder / "plots").mkdir()
    (folder / "plots/cost_accuracy.png").write_bytes(b"\x89PNG")
    run = Run.load(folder)
    assert [entry.name for entry in run.tasks] == ["two", "one", "three"]
    assert [entry.trace is None for entry in run.tasks] == [False, False, True]
    assert [len(entry.outcomes) for entry in run.tasks] == [2, 2, 2]
    assert run.plots == [("cost accuracy", "data:image/png;base64,iVBORw==")]
    assert run.title == "digits: 3 tasks"
    assert [(tag, count) for tag, _, count in run.filters] == [
        ("right", 2),
        ("wrong", 1),
        ("lost", 1),
        ("won", 0),
        ("disagree", 2),
    ]
    assert list(run.results.methods) == ["deliberation", "single:Ben"]
    assert set(run.remarks) == {"benchmark", "level", "timings"}


def test_collected_traces_are_counted(tmp_path):
    folder = write(tmp_path / "run", [trace("one", True, False)])
    run = Run.load(folder)
    shares = {name: (row.accuracy.n, row.accuracy.mean) for name, row in run.results.methods.items()}
    assert shares["answer after round 1"] == (1, 1.0)
    assert shares["answer after round 3"] == (1, 0.0)
    assert shares["oracle, any proposal"] == (1, 1.0)
    assert (run.title, run.about) == ("1 task", {})
    (folder / "collect.json").write_text('{"seed": 3, "agents": []}')
    assert Run.load(folder).remarks == {"seed": 3}


def test_a_broken_outcome_is_named(tmp_path):
    folder = write(tmp_path / "run", outcomes=[outcome("debate", "one", Verdict.RIGHT)])
    with (folder / "outcomes.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(ValueError, match=r"outcomes\.jsonl:2: not an outcome"):
        Run.load(folder)


def test_results_that_are_no_object_leave_the_outcomes(tmp_path):
    run = Run.load(write(tmp_path / "run", outcomes=graded(), results=["no object"]))
    assert (run.about, list(run.results.methods)) == ({}, ["deliberation", "single:Ben"])
