"""Programs are graded; whatever they try, only right answers pass."""

import dataclasses
import gzip
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from sandboxed import SANDBOX, TASK, grade, usable

from nsed_torch.questions.programs import Case, ProgramGrader
from nsed_torch.questions.sandbox import Sandbox
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task

HASTY = dataclasses.replace(SANDBOX, seconds=0.3)  # for what has to be stopped

DOUBLE = Case("stdin", "2\n1\n4\n", "2\n8\n")
ADD = Case("call", '[1, 2]\n{"a": 3}', "[1, 2, 3]", entry="join")
NEXT = Case(
    "asserts",
    code="assert after(1) == 2\nassert after(-1) == 0\nassert [after(n) for n in (7, 8)] == [8, 9]",
    entry="after",
)
RIGHT = {
    DOUBLE: "for _ in range(int(input())): print(2 * int(input()), ' ')\nprint()",
    ADD: "class Solution:\n  def join(self, xs: List[int], more: Dict[str, int]): return tuple(xs) + (*more.values(),)",
    NEXT: "def after(n): return n + 1",
}
KINDS = pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.kind)


@usable
@KINDS
def test_each_end_has_its_verdict(case):
    right = RIGHT[case]
    assert grade(right, case) is Verdict.RIGHT
    assert grade(right.replace("2 *", "3 *").replace("tuple(xs) +", "").replace("+ 1", "+ 2"), case) is Verdict.WRONG
    assert grade("def broken(:\n", case) is Verdict.COMPILE_ERROR
    assert grade("raise ValueError('no')", case) is Verdict.RUNTIME_ERROR
    assert grade("import sys\nsys.exit(1)", case) is Verdict.RUNTIME_ERROR
    assert grade("import time\ntime.sleep(60)", case, sandbox=HASTY) is Verdict.TIME_LIMIT
    assert grade("x = [0] * 10**10", case) is Verdict.MEMORY_LIMIT
    assert grade("while True: print('x' * 9999)", case) is Verdict.OUTPUT_LIMIT
    assert grade("import ctypes\nctypes.string_at(0)", case) is Verdict.RUNTIME_ERROR


@usable
@pytest.mark.parametrize("case", [ADD, NEXT], ids=lambda case: case.kind)
def test_what_happens_in_a_call_has_its_verdict(case):
    for body, verdict in {
        "raise ValueError": Verdict.RUNTIME_ERROR,
        "return 1 // 0": Verdict.RUNTIME_ERROR,
        "return [0] * 10**10": Verdict.MEMORY_LIMIT,
        "while True: print('x' * 9999)": Verdict.OUTPUT_LIMIT,
        "return None": Verdict.WRONG,
        "return {1, 2, 3}": Verdict.WRONG,
        "return lambda: 2": Verdict.WRONG,
    }.items():
        assert grade(f"def {case.entry}(*args):\n  {body}", case) is verdict
    assert grade(f"def {case.entry}(*args):\n  while True: pass", case, sandbox=HASTY) is Verdict.TIME_LIMIT
    assert grade("def another(): pass", case) is Verdict.RUNTIME_ERROR


@usable
def test_the_first_case_that_fails_decides():
    second = Case("stdin", "1\n0\n", "1\n")
    assert grade(RIGHT[DOUBLE], DOUBLE, second, DOUBLE) is Verdict.WRONG
    assert grade("print(1 // int(input()[0] != '1'))", second, DOUBLE) is Verdict.RUNTIME_ERROR
    assert grade("print(2)\nprint(8)", DOUBLE, second) is Verdict.WRONG


