"""HumanEval, MBPP and LiveCodeBench: what is asked, and which tests the grader gets."""

import json
import re

import pytest

from nsed_torch.questions.code_tasks import humaneval, livecodebench, mbpp
from nsed_torch.questions.programs import Case

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
MBPP = [
    {
        "task_id": number,
        "text": f"Write function f{number}.",
        "code": f"def helper(n):\n    return n\n\ndef f{number}(n):\n    return helper(n) + 1" if number != 1 else "",
        "test_setup_code": "import math" if number == 511 else "",
        "test_list": [f"assert f{number}(1) == 2", f"assert f{number}(2) == 3"],
        "challenge_test_list": [],
    }
    for number in (1, 10, 11, 510, 511, 601, 974)
]
STDIN = {
    "question_id": "1873_A",
    "question_content": "Sort cards.",
    "starter_code": "",
    "difficulty": "easy",
    "sample_tests_parsed": [{"input": "6\n", "output": "YES\n", "testtype": "stdin", "ref_pass": True}],
    "sample_tests_validated": True,
}
STARTER = (
    "# class TreeNode:\n#     def __init__(self, val):\n"
    "class Solution:\n    def count(self, x: List[int]) -> int:\n        "
)
CALL = STDIN | {
    "question_id": "2727",
    "question_content": "Count.",
    "starter_code": STARTER,
    "difficulty": "hard",
    "sample_tests_parsed": [{"input": "[1]\n2", "output": "2", "testtype": "functional", "func_name": "count"}],
}


def test_humaneval_shows_the_function_and_keeps_the_tests(write, hub):
    graded = humaneval(data_dir=write("humaneval/HumanEval.jsonl.gz", [HUMANEVAL]))
    (task,) = graded.tasks
    assert task.id == "HumanEval/0"
    assert task.question == (
        'Complete this Python function:\n\n```python\ndef double(x):\n    """Twice x."""\n```\n\n'
        "Answer with one Python code block."
    )
    (case,) = graded.grader.tests["HumanEval/0"]
    assert case == Case("asserts", code=HUMANEVAL["test"] + "\ncheck(double)", entry="double")
    assert graded.grader.prefix == {"HumanEval/0": HUMANEVAL["prompt"]}
    scope = {}
    exec(HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"] + case.code, scope)
    calls = hub([HUMANEVAL])
    assert humaneval().tasks == graded.tasks
    assert calls[0][0] == ("openai/openai_humaneval", None)


@pytest.mark.parametrize(
    ("split", "numbers"),
    [("prompt", [1, 10]), ("test", [11, 510]), ("validation", [511]), ("train", [601, 974])],
)
def test_mbpp_shows_one_assert_of_the_splits_tasks(write, split, numbers):
    folder = write("mbpp/mbpp.jsonl", MBPP)
    graded = mbpp(data_dir=folder, split=split)
    assert [task.id for task in graded.tasks] == [f"mbpp/{number}" for number in numbers]
    number = numbers[0]
    question = graded.tasks[0].question
    assert question.startswith(f"Write function f{number}.\n\n")
    assert f"```python\nassert f{number}(1) == 2\n```" in question
    assert f"f{number}(2)" not in question
    (case,) = graded.grader.tests[f"mbpp/{number}"]
    setup = "import math" if number == 511 else ""
    entry = "" if number == 1 else f"f{number}"
    assert case == Case("asserts", setup, code=f"assert f{number}(1) == 2\nassert f{number}(2) == 3", entry=entry)
    assert len(mbpp(data_dir=folder, split="all").tasks) == len(MBPP)


def test_mbpp_on_the_hub_asks_for_the_split(hub):
    calls = hub(MBPP)
    assert [task.id for task in mbpp().tasks] == ["mbpp/11", "mbpp/510"]
    mbpp(split="all")
    assert calls[0][0] == ("google-research-datasets/mbpp", "full")
    assert [kwargs["split"] for _, kwargs in calls] == ["test", "prompt+test+validation+train"]
    with pytest.raises(ValueError, match="expected a split out of prompt, test, validation, train, all, got 'dev'"):
        mbpp(split="dev")


def test_livecodebench_asks_for_programs_and_for_methods(write):
    unproven = [STDIN | {"question_id": f"x{value}", "sample_tests_validated": value} for value in (False, None)]
    folder = write("livecodebench/problems_v5_880.jsonl.gz", [STDIN, CALL, *unproven])
    graded = livecodebench(data_dir=folder)
    assert [task.id for task in graded.tasks] == ["1873_A", "2727"]
    assert graded.strata == {"1873_A": "easy", "2727": "hard"}
    assert graded.tasks[0].question == (
        "Sort cards.\n\nWrite a Python program that reads standard input and writes to standard output.\n\n"
        "Answer with one Python code block."
    )
    assert graded.tasks[1].question == (
        "Count.\n\n"
        f"Complete this Python code:\n\n```python\n{STARTER.strip()}\n```\n\nAnswer with one Python code block."
    )
    assert graded.grader.tests == {
        "1873_A": (Case("stdin", "6\n", "YES\n"),),
        "2727": (Case("call", "[1]\n2", "2", entry="count"),),
    }
    assert graded.identity["tests"] == "validated samples"


def test_livecodebench_on_the_hub_uses_public_tests_and_never_the_pickled_ones(hub):
    rows = [
        {
            "question_id": row["question_id"],
            "question_content": row["question_content"],
            "starter_code": row["starter_code"],
            "difficulty": row["difficulty"],
            "public_test_cases": json.dumps(
                [{k: test[k] for k in ("input", "output", "testtype")} for test in row["sample_tests_parsed"]]
            ),
            "private_test_cases": "never read",
        }
        for row in (STDIN, CALL)
    ]  # fmt: skip
    calls = hub(rows)
    graded = livecodebench()
    assert graded.grader.tests["2727"] == (Case("call", "[1]\n2", "2", entry="count"),)
    assert graded.grader.tests["1873_A"] == (Case("stdin", "6\n", "YES\n"),)
    assert graded.identity["tests"] == "public"
    ((args, kwargs),) = calls
    assert args == ("json",)
    assert all(
        re.fullmatch(r"hf://datasets/livecodebench/code_generation_lite@[0-9a-f]{40}/test[2-5]?\.jsonl", url)
        for url in kwargs["data_files"]
    )
    assert len(kwargs["data_files"]) == 5


@pytest.mark.parametrize(
    ("tests", "got"),
    [
        ([], "none"),
        (None, "none"),
        ([{"input": "1"}], "KeyError"),
        (["x"], "TypeError"),
        ("{", "JSONDecodeError"),
        (3, "TypeError"),
    ],
)
def test_tests_that_are_none_are_a_fault_of_their_row(write, tests, got):
    folder = write("livecodebench/problems_v5_880.jsonl.gz", [STDIN | {"sample_tests_parsed": tests}])
    with pytest.raises(ValueError, match=rf"problems_v5_880.jsonl.gz:1: expected tests .*, got {got}; fetch"):
        livecodebench(data_dir=folder)
