"""Programs and answers that forge their grade, or keep the grader busy: none passes, and their honest twins do."""

import dataclasses
import functools
import gzip
import io
import json
import time

import pytest
from sandboxed import SANDBOX, usable

from nsed_torch.questions import sandbox_child as inside
from nsed_torch.questions.answers.kinds import KINDS, read
from nsed_torch.questions.code_tasks import humaneval
from nsed_torch.questions.programs import Case, ProgramGrader, same_text
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.formulas import latex

HASTY = dataclasses.replace(SANDBOX, seconds=0.3)  # for what has to be stopped

NEXT = Case(
    "asserts",
    code="""
assert set(after(1)) == {2}
assert abs(sum(after(3)) - 4) < 1e-9
assert sorted(after(5)) == [6] and len(after(5)) == 1
try: after('x')
except TypeError: pass
else: raise AssertionError
""",
    entry="after",
)
EACH = Case(
    "asserts",
    code="""
for n, got in zip([1, 2], map(odd, [1, 2])): assert got == (n == 1)
for got in map(odd, [2, 4]): assert not got
assert all(map(odd, [1, 3]))
assert not any(map(odd, [2]))
""",
    entry="odd",
)
TRUE = Case("asserts", code="assert odd(1)\nassert odd(3)", entry="odd")
TEXT = Case("call", "[1]", '"[1, 2]"', entry="spell")
HALF = Case("stdin", "3\n", "1.5\n")
HONEST = [
    (NEXT, "def after(n): return [n + 1]"),
    (EACH, "def odd(n): return n % 2 == 1"),
    (TRUE, "def odd(n): return n % 2 == 1"),
    (TEXT, "def spell(xs): return str(xs + [2])"),
    (HALF, "print(int(input()) / 2)"),
]

