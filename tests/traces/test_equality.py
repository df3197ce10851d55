"""Classes of equal answers, and the ratings and winners that follow from them."""

import importlib.util
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core import functional
from nsed_torch.traces.equality import Equality, agreement, commonest

PLAIN = Equality(math_verify=False)
needs_math_verify = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify comes with the extra bench"
)
ANSWERS = st.lists(
    st.lists(st.sampled_from(["1", "1.0", "$1", "2", "\\frac{4}{2}", "x", "X", "none", None]), min_size=5, max_size=5),
    min_size=1,
    max_size=4,
)
CLASSES = st.lists(st.lists(st.integers(-1, 3), min_size=6, max_size=6), min_size=1, max_size=5).map(torch.tensor)


def test_classes_are_numbered_by_their_first_agent():
    rows = [["$5", None, "7", "5.0", "eight", "7.00"], ["a", "b", "a", "c", None, "b"], [None] * 6]
    assert PLAIN.classes(rows).tolist() == [[0, -1, 1, 0, 2, 1], [0, 1, 0, 2, -1, 1], [-1] * 6]
    assert PLAIN.classes([]).numel() == 0


@settings(max_examples=30)
@given(ANSWERS)
def test_a_row_does_not_depend_on_its_neighbours_and_agrees_with_pairs(rows):
    classes = PLAIN.classes(rows)
    for row, numbers in zip(rows, classes.tolist(), strict=True):
        assert PLAIN.classes([row])[0].tolist() == numbers
        for one, a in zip(row, numbers, strict=True):
            for other, b in zip(row, numbers, strict=True):
                if one is not None and other is not None:
                    assert PLAIN.equal(one, other) == (a == b)
    assert ((classes == -1) == torch.tensor([[answer is None for answer in row] for row in rows])).all()


@settings(max_examples=30)
@given(CLASSES)
def test_the_commonest_answers_are_those_of_the_largest_classes(classes):
    for row, top in zip(classes.tolist(), commonest(classes).tolist(), strict=True):
        sizes = [row.count(c) if c >= 0 else 0 for c in row]
        assert top == [size == max(sizes) > 0 for size in sizes]


@settings(max_examples=30)
@given(CLASSES)
def test_agreement_rates_as_plain_python_does(classes):
    ratings, mask = agreement(classes)
    for b, row in enumerate(classes.tolist()):
        for i, own in enumerate(row):
            for j, other in enumerate(row):
                counts = i != j and own >= 0 and other >= 0
                assert bool(mask[b, i, j]) == counts
                assert ratings[b, i, j].item() == ((1.0 if own == other else -1.0) if counts else 0.0)


@settings(max_examples=30)
@given(CLASSES)
def test_a_vote_on_agreement_is_the_plurality(classes):
    ratings, mask = agreement(classes)
    ballots = functional.quadratic_vote(ratings.double(), mask)
    for row, tally, top in zip(classes.tolist(), ballots.sum(1), commonest(classes).tolist(), strict=True):
        n = sum(c >= 0 for c in row)
        if n < 2:
            continue
        # (2 m - n - 1) / sqrt(n - 1): m - 1 votes for, n - m against, each 1 / sqrt(n - 1).
        expected = [(2 * row.count(c) - n - 1) / (n - 1) ** 0.5 if c >= 0 else -torch.inf for c in row]
        support = tally.masked_fill(torch.tensor(row) < 0, -torch.inf)
        torch.testing.assert_close(support, torch.tensor(expected, dtype=torch.float64))
        assert [support == max(expected) for support in expected] == top


def test_a_large_table_takes_seconds():
    rows = [[f"${i * 7 + j % 9:,}.{j % 3}0" for j in range(44)] for i in range(1319)]
    start = time.perf_counter()
    classes = PLAIN.classes(rows)
    assert time.perf_counter() - start < 10  # about 0.6 s on one core
    assert classes.shape == (1319, 44)


def test_asking_for_what_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert Equality().math_verify is False
    with pytest.raises(ValueError, match=r"pip install .*\[bench\]"):
        Equality(math_verify=True)


@needs_math_verify
def test_formulas_are_compared_by_their_meaning():
    row = [
        "\\sqrt{72}",
        "6\\sqrt{2}",
        "\\frac{12}{\\sqrt{2}}",
        "4 + 25x",
        "25x+4",
        "25",
        "\\frac{1}{2}",
        "\\sqrt{1/4}",
        "prose",
    ]
    assert Equality(math_verify=True).classes([row])[0].tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 4]


@needs_math_verify
def test_formulas_are_compared_in_any_thread_and_never_for_long():
    rows = [["9^{9^{9^9}}", "(10^{10})!", "\\sum_{k=1}^{10^9} k", "2^{99999999}", "\\sqrt{4}", "2"]]
    found = []
    worker = threading.Thread(
        target=lambda: found.append(Equality(math_verify=True).classes(rows).tolist()), daemon=True
    )
    worker.start()
    worker.join(60)
    assert found == [[[0, 1, 2, 3, 4, 4]]]
