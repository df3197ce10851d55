"""Recorded answers: aligned, masked, filtered, and faults that name file and line."""

import gzip
import json
import math
import os
from pathlib import Path

import pytest
import torch
from polls import plurality

from nsed_torch.traces import recorded
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.recorded import RecordedAnswers, load_recorded, read_tasks

QUESTIONS = [{"id": f"q{i}", "question": f"How much is {i} + {i}?", "target": str(2 * i)} for i in range(4)]


def line(i, answer, correct, output=None):
    return {
        "id": f"q{i}",
        "output": f"it is {answer}" if output is None else output,
        "answer": answer,
        "correct": correct,
    }


ANSWERS = {
    "ant": [line(0, "0", True), line(1, "2", True), line(2, "4", True)],
    "bee": [line(3, "6.0", True), line(1, "$2", True), line(0, "1", False), line(2, None, False, "no idea")],
    "cat": [line(0, "0.0", True), line(1, "3", False), line(2, "  ", False), line(3, 6, True)],
}
FACTS = {"ant": {"parameters_b": 2.0}, "bee": {"parameters_b": 8}, "cat": {"parameters_b": None}}


def write(path: Path, records, packed=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.with_name(path.name + ".gz" * packed).write_bytes(gzip.compress(data) if packed else data)


@pytest.fixture
def folder(tmp_path) -> Path:
    write(tmp_path / "questions.jsonl", QUESTIONS)
    for name, records in ANSWERS.items():
        write(tmp_path / "answers" / f"{name}.jsonl", records)
    (tmp_path / "agents.json").write_text(json.dumps(FACTS))
    return tmp_path


def test_a_category_comes_with_the_questions_that_have_one(folder):
    assert [task.category for task in load_recorded(folder).tasks] == [None] * 4
    write(folder / "questions.jsonl", [q | {"category": "sums"} if i else q for i, q in enumerate(QUESTIONS)])
    assert [task.category for task in load_recorded(folder).tasks] == [None, "sums", "sums", "sums"]
    assert read_tasks(folder / "questions.jsonl") == load_recorded(folder).tasks


def test_a_text_of_which_the_end_was_kept_has_its_whole_length(folder):
    long = [ANSWERS["ant"][0] | {"characters": 400}, *ANSWERS["ant"][1:]]
    write(folder / "answers/ant.jsonl", long)
    recorded = load_recorded(folder)
    assert recorded.lengths[:2, 0].tolist() == [400, len("it is 2")]
    assert recorded.select([1, 0]).tokens[:, 0].tolist() == [len("it is 2") / 4, 100]
    write(folder / "answers/ant.jsonl", [long[0] | {"characters": "many"}])
    with pytest.raises(ValueError, match=r"ant.jsonl:1: expected characters to be a whole number of at least 0"):
        load_recorded(folder)


def test_arrays_are_aligned_and_what_is_missing_is_masked(folder):
    recorded = load_recorded(folder)
    assert recorded.agents == ("ant", "bee", "cat")
    assert [(task.id, task.target) for task in recorded.tasks] == [("q0", "0"), ("q1", "2"), ("q2", "4"), ("q3", "6")]
    assert recorded.tasks[1].question == "How much is 1 + 1?"
    assert recorded.answers == (("0", "1", "0.0"), ("2", "$2", "3"), ("4", None, None), (None, "6.0", "6"))
    assert recorded.answered.tolist() == [[True] * 3, [True] * 3, [True, False, False], [False, True, True]]
    assert recorded.correct.tolist() == [
        [True, False, True],
        [True, True, False],
        [True, False, False],
        [False, True, True],
    ]
    assert recorded.outputs[2:] == (("it is 4", "no idea", "it is   "), ("", "it is 6.0", "it is 6"))
    assert recorded.parameters[:2].tolist() == [2.0, 8.0]
    assert recorded.parameters[2:].isnan().all()
    # 7 characters of a 2-billion model, estimated at 4 a token.
    assert recorded.cost[0, 0].item() == 2.0 * 7 / 4
    assert recorded.cost[3].tolist()[:2] == [0.0, 8.0 * 9 / 4]
    assert math.isnan(recorded.cost[0, 2].item())


def test_compressed_files_are_the_same_files(folder, tmp_path_factory):
    packed = tmp_path_factory.mktemp("packed")
    write(packed / "questions.jsonl", QUESTIONS, packed=True)
    for name, records in ANSWERS.items():
        write(packed / "answers" / f"{name}.jsonl", records, packed=True)
    one, other = load_recorded(folder), load_recorded(packed)
    assert one.digest == other.digest
    assert one.answers == other.answers
    assert other.parameters.isnan().all()
    changed = [*ANSWERS["cat"][:-1], line(3, 7, False)]
    write(packed / "answers" / "cat.jsonl", changed, packed=True)
    assert load_recorded(packed).digest != one.digest


def test_agents_can_be_chosen_by_name_and_size(folder):
    chosen = load_recorded(folder, agents=["cat", "ant"])
    assert chosen.agents == ("cat", "ant")
    assert chosen.answers[1] == ("3", "2")
    assert load_recorded(folder, max_parameters_b=8).agents == ("ant", "bee")
    assert load_recorded(folder, agents=["cat", "bee"], max_parameters_b=10).agents == ("bee",)
    assert chosen.digest != load_recorded(folder, agents=["ant", "cat"]).digest


def test_a_selection_equals_reading_that_much(folder):
    part, chosen = (
        load_recorded(folder).select(torch.tensor([2, 0]), [2, 0]),
        load_recorded(folder, agents=["cat", "ant"]),
    )
    assert [task.id for task in part.tasks] == ["q2", "q0"]
    assert len(part) == 2
    assert part.agents == chosen.agents
    assert part.answers == (chosen.answers[2], chosen.answers[0])
    assert part.outputs == (chosen.outputs[2], chosen.outputs[0])
    for name in ("correct", "answered", "tokens"):
        assert torch.equal(getattr(part, name), getattr(chosen, name)[[2, 0]])
    torch.testing.assert_close(part.parameters, chosen.parameters, equal_nan=True)


def test_blank_lines_numbers_as_ids_and_foreign_ids_are_tolerated(folder):
    write(folder / "questions.jsonl", [{"id": 7, "question": "Q?", "target": 3}])
    (folder / "answers" / "ant.jsonl").write_text(
        '\n{"id": 7, "output": null, "answer": 3.5, "correct": 0, "seconds": 2}\n\n'
        '{"id": "elsewhere", "output": "", "answer": "", "correct": true}\n'
    )
    recorded = load_recorded(folder, agents=["ant"])
    assert (recorded.tasks[0].id, recorded.tasks[0].target) == ("7", "3")
    assert (recorded.answers, recorded.outputs) == ((("3.5",),), (("",),))


BAD_LINES = [
    ('{"id": "q1", ', "ant.jsonl:2: not valid JSON"),
    ("[" * 100_000, "ant.jsonl:2: not valid JSON"),
    ("[1]", "ant.jsonl:2: expected an object with id, output, answer, correct, got [1]"),
    ('{"id": "q1", "output": "", "answer": "2"}', "ant.jsonl:2: expected an object with id, output, answer, correct"),
    (
        '{"id": "q0", "output": "", "answer": "2", "correct": true}',
        "ant.jsonl:2: expected every id once, got 'q0' again",
    ),
    ('{"id": null, "output": "", "answer": "2", "correct": true}', "ant.jsonl:2: expected an id"),
    (
        '{"id": "q1", "output": "", "answer": "2", "correct": "yes"}',
        "ant.jsonl:2: expected correct to be true or false",
    ),
    ('{"id": "q1", "output": "", "answer": "2", "correct": []}', "ant.jsonl:2: expected correct to be true or false"),
    ('{"id": "q1", "output": "", "answer": ["2"], "correct": true}', "ant.jsonl:2: expected a text, a number or null"),
]


@pytest.mark.parametrize(("text", "message"), BAD_LINES)
def test_a_broken_line_is_named(folder, text, message):
    (folder / "answers" / "ant.jsonl").write_text(json.dumps(ANSWERS["ant"][0]) + "\n" + text + "\n")
    with pytest.raises(ValueError, match=r"ant\.jsonl:2") as error:
        load_recorded(folder)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "questions.jsonl").unlink(), "questions.jsonl.gz, got none; check data_dir"),
        (lambda f: (f / "questions.jsonl").write_text(""), "expected questions, got an empty file"),
        (lambda f: write(f / "questions.jsonl", [{"id": "q", "question": " ", "target": ""}]), "questions.jsonl:1: "),
        (lambda f: write(f / "questions.jsonl", [{"id": "q", "question": 5, "target": ""}]), "questions.jsonl:1: "),
        (lambda f: write(f / "answers" / "ant.jsonl", ANSWERS["ant"], packed=True), "expected one file of agent 'ant'"),
        (
            lambda f: (f / "answers" / "ant.jsonl").write_text(""),
            "expected answers to some of the 4 questions, got none",
        ),
        (lambda f: (f / "answers" / "new.jsonl.gz").write_text("no gzip"), "new.jsonl.gz: cannot be read"),
        (lambda f: (f / "answers" / "new.jsonl.gz").write_bytes(gzip.compress(b"{}" * 99)[:-9]), "cannot be read"),
        (lambda f: (f / "agents.json").write_text("[]"), "agents.json: expected {agent: {parameters_b}}"),
        (
            lambda f: (f / "agents.json").write_text('{"ant": {"parameters_b": "1"}}'),
            "ant.parameters_b: expected a number of at least 0",
        ),
        (lambda f: (f / "agents.json").write_text("{"), "agents.json: not valid JSON"),
    ],
)
def test_a_broken_folder_is_explained(folder, change, message):
    change(folder)
    with pytest.raises(ValueError, match=r"expected|cannot|not valid") as error:
        load_recorded(folder)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_choices_that_cannot_be_met_are_refused(folder, tmp_path_factory):
    with pytest.raises(ValueError, match="expected agents out of ant, bee, cat, got dog"):
        load_recorded(folder, agents=["ant", "dog"])
    with pytest.raises(ValueError, match="expected every agent once, got ant, ant"):
        load_recorded(folder, agents=["ant", "ant"])
    with pytest.raises(ValueError, match=r"at most max_parameters_b=1 billion parameters, got none among 3"):
        load_recorded(folder, max_parameters_b=1)
    with pytest.raises(
        ValueError,
        match=r"expected files <agent>.jsonl or <agent>.jsonl.gz of .*, or traces.jsonl beside them, got none",
    ):
        load_recorded(tmp_path_factory.mktemp("empty"))


