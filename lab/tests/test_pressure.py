"""Suggested answers: wrong ones are never right and of the task's own kind, and everybody hears the same."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nsed_lab.pressure import SAID, pressed, suggested
from nsed_torch.questions.choice_tasks import ChoiceGrader
from nsed_torch.questions.generated import mixed_tasks
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.traces.canonical import canonical
from nsed_torch.traces.equality import Equality

RULE = Equality(math_verify=False)
NUMBERS = st.integers(-300, 300).flatmap(
    lambda n: st.sampled_from([f"{n}", f"{n}.0", f"{n}/7", f"${n}", f"{n} apples"])
)
WORDS = st.sampled_from(["ant", "Ant", "bee", "cat", "the cat", "x + 1", "x+1", "dog."])


def tasks(targets, grader=None, strata=None):
    rows = tuple(Task(f"How much is number {i}?", f"q{i}", target) for i, target in enumerate(targets))
    return GradedTasks(rows, grader or AnswerGrader(RULE), {"name": "mine"}, strata=strata or {})


def said(graded):
    """What stands behind each question."""
    return {task.id: task.question for task in graded.tasks}


@given(st.lists(NUMBERS | WORDS, min_size=1, max_size=12), st.integers(0, 9), st.integers(1, 3))
def test_a_wrong_answer_is_never_the_target_and_of_its_kind(targets, seed, strata):
    graded = tasks([*targets, "ant", "zebra"] * strata, strata={})
    graded = replace(graded, strata={task.id: str(i % strata) for i, task in enumerate(graded.tasks)})
    assume(
        all(len({canonical(t.target) for t in graded.tasks[k::strata]} & {"ant", "zebra"}) == 2 for k in range(strata))
    )
    under = pressed(graded, "wrong", seed=seed)
    for task, before in zip(under.tasks, graded.tasks, strict=True):
        answer = under.suggestions[task.id]
        assert under.verdicts([(task, answer)]) == [Verdict.WRONG]
        assert under.grader.classes(task, [task.target, answer]) == [0, 1]
        assert isinstance(canonical(answer), Fraction) == isinstance(canonical(task.target), Fraction)
        assert task.question == suggested(before.question, answer) == f"{before.question}\n\n{SAID.format(answer)}"
        assert replace(task, question=before.question) == before
        same = [t.target for t in graded.tasks if graded.strata[t.id] == graded.strata[task.id]]
        assert answer in same or isinstance(canonical(answer), Fraction)


@given(st.lists(NUMBERS, min_size=2, max_size=8, unique=True), st.integers(0, 9))
def test_everybody_hears_the_same_of_a_part_as_of_the_whole_in_every_epoch(targets, seed):
    graded = tasks(targets)
    whole = pressed(graded, "wrong", seed=seed)
    assert whole == pressed(graded, "wrong", seed=seed)
    for part in (graded.limited(1), graded.chosen(["q1"])):
        name = part.tasks[0].id
        assert said(pressed(part, "wrong", seed=seed, among=graded.tasks)) == {name: said(whole)[name]}
    twice = whole.repeated(2)
    assert [twice.suggestions[t.id] for t in twice.tasks] == [whole.suggestions[t.id] for t in whole.tasks] * 2
    assert [t.question for t in twice.tasks] == [t.question for t in whole.tasks] * 2


def test_another_seed_suggests_others():
    graded = tasks([str(7 * i) for i in range(40)])
    one, other = (pressed(graded, "wrong", seed=seed).suggestions for seed in (0, 1))
    assert sum(one[name] != other[name] for name in one) > 20


@pytest.mark.parametrize("target", ["0", "7", "-41", "1,250", "3/4", "$12.50", r"\frac{1}{2}"])
def test_a_number_alone_has_one_digit_changed(target):
    for seed in range(30):
        answer = pressed(tasks([target]), "wrong", seed=seed).suggestions["q0"]
        assert len(answer) == len(target)
        assert sum(a != b for a, b in zip(answer, target, strict=True)) == 1
        assert isinstance(canonical(answer), Fraction)
        assert canonical(answer) != canonical(target)


@pytest.mark.parametrize("target", ["A", "B", "C"])
def test_of_a_choice_it_is_another_option(target):
    graded = tasks([target], ChoiceGrader({"q0": ("one", "two", "three")}))
    drawn = {pressed(graded, "wrong", seed=seed).suggestions["q0"] for seed in range(40)}
    assert drawn == {"A", "B", "C"} - {target}


class Lenient(AnswerGrader):
    """Even numbers are right as well, as scorers of families have it that know other solutions."""

    def grade(self, pairs):
        return [
            Verdict.RIGHT if answer.isdigit() and int(answer) % 2 == 0 else verdict
            for (_, answer), verdict in zip(pairs, super().grade(pairs), strict=True)
        ]


def test_it_is_wrong_to_the_grader_not_only_unequal():
    graded = tasks(["1", "2", "4", "6", "8", "10", "13"], Lenient(RULE))
    for seed in range(20):
        suggestions = pressed(graded, "wrong", seed=seed).suggestions
        assert suggestions["q0"] == "13"
        assert all(int(answer) % 2 for answer in suggestions.values())


def test_generated_tasks_hear_numbers_of_their_family():
    pytest.importorskip("reasoning_gym")
    graded = mixed_tasks({"chain_sum": {}, "gcd": {}}, size=12)
    under = pressed(graded, "wrong")
    for task in under.tasks:
        own = {t.target for t in graded.tasks if graded.strata[t.id] == graded.strata[task.id]}
        assert under.suggestions[task.id] in own - {task.target}
        assert under.verdicts([(task, under.suggestions[task.id])]) == [Verdict.WRONG]


def test_right_is_the_target_and_none_is_nothing():
    graded = tasks(["7", "ant"])
    assert pressed(graded, "none") is graded
    assert "pressure" not in graded.identity
    assert all(graded.adopts(task, task.target) is None for task in graded.tasks)
    assert pressed(graded, "right").suggestions == {"q0": "7", "q1": "ant"}
    assert "I think the answer is ant." in said(pressed(graded, "right"))["q1"]


def test_the_identity_tells_runs_apart():
    graded = tasks(["7", "8"])
    found = [pressed(graded, kind, seed=seed).identity for kind, seed in (("wrong", 0), ("wrong", 1), ("right", 0))]
    assert len({json.dumps(identity) for identity in [*found, graded.identity]}) == 4
    assert found[0] == {"name": "mine", "pressure": {"suggests": "wrong", "says": SAID, "seed": 0}}


def test_who_adopts_is_the_graders_to_say():
    graded = replace(tasks(["7"]), suggestions={"q0": "1250"})
    (task,) = graded.tasks
    answers = ["1,250.0", "$1250", "7", "125", None]
    assert [graded.adopts(task, answer) for answer in answers] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("graded", "pressure", "line"),
    [
        (tasks(["7"]), "strong", "expected pressure=none, wrong or right, got pressure=strong"),
        (
            tasks([None]),
            "wrong",
            "expected tasks with targets to suggest answers to, got none for 'q0': choose a bench",
        ),
        (tasks([None]), "right", "expected tasks with targets to suggest answers to, got none for 'q0'"),
        (tasks(["ant", "Ant"]), "wrong", "expected a wrong answer to suggest for 'q0', got none among the targets of"),
    ],
)
def test_what_cannot_be_is_one_line(graded, pressure, line):
    with pytest.raises(ValueError, match=line):
        pressed(graded, pressure)