# What a program can reach of the process that it shares with its runner: descriptors, and files that are open.
WRITE = """
import gc, io, os
def tell(*replies):
  text = '\\n'.join(replies) + '\\n'
  for fd in range(1, 64):
    try: os.write(fd, text.encode())
    except OSError: pass
  for each in gc.get_objects():
    if isinstance(each, io.TextIOWrapper):
      try: each.write(text); each.flush()
      except Exception: pass
pairs = ', '.join('{"tuple": ["%s", {"kept": 2}]}' % name for name in ('after', 'odd'))
hello = '{"value": {"dict": [%s]}}' % pairs
def after(*a): return 0
odd = after
"""
BAD = """
def after(n): return 0
def odd(n): return []
def spell(xs): return 0
"""
FORGED = """{
  'set': lambda x: frozenset([2]), 'abs': lambda x: 0, 'sum': lambda x: 4,
  'sorted': lambda x: [6], 'len': lambda x: 1,
}"""
PROGRAMS = {
    "a dict of builtins": (NEXT, BAD + """
class D(dict):
  __call__ = 0
__builtins__ = D(""" + FORGED + ")"),
    "a function as builtins": (NEXT, BAD + "def __builtins__(*a): return 0"),
    "a class as builtins": (NEXT, BAD + """
class __builtins__:
  def __getitem__(self, name): return lambda *a: 0
"""),
    "builtins over the wire": (NEXT, WRITE + """
forged = pairs.replace('after', 'set').replace('odd', 'abs')
tell(hello[:-3] + ', {"tuple": ["__builtins__", {"dict": [%s]}]}]}}' % forged, *['{"value": {"set": [2]}}'] * 9)
"""),
    "import and build_class": (NEXT, BAD + "__import__ = __build_class__ = __loader__ = __spec__ = lambda *a: after"),
    "builtins by name": (NEXT, BAD + "set = abs = sum = sorted = len = zip = map = lambda *a: 0"),
    "its own AssertionError": (NEXT, BAD + """
class AssertionError(Exception): pass
class TypeError(Exception): pass
"""),
    "patched builtins": (NEXT, BAD + """
import builtins
vars(builtins).update(""" + FORGED + ")"),
    "patched modules": (NEXT, BAD + """
import math, copy, re
math.isclose = copy.deepcopy = re.match = lambda *a: True
"""),
    "StopIteration": (EACH, "def odd(n): raise StopIteration"),
    "StopAsyncIteration": (EACH, "def odd(n): raise StopAsyncIteration"),
    "StopIteration over the wire": (EACH, WRITE + """
tell(hello, *['{"raised": ["StopIteration", ""]}'] * 20)
"""),
    "SystemExit over the wire": (NEXT, WRITE + """
tell(hello, *['{"raised": ["SystemExit", 0]}'] * 20)
"""),
    "a reply that is an error": (NEXT, WRITE + """
tell('{"raised": ["SystemExit", 0]}')
"""),
    "GeneratorExit": (EACH, "def odd(n): raise GeneratorExit"),
    "KeyboardInterrupt": (NEXT, "def after(n): raise KeyboardInterrupt"),
    "SystemExit": (NEXT, "def after(n): raise SystemExit(0)"),
    "AssertionError": (NEXT, "def after(n): raise AssertionError"),
    "always the expected error": (NEXT, "def after(n): raise TypeError"),
    "quit": (NEXT, BAD + """
import os
os._exit(0)
"""),
    "exit while it is called": (NEXT, """
import os
def after(n): os._exit(0)
"""),
    "exit while it is told": (TEXT, """
import os
class A:
  def tolist(self): os._exit(0)
def spell(x): return A()
"""),
    "atexit": (NEXT, BAD + """
import atexit, os
atexit.register(os._exit, 0)
raise SystemExit(0)
"""),
    "kill all": (NEXT, BAD + """
import os
os.kill(-1, 9)
os.killpg(0, 9)
"""),
    "kill its parent": (NEXT, """
import os
def after(n): os.kill(os.getppid(), 9)
"""),
    "a function is true": (TRUE, "def odd(n): return lambda: 0"),
    "a class is true": (TRUE, """
class odd:
  def __init__(self, n): pass
"""),
    "an object that says so": (TRUE, """
class A:
  def __bool__(self): return True
def odd(n): return A()
"""),
    "a coroutine is true": (TRUE, "async def odd(n): return False"),
    "a module is true": (TRUE, """
import os
def odd(n): return os
"""),
    "a repr": (TEXT, """
class A:
  def __repr__(self): return '[1, 2]'
def spell(xs): return A()
"""),
    "an equal text": (TEXT, """
class A(str):
  def __eq__(self, o): return True
  __hash__ = None
def spell(x): return A()
"""),
    "a text in other words": (TEXT, """
class A(str):
  def __str__(self): return '[1, 2]'
  __repr__ = __str__
  def encode(self, *a): return b'[1, 2]'
def spell(x): return A('x')
"""),
    "a list for a text": (TEXT, "def spell(xs): return [1, 2]"),
    "equal to all": (NEXT, """
class A(int):
  def __eq__(self, o): return True
  def __sub__(self, o): return 0
  def __hash__(self): return 2
def after(n): return [A(9)]
"""),
    "a list that changes": (NEXT, """
class A(list):
  def __iter__(self): return iter([2])
  def __len__(self): return 1
  def __eq__(self, o): return True
def after(n): return A([0, 0])
"""),
    "an object with operators": (NEXT, """
class A:
  def __iter__(self): return iter([2])
  def __len__(self): return 1
  def __eq__(self, o): return True
  def __lt__(self, o): return True
  def __hash__(self): return 0
def after(n): return A()
"""),
    "no number": (NEXT, "def after(n): return [float('nan')]"),
    "infinity": (NEXT, "def after(n): return [float('inf')]"),
    "a false class": (NEXT, """
class A:
  __class__ = list
  def __iter__(self): return iter([2])
def after(n): return A()
"""),
    "tolist without end": (NEXT, """
class A:
  def tolist(self): return [A()]
def after(n): return A()
"""),
    "a stream without end": (NEXT, """
import itertools
def after(n): return itertools.count()
"""),
    "a deep value": (NEXT, """
def after(n):
  x = []
  for _ in range(10**5): x = [x]
  return x
"""),
    "a huge value": (NEXT, "def after(n): return 'x' * 10**8"),
    "a huge number": (NEXT, "def after(n): return [10**60000]"),
    "a deep reply": (NEXT, WRITE + """
tell('{"value": ' + '[' * 60000)
"""),
    "an unknown kind": (NEXT, WRITE + """
tell(hello, *['{"value": {"eval": []}}'] * 9)
"""),
    "a kept thing that is none": (NEXT, WRITE + """
tell(hello, *['{"value": {"kept": {}}}'] * 9)
"""),
    "plain data as names": (NEXT, WRITE + """
tell('{"value": {"dict": [{"tuple": ["after", 1]}, {"tuple": [7, 8]}]}}')
"""),
    "patched json": (NEXT, BAD + """
import json
json.dumps = lambda *a, **k: '{"value": true}'
json.loads = lambda *a: [0, [], {}]
"""),
    "patched runner": (NEXT, BAD + """
import sys
main = vars(sys.modules['__main__'])
main['encode'] = main['decode'] = main['tests'] = lambda *a: True
"""),
    "patched frames": (NEXT, BAD + """
import sys
frame = sys._getframe()
while frame:
  frame.f_globals.update(WRONG=0, encode=lambda *a: True)
  frame = frame.f_back
"""),
    "replies for ever": (NEXT, WRITE + """
import threading
threading.Thread(target=lambda: [tell('{"value": true}') for _ in iter(int, 1)]).start()
"""),
    "a second process": (NEXT, WRITE + """
tell('{"value": true}') if os.fork() else tell('{"value": {"set": [2]}}')
"""),
    "trace": (NEXT, BAD + """
import sys
sys.settrace(lambda *a: None)
sys.exit = sys.excepthook = lambda *a: None
"""),
    "write the tests": (NEXT, BAD + "open('/box/tests.py', 'w').write('')"),
    "own tests": (NEXT, BAD + """
import os
os.mkdir('box')
open('box/tests.py', 'w')
os.chdir('box')
import inside
"""),
    "read the tests": (NEXT, """
import gc, glob, os
seen = [str(gc.get_objects()), str(dict(os.environ))]
for name in glob.glob('/box/*') + glob.glob('/proc/[0-9]*/*') + glob.glob('/proc/[0-9]*/fd/*') + glob.glob('/tmp/*'):
  try: seen.append(os.read(os.open(name, os.O_RDONLY | os.O_NONBLOCK), 1 << 20).decode('latin-1'))
  except OSError: pass
if ''.join(map(chr, (97, 102, 116, 101, 114, 40, 53, 41))) in ''.join(seen):
  def after(n): return [n + 1]
"""),
    "a time bomb": (NEXT, """
import time
def after(n): time.sleep(99)
"""),
    "a loop": (HALF, "while True: pass"),
    "processes": (NEXT, BAD + """
import os
while True:
  try: os.fork()
  except OSError: pass
"""),
    "threads": (NEXT, BAD + """
import threading, time
while True: threading.Thread(target=time.sleep, args=(9,)).start()
"""),
    "a flood": (HALF, "while True: print('1.5')"),
    "a flood of errors": (NEXT, BAD + """
import sys
while True: print('x' * 999, file=sys.stderr)
"""),
    "a long number": (HALF, "print('1' * 60000)"),
    "all numbers": (HALF, "print(*[n / 10 for n in range(99)], sep='\\n')"),
    "right and more": (HALF, "print(1.5, 1.5)"),
}  # fmt: skip
SLOW = {"a time bomb", "a loop", "processes", "a stream without end", "replies for ever", "a flood of errors"}
QUICK = ("a dict of builtins", "StopIteration", "a function is true", "a repr")


