"""The real sets, where the environment variable NSED_DATA names a folder of them: how many, and that gold is right."""

import os
from collections import Counter
from pathlib import Path

import pytest

from nsed_torch.questions.choice_tasks import gpqa, hellaswag, mmlu
from nsed_torch.questions.code_tasks import humaneval, livecodebench, mbpp
from nsed_torch.questions.graded import recorded_tasks
from nsed_torch.questions.math_tasks import aime, gsm8k, math500
from nsed_torch.records.outcome import Verdict

FOLDER = os.environ.get("NSED_DATA", "")

pytestmark = pytest.mark.skipif(not FOLDER, reason="NSED_DATA names no folder of the real sets")


def score(graded, texts):
    """How many texts are right, one for each task."""
    pairs = [(task, graded.grader.extract(task, text)) for task, text in zip(graded.tasks, texts, strict=True)]
    return Counter(graded.verdicts(pairs))


@pytest.mark.parametrize(
    ("load", "count"),
    [
        (lambda: aime(2024, data_dir=FOLDER), 30),
        (lambda: aime(2025, data_dir=FOLDER), 30),
        (lambda: gsm8k(data_dir=FOLDER), 1319),
        (lambda: math500(data_dir=FOLDER), 500),
        (lambda: recorded_tasks(FOLDER, "gsm8k"), 1319),
        (lambda: recorded_tasks(FOLDER, "math_l5"), 721),
    ],
    ids=["aime2024", "aime2025", "gsm8k", "math500", "recorded gsm8k", "recorded math_l5"],
)
def test_the_gold_answer_in_a_box_is_right(load, count):
    graded = load()
    found = score(graded, [rf"So it is \boxed{{{task.target}}}." for task in graded.tasks])
    assert found == {Verdict.RIGHT: count}


@pytest.mark.parametrize(
    ("load", "count", "strata"),
    [(mmlu, 14042, 57), (hellaswag, 1000, None), (gpqa, 198, 3)],
    ids=["mmlu", "hellaswag", "gpqa"],
)
def test_the_letter_of_the_right_option_is_right(load, count, strata):
    if load is gpqa and not os.environ.get("NSED_GPQA_PASSWORD"):
        pytest.skip("NSED_GPQA_PASSWORD is not set")
    graded = load(data_dir=FOLDER)
    # Only numbers are compared: a failing test prints both sides, and some texts are not to be shown.
    kinds = len(set(graded.strata.values()))
    assert strata in (None, kinds)
    for form in ("Answer: {}", r"\boxed{{{}}}", "I have thought.\n\n({})"):
        found = score(graded, [form.format(task.target) for task in graded.tasks])
        assert found == {Verdict.RIGHT: count}
    letters = Counter(task.target for task in graded.tasks)
    expected = count / len(letters)
    assert all(abs(number - expected) < 4 * expected**0.5 for number in letters.values())


def test_programs_have_tests():
    assert len(humaneval(data_dir=FOLDER).tasks) == 164
    assert [len(mbpp(data_dir=FOLDER, split=split).tasks) for split in ("all", "test")] == [974, 500]
    graded = livecodebench(data_dir=FOLDER)
    assert len(graded.tasks) == 632
    assert Counter(case.kind for cases in graded.grader.tests.values() for case in cases) == {"stdin": 921, "call": 729}
    assert all(case.entry for cases in graded.grader.tests.values() for case in cases if case.kind == "call")


def test_humanevals_own_solutions_pass_their_tests():
    from nsed_torch.questions.sources import Hub, read_rows

    rows = read_rows("humaneval", "humaneval/HumanEval.jsonl.gz", Hub("", ""), FOLDER).rows[:20]
    graded = humaneval(data_dir=FOLDER)
    for row in rows:
        (case,) = graded.grader.tests[row.text("task_id")]
        exec(graded.grader.prefix[row.text("task_id")] + row.text("canonical_solution") + case.code, {})


def test_darkbench_lies_where_its_config_says():
    assert (Path(FOLDER) / "darkbench/darkbench_660.jsonl").read_bytes().count(b"\n") >= 659
