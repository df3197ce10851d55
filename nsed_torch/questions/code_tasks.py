"""Benchmarks of programs: HumanEval, MBPP, LiveCodeBench. Their tests are the grader's; no task holds them."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.programs import Case, ProgramGrader
from nsed_torch.questions.sources import Hub, Row, paragraphs, read_rows
from nsed_torch.records.transcript import Task

BLOCK = "Answer with one Python code block."

HUMANEVAL = Hub("openai/openai_humaneval", "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544")
MBPP = Hub("google-research-datasets/mbpp", "4bb6404fdc6cacfda99d4ac4205087b89d32030c", "full")
LIVECODEBENCH = Hub(
    "livecodebench/code_generation_lite",
    "0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
    files=("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl"),
    without=("private_test_cases",),
)

SPLITS = {"prompt": (1, 10), "test": (11, 510), "validation": (511, 600), "train": (601, 974), "all": (1, 974)}
"""First and last task_id of MBPP's official splits."""

_METHOD = re.compile(r"^class Solution\b.*?^\s+def\s+(\w+)\s*\(", re.MULTILINE | re.DOTALL)


def humaneval(*, data_dir: str | None = None, prompt: str = BLOCK) -> GradedTasks:
    """HumanEval, 164 Python functions to complete (Chen et al. 2021).

    The file is `humaneval/HumanEval.jsonl.gz` {task_id, prompt, entry_point, test}. An answer may be the whole function
    or go on where the given code ends.
    """
    source = read_rows("humaneval", "humaneval/HumanEval.jsonl.gz", HUMANEVAL, data_dir)
    tests, prefix, entries = {}, {}, []
    for row in source.rows:
        name, entry, code = row.text("task_id"), row.text("entry_point"), row.text("prompt")
        # What the given code defines ahead of the entry, tests call too; theirs is the given one, not the program's.
        given = code.partition(f"def {entry}(")[0]
        tests[name] = (Case("asserts", given, code=f"{row.text('test')}\ncheck({entry})", entry=entry),)
        prefix[name] = code
        question = paragraphs("Complete this Python function:", _block(code), prompt.strip())
        entries.append((Task(question, name), ""))
    return source.graded(entries, ProgramGrader(tests, prefix=prefix), prompt=prompt)


def mbpp(*, data_dir: str | None = None, split: str = "test", prompt: str = BLOCK) -> GradedTasks:
    """MBPP, small Python programs (Austin et al. 2021); the question shows the first of a program's asserts.

    The file is `mbpp/mbpp.jsonl` {task_id, text, code, test_setup_code, test_list}, the split one of `SPLITS`.
    """
    if split not in SPLITS:
        raise ValueError(f"expected a split out of {', '.join(SPLITS)}, got {split!r}")
    first, last = SPLITS[split]
    parts = "+".join(name for name in SPLITS if name != "all") if split == "all" else split
    source = read_rows("mbpp", "mbpp/mbpp.jsonl", replace(MBPP, split=parts), data_dir)
    tests, entries = {}, []
    for row in source.rows:
        if first <= row.number("task_id") <= last:
            name, asserts = f"mbpp/{row.number('task_id')}", row.texts("test_list")
            entry = _tested(row.value("code") or "", asserts[0])
            setup = row.value("test_setup_code") or ""
            tests[name] = (Case("asserts", setup, code="\n".join(asserts), entry=entry),)
            shown = "The program must pass this test, among others:"
            question = paragraphs(row.text("text", "prompt").strip(), shown, _block(asserts[0]), prompt.strip())
            entries.append((Task(question, name), ""))
    return source.graded(entries, ProgramGrader(tests), prompt=prompt, split=split)


def livecodebench(*, data_dir: str | None = None, prompt: str = BLOCK, tolerance: float = 1e-6) -> GradedTasks:
    """LiveCodeBench, code generation, release v5 (Jain et al. 2024); strata are difficulties.

    Answers are run on the tests that a problem's statement shows, never on the official hidden ones, which the Hub
    ships as pickles that would run code when read. So more answers pass than in published tables. Floats are equal
    within the tolerance, relative; the official script, which 0 is, asks for equal digits.

    The file is `livecodebench/problems_v5_880.jsonl.gz` {question_id, question_content, starter_code, difficulty,
    sample_tests_parsed, sample_tests_validated}, of which those with validated sample tests are asked; the Hub's has
    public_test_cases for the tests, in five files.
    """
    source = read_rows("livecodebench", "livecodebench/problems_v5_880.jsonl.gz", LIVECODEBENCH, data_dir)
    tests, entries = {}, []
    for row in source.rows:
        if row.value("sample_tests_validated") or "sample_tests_validated" not in row.values:
            name, starter = row.text("question_id"), row.value("starter_code") or ""
            tests[name] = tuple(_cases(row, starter))
            lines = ["Write a Python program that reads standard input and writes to standard output."]
            if starter.strip():
                lines = ["Complete this Python code:", _block(starter)]
            question = paragraphs(row.text("question_content").strip(), *lines, prompt.strip())
            entries.append((Task(question, name), row.text("difficulty")))
    kind = "validated samples" if data_dir else "public"
    return source.graded(entries, ProgramGrader(tests, tolerance=tolerance), prompt=prompt, tests=kind)


def _cases(row: Row, starter: str) -> Iterator[Case]:
    given = row.value("sample_tests_parsed", "public_test_cases")
    try:
        shown: list[dict[str, Any]] = json.loads(given) if isinstance(given, str) else list(given or [])
        if not shown:
            raise row.fault("tests in column sample_tests_parsed or public_test_cases", "none")
        for test in shown:
            if test["testtype"] == "functional":
                method = _METHOD.search(starter)
                entry = test.get("func_name") or (method[1] if method else "")
                yield Case("call", test["input"], test["output"], entry=entry)
            else:
                yield Case("stdin", test["input"], test["output"])
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise row.fault("tests {input, output, testtype}", type(error).__name__) from error


def _tested(solution: str, test: str) -> str:
    """The function of the reference solution that a test calls; "" if none is found."""
    names = re.findall(r"^def\s+(\w+)", solution, re.MULTILINE)
    return next((name for name in names if re.search(rf"\b{name}\s*\(", test)), "")


def _block(code: str) -> str:
    return f"```python\n{code.strip()}\n```"