LIAR = """
class Liar(list):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __getattr__(self, name): return Liar()
    def __iter__(self): return iter([])
    def __len__(self): return 0
class Yes(int):
    def __eq__(self, other): return True
    def __repr__(self): return '2'
def join(*a): return Liar()
def after(n): return Yes(40)
"""
ZEROS = "def after(n): return 0\ndef join(*a): return 0\n"
TRICKS = {
    "quit": "import os\nos._exit(0)",
    "exit": "import sys\nsys.exit(0)",
    "exit in a call": "import sys\ndef join(*a): sys.exit(0)\nafter = join",
    "quit in a call": "import os\ndef join(*a): os._exit(0)\nafter = join",
    "throw": "def join(*a): raise SystemExit(0)\ndef after(n): raise BaseException('StopIteration')",
    "equal to all": LIAR,
    "equal object": LIAR.replace("(list)", "").replace("(int)", ""),
    "shadow": ZEROS
    + """
all = any = len = tuple = list = sorted = int = print = isinstance = lambda *a: True
assert_ = check = candidate = lambda *a: True
math = copy = True
""",
    "patch": ZEROS
    + """
import builtins, json
builtins.compile = builtins.exec = builtins.range = lambda *a, **k: []
json.dumps = lambda *a, **k: '[1]'
json.loads = lambda *a, **k: [0, [], {}]
""",
    "end the others": ZEROS
    + """
import os
for pid in range(1, 99):
  try:
    if pid != os.getpid(): os.kill(pid, 9)
  except OSError: pass
""",
    "write to all": """
import os
for fd in range(1, 9):
  for text in ('0', 'true', 'RIGHT', '{"value": true}', '{"value": {"dict": []}}', '{"exit-code": 0}'):
    try: os.write(fd, text.encode() + b'\\n')
    except OSError: pass
""",
    "write and quit": """
import os
for fd in range(1, 9):
  try: os.write(fd, b'{"value": {"dict": []}}\\n{"value": 2}\\n')
  except OSError: pass
os._exit(0)
""",
    # The numbers spell what is expected, which the program's own text must not hold.
    "look for the answers": """
import gc, glob, sys
seen = [open(f).read() for f in glob.glob('/box/*') + glob.glob('/tmp/*')] + sys.orig_argv
frame = sys._getframe()
while frame:
  seen.append(str(frame.f_locals) + str(frame.f_globals))
  frame = frame.f_back
seen = ''.join(seen + [str(x) for x in gc.get_objects()])
if any(''.join(map(chr, word)) in seen for word in ((91, 56, 44, 32, 57), (91, 49, 44, 32, 50, 44, 32, 51))):
  def after(n): return n + 1
  def join(*a): return [1, 1 + 1, 3]
""",
    "catch all": """
import sys, threading
sys.excepthook = threading.excepthook = lambda *a: None
sys.exit = lambda *a: None
def join(*a): raise AssertionError
after = join
""",
    "trace": ZEROS
    + """
import sys
def hook(*a): return hook
sys.settrace(hook)
sys.setprofile(hook)
""",
}


@usable
@KINDS
@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_passes(case, trick):
    verdict = grade(TRICKS[trick], case)
    assert verdict in {Verdict.WRONG, Verdict.RUNTIME_ERROR, Verdict.OUTPUT_LIMIT, Verdict.TIME_LIMIT}


@usable
def test_a_prefix_is_put_before_what_does_not_define_the_entry():
    prompt = 'from math import tau\n\ndef after(n):\n    """The next one."""\n'
    settings = {"prefix": {"t": prompt}}
    assert grade("    return n + 1", NEXT, **settings) is Verdict.RIGHT
    assert grade("    return n + int(tau) - 5", NEXT, **settings) is Verdict.RIGHT
    assert grade("def after(n): return n + 1", NEXT, **settings) is Verdict.RIGHT
    assert grade("def after_all(n): return n + 1", NEXT, **settings) is Verdict.WRONG
    assert grade("    return n + 1", NEXT) is Verdict.COMPILE_ERROR


@usable
def test_programs_are_graded_once_for_all_epochs_and_in_order():
    grader = ProgramGrader({"a": (DOUBLE,), "b": (NEXT,)}, SANDBOX)
    a, b, again = Task("?", "a"), Task("?", "b"), Task("?", "a~2")
    pairs = [(a, RIGHT[DOUBLE]), (b, RIGHT[DOUBLE]), (again, RIGHT[DOUBLE]), (b, RIGHT[NEXT]), (again, "x")]
    expected = [Verdict.RIGHT, Verdict.RUNTIME_ERROR, Verdict.RIGHT, Verdict.RIGHT, Verdict.RUNTIME_ERROR]
    assert grader.grade(pairs) == expected
    assert ProgramGrader(grader.tests, SANDBOX).grade(pairs[::-1]) == expected[::-1]
    assert grader.grade([]) == []


@KINDS
@pytest.mark.parametrize("bwrap", [None, "/no/such/bwrap", "/bin/true"])
def test_without_a_sandbox_nothing_is_right(case, bwrap):
    grader = ProgramGrader({"t": (case,)}, Sandbox(bwrap=bwrap))
    assert grader.grade([(TASK, RIGHT[case]), (TASK, "syntax error")]) == [Verdict.NOT_RUN] * 2
    assert "programs are not run" in grader.why
    assert grader.identity()["sandbox"]["available"] is False


def test_faults_are_one_line():
    with pytest.raises(ValueError, match="expected at least one test for every task, got none for 'u': leave"):
        ProgramGrader({"t": (ADD,), "u": ()})
    with pytest.raises(ValueError, match="expected tests for task 'u', got tests for 1 other tasks"):
        ProgramGrader({"t": (ADD,)}, SANDBOX).grade([(Task("?", "u"), "x")])