def verdicts(entries, sandbox=SANDBOX):
    cases = {case: str(number) for number, case in enumerate({case: None for case, _ in entries})}
    grader = ProgramGrader({name: (case,) for case, name in cases.items()}, sandbox)
    return grader.grade([(Task("?", cases[case]), code) for case, code in entries])


def check(names):
    assert verdicts(HONEST) == [Verdict.RIGHT] * len(HONEST)
    got = {}
    for hasty, sandbox in ((False, SANDBOX), (True, HASTY)):
        chosen = [name for name in names if (name in SLOW) == hasty]
        got |= dict(zip(chosen, verdicts([PROGRAMS[name] for name in chosen], sandbox), strict=True))
    assert len(got) == len(names)
    assert {name: str(verdict) for name, verdict in got.items() if verdict in {Verdict.RIGHT, Verdict.NOT_RUN}} == {}


@usable
def test_no_trick_passes_and_honest_twins_do():
    check(QUICK)


@usable
@pytest.mark.attack
def test_no_hostile_program_passes():
    assert len(PROGRAMS) >= 49
    check(list(PROGRAMS))


@pytest.fixture
def tests_of(tmp_path, monkeypatch):
    """A function that runs tests against replies as a program may forge them, without a sandbox."""

    def run(code, *replies):
        (tmp_path / "tests.py").write_text(code)
        monkeypatch.setattr(inside, "__file__", str(tmp_path / "inside.py"))
        lines = io.StringIO("".join(reply if isinstance(reply, str) else f"{json.dumps(reply)}\n" for reply in replies))
        monkeypatch.setattr(inside, "line", lambda: (lines, io.StringIO()))
        inside.tests("f")

    return run


