"""Every chain of steps ends where the family's own scorer wants it, and each step follows from the one before alone."""

import importlib.metadata
import importlib.util
import itertools

import pytest

from nsed_lab.chains import CHAINS, hanoi_moves
from nsed_lab.stepwise import stepwise_tasks
from nsed_torch.core.prompts import FINISHED
from nsed_torch.questions.generated import mixed_tasks
from nsed_torch.records.outcome import Verdict

pytest.importorskip("reasoning_gym")

FAMILIES = {
    "chain_sum": {"min_terms": 2, "max_terms": 9, "max_digits": 2},
    "ab": {"length": 12},
    "basic_arithmetic": {
        "max_terms": 2,
        "max_digits": 9,
        "operators": ["+"],
        "allow_negation": False,
        "allow_parentheses": False,
    },
    "gcd": {"min_numbers": 2, "max_numbers": 3, "min_value": 1, "max_value": 200},
    "letter_counting": {},
    "number_sorting": {},
    "tower_of_hanoi": {"min_disks": 2, "max_disks": 6, "max_pegs": 3},
    "word_sequence_reversal": {},
}


def test_every_family_is_tried():
    assert FAMILIES.keys() == CHAINS.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_chains_end_in_what_the_familys_scorer_gives_full_marks(family):
    options = {family: FAMILIES[family]}
    graded, steps = mixed_tasks(options, 20, seed=5), stepwise_tasks(options, 20, seed=5)
    assert [task.question for task in steps.tasks] == [task.question for task in graded.tasks]
    for task in steps.tasks:
        *works, last = steps.chains[task.id]
        answer = hanoi_moves([task.start, *works]) if family == "tower_of_hanoi" else last.removeprefix(FINISHED)
        item = graded.grader.items[task.id]
        assert item.dataset.score_answer("" if answer == "nothing" else answer, item.entry) == 1
        text = "\n".join([*works, last])
        assert steps.verdicts([(task, steps.grader.extract(task, text))]) == [Verdict.RIGHT]


def test_a_step_follows_from_the_work_before_it_alone():
    steps = stepwise_tasks(FAMILIES, 240, seed=2)
    following = {}
    for task in steps.tasks:
        works = [text for text in (task.start, *steps.chains[task.id]) if text]
        for before, after in itertools.pairwise(works):
            assert following.setdefault(before, after) == after
    assert len(following) > 500


def test_works_begin_with_what_led_to_them():
    """What is decided is written before what follows from it."""
    steps = stepwise_tasks({"gcd": {"min_value": 9, "max_value": 50}, "ab": {"length": 5}}, 40, seed=1)
    pairs = [pair for chain in steps.chains.values() for pair in itertools.pairwise(chain[:-1])]
    said = {}
    for before, after in pairs:
        for sign in ("-", "becomes"):
            if sign in (what := after.partition(":")[0]):
                said[sign] = said.get(sign, 0) + 1
                numbers = before.partition(": ")[2]
                if sign == "-":
                    high, low = map(int, what.partition(" =")[0].split(" - "))
                    assert sorted(map(int, numbers.split()[:2])) == [low, high]
                    assert int(what.rpartition(" ")[2]) == high - low
                else:
                    pair, _, new = what.partition(" becomes ")
                    left, bracket, right = numbers.partition(f"[{pair}]")
                    assert bracket
                    kept = f"{left}{'' if new == 'nothing' else new}{right}".split() or ["nothing"]
                    assert after.partition(": ")[2].replace("[", "").replace("]", "").split() == kept
    assert min(said.values()) > 20


def test_families_may_have_few_tasks():
    steps = stepwise_tasks(
        {
            "chain_sum": FAMILIES["chain_sum"],
            "ab": {"length": 12},
            "tower_of_hanoi": {"min_disks": 10, "max_pegs": 3, "max_disks": 10, "most": 3},
        },
        30,
    )
    assert [list(steps.strata.values()).count(name) for name in ("chain_sum", "ab", "tower_of_hanoi")] == [10, 10, 3]
    towers = [chain for name, chain in steps.chains.items() if name.startswith("tower")]
    assert {len(chain) for chain in towers} == {1023 + 1}
    assert all(task.start.startswith("start: a") == task.id.startswith("tower") for task in steps.tasks)
    assert {task.start for task in steps.tasks if not task.id.startswith("tower")} == {""}


@pytest.mark.parametrize(
    ("families", "message"),
    [
        ({"lcm": {}}, "expected families out of ab, basic_arithmetic, chain_sum"),
        ({"basic_arithmetic": {"operators": ["-"], "max_terms": 2}}, "expected sums of two numbers"),
        ({"tower_of_hanoi": {"min_pegs": 4}}, "set max_pegs=3"),
        ({}, "expected one family or more"),
    ],
)
def test_families_without_steps_are_refused(families, message):
    with pytest.raises(ValueError, match=message):
        stepwise_tasks(families, 6)


def test_moves_are_of_one_disk():
    first = "start: a1 b1 way 132 small"
    assert hanoi_moves([first, "a1 to a3: a3 b1 way 132 large"]) == "Move disk 1 from Peg 1 to Peg 3"
    for after in ("a3 b3 way 132 large", "a3 way 132 large", first, "a3 c1 way 132 large"):
        with pytest.raises(ValueError, match="one disk"):
            hanoi_moves([first, after])


def test_where_a_tower_ends_counts_behind_legal_moves_alone():
    (tower,) = stepwise_tasks({"tower_of_hanoi": {"min_disks": 3, "max_disks": 3, "max_pegs": 3}}, 1).tasks
    steps = stepwise_tasks({"tower_of_hanoi": {"min_disks": 3, "max_disks": 3, "max_pegs": 3}}, 1)
    chain = steps.chains[tower.id]
    illegal = [*chain[:2], chain[0], *chain[1:]]  # back and on: still legal, and two moves too many
    assert [
        steps.grader.extract(tower, "\n".join(text))
        for text in (chain, chain[-1:], [*chain[:3], *chain[4:]], chain[:4] + chain[-1:], illegal)
    ] == [tower.target, None, None, None, None]
    assert steps.grader.identity()["towers"] == "legal moves"
    assert "towers" not in stepwise_tasks({"ab": {}}, 1).identity


def test_work_that_comes_to_the_answer_is_none_whatever_is_installed(monkeypatch):
    found, version = importlib.util.find_spec, importlib.metadata.version
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: name == "math_verify" or found(name, *_))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1" if name == "math-verify" else version(name))
    steps = stepwise_tasks({"chain_sum": FAMILIES["chain_sum"]}, 3)
    assert steps.identity["math_verify"] is None  # which finds that 3 + 4 is 7
    for task in steps.tasks:
        said = [(task, steps.grader.extract(task, work)) for work in steps.chains[task.id]]
        assert steps.verdicts(said) == [Verdict.WRONG] * (len(said) - 1) + [Verdict.RIGHT]
