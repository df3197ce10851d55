"""Who wins where several stand level: one rule by its name, whatever the order and the names."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.parts.ties import Ties

LEVEL = torch.tensor([[False, True, True, True], [False, False, False, True], [False] * 4])


def test_by_hand():
    assert Ties.FIRST.chances(LEVEL).tolist() == [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert Ties.LOT.chances(LEVEL)[0].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    # The second and the last say the same: one answer of two, not two of three.
    classes = torch.tensor([[5, 7, 5, 7]] * 3)
    assert Ties.LOT.chances(LEVEL, classes).tolist() == [[0, 0.5, 0.5, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert Ties.LOT.chances(LEVEL, torch.full((3, 4), -1)).equal(Ties.LOT.chances(LEVEL))
    accuracy = torch.tensor([[0.9, 0.2, 0.4, 0.4]])
    assert Ties.ACCURACY.chances(LEVEL, accuracy=accuracy).tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]


@settings(max_examples=50)
@given(st.data())
def test_a_lot_and_accuracies_know_neither_order_nor_names(data):
    n = data.draw(st.integers(1, 6))
    tied = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    classes = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    right = torch.tensor(data.draw(st.lists(st.booleans(), min_size=4, max_size=4)))
    accuracy = torch.tensor(data.draw(st.permutations(range(n)))).double()
    order, names = (torch.tensor(data.draw(st.permutations(range(size)))) for size in (n, 4))
    for rule, skill in ((Ties.LOT, None), (Ties.ACCURACY, accuracy)):
        one = rule.chances(tied, classes, skill)
        other = rule.chances(tied[order], names[classes[order]], None if skill is None else skill[order])
        assert float((one * right[classes]).sum()) == pytest.approx(float((other * right[classes[order]]).sum()))
        assert float(one.sum()) == pytest.approx(float(tied.any()))


def test_accuracies_that_nobody_knows_and_other_names_are_refused():
    with pytest.raises(ValueError, match=r"^ties=accuracy: expected agents whose accuracy is known, got none: "):
        Ties.ACCURACY.chances(LEVEL)
    with pytest.raises(ValueError, match=r"^expected ties=first or ties=lot or ties=accuracy, got ties=last$"):
        Ties.named("last")
