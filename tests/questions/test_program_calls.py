"""What tests and programs are to each other: calls, objects and data pass between them, names do not."""

from sandboxed import grade, usable

from nsed_torch.questions.programs import Case
from nsed_torch.records.outcome import Verdict


@usable
def test_names_of_python_are_the_tests_own_unless_they_are_tested():
    same = Case(
        "asserts", code="assert tuple(after(1)) == tuple([2])\nassert math.isclose(after(1)[0], 2)", entry="after"
    )
    forged = "tuple = lambda x: 0\nclass math:\n  isclose = lambda *a: True\ndef after(n): return [5]"
    assert grade(forged, same) is Verdict.WRONG
    assert grade("def after(n): return [n + 1]", same) is Verdict.RIGHT
    summed = Case("asserts", code="assert sum(10, 15) == 6", entry="sum")
    assert grade("def sum(a, b): return 6", summed) is Verdict.RIGHT
    helped = Case("asserts", code="def check(f):\n  assert helper(f(1)) == 4\ncheck(after)", entry="after")
    assert grade("def helper(n): return 2 * n\ndef after(n): return n + 1", helped) is Verdict.RIGHT


@usable
def test_plain_data_comes_back_as_it_was():
    code = """
import copy
values = [None, True, 3, 10**30, 2.5, float('inf'), 1j, 'a\\ud800', b'x', (1, [2]), {1, 2}, frozenset('a')]
values.append({(1, 2): {'k': []}})
for value in values:
    got = same(copy.deepcopy(value))
    assert got == value and type(got) is type(value), (got, value)
assert list(stream(3)) == [0, 1, 2] and next(stream(1)) == 0
assert same(value=7) == 7
try: fail()
except ZeroDivisionError as error: assert str(error) == 'x'
else: assert False
"""
    program = (
        "def same(value): return value\ndef stream(n): yield from range(n)\ndef fail(): raise ZeroDivisionError('x')"
    )
    assert grade(program, Case("asserts", code=code)) is Verdict.RIGHT
    assert (
        grade(
            "import collections\ndef f(x): return collections.Counter(x)",
            Case("asserts", code="assert f('aab') == {'a': 2, 'b': 1}"),
        )
        is Verdict.RIGHT
    )
    assert (
        grade("import numpy as np\ndef f(x): return np.array([x, 2]).sum()", Case("asserts", code="assert f(1) == 3"))
        is Verdict.RIGHT
    )


@usable
def test_objects_of_the_programs_are_built_and_read_from_afar():
    setup = "root = Node(1)\nroot.left = Node(2)\nroot.left.left = Node(3)"
    program = (
        "class Node:\n  def __init__(self, v): self.v, self.left = v, None\n  def depth(self): return height(self)\n"
    )
    program += "def height(n): return 1 + height(n.left) if n else 0"
    case = Case("asserts", input=setup, code="assert height(root) == 3 and root.left.v == 2 and root.depth() == 3")
    assert grade(program, case) is Verdict.RIGHT
    assert grade(program.replace("1 +", "2 +"), case) is Verdict.WRONG
    assert grade(program, Case("asserts", code="height(lambda: 1)")) is Verdict.RUNTIME_ERROR


@usable
def test_calls_find_what_starter_code_assumes_and_may_print():
    code = """
print('noise')
class Solution:
  def f(self, x: Optional[List[int]]) -> Deque:
    print(deque(x), math.inf, pow(2, 5, 7))
    return sorted(Counter(x).items()), heapq.nsmallest(1, x), bisect.bisect_left(x, 2), gcd(4, 6), cache(abs)(-2)
"""
    assert grade(code, Case("call", "[1, 2]", "[[[1, 1], [2, 1]], [1], 1, 2, 2]", entry="f")) is Verdict.RIGHT
    assert grade("def f(x): return x", Case("call", '"a"', '"a"', entry="f")) is Verdict.RIGHT
    assert (
        grade(
            "import numpy as np\ndef f(x): return np.int64(x), np.arange(2)",
            Case("call", "5", "[5, [0, 1]]", entry="f"),
        )
        is Verdict.RIGHT
    )
    deep = "def f(n): return 0 if n == 0 else 1 + f(n - 1)"
    assert grade(deep, Case("call", "20000", "20000", entry="f")) is Verdict.RIGHT
    assert grade("print(len(str(7**9000)))\nexit()", Case("stdin", "", "7606")) is Verdict.RIGHT


@usable
def test_a_program_is_run_as_main_and_only_then():
    code = "import dataclasses, threading\n@dataclasses.dataclass\nclass A:\n  x: int = 1\ndef main(): print(A())\n"
    code += "if __name__ == '__main__': threading.Thread(target=main).start()\ndef f(): return __name__"
    assert grade(code, Case("stdin", "", "A(x=1)")) is Verdict.RIGHT
    assert grade(code, Case("call", "", '"program"', entry="f")) is Verdict.RIGHT