REFERENCE = {
    ("gsm8k", None): (44, 1319, 0.967, 0.996),
    ("math_l5", None): (43, 721, 0.893, 0.975),
    ("gsm8k", 20): (8, 1319, 0.874, 0.973),
    ("math_l5", 20): (10, 721, 0.515, 0.657),
}
PLURALITY = {("gsm8k", None): 0.970, ("gsm8k", 20): 0.923}


@pytest.mark.skipif("NSED_DATA" not in os.environ, reason="NSED_DATA names no folder with recorded answers")
@pytest.mark.parametrize(("name", "limit"), REFERENCE)
def test_real_recordings_give_their_reference_numbers(name, limit):
    recorded = load_recorded(Path(os.environ["NSED_DATA"]) / "zeroeval" / name, max_parameters_b=limit)
    agents, tasks, best, oracle = REFERENCE[name, limit]
    assert (len(recorded.agents), len(recorded)) == (agents, tasks)
    assert round(recorded.correct.double().mean(0).max().item(), 3) == best
    assert round(recorded.correct.any(1).double().mean().item(), 3) == oracle
    if (name, limit) in PLURALITY:
        assert round(_plurality(recorded), 3) == PLURALITY[name, limit]


def _plurality(recorded: RecordedAnswers) -> float:
    winner = plurality(Equality(math_verify=False).classes(recorded.answers))
    right = recorded.correct.gather(1, winner.clamp(min=0)[:, None])[:, 0] & (winner >= 0)
    return right.double().mean().item()


