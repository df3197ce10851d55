"""Questions of several hops: which there are, what each depends on, and how they are graded."""

import re
from collections import Counter

import pytest

from nsed_lab.composite import ALONE, KINDS, TEMPLATES, composite_tasks
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_file
from nsed_torch.questions.generated import canonical_question, generated_tasks
from nsed_torch.records.outcome import Verdict

pytest.importorskip("reasoning_gym", reason="the extra `bench` is not installed")


@pytest.fixture(scope="module")
def graded():
    return composite_tasks(120, 5, singles=0.25)


def test_a_target_is_right_and_nothing_else(graded):
    right = [(task, graded.grader.extract(task, f"Let me see.\n{task.target}\n")) for task in graded.tasks]
    assert graded.verdicts(right) == [Verdict.RIGHT] * 120
    for task in graded.tasks:
        (*_, before), target = ["", *(hop.reply for hop in graded.hops[task.id][:-1])], task.target
        near = [before, *((str(int(target) + 1), f"-{target}") if target.isdigit() else (f"{target}, x",))]
        near += [", ".join(reversed(target.split(", "))), target.partition(", ")[2]] if ", " in target else []
        assert set(graded.verdicts([(task, answer) for answer in near])) == {Verdict.WRONG}


def test_a_number_is_found_in_a_sentence_and_words_are_the_last_line(graded):
    for task in graded.tasks:
        said = f"So it is {task.target}, I think" if task.target.isdigit() else f"It has 3 parts.\n{task.target}."
        assert graded.grader.extract(task, said) == task.target
    assert graded.repeated(2).verdicts([(graded.repeated(2).tasks[-1], "x")]) == [Verdict.WRONG]


def test_templates_and_kinds_take_turns_and_a_share_is_single(graded):
    found = Counter(graded.strata.values())
    assert [found[name] for name in KINDS] == [8, 8, 7, 7]
    assert {found[name] for name in TEMPLATES} == {9}
    assert set(found) == {*KINDS, *TEMPLATES}
    assert {len(graded.hops[task.id]) for task in graded.tasks} == {1, 2, 3}
    assert set(composite_tasks(12, singles=0).strata.values()) == set(TEMPLATES)
    assert set(composite_tasks(8, singles=1).strata.values()) == set(KINDS)
    assert set(composite_tasks(8, singles=0.5, templates=["sum_words"]).strata.values()) == {*KINDS, "sum_words"}


def test_a_task_depends_on_seed_settings_and_place_alone(graded):
    fewer = composite_tasks(50, 5, singles=0.25)
    assert fewer.tasks == graded.tasks[:50]
    assert fewer.hops == {task.id: graded.hops[task.id] for task in fewer.tasks}
    other = {task.question for task in composite_tasks(120, 6).tasks}
    assert not other & {task.question for task in graded.tasks}


def test_no_two_questions_are_alike():
    many = composite_tasks(600, 1, singles=0.9)
    assert len({canonical_question(task.question) for task in many.tasks}) == len(many.tasks) == 600
    assert len({task.id for task in many.tasks}) == 600


def test_a_single_question_is_the_familys_own(graded):
    singles = [task for task in graded.tasks if graded.strata[task.id] in KINDS]
    assert singles
    for task in singles:
        ((kind, subtask, reply, reads),) = graded.hops[task.id]
        assert (kind, subtask, reply, reads) == (graded.strata[task.id], ALONE, task.target, False)
    starts = {name: generated_tasks(family, 1, options=options) for name, (family, options) in KINDS.items()}
    words = next(task for task in singles if graded.strata[task.id] == "words")
    assert words.question.partition("list")[0] == starts["words"].tasks[0].question.partition("list")[0]
    assert words.question.endswith("\n")  # as specialists learned it


def test_hops_ask_for_what_the_specialists_know(graded):
    for task in graded.tasks:
        hops = graded.hops[task.id]
        assert hops[-1].reply == task.target
        assert not hops[0].reads
        if len(hops) > 1:
            assert hops[-1].reads
        for hop in hops:
            if hop.kind == "sums" and hop.subtask != ALONE:
                assert all(int(number) <= 100 for number in re.findall("[0-9]+", hop.subtask))
            if hop.kind == "words":
                assert len(hop.reply.split(", ")) in (3, 4)
        assert all(int(hop.reply) <= 100 for hop in hops[:-1] if hop.kind == "sums" and hops[-1].kind == "sums")


def test_what_other_seeds_ask_is_left_out():
    settings = {"singles": 0.9, "templates": ["sum_siblings"]}
    learned = {canonical_question(task.question) for task in composite_tasks(900, 0, **settings).tasks}
    free, held_out = (composite_tasks(300, 2, unlike=unlike, **settings) for unlike in (None, {0: 900, 2: 9}))
    assert any(canonical_question(task.question) in learned for task in free.tasks)
    assert not any(canonical_question(task.question) in learned for task in held_out.tasks)
    assert held_out.identity["unlike"] == {"0": 900}


def test_what_specialists_learned_alone_is_not_asked_alone():
    def alone(tasks, kind):
        return {canonical_question(task.question) for task in tasks.tasks if tasks.strata[task.id] == kind}

    settings = {"singles": 1.0, "templates": ["sum_of_three"]}
    free = composite_tasks(160, 6, **settings)
    fresh = composite_tasks(160, 6, learned={0: 800, 1: 100}, **settings)
    for kind, (family, options) in KINDS.items():
        lessons = [generated_tasks(family, size, seed, options=options) for seed, size in ((0, 800), (1, 100))]
        learned = {canonical_question(task.question) for tasks in lessons for task in tasks.tasks}
        assert not alone(fresh, kind) & learned
        assert kind != "sums" or alone(free, kind) & learned
    assert fresh.identity["learned"] == {"0": 800, "1": 100}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "expected a size from 1"),
        ({"singles": 1.5}, "singles from 0 to 1"),
        ({"templates": []}, "a template or more"),
        ({"templates": ["sums_of_three"]}, "expected templates out of siblings_sum, .* got 'sums_of_three'"),
    ],
)
def test_settings_that_ask_for_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        composite_tasks(**{"size": 4, **settings})


def test_a_size_beyond_what_there_is_ends(monkeypatch):
    monkeypatch.setattr("nsed_lab.composite.APART", 20)
    monkeypatch.setattr("nsed_lab.composite.SUMS", 20)
    with pytest.raises(ValueError, match="different questions of 'sums', got no other: lower the size"):
        composite_tasks(200, singles=1)


def test_the_config_builds():
    from omegaconf import OmegaConf

    config = OmegaConf.load(conf_file("tasks/composite"))
    config.update(size=5, unlike={0: 20})
    built = instantiate(config)
    assert len(built.tasks) == 5
    assert built.identity["unlike"] == {"0": 20}
