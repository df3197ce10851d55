"""What a run folder comes to on its page, counted by hand."""

import dataclasses
import json

import pytest
from report_pages import example, outcome, trace

from nsed_torch.evaluation.overview import WITHHELD, MethodRow, Run, TaskEntry, method_rows
from nsed_torch.evaluation.statistics import Estimate
from nsed_torch.records import Verdict

RESULTS = {
    "benchmark": {"name": "digits"},
    "reference": "deliberation",
    "methods": {
        "deliberation": {
            "n": 40,
            "accuracy": {"mean": 0.625, "low": 0.458, "high": 0.773},
            "tokens_per_task": 1723.0,
            "usage": {"calls": 480, "price": 0.024},
        },
        "single:Ben": {"n": 40, "accuracy": {"mean": 0.5, "low": None, "high": None}, "tokens_per_task": 151.5},
    },
    "paired": {"single:Ben": {"difference": {"mean": 0.125, "low": -0.03, "high": 0.28}, "p": 0.18, "p_holm": 0.36}},
}


def write(folder, traces=(), outcomes=(), results=None):
    folder.mkdir(exist_ok=True)
    for name, lines in {"traces.jsonl": traces, "outcomes.jsonl": outcomes}.items():
        if lines:
            (folder / name).write_text("".join(line.to_line() for line in lines), encoding="utf-8")
    if results is not None:
        (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


def test_methods_are_rows():
    assert method_rows(RESULTS) == [
        MethodRow("deliberation", 40, Estimate(0, 0.625, 0.458, 0.773), None, None, 1723.0, 0.024),
        MethodRow("single:Ben", 40, Estimate(0, 0.5), Estimate(0, 0.125, -0.03, 0.28), 0.36, 151.5, None),
    ]


@pytest.mark.parametrize(
    ("results", "rows"),
    [
        ({}, []),
        ({"methods": ["deliberation"]}, []),
        ({"methods": {"a": None}, "paired": []}, [MethodRow("a", None, None)]),
        ({"methods": {"a": {"n": "many", "accuracy": {"low": 0.1}, "usage": 3}}}, [MethodRow("a", None, None)]),
        ({"methods": {"a": {"n": True, "accuracy": 0.5}}}, [MethodRow("a", None, Estimate(0, 0.5))]),
        (
            {"methods": {"a": {}}, "paired": {"a": {"mean": 0.1, "low": 0.0, "high": 0.2, "p": 0.5}}},
            [MethodRow("a", None, None, Estimate(0, 0.1, 0.0, 0.2), 0.5)],
        ),
    ],
)
def test_what_is_missing_or_strange_is_left_out(results, rows):
    assert method_rows(results) == rows


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
    entry = TaskEntry("one", trace("one", True, False), (outcome("debate", "one", Verdict.RIGHT, "Because 71.", "71"),))
    hidden = entry.withheld()
    kept = json.dumps(dataclasses.asdict(hidden), ensure_ascii=False)
    transcript = example()
    secrets = [transcript.task.question, transcript.answer, "Because 71."]
    secrets += [p.text for turn in transcript.rounds for p in turn.proposals if p.text]
    secrets += [c.text for turn in transcript.rounds for c in turn.critiques]
    secrets += [slot.text for turn in transcript.rounds for slot in turn.memory]
    assert not [text for text in secrets if json.dumps(text, ensure_ascii=False)[1:-1] in kept]
    assert hidden.trace.transcript.task.target == hidden.outcomes[0].answer == WITHHELD
    assert (hidden.curve, hidden.verdict, hidden.tokens) == (entry.curve, entry.verdict, entry.tokens)


def test_an_evaluation_is_read_whole(tmp_path):
    outcomes = [outcome("deliberation", name, Verdict.RIGHT) for name in ("one", "two", "three")]
    folder = write(tmp_path / "run", [trace("two", True, False), trace("one", True, True)], outcomes, RESULTS)
    (folder / "plots").mkdir()
    (folder / "plots/cost_accuracy.png").write_bytes(b"\x89PNG")
    run = Run.load(folder)
    assert [entry.name for entry in run.tasks] == ["two", "one", "three"]
    assert [entry.trace is None for entry in run.tasks] == [False, False, True]
    assert run.plots == [("cost accuracy", "data:image/png;base64,iVBORw==")]
    assert (run.title, run.strata, run.hidden) == ("digits: 3 tasks", ["sums"], False)
    assert [(tag, count) for tag, _, count in run.filters] == [
        ("right", 3),
        ("wrong", 0),
        ("lost", 1),
        ("won", 0),
        ("disagree", 2),
    ]
    assert set(run.remarks) == {"benchmark"}


def test_collected_traces_are_counted(tmp_path):
    folder = write(tmp_path / "run", [trace("one", True, False)])
    run = Run.load(folder)
    shares = {row.name: (row.n, row.accuracy.mean) for row in run.methods}
    assert shares["answer after round 1"] == (1, 1.0)
    assert shares["answer after round 3"] == (1, 0.0)
    assert shares["oracle, any proposal"] == (1, 1.0)
    assert (run.title, run.about) == ("1 task", {})
    (folder / "collect.json").write_text('{"seed": 3, "withheld": true}')
    assert (Run.load(folder).remarks, Run.load(folder).hidden) == ({"seed": 3, "withheld": True}, True)


def test_a_blank_question_hides_every_text():
    found = trace("one", True, True)
    object.__setattr__(found.transcript.task, "question", "")
    assert Run({}, [], [TaskEntry("one", found)], []).hidden


def test_a_broken_outcome_is_named(tmp_path):
    folder = write(tmp_path / "run", outcomes=[outcome("debate", "one", Verdict.RIGHT)])
    with (folder / "outcomes.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(ValueError, match=r"outcomes\.jsonl:2: not an outcome"):
        Run.load(folder)