@pytest.mark.parametrize("name", ["", " ", "\x1b]0;owned\x07", "a\nb", "\u202e", "\udcff"])
def test_a_file_whose_name_a_terminal_would_obey_is_no_agents(folder, name):
    (folder / "answers/ant.jsonl").rename(folder / f"answers/{name}.jsonl")
    with pytest.raises(ValueError, match="expected files with printable names of agents, got '") as error:
        load_recorded(folder)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("file", ["ratings.jsonl", "ratings.jsonl.gz", "agents.json"])
@pytest.mark.parametrize("what", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)])
def test_ratings_and_sizes_that_are_no_file_are_not_passed_over(folder, file, what):
    (folder / file).unlink(missing_ok=True)
    what(folder / file)
    with pytest.raises(ValueError, match="cannot be read"):
        load_recorded(folder)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [("answers/ant.jsonl", "characters", "1" + "0" * 400), ("answers/ant.jsonl", "answer", "1e999")]
    + [("agents.json", "parameters_b", value) for value in ("1" + "0" * 400, "1e999")],
)
def test_numbers_beyond_all_floats_are_refused(folder, name, field, value):
    row = {"ant": {field: "@"}} if name == "agents.json" else ANSWERS["ant"][0] | {field: "@"}
    (folder / name).write_text(json.dumps(row).replace('"@"', value))
    with pytest.raises(ValueError, match=f"{name}.*expected "):
        load_recorded(folder)


def test_a_line_that_would_fill_the_memory_is_not_read(folder, monkeypatch):
    monkeypatch.setattr(recorded, "_LONGEST", 10_000)
    (folder / "answers/ant.jsonl").unlink()
    (folder / "answers/ant.jsonl.gz").write_bytes(gzip.compress(b" " * 30_000))
    with pytest.raises(ValueError, match=r"ant\.jsonl\.gz: expected lines of at most 10000 bytes, got a longer one"):
        load_recorded(folder)


def test_what_nobody_said_fills_no_memory(folder, monkeypatch):
    monkeypatch.setattr(recorded, "_SPARE", 0)
    write(folder / "answers/ant.jsonl", [line(0, "0", True) | {"round": number} for number in range(2)])
    assert len(load_recorded(folder).later) == 1
    monkeypatch.setattr(recorded, "_EMPTY", 1)
    with pytest.raises(ValueError, match="expected an answer for one in 1 of tasks x agents x rounds, got 24 places"):
        load_recorded(folder)


def test_many_ratings_take_no_longer_than_their_lines(folder, monkeypatch):
    write(
        folder / "ratings.jsonl",
        [{"id": f"q{i}", "round": 0, "judge": "ant", "candidate": "bee", "rating": 1} for i in (0, 1)],
    )
    tables, full = [], torch.full
    monkeypatch.setattr(torch, "full", lambda *given, **named: tables.append(given) or full(*given, **named))
    assert load_recorded(folder).ratings[:2, 0, 1].tolist() == [1, 1]
    assert len(tables) == 1
