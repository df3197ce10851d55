"""Benchmarks' own rules: what each reads, and what it calls right."""

import pytest

from nsed_torch.questions.answers.official import OFFICIAL
from nsed_torch.questions.generated import generated_tasks
from nsed_torch.questions.graded import file_tasks, recorded_tasks
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task


@pytest.mark.parametrize(
    ("reading", "text", "answer"),
    [
        ("mmlu_pro", "I think the answer is (B). No, the answer is (C).", "B"),
        ("mmlu_pro", "The answer is (B).\n\nQuestion: another\nThe answer is (D).", "B"),
        ("mmlu_pro", "Answer: C, or rather Answer: D\nAnswer: E", "D"),
        ("mmlu_pro", "answer: \nF", "F"),
        ("mmlu_pro", "Either A or, more likely, G", "G"),
        ("mmlu_pro", "the answer is (b)", None),
        ("mmlu_pro_first", "The answer is J", "J"),
        ("mmlu_pro_first", "Answer: C", None),
        ("reasoning_gym", "<answer>1</answer> no, <answer>\n2 3\n</answer> done", "2 3"),
        ("reasoning_gym", "<answer>4</answer> and then <answer>5", "4"),
        ("reasoning_gym", "The answer is 6.</answer>", None),
    ],
)
def test_what_is_read(reading, text, answer):
    assert OFFICIAL[reading].read(Task("Which?", "one"), text) == answer


def test_a_set_is_graded_by_the_rule_that_is_named(tmp_path):
    (tmp_path / "questions.jsonl").write_text('{"id": "one", "question": "Which? A) an ox B) an ass", "target": "B"}\n')
    text = "The answer is (A). Sorry: the answer is (B)."
    for tasks, verdict in (
        (file_tasks(str(tmp_path / "questions.jsonl"), reading="mmlu_pro"), Verdict.WRONG),
        (recorded_tasks(str(tmp_path), reading="mmlu_pro"), Verdict.WRONG),
        (recorded_tasks(str(tmp_path)), Verdict.RIGHT),
    ):
        task = tasks.tasks[0]
        assert tasks.verdicts([(task, tasks.grader.extract(task, text))]) == [verdict]
    assert tasks.identity.get("reading") is None
    assert recorded_tasks(str(tmp_path), reading="mmlu_pro").identity["reading"] == "mmlu_pro"
    with pytest.raises(ValueError, match=r"^reading: expected general or one of mmlu_pro, .*, got 'mmlu': "):
        file_tasks(str(tmp_path / "questions.jsonl"), reading="mmlu")


def test_generated_tasks_are_read_by_their_tags():
    pytest.importorskip("reasoning_gym")
    tasks = generated_tasks("chain_sum", 1, reading="reasoning_gym")
    task, grader = tasks.tasks[0], tasks.grader
    assert grader.extract(task, f"It is {task.target}.") is None
    answer = grader.extract(task, f"<answer> {task.target} </answer> for all I know of 99")
    assert answer == task.target
    assert tasks.verdicts([(task, answer), (task, "no number")]) == [Verdict.RIGHT, Verdict.WRONG]
    assert tasks.identity["reading"] == "reasoning_gym"