def named(**values):
    return {"value": {"dict": [{"tuple": pair} for pair in values.items()]}}


F = {"kept": 2}


@pytest.mark.parametrize(
    "forged",
    [
        {"__builtins__": {"dict": [{"tuple": ["abs", F]}, {"tuple": ["AssertionError", F]}]}},
        {"__builtins__": F},
        {"abs": F, "AssertionError": F, "math": F, "__import__": F},
        {"abs": 0, "eps": 9},
    ],
)
def test_no_name_of_the_tests_python_is_the_programs(tests_of, forged):
    code = "import math\nassert abs(f(1) - 2) < min([1e-9]) and math.isclose(2, 2)"
    tests_of(code, named(f=F), {"value": 2})
    tests_of(code, named(f=F, **forged), {"value": 2})
    with pytest.raises(AssertionError):
        tests_of(code, named(f=F, **forged), {"value": 0}, {"value": 0}, {"value": 0})


def test_only_functions_are_taken_over(tests_of):
    with pytest.raises(NameError, match="limit"):
        tests_of("assert f(1) < limit", named(f=F, limit=9), {"value": 2})


@pytest.mark.parametrize("name", ["StopIteration", "StopAsyncIteration", "SystemExit", "GeneratorExit", "exit", "Odd"])
def test_no_error_of_a_program_ends_the_tests_or_their_loops(tests_of, name):
    with pytest.raises(RuntimeError, match=name):
        tests_of("for got in map(f, [1, 2]): assert got == 3", named(f=F), {"raised": [name, ""]})
    tests_of("try: f(1)\nexcept ValueError as e: assert str(e) == 'no'", named(f=F), {"raised": ["ValueError", "no"]})


@pytest.mark.parametrize("code", ["assert f(1)", "assert not f(1)", "assert all([f(1)])", "if f(1): pass"])
def test_an_object_is_neither_true_nor_false(tests_of, code):
    with pytest.raises(TypeError, match="expected plain data of the program, got an object"):
        tests_of(code, named(f=F), {"value": {"kept": 3}})
    tests_of("assert f(1) is not None and f(1) != 2", named(f=F), {"value": {"kept": 3}}, {"value": {"kept": 3}})


