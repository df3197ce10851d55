"""A judge learns from recorded answers, of which as many are right as wrong."""

import json

import pytest

from nsed_lab.verdict_lesson import Candidate, VerdictLesson, read_candidates
from nsed_torch.core.engine import Ratings, RatingScale
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.records.files import read_json
from nsed_torch.records.transcript import Task

YES_NO = VerdictRating(listed=False, scale=RatingScale(("Y", "N"), (1.0, -1.0)))
SMALL = ("training.steps=3", "training.batch=4", "training.save_steps=1", "adapter.rank=2", "max_new_tokens=2")


@pytest.fixture
def backbone(tiny_model):
    return [f"backbone.weights.path={tiny_model}", "backbone.device=cpu", "backbone.dtype=float32"]


def tasks(*numbers):
    return [Task(f"How much is {n} + {n}?", f"t{n}", str(2 * n)) for n in numbers]


def text(example):
    return "\n".join(message.content for message in example.messages)


def verdict_examples(found, rating=YES_NO):
    return VerdictLesson(found, found, Prompts(), rating, {}).examples()


def test_judges_learn_from_as_many_right_as_wrong_answers():
    task = tasks(1)[0]
    found = [Candidate(task, str(n), n == 2) for n in range(9)] + [Candidate(tasks(2)[0], "4", True)]
    examples = verdict_examples(found)
    assert sorted(example.reply for example in examples) == ["N", "N", "Y", "Y"]
    for example in examples:
        assert example.messages[-1].content.endswith("Is Candidate_A correct? Reply Y or N.") or "Y or N" in text(
            example
        )
    right = next(e for e in examples if e.reply == "Y")
    assert any(line in {"2", "4"} for line in text(right).splitlines())
    with pytest.raises(ValueError, match="got 1 right and 0 wrong"):
        verdict_examples(found[-1:])
    with pytest.raises(ValueError, match="listed=true"):
        verdict_examples(found, VerdictRating())


def test_scores_of_verdicts_count_signs_and_pairs(toy):
    engine = toy.engine()
    one, two = tasks(1, 2)
    held = [
        Candidate(one, "2", True),
        Candidate(one, "3", False),
        Candidate(two, "4", True),
        Candidate(two, "5", False),
    ]
    lesson = VerdictLesson(held, held, Prompts(), YES_NO, {"candidates": 4})
    assert lesson.identity() == {"learns": "to judge", "candidates": 4}
    values = {"2": 0.5, "3": 0.6, "4": 0.9, "5": -0.9}
    engine.rate = lambda requests: [
        Ratings((next(v for k, v in values.items() if f"\n{k}\n" in r.candidates[0]),)) for r in requests
    ]
    assert lesson.scores(engine, None) == {
        "right answers": [True, True],
        "wrong answers": [False, True],
        "pairs of a task": [False, True],
    }


def test_candidates_of_recorded_answers_come_once_each(tmp_path):
    (tmp_path / "answers").mkdir()
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": "a", "question": "1 + 1?", "target": "2"}) + "\n")
    for name, output, right in (("x", "2", True), ("y", "3", False), ("z", "2", True)):
        line = {"id": "a", "output": output, "answer": output, "correct": right}
        (tmp_path / "answers" / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    found = read_candidates(tmp_path)
    assert [(c.task.id, c.text, c.right) for c in found] == [("a", "2", True), ("a", "3", False)]


def test_a_judge_learns_from_recorded_answers(nsed, backbone, tmp_path):
    data = tmp_path / "recorded"
    (data / "answers").mkdir(parents=True)
    lines = [{"id": str(i), "question": f"How much is {i} + {i}?", "target": str(2 * i)} for i in range(20)]
    (data / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, off in (("right", 0), ("wrong", 1)):
        lines = [
            {"id": str(i), "output": str(2 * i + off), "answer": str(2 * i + off), "correct": not off}
            for i in range(20)
        ]
        (data / "answers" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    nsed.ok("specialize", "specialist=judge", f"lesson.candidates={data}", *backbone, *SMALL, "output_dir=out")
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert metrics["data"] == {"learns": "to judge", "candidates": 40, "right": 20}
    assert set(metrics["held_out"]) == {"right answers", "wrong answers", "pairs of a task"}
    graded = ["rating@lesson.rating=critique", "output_dir=other"]
    fault = nsed.fault("specialize", "specialist=judge", f"lesson.candidates={data}", *backbone, *graded)
    assert "expected a verdict that a judge can learn, got CritiqueRating: set a verdict" in fault
