"""Several reasoning-gym families in turn."""

import re
import sys
from collections import Counter

import pytest

from nsed_torch.questions.generated import canonical_question, generated_tasks, mixed_tasks
from nsed_torch.records.outcome import Verdict

FAMILIES = {"chain_sum": {"max_terms": 2}, "countdown": {"min_numbers": 2, "max_numbers": 2}, "gcd": {}}


@pytest.fixture(autouse=True)
def gym():
    return pytest.importorskip("reasoning_gym", reason="the extra `bench` is not installed")


def test_families_take_turns_and_more_tasks_only_add_some():
    graded = mixed_tasks(FAMILIES, 8, seed=3)
    assert [graded.strata[task.id] for task in graded.tasks] == [*FAMILIES, *FAMILIES, "chain_sum", "countdown"]
    assert mixed_tasks(FAMILIES, 11, seed=3).tasks[:8] == graded.tasks
    alone = generated_tasks("gcd", 2, 3)
    assert tuple(task for task in graded.tasks if graded.strata[task.id] == "gcd") == alone.tasks
    assert Counter(task.id for task in graded.tasks).most_common(1)[0][1] == 1
    assert graded.identity["families"]["gcd"] == alone.identity


def test_each_task_is_graded_as_its_family_does():
    graded = mixed_tasks(FAMILIES, 6).repeated(2)
    assert graded.grader.grade([(task, task.target) for task in graded.tasks]) == [Verdict.RIGHT] * 12
    assert graded.grader.grade([(task, "x") for task in graded.tasks]) == [Verdict.WRONG] * 12


def test_other_solutions_that_the_family_knows_are_right():
    graded = mixed_tasks(FAMILIES, 60)
    sums = [(task, re.fullmatch(r"([0-9]+) ?([+*]) ?([0-9]+)", task.target)) for task in graded.tasks]
    turned = [(task, f"{found[3]}{found[2]}{found[1]}") for task, found in sums if found and found[1] != found[3]]
    assert graded.grader.grade(turned) == [Verdict.RIGHT] * len(turned)
    assert turned


@pytest.mark.parametrize(
    ("family", "text", "answer"),
    [
        ("word_sorting", "acute, go, hundred", "acute, go, hundred"),
        ("word_sorting", "First I sort them.\n\n**acute, go, hundred.**\n  \n", "acute, go, hundred"),
        ("word_sorting", "Answer: go, hundred\nThat is all.", "go, hundred"),
        ("word_sorting", r"\boxed{go}" + "\nDone", "go"),
        ("word_sorting", "#### go\nDone", "go"),
        ("word_sorting", " \n", None),
        ("word_sorting", "", None),
        ("family_relationships", "husband", "husband"),
        ("syllogism", "Yes.", "Yes"),
        ("calendar_arithmetic", "Friday", "Friday"),  # some of its answers are numbers
        ("spiral_matrix", "1 2 3", "1 2 3"),
        ("chain_sum", "It is 7, I think", "7"),
        ("chain_sum", "I think.", None),
        ("chain_sum", "The answer is eight", "eight"),
    ],
)
def test_a_final_answer_in_words_is_marked_or_the_last_line(family, text, answer):
    graded = generated_tasks(family, 1, seed=5)
    mixed = mixed_tasks({"gcd": {}, family: {}}, 2)
    task = next(task for task in mixed.tasks if mixed.strata[task.id] == family)
    assert graded.grader.extract(graded.tasks[0], text) == mixed.grader.extract(task, text) == answer


@pytest.mark.parametrize("family", ["word_sorting", "family_relationships", "calendar_arithmetic", "chain_sum"])
def test_a_target_by_itself_is_a_right_answer(family):
    graded = generated_tasks(family, 8, seed=2)
    said = [(task, graded.grader.extract(task, f"Let me see.\n{task.target}\n")) for task in graded.tasks]
    assert graded.verdicts(said) == [Verdict.RIGHT] * 8


def test_the_rule_of_a_family_is_the_same_for_any_size_and_seed():
    """The first item of calendar_arithmetic may be a number, or not."""
    graded = [generated_tasks("calendar_arithmetic", size, seed) for seed in range(4) for size in (1, 4)]
    assert {g.grader.extract(g.tasks[0], "In all 3\nMonday") for g in graded} == {"Monday"}
    assert len({task.target.isdigit() for g in graded for task in g.tasks}) == 2
    numeric = generated_tasks("gcd", 1)
    assert numeric.grader.extract(numeric.tasks[0], "In all 3\nMonday") == "3"


