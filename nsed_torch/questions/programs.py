"""Programs as answers: what they are in a text, when two are the same, and what becomes of them in the sandbox."""

import ast
import itertools
import json
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from nsed_torch.core.thoughts import part_thoughts
from nsed_torch.questions import sandbox_child as inside
from nsed_torch.questions.graders import numbered, question_id
from nsed_torch.questions.sandbox import BOX, PYTHON, Command, Finished, Sandbox
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task

LONGEST_PROGRAM = 100_000
"""Characters; what is longer is compared as it is written, and is a program only in a block of code."""

_FENCE = re.compile(r"^([ \t>]*)(`{3,}|~{3,})[ \t]*+([\w+-]*+)([^\n]*+)$", re.MULTILINE)
_ONE_LINE = re.compile(r"(?<!`)`{3,}+[ \t]*+(python3?|py3?)[ \t]++([^\n`]++)`{3,}", re.IGNORECASE)
_PYTHON = {"python", "py", "python3", "py3", "python2", "ipython", "ipython3", "pycon", "sage"}
_PROMPT = re.compile(r"\s*(?:>>>|In \[[0-9 ]*\]:)")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,9999})(?:\.[0-9]{1,9999})?(?:[eE][+-]?[0-9]{1,4})?")
_ENDED = {
    inside.COMPILE_ERROR: Verdict.COMPILE_ERROR,
    inside.WRONG: Verdict.WRONG,
    inside.MEMORY_LIMIT: Verdict.MEMORY_LIMIT,
}
_INSIDE = {"inside.py": Path(inside.__file__).read_text("utf-8")}
_START = (PYTHON, "-S", f"{BOX}/inside.py")


@dataclass(frozen=True)
class Case:
    """One test of a program.

    `stdin`: the program reads `input` and prints `output`. Both are split into lines, leading and trailing blank lines
    left out, and lines into words; there must be equally many, and each equal to its counterpart: spelled the same, or
    both decimal numbers, where the expected one is no integer within the grader's tolerance, else exactly.

    `call`: `entry`, a method of the program's class Solution or a function, is called with one JSON value a line of
    `input`; its result, tuples as lists, must equal the JSON value `output`, floats within the grader's tolerance.

    `asserts`: `code` runs after `input`, and must come to its end. What it names and neither defines nor imports is the
    program's; of names that Python or the usual modules have already, only `entry` is.
    """

    kind: Literal["stdin", "call", "asserts"]
    input: str = ""  # standard input, arguments, or what is run before `code`
    output: str = ""  # what is expected
    code: str = ""  # the tests
    entry: str = ""  # the function that is tested


@dataclass(frozen=True)
class ProgramGrader:
    """Runs programs in the sandbox against tests. The first test that fails decides; without a sandbox nothing does.

    Results are judged outside the program's sandbox: what it prints or returns is compared by this process, and asserts
    run in a second sandbox, to which only plain data comes (`inside`). No exit code, printed text or overloaded
    operator passes for a right answer, then. Arguments are handed over by value: asserts do not see what becomes of
    them. What remains is what tests never tell: whether a program came to its right values as it should.
    """

    tests: Mapping[str, tuple[Case, ...]]  # task id -> its tests, at least one
    sandbox: Sandbox = field(default_factory=Sandbox)
    # Task id -> what is put before a program that does not define the entry of the task's last test.
    prefix: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 1e-9  # relative, and absolute near 0; 0 asks for equal numbers

    def __post_init__(self) -> None:
        if bare := [name for name, cases in self.tests.items() if not cases]:
            raise ValueError(f"expected at least one test for every task, got none for {bare[0]!r}: leave the task out")

    @property
    def why(self) -> str:
        """Why programs are not run, in one line; "" where they are."""
        return self.sandbox.why

    def extract(self, task: Task, text: str) -> str | None:
        """The last block marked as Python that is a program, else the last with no mark, else the text if it is one.

        A block that nothing closes reaches to the end. What calls the functions of an earlier block and defines none
        is an example of its use, and what was typed at a prompt shows a run: neither is the program. Where no block is
        valid Python the last one counts. A text is a program if it is valid Python and does more than to name a value,
        or if it continues the task's prefix, indented, to such a program. Our reading.
        """
        parted = part_thoughts(text)
        # Without thoughts a text keeps its blanks, which continue a prefix.
        text = (parted.answer if parted.thoughts else text).replace("\r\n", "\n")
        blocks = _blocks(text)
        for marks in (_PYTHON, {""}):
            found = [code for mark, code in blocks if mark in marks and code.strip() and not _PROMPT.match(code)]
            programs = [code for i, code in enumerate(found) if _is_program(code) and not _is_example(code, found[:i])]
            if programs or found:
                return (programs or found)[-1]
        if blocks:
            return None
        whole = text.strip("\n")
        indented = whole[:1] in {" ", "\t"}
        return whole if _is_program(self.prefix.get(question_id(task), "") * indented + whole) else None

    def classes(self, task: Task, answers: Sequence[str | None]) -> list[int]:
        """Programs are the same if they differ in layout, comments and quotes alone."""
        return numbered([None if answer is None else _spelling(answer) for answer in answers])

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """Run each program once; a task without tests is a ValueError."""
        names = [(question_id(task), code) for task, code in pairs]
        if unknown := [name for name, _ in names if name not in self.tests]:
            raise ValueError(f"expected tests for task {unknown[0]!r}, got tests for {len(self.tests)} other tasks")
        unique = list(dict.fromkeys(names))
        with ThreadPoolExecutor(_cores()) as pool:
            verdicts = dict(zip(unique, pool.map(self._verdict, unique), strict=True))
        return [verdicts[name] for name in names]

    def identity(self) -> dict[str, Any]:
        """Rule, limits and versions."""
        return {"rule": "programs, 3", "tolerance": self.tolerance, "sandbox": self.sandbox.identity()}

    def _verdict(self, named: tuple[str, str]) -> Verdict:
        name, code = named
        cases = self.tests[name]
        entry, prefix = cases[-1].entry, self.prefix.get(name, "")
        if prefix and not re.search(
            rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(entry)}\b", code, re.MULTILINE
        ):
            code = prefix + code
        verdicts = (self._tested(code, case) for case in cases)
        return next((verdict for verdict in verdicts if verdict is not Verdict.RIGHT), Verdict.RIGHT)

    def _tested(self, code: str, case: Case) -> Verdict:
        if case.kind == "asserts":
            return self._asserted(code, case)
        mode = ("program",) if case.kind == "stdin" else ("call", case.entry)
        done = self.sandbox.run({"program.py": code, **_INSIDE}, (*_START, *mode), case.input)
        if failure := _failure(done):
            return failure
        if case.kind == "stdin":
            same = same_text(done.stdout, case.output, self.tolerance)
            return Verdict.RIGHT if same else Verdict.WRONG
        if not done.stdout:  # it ended itself before there was a result
            return Verdict.RUNTIME_ERROR
        try:
            result = json.loads(done.stdout)
        except (ValueError, RecursionError):
            return Verdict.WRONG
        same = same_value(result, json.loads(case.output), self.tolerance)
        return Verdict.RIGHT if same else Verdict.WRONG

    def _asserted(self, code: str, case: Case) -> Verdict:
        program = Command({"program.py": code, **_INSIDE}, (*_START, "serve"))
        tests = Command({"tests.py": f"{case.input}\n{case.code}\n", **_INSIDE}, (*_START, "tests", case.entry))
        served, tested = self.sandbox.converse(program, tests)
        # The tests alone say that they were passed; why they were not, the program's end may tell.
        return Verdict.RIGHT if not (failure := _failure(tested)) else _failure(served) or failure