@pytest.mark.parametrize(
    "reply",
    [
        {"value": {"kept": 3}},
        {"value": {"kept": {"set": [2]}}},
        {"value": {"complex": [float("nan"), 2]}},
        {"value": {"iterator": []}},
        {"value": {"eval": ["2"]}},
        {"value": {"list": [], "tuple": []}},
        {"value": {"dict": [1]}},
        {"value": {"bytes": [-1]}},
        {"raised": []},
        {"raised": [["a"], 0]},
        {"raised": ["UnicodeDecodeError", "x"]},
        [],
        "{\n",
        "\n",
        "",
        '{"value": ' + "[" * 200_000 + "\n",
        '{"value": ' + '{"list": [' * 5000 + "]}" * 5000 + "}\n",
        '{"value": ' + "9" * 5000 + "}\n",
    ],
    ids=lambda reply: str(reply)[:30],
)
def test_no_other_reply_passes(tests_of, reply):
    for code in ("f(1) == 2", "len(f(1)) == 2", "2 in f(1)", "abs(f(1)) < 3", "f(1) < 3", "not f(1) > 3"):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - any end but a quiet one
            tests_of(f"assert {code}", named(f=F), reply)
        assert not isinstance(caught.value, NameError)


@pytest.mark.parametrize(
    "first", [{"value": 1}, {"value": {"list": []}}, {"value": {"dict": [{"tuple": [7, F]}]}}, "", "x\n"]
)
def test_a_first_reply_without_names_passes_nothing(tests_of, first):
    with pytest.raises(Exception):  # noqa: B017, PT011 - as above
        tests_of("assert f(1) == 2", first, {"value": 2})


def test_what_json_does_not_know_equals_nothing():
    class Told:
        def __repr__(self):
            return "right"

    got = json.loads(json.dumps([Told(), {1}], default=inside._listed))
    assert got != ["right", "{1}"]
    assert all(value != value for value in got)  # NaN alone