def test_equal_answers_of_a_mixed_task_are_those_of_its_family():
    graded = mixed_tasks({"word_sorting": {}, "chain_sum": {}}, 2)
    for task in graded.tasks:
        assert graded.grader.classes(task, ["go, Hundred", None, "x", "go,  hundred"]) == [0, -1, 1, 0]


@pytest.mark.parametrize("family", ["chain_sum", "word_sorting"])
def test_near_seeds_share_no_questions(family):
    """reasoning-gym draws item i from the sum of seed and i."""
    questions = [{task.question for task in generated_tasks(family, 30, seed).tasks} for seed in (0, 1, 2, 29)]
    assert len(set.union(*questions)) == sum(map(len, questions))
    assert [task.id for task in generated_tasks(family, 2, 1).tasks] == [f"{family}-1-0", f"{family}-1-1"]


@pytest.mark.parametrize(("families", "size"), [({}, 5), (FAMILIES, 2)])
def test_a_task_for_every_family(families, size):
    with pytest.raises(ValueError, match=f"expected one family or more and a task for each, got .* size={size}"):
        mixed_tasks(families, size)


def test_a_family_may_come_twice_under_labels():
    short, long = {"family": "chain_sum", "max_terms": 2}, {"family": "chain_sum", "min_terms": 5, "max_terms": 5}
    mixed = mixed_tasks({"short": short, "long": long}, 6)
    assert [task.id for task in mixed.tasks[:2]] == ["short-0-0", "long-0-0"]
    assert [mixed.strata[task.id] for task in mixed.tasks] == ["short", "long"] * 3
    assert mixed.verdicts([(task, task.target) for task in mixed.tasks]) == [Verdict.RIGHT] * 6


def test_seeds_share_no_item_and_no_question_comes_twice():
    near = [{task.question for task in generated_tasks("chain_sum", 50, seed).tasks} for seed in (0, 1)]
    assert not near[0] & near[1]
    small = generated_tasks("products", 60, options={"min_terms": 2, "max_terms": 2, "max_digits": 1})
    assert len({task.question for task in small.tasks}) == 60
    with pytest.raises(ValueError, match="expected 200 different questions of reasoning-gym's 'products', got 1"):
        generated_tasks("products", 200, options={"min_terms": 2, "max_terms": 2, "max_digits": 1})


def test_questions_of_other_seeds_and_their_sums_in_another_order_are_left_out():
    family = {"sums": {"family": "basic_arithmetic", "min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}
    family["sums"] |= {"operators": ["+"], "allow_parentheses": False}
    learned = {canonical_question(task.question) for task in mixed_tasks(family, 30, seed=0).tasks}
    with_some, without = (mixed_tasks(family, 20, seed=5, unlike=unlike) for unlike in (None, {0: 30, 5: 20}))
    assert any(canonical_question(task.question) in learned for task in with_some.tasks)
    assert not any(canonical_question(task.question) in learned for task in without.tasks)
    assert without.identity["families"]["sums"]["unlike"] == {0: 30}


def test_a_sums_order_makes_no_difference_and_anything_else_does():
    assert canonical_question("What is  30 + 4?") == canonical_question("what is 4 + 30?")
    assert canonical_question("What is 4 - 30?") != canonical_question("What is 30 - 4?")
    assert canonical_question("4 + 30 - 2 + 1") != canonical_question("2 + 1 - 4 + 30")


def test_what_another_package_is_warned_of_while_it_is_compiled_is_no_fault_of_a_run(tmp_path, monkeypatch):
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text('create_dataset = None\nodd = 1 is "one"\n')
    (tmp_path / "reasoning_gym" / "factory.py").write_text("DATASETS = {}\n")
    for name in [name for name in sys.modules if name.split(".")[0] == "reasoning_gym"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="expected one of reasoning-gym's 0 families"):
        generated_tasks("basic_arithmetic", 1)
    for name in ("reasoning_gym", "reasoning_gym.factory"):
        sys.modules.pop(name)