def same_text(printed: str, expected: str, tolerance: float) -> bool:
    """Whether outputs are equal, as `Case` has it for `stdin`."""
    ours, theirs = ([line.split() for line in text.strip().split("\n")] for text in (printed, expected))
    if list(map(len, ours)) != list(map(len, theirs)):
        return False
    words = zip(*(itertools.chain.from_iterable(lines) for lines in (ours, theirs)), strict=True)
    return all(_same_word(one, other, tolerance) for one, other in words)


def same_value(result: Any, expected: Any, tolerance: float) -> bool:
    """Whether JSON values are equal, as `Case` has it for `call`."""
    match result, expected:
        case (list(), list()):
            return len(result) == len(expected) and all(
                same_value(*pair, tolerance) for pair in zip(result, expected, strict=True)
            )
        case (dict(), dict()):
            return result.keys() == expected.keys() and all(
                same_value(result[key], expected[key], tolerance) for key in expected
            )
        case (float(), float() | int()) | (int(), float()):
            with suppress(OverflowError):  # an integer beyond floats
                return result == expected or math.isclose(result, expected, rel_tol=tolerance, abs_tol=tolerance)
    return bool(result == expected)


def _same_word(one: str, other: str, tolerance: float) -> bool:
    if one == other:
        return True
    if not (_DECIMAL.fullmatch(one) and _DECIMAL.fullmatch(other)):
        return False
    ours, theirs = Decimal(one), Decimal(other)
    if ours == theirs or not {".", "e", "E"} & set(other):
        return ours == theirs
    return abs(ours - theirs) <= Decimal(tolerance) * max(Decimal(1), abs(theirs))


def _failure(done: Finished) -> Verdict | None:
    """What ended a program, if it did not end well."""
    if done.reason or done.exit_code == 0:
        return done.reason
    return _ENDED.get(done.exit_code or 1, Verdict.RUNTIME_ERROR)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _blocks(text: str) -> list[tuple[str, str]]:
    """The blocks of code in a text, with their marks; a fence is closed by one of its kind that is no shorter."""
    blocks, opened = [], None
    for fence in _FENCE.finditer(text):
        _, ticks, mark, rest = fence.groups()
        if opened is None:
            if "`" not in rest:
                opened = fence
        elif not mark and not rest.strip() and ticks.startswith(opened[2]):
            blocks.append((opened[3].lower(), _dedented(text[opened.end() + 1 : fence.start()], opened[1])))
            opened = None
    if opened is not None:
        blocks.append((opened[3].lower(), _dedented(text[opened.end() + 1 :], opened[1])))
    return blocks or [(mark.lower(), code.rstrip(" \t")) for mark, code in _ONE_LINE.findall(text)]


def _dedented(code: str, indent: str) -> str:
    """A block as it would stand without its fence's own indentation."""
    return re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) if indent else code


def _is_example(code: str, earlier: Sequence[str]) -> bool:
    """Whether a block defines nothing, and calls what an earlier block defines."""
    tree, definitions = _parsed(code), (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    if tree is None or any(isinstance(node, definitions) for node in tree.body):
        return False
    trees = [found for other in earlier if (found := _parsed(other))]
    defined = {node.name for found in trees for node in found.body if isinstance(node, definitions)}
    return any(isinstance(node, ast.Name) and node.id in defined for node in ast.walk(tree))


def _parsed(code: str) -> ast.Module | None:
    if len(code) > LONGEST_PROGRAM:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_program(code: str) -> bool:
    """Whether it is Python that does something; a word or a number is Python as well."""
    tree = _parsed(code)
    return tree is not None and any(
        not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call) for statement in tree.body
    )


def _spelling(code: str) -> str:
    tree = _parsed(code)
    try:
        return code if tree is None else ast.unparse(tree)
    except RecursionError:
        return code
