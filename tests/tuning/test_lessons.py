"""What adapters learn from, and what they are tested on."""

import dataclasses
import re

import pytest

from nsed_torch.core.engine import Generation, Message
from nsed_torch.core.prompts import Prompts
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality
from nsed_torch.tuning.lessons import AnswerLesson

FENCED = re.compile(r"<text-[0-9a-f]+>\n(.*?)\n</text", re.DOTALL)


def tasks(*numbers):
    return [Task(f"How much is {n} + {n}?", f"t{n}", str(2 * n)) for n in numbers]


def graded(*numbers, strata=False):
    found = tuple(tasks(*numbers))
    kinds = {task.id: "odd" if int(task.id[1:]) % 2 else "even" for task in found} if strata else {}
    return GradedTasks(found, AnswerGrader(Equality(False)), {"name": "toy"}, kinds)


def answer_examples(train, prompts=None, **settings):
    train = dataclasses.replace(graded(), tasks=tuple(train))
    return AnswerLesson(train, graded(999), prompts or Prompts(), **settings).examples()


def text(example):
    return "\n".join(message.content for message in example.messages)


def test_without_memory_an_example_is_the_prompt_of_round_1_and_its_target():
    prompts = Prompts(style="direct")
    (example,) = answer_examples(tasks(4), prompts, persona="Be calm.", memory_share=0)
    assert example.reply == "8"
    assert example.messages == prompts.propose(
        "How much is 4 + 4?", memory=(), critiques=(), persona="Be calm.", seed=0
    )
    assert all(isinstance(message, Message) for message in example.messages)
    assert "8" not in text(example)


def test_a_share_of_examples_shows_a_memory_that_is_right_or_wrong():
    examples = answer_examples(tasks(*range(400)), memory_share=0.25)
    shown = [e for e in examples if "experts answered so far" in text(e)]
    assert 70 <= len(shown) <= 130
    fenced = [{line for line in text(e).splitlines() if line.isdigit()} for e in shown]
    right = sum(e.reply in lines for e, lines in zip(shown, fenced, strict=True))
    assert 0.35 * len(shown) < right < 0.75 * len(shown)
    assert all(1 <= len(lines) <= 3 for lines in fenced)
    assert answer_examples(tasks(*range(400)), memory_share=0.25) == examples


def test_tasks_without_a_target_are_refused():
    with pytest.raises(ValueError, match="expected tasks with targets to learn from, got 'x'"):
        answer_examples([Task("?", "x")])
    with pytest.raises(ValueError, match="memory_share in"):
        answer_examples(tasks(1), memory_share=2)


def test_no_held_out_question_is_learned_from():
    lesson = AnswerLesson(graded(1, 2, 3), graded(2, 9), Prompts(), memory_share=0)
    assert [example.reply for example in lesson.examples()] == ["2", "6"]
    with pytest.raises(ValueError, match="expected tasks to learn from and others to test on, got 0 and 2"):
        AnswerLesson(graded(1, 2), graded(1, 2), Prompts())


def test_scores_of_answers_are_by_stratum(toy):
    engine = toy.engine()
    lesson = AnswerLesson(graded(1), graded(2, 3, 4, strata=True), Prompts(), max_new_tokens=2)
    scores = lesson.scores(engine, None)
    assert {name: len(values) for name, values in scores.items()} == {"even": 2, "odd": 1}

    def oracle(requests):

        numbers = [int(r.messages[-1].content.split()[4]) for r in requests]
        return [Generation(f"{2 * n if n != 4 else 0}", 1, 1) for n in numbers]

    engine.generate = oracle
    assert lesson.scores(engine, None) == {"even": [True, False], "odd": [True]}