def test_given_helpers_are_not_the_programs(tests_of, tmp_path):
    row = {"task_id": "HumanEval/32", "entry_point": "f", "prompt": "def poly(x):\n    return x - 2\n\ndef f(x):\n"}
    row["test"] = "def check(f):\n    assert poly(f(1)) == 0\n"
    (tmp_path / "humaneval").mkdir()
    (tmp_path / "humaneval/HumanEval.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    (case,) = humaneval(data_dir=str(tmp_path)).grader.tests["HumanEval/32"]
    code = f"{case.input}\n{case.code}"
    tests_of(code, named(f=F, poly=F), {"value": 2})
    with pytest.raises(AssertionError):
        tests_of(code, named(f=F, poly=F), {"value": 7}, {"value": 0})


@pytest.mark.parametrize("printed", ["1" * 2_000_000, "-" + "9" * 1_500_000 + ".5", "1." + "3" * 1_500_000, "9e9999"])
def test_no_printed_number_stops_the_grader(printed):
    assert not same_text(printed, "1.5", 1e-9)
    assert same_text(printed, printed, 1e-9)


SIZE = 100_000
PART = 20_000  # of which nothing that grows with the square is read in time
PIECES = [
    "a", "1", "0.", "1,111", "1/", " ", "\t", "\n", "*", "_", "{", "}", "[", "(", "\\boxed{", "\\boxed{}",
    "#", "####", "answer", "answer:", "answer is ", "Answer: answer: ", "option ", "option:\n", "A", "A)",
    "A or ", ">", "-", "`", "```", "```\n", "``` ", "```python\n", "\\frac{", "\\text{", "\\text{a}", "**",
    "\"", "'", "\\(", "$", "$$", "~", ". ", ".", "x=", "^", "\u0663", "\uff11", "\u2212", "async ", "def f",
    "\\", "{,}", "is ",
]  # fmt: skip
HEADS = ["```", "answer", "answer:", "A", "1", "\\boxed{", "#", "option: ", "\\text{"]
READERS = {
    **{kind: functools.partial(read, kind=kind, options=("one", "two words", "three", "four")) for kind in KINDS},
    "programs": lambda text: ProgramGrader({}).extract(Task("?", "t"), text),
    "sameness": lambda text: ProgramGrader({}).classes(Task("?", "t"), [text, text + "x"]),
    "equality": lambda text: Equality().equal(text, "42"),
    "outputs": lambda text: same_text(text, "1.5", 1e-9),
}


def slowest(reader, texts):
    """How long the slowest text takes, in seconds of processor time, and which one it is."""
    took = {}
    for text in texts:
        began = time.process_time()
        READERS[reader](text)
        took[text[:20]] = time.process_time() - began
    return max((seconds, text) for text, seconds in took.items())


@pytest.mark.parametrize("reader", READERS)
def test_no_long_text_keeps_a_grader_busy(reader):
    texts = [
        "answer" + " " * 20_000 + "\u00e9!",
        "answer:" + ". " * (SIZE // 2),
        "```" + " " * SIZE,
        "```" + "a" * SIZE,
        "Answer: " * (SIZE // 8),
        "*" * 20_000,
        "A" + "`" * 20_000,
    ]
    assert slowest(reader, texts)[0] < 1.5


@pytest.mark.attack
@pytest.mark.parametrize("reader", READERS)
def test_no_piece_over_and_over_keeps_a_grader_busy(reader):
    repeated = [(piece * PART)[:PART] for piece in PIECES]
    texts = (head + text + tail for text in repeated for head in ("", *HEADS) for tail in ("", "\u00e9!"))
    assert slowest(reader, texts)[0] < 3


BOMBS = [
    "10**10**9", "10^10^9", "9^{9\n^{9^{9}}}", "2^{9999}", r"\exp(\exp(\exp(99)))", r"\sin(\exp(\exp(\exp(3))))",
    r"\cosh(\cosh(\cosh(99)))", r"\Gamma(99999999)", r"\gamma(99999999)", "99999999!", r"{99999999 \choose 4999999}",
    r"\dbinom{99999999}{49999999}", r"\prod_{i=1}^{99999999}i", r"\iint x dx dy", r"9^{\frac{99999999999}{1}}",
    r"\sqrt[\frac{1}{999999999}]{9}", r"\sqrt[0.000000001]{9}", r"9^{999{999}{999}}", r"9^{999 999 999}",
    r"\sin(9^{eeeeeeeeeeeeeeeeeeeeeee})", r"\sin 9^{\frac1{\cos11\cos11\cos11\cos11}}", r"9^{\exp 99}",
    "(a+b+c)^{999}", "(a+b+c+d)^{99}", "(x+1)^{999}=0", "x^{999}-1", "9" * 79, "(" * 39 + "1" + ")" * 39,
    "(a+b+c)^n", "(a+b)(b+c)(c+d)(d+e)(e+f)(f+g)", "x^{99}+x=1", r"\sin(99x)", "\u2211 9999999", "\u0393(99999999)",
    r"\sin(a+b)\cos(a+c)\tan(a+b)", "|" * 38 + "1" + "|" * 38,
]  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_keeps_an_algebra_system_busy_is_no_formula(bomb):
    assert latex(bomb) == ""


HONEST_FORMULAS = [
    r"\pi", r"\infty", "x^{9}", "(a+b)^2", "(a+b)(b+c)(a-c)", r"e^{-x/2}", "2^{n+1}", r"90^\circ", r"\sqrt[3]{2}",
    r"e^{2\pi}", r"x^{\frac{1}{2}}", r"\left(\frac{2}{3}\right)^{10}", "2^{100}", r"x \in [-2,7]", "x^(1/3)", "3 + 4i",
    r"(-\infty, 2)\cup(3,\infty)",
]  # fmt: skip


@pytest.mark.parametrize("formula", HONEST_FORMULAS)
def test_honest_formulas_are_compared(formula):
    assert latex(formula)
