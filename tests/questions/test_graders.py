"""A grader tells a team which of its answers are equal, and nothing else."""

import json

import pytest

from nsed_torch.questions.graders import AnswerGrader, GradersAnswers
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality

RULE = Equality(math_verify=False)
TASK = Task("How much is 2 + 2?", "sum", "4")


class Blind(AnswerGrader):
    """Knows what is equal; must not be asked what is right."""

    def grade(self, pairs):
        raise AssertionError("nobody may ask which are right")


def test_equal_final_answers_are_one_whatever_stands_around_them():
    answers = GradersAnswers(Blind(RULE))
    texts = ["Answer: 4", "Two and two.\nAnswer: 4.0", "Answer: 5", "no idea", "", "no idea", "So it is \\boxed{5}."]
    assert answers.classes(TASK, texts) == [0, 0, 1, -1, -1, -1, 1]
    assert answers.classes(TASK, []) == []
    assert answers.classes(Task("Another?", "other", "7"), texts) == [0, 0, 1, -1, -1, -1, 1]


def test_words_are_answers_where_they_may_be():
    answers = GradersAnswers(Blind(RULE, "text"))
    assert answers.classes(TASK, ["red", "Hm.\nRed.", "", "Answer: the blue", "no idea"]) == [0, 0, -1, 1, -1]


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_rule_is_told_and_the_graders_with_it(version):
    class Versioned(AnswerGrader):
        def identity(self):
            return {"rule": "my own", "version": version}

    identity = GradersAnswers(Versioned(RULE)).identity()
    assert identity["rule"] == "final answers"
    for told in ("my own", version):
        assert f'"{told}"' in json.dumps(identity)
