import math

import pytest
import torch
from drawn_tensors import REAL, masks, randn, tensor
from torch.autograd import gradcheck

from nsed_torch.core import functional as F
from nsed_torch.core.functional.tally import cosine
from nsed_torch.parts.gates import entry_gate


def test_update_memory_orders_keeps_and_names_sources():
    retention, source = F.update_memory(
        tensor([[0.5, 0.4, 0.0]]), torch.tensor([[True, True, False]]), tensor([[0.5, 0.5, 0.5]]),
        tensor([[0.25 + 1e-14, 0.75, 0.9]]), torch.tensor([[True, True, False]]),
    )  # fmt: skip
    assert source.tolist() == [[4, 0, 3]]  # the old slot precedes its equal
    torch.testing.assert_close(retention, tensor([[0.75, 0.25, 0.25]]))
    retention, source = F.update_memory(
        tensor([[0.0]]), torch.tensor([[False]]), tensor([[1.0]]), tensor([[math.nan]]), torch.tensor([[False]])
    )
    assert (retention.item(), source.item()) == (0, -1)


def test_gradcheck_memory_and_gate():
    assert gradcheck(F.forget_gate, (randn(2, 3, 4), randn(4, seed=1), randn()))
    assert gradcheck(entry_gate, (randn(2, 3, 4), randn(4, seed=1)))
    assert entry_gate(randn(2, 3, 4), torch.zeros(4, dtype=REAL)).eq(1).all()
    assert entry_gate(tensor([[-2.0], [3.0]]), tensor([1.0])).tolist() == pytest.approx([2 / (1 + math.exp(2)), 1])
    assert gradcheck(cosine, (randn(2, 1, 3), randn(2, 4, 3, seed=1)))
    old, new = masks(2, 3)[1], masks(2, 4)[0]
    retention, entering = randn(2, 3).exp().detach(), randn(2, 4, seed=1).softmax(-1).detach()
    gate = randn(2, 3, seed=2).sigmoid().detach()
    assert gradcheck(
        lambda r, g, e: F.update_memory(r, old, g, e, new)[0],
        [t.requires_grad_() for t in (retention, gate, entering)],
    )
    assert gradcheck(lambda m, r: F.hidden_state(m, r, old), (randn(2, 3, 5), retention))


def test_what_an_empty_slot_holds_is_nothing():
    embeddings = tensor([[[1.0, 2.0], [math.nan, math.inf]]])
    hidden = F.hidden_state(embeddings, tensor([[0.5, 0.5]]), torch.tensor([[True, False]]))
    assert hidden.tolist() == [[1.0, 2.0]]


def test_held_follows_slots_back_to_the_proposals_that_they_hold():
    source = torch.tensor([[[3, 4, -1], [1, 3, 0], [-1, 4, 1]]])  # three slots, two proposals a round
    assert [F.held(source[:, :r], 2).tolist() for r in (1, 2, 3)] == [[[0, 1, -1]], [[1, 2, 0]], [[-1, 5, 2]]]
