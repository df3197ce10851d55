import math

import pytest
import torch
from drawn_tensors import REAL, masks, randn, tensor
from torch.autograd import gradcheck

from nsed_torch.core import functional as F
from nsed_torch.core.functional.memory import split_gate
from nsed_torch.core.functional.tally import cosine


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
    assert gradcheck(F.entry_gate, (randn(2, 3, 4), randn(4, seed=1)))
    assert F.entry_gate(randn(2, 3, 4), torch.zeros(4, dtype=REAL)).eq(1).all()
    assert F.entry_gate(tensor([[-2.0], [3.0]]), tensor([1.0])).tolist() == pytest.approx([2 / (1 + math.exp(2)), 1])
    assert gradcheck(cosine, (randn(2, 1, 3), randn(2, 4, 3, seed=1)))
    old, new = masks(2, 3)[1], masks(2, 4)[0]
    retention, entering = randn(2, 3).exp().detach(), randn(2, 4, seed=1).softmax(-1).detach()
    gate = randn(2, 3, seed=2).sigmoid().detach()
    assert gradcheck(
        lambda r, g, e: F.update_memory(r, old, g, e, new)[0],
        [t.requires_grad_() for t in (retention, gate, entering)],
    )
    assert gradcheck(lambda m, r: F.hidden_state(m, r, old), (randn(2, 3, 5), retention))


def test_vector_gate_by_hand():
    gate = F.vector_gate(
        tensor([[[1.0, 2.0]]]), tensor([[3.0, 4.0]]), tensor([[5.0, 6.0]]), tensor([[[0.5, -1.0]]]),
        weight=tensor([[1.0, 0.5, 0.1], [0.0, 0.0, -1.0]]), mixing=tensor([[2.0, 0.0], [0.0, 1.0]]),
        bias=tensor([0.1, 0.2]),
    )  # fmt: skip
    expected = [1 / (1 + math.exp(-z)) for z in (0.1 + 1 + 1.5 + 0.5 + 1, 0.2 - 6 - 1)]
    assert gate[0, 0].tolist() == pytest.approx(expected, abs=1e-15)


def test_split_gate_fades_retention_times_embedding_by_the_gate():
    gate, m = randn(2, 3, 5).sigmoid(), randn(2, 3, 5, seed=1)
    factor, embeddings = split_gate(gate, m)
    torch.testing.assert_close(factor, gate.mean(-1), atol=1e-15, rtol=0)
    torch.testing.assert_close(factor[..., None] * embeddings, gate * m, atol=1e-15, rtol=0)
    even = torch.full((1, 2, 7), 0.8, dtype=REAL)
    factor, same = split_gate(even, m[:1, :2, :1].expand(1, 2, 7))
    assert torch.equal(factor, even[..., 0])
    assert torch.equal(same, m[:1, :2, :1].expand(1, 2, 7))
    factor, same = split_gate(torch.zeros(2, 3, 5, dtype=REAL), m)
    assert not factor.any()
    assert torch.equal(same, m)


def test_gradcheck_vector_gate():
    inputs = (randn(2, 3, 4), randn(2, 4, seed=1), randn(2, 4, seed=2), randn(2, 3, 4, seed=3))
    weights = (randn(4, 3, seed=4), randn(4, 4, seed=5), randn(4, seed=6))

    def run(m, c, x, phi, u, v, b):
        gate = F.vector_gate(m, c, x, phi, weight=u, mixing=v, bias=b)
        return split_gate(gate, m)

    assert gradcheck(run, (*inputs, *weights))


def test_held_follows_slots_back_to_the_proposals_that_they_hold():
    source = torch.tensor([[[3, 4, -1], [1, 3, 0], [-1, 4, 1]]])  # three slots, two proposals a round
    assert [F.held(source[:, :r], 2).tolist() for r in (1, 2, 3)] == [[[0, 1, -1]], [[1, 2, 0]], [[-1, 5, 2]]]
