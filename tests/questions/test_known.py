"""Families as data: what a line says besides question and answer, and what a hostile one is refused for."""

import json
import re

import pytest

from nsed_torch import Task, tasks
from nsed_torch.questions.known import Fact, Hop

STEPS = {"question": "Count to 2.", "start": "0", "steps": ["0 1", "0 1 2"], "answer": "0 1 2"}
READ = {"question": "Who?", "inputs": ["It was Ada. It rained.", {"0": "No, Bo."}], "answer": "Bo"}
HOPS = {"question": "1 + 2 + 3?", "hops": [{"subtask": "1 + 2?", "reply": 3}, {"subtask": "Add 3.", "reply": 6}]}
HOPS["answer"] = 6


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_and_python_say_the_same_of_steps_readings_and_hops(tmp_path):
    read = {**READ, "needed": [{"text": "It was Ada.", "until": 2}, "No, Bo."]}
    rows = [STEPS, read, HOPS]
    for family in (tasks(written(tmp_path / "own.jsonl", *rows)), tasks(rows)):
        step, reading, workflow = family.tasks
        assert (step.id, step.start, step.target) == ("question-1", "0", "0 1 2")
        assert family.chain(step) == ("0 1", "0 1 2", "Answer: 0 1 2")
        assert family.facts == {reading.id: (Fact("It was Ada.", 1, 2), Fact("No, Bo.", 2, None, "0"))}
        assert family.remembered(reading) == ("No, Bo.",)
        assert family.told(reading, 2, "0") == ["No, Bo."]
        assert family.hops == {workflow.id: (Hop("", "1 + 2?", "3"), Hop("", "Add 3.", "6", reads=True))}


def test_what_is_known_is_part_of_the_identity():
    other = {**STEPS, "steps": ["1", "0 1 2"]}
    assert len({tasks([row]).identity["known"] for row in (STEPS, other)}) == 2
    assert "known" not in tasks([{"question": "1?", "answer": 1}]).identity


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({**STEPS, "steps": []}, "steps: expected a list of texts, got []"),
        ({**STEPS, "steps": "0 1"}, "steps: expected a list of texts, got '0 1'"),
        ({**STEPS, "steps": ["0 1", None]}, "steps 2: expected a text or a number, got None"),
        ({**STEPS, "steps": ["0 1", " "]}, "steps 2: expected a text or a number, got ' '"),
        ({**STEPS, "steps": ["0 1", "0", "0 1 2"]}, "expected steps that all differ, got '0' twice: say what tells"),
        ({**STEPS, "steps": ["0 1", "Answer: 7"]}, "expected 'Answer: 0 1 2' as the last step, got 'Answer: 7'"),
        ({**STEPS, "steps": ["Answer: 7", "0 1"]}, "expected 'Answer:' in the last step alone, got 'Answer: 7'"),
        ({**STEPS, "start": 0}, "start: expected a text, got 0"),
        ({**STEPS, "inputs": ["x"]}, "expected steps, inputs or hops, got several of them: a task is of one kind"),
        ({**STEPS, "target": "7"}, "expected an object with question and answer, got a target and an answer"),
        ({**STEPS, "answer": {}}, "answer: expected a text or a number, got {}"),
        ({**READ, "needed": ["It was Cy."]}, "needed 1: expected a text of one of the inputs, or its piece, got 'It"),
        ({**READ, "needed": "Bo"}, "expected a list of what is needed, got 'Bo'"),
        ({**READ, "needed": [{"text": "No, Bo.", "until": 2}]}, "needed 1: expected a later piece as until"),
        ({**READ, "needed": [{"text": "No.", "piece": 3}]}, "needed 1: expected pieces from 1 to 2, got [3]"),
        ({**READ, "needed": [{"text": "No.", "piece": 1, "reader": "9"}]}, "and a reader of the piece, got {'text'"),
        ({**READ, "needed": [{"texts": "No."}]}, "needed 1: expected {text} and perhaps piece, reader, until, got {"),
        ({"question": "Who?", "answer": "Bo", "needed": ["Bo"]}, "expected inputs of which something is needed, got"),
        ({**HOPS, "hops": {}}, "expected a list of hops, got {}"),
        ({**HOPS, "hops": [{"subtask": "1?"}]}, "hop 1: expected {reply, subtask} and perhaps kind, reads, got {"),
        ({**HOPS, "hops": [{"subtask": "1?", "reply": 6, "reads": True}]}, "hop 1: expected reads to be true or false"),
        ({**HOPS, "hops": [{"subtask": "1?", "reply": 7}]}, "expected the answer '6' as the last hop's reply, got '7'"),
    ],
)
def test_a_fault_is_one_line_with_its_place(tmp_path, row, complaint):
    path = written(tmp_path / "own.jsonl", {"question": "1?", "answer": 1}, row)
    with pytest.raises(ValueError, match=re.escape(complaint)) as error:
        tasks(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert "\n" not in str(error.value)


def test_two_works_that_go_on_differently_from_one_text_are_refused():
    other = {**STEPS, "steps": ["0 1", "0 1 3"], "answer": "0 1 3"}
    with pytest.raises(ValueError, match="steps: expected one step behind '0 1', got '0 1 2' in 'question-1' and '0 1"):
        tasks([STEPS, other])


def adds_up(task, answer):
    return sum(map(int, answer.split())) == int(task.target)


def test_a_checker_takes_the_place_of_equality():
    own = tasks([{"question": "Pay 7.", "answer": 7}], checker=adds_up, kind="text")
    task = own.tasks[0]
    pairs = [(task, answer) for answer in ("5 2", "2 2 2 1", "5 1", "five and two")]
    assert [verdict.score for verdict in own.verdicts(pairs)] == [1, 1, 0, 0]
    assert own.identity["checker"].endswith("test_known.adds_up")
    assert [v.score for v in tasks([Task("Pay 7.", "a", "7")]).verdicts([(Task("Pay 7.", "a", "7"), "5 2")])] == [0]
