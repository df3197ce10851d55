"""The process that compares formulas may be stopped at any time."""

from nsed_torch.traces import formulas
from nsed_torch.traces.equality import Equality

PAIR = (r"\frac{\pi}{2}", r"0.5\pi")


def test_a_pair_that_takes_too_long_is_not_the_same_and_the_next_is_compared(monkeypatch):
    own = formulas.Formulas()
    assert own.equal(*PAIR)
    with monkeypatch.context() as patched:
        patched.setattr(formulas, "PATIENCE", 0.0)
        own._child.send_signal(19)  # it does not answer by itself
        assert not own.equal(*PAIR)
    assert own._child is None
    assert own.equal(*PAIR)
    own.close()


def test_what_arithmetic_brackets_or_unknowns_tell_asks_no_process(monkeypatch):
    monkeypatch.setattr(formulas.Formulas, "_asked", None)
    for one, other in (
        ("2*(8+8/2)", "3*9"),
        (r"2^{8} \div 3", r"\frac{16 \times 3}{2}"),
        ("2^{-99}", "2^{-98}"),
        ("x+1", "y+1"),
        ("(1,2)", "[1,2]"),
        ("1,2,3", "1,2,4"),
    ):
        assert not Equality().equal(one, other)
    assert Equality().equal("2*(8+8/2)", "24")
    assert Equality().equal("1.5^2", r"\frac{9}{2} \div 2")


def test_arithmetic_is_exact_and_bounded():
    assert formulas.arithmetic("-2^2 + 2^{-1}") == -3.5
    for text in ("9^9^9", "((9^{99})^{99})^{99}", "0^{-1}", "4^{1/2}", "2**3", r"3\frac{1}{2}"):
        assert formulas.arithmetic(text) is None