def test_identity_is_json():
    identity = ProgramGrader({}, tolerance=0.0).identity()
    assert json.loads(json.dumps(identity)) == identity
    assert identity["tolerance"] == 0
    assert identity["sandbox"]["seconds"] == 10


# What LiveCodeBench's own harness recorded for real programs of one model: {code, passed, metadata.error_code}.
RECORDED = {
    -2: Verdict.WRONG,
    -3: Verdict.TIME_LIMIT,
    -4: Verdict.RUNTIME_ERROR,
    -5: Verdict.RUNTIME_ERROR,
}
# That harness runs programs inside its own process. It replaces sys.stdin but not descriptor 0, so that `open(0)` waits
# for ever ("time limit"), and what threads print after the main one has ended is lost ("wrong"), right or not.
ARTEFACT = re.compile(r"\bopen\(0\)|\bThread\(")


def recorded_programs(folder):
    """Task, cases, program, recorded verdict: validated samples for right programs, what they fail for wrong ones."""
    with gzip.open(folder / "problems_v5_880.jsonl.gz", "rt") as file:
        problems = {line["question_id"]: line for line in map(json.loads, file)}
    with gzip.open(folder / "generations_o1-mini-2024-09-12.jsonl.gz", "rt") as file:
        for made in map(json.loads, file):
            problem, passed, about = problems[made["question_id"]], made["passed"], made["metadata"]
            mine = [test for test in problem["leaked_failing_tests"] if test["from"] == made["model"]]
            tests = problem["sample_tests_parsed"] * bool(problem["sample_tests_validated"]) if passed else mine
            kinds = [("stdin" if test["testtype"] == "stdin" else "call", test) for test in tests]
            cases = tuple(Case(k, t["input"], t["output"], entry=t.get("func_name", "")) for k, t in kinds)
            verdict = Verdict.RIGHT if passed else RECORDED[about["error_code"]]
            if "expected an indented block" in about.get("error_message", ""):
                verdict = Verdict.COMPILE_ERROR  # the harness calls it a runtime error
            if cases:
                yield made["question_id"], cases, made["code"], verdict


@usable
@pytest.mark.skipif("NSED_DATA" not in os.environ, reason="NSED_DATA names no folder with LiveCodeBench's programs")
def test_recorded_programs_get_their_recorded_verdicts():
    programs = list(recorded_programs(Path(os.environ["NSED_DATA"]) / "livecodebench"))
    programs = programs[:: max(1, len(programs) // int(os.environ.get("NSED_PROGRAMS", "60")))]
    grader = ProgramGrader({name: cases for name, cases, _, _ in programs}, tolerance=0.0)
    ours = grader.grade([(Task("?", name), code) for name, _, code, _ in programs])
    rows = [
        (name, str(theirs), str(own), bool(ARTEFACT.search(code)))
        for (name, _, code, theirs), own in zip(programs, ours, strict=True)
    ]
    failing = [row for row in rows if row[1] != "right"]
    fair = [row for row in failing if not row[3]]
    print(f"{len(rows) - len(failing)} right, {len(failing)} failing, {len(fair)} of them fair; (recorded, ours):")
    print(Counter(row[1:3] for row in rows), *(row for row in rows if row[1] != row[2]), sep="\n")
    assert [row for row in rows if row[1] == "right" != row[2]] == []
    assert sum(row[1] == row[2] for row in fair) >= 0.98 * len(fair)


@usable
@pytest.mark.skipif("NSED_DATA" not in os.environ, reason="NSED_DATA names no folder with HumanEval")
def test_reference_solutions_of_humaneval_are_right_and_empty_ones_are_not():
    with gzip.open(Path(os.environ["NSED_DATA"]) / "humaneval" / "HumanEval.jsonl.gz", "rt") as file:
        rows = list(map(json.loads, file))[::8]
    names = {row["task_id"]: row for row in rows}
    check = {n: f"{row['test']}\ncheck({row['entry_point']})" for n, row in names.items()}
    tests = {n: (Case("asserts", code=check[n], entry=row["entry_point"]),) for n, row in names.items()}
    grader = ProgramGrader(tests, prefix={n: row["prompt"] for n, row in names.items()})
    verdicts = grader.grade([(Task("?", n), row["canonical_solution"]) for n, row in names.items()])
    assert set(verdicts) == {Verdict.RIGHT}
    assert Verdict.RIGHT not in grader.grade([(Task("?", n), "    pass\n") for n in names])
