"""Questions from a file or from Python."""

import json

import pytest

from nsed_torch import Task, tasks


def test_from_a_file_from_python_and_from_tasks(tmp_path):
    rows = [{"id": f"q{i}", "question": f"{i} + 1?", "target": str(i + 1)} for i in range(10)]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    from_file, from_python = tasks(str(tmp_path / "own.jsonl")), tasks(rows)
    assert from_file.tasks == from_python.tasks == tasks(from_file.tasks).tasks
    assert [v.score for v in from_python.verdicts([(from_python.tasks[0], "1"), (from_python.tasks[0], "2")])] == [1, 0]
    assert tasks([{"question": "1 + 1?", "target": 2}], prompt="In digits.").tasks == (
        Task("1 + 1?\n\nIn digits.", "question-1", "2"),
    )


def test_a_split_parts_questions_by_seed_and_keeps_epochs_together():
    asked = tasks([{"question": f"{i}?", "target": str(i)} for i in range(20)]).repeated(2)
    train, test = asked.split(0.8, seed=0)
    assert (len(train), len(test)) == (32, 8)
    assert {train.group(t) for t in train.tasks}.isdisjoint({test.group(t) for t in test.tasks})
    assert train.tasks == asked.split(0.8, seed=0)[0].tasks != asked.split(0.8, seed=1)[0].tasks
    for share in (0, 1, 0.01, -1, 7):
        with pytest.raises(ValueError, match="split: expected a share that leaves both parts a question"):
            asked.split(share)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ([], "tasks: expected one question or more, got none"),
        ([{"question": "1?"}], "tasks: question 1: expected an object with question and answer"),
        ([{"question": 1, "target": "1"}], "tasks: question 1: question: expected a text, got 1"),
        ([{"question": "1?", "target": "1", "answer": "1"}], "question 1: expected .*, got a target and an answer"),
        ([{"question": "1?", "target": "1", "step": "1"}], "question 1: expected .*, got step too: correct it"),
        ([Task("1?", "a", "1"), Task("2?", "a", "1")], "tasks: expected different ids, got"),
        (["1?"], "question 1: expected .*, got '1\\?': correct it"),
        ("nowhere.jsonl", "nowhere.jsonl"),
    ],
)
def test_what_is_no_question_is_one_line(source, line):
    with pytest.raises((ValueError, OSError), match=line) as caught:
        tasks(source)
    assert "\n" not in str(caught.value)


def test_what_a_person_would_say_of_words_lists_and_units():
    rows = [("Paris", "The capital is Paris."), ("mother", "Mother"), ("star, moon", "star, moon"), ("5 km", "5000 m")]
    rows += [("5 km", "5 m"), ("Paris", "Rome"), ("star, moon", "moon, star")]
    own = tasks([{"question": "?", "target": target} for target, _ in rows])
    answers = [(task, own.grader.extract(task, text)) for task, (_, text) in zip(own.tasks, rows, strict=True)]
    assert [verdict.score for verdict in own.verdicts(answers)] == [1, 1, 1, 0, 0, 0, 0]
    assert own.identity["kinds"] == {"list": 2, "number": 2, "text": 3}
