import math

import pytest
import torch
from torch.autograd import gradcheck

from nsed_torch import functional as F

REAL = torch.float64

SHAPES = [(2, 3, 4), (1, 1, 3), (1, 3, 1)]


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=REAL, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def full(*shape):
    return torch.ones(*shape, dtype=torch.bool)


def tensor(*values, grad=False):
    return torch.tensor(*values, dtype=REAL, requires_grad=grad)


def masks(*shape):
    """Everything, and half of it with one row empty."""
    partial = torch.rand(*shape, generator=torch.Generator().manual_seed(3)) < 0.5
    partial[:, 0] = False
    return [full(*shape), partial]


def test_reliability_is_one_at_start_and_has_mean_one():
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    ones = F.reliability(torch.zeros(2, 4, dtype=REAL), torch.zeros(2, 4, 3, dtype=REAL), randn(2, 3), mask)
    torch.testing.assert_close(ones, mask.to(REAL), atol=1e-15, rtol=0)
    tau = F.reliability(randn(2, 4), randn(2, 4, 3, seed=1), randn(2, 3), mask)
    assert tau[0].sum().item() == pytest.approx(3)
    assert not tau[1].any()


def test_cosine_of_zero_vectors_is_zero_with_finite_gradients():
    a, b = tensor([[0.0, 0.0], [1.0, 1.0]], grad=True), tensor([[1.0, 0.0], [0.0, 0.0]], grad=True)
    c = F.cosine(a, b)
    c.sum().backward()
    assert c.tolist() == [0, 0]
    assert a.grad.isfinite().all()
    assert b.grad.isfinite().all()


@pytest.mark.parametrize(
    ("support", "winner"),
    [
        ([0.1, 0.9, 0.9], 1),
        ([0.9 - 1e-12, 0.9, 0.1], 0),
        ([0.9 - 1e-6, 0.9, 0.1], 1),
        ([-3.0, -2.0, -2.0], 1),
        ([1e6, 1e6 + 1e-4, 0.0], 0),
        ([0.0, 0.0, 0.0], 0),
    ],
)
def test_winner_and_ties(support, winner):
    assert F.consensus(tensor([support]), full(1, 3), 1.0)[1].item() == winner


def test_consensus_masks_and_nothing_counts():
    p, winner = F.consensus(tensor([[9.0, 1.0, 1.0]] * 2), torch.tensor([[False, True, True], [False] * 3]), 2.0)
    assert p.tolist() == [[0, 0.5, 0.5], [0, 0, 0]]
    assert winner.tolist() == [1, -1]


def test_conviction_decisiveness_negatives():
    support = tensor([[3.0, -1.0], [-1.0, -3.0], [0.0, 0.0], [1e-17, -1e-17]])
    winner = torch.tensor([0, 0, 0, 0])
    assert F.conviction(support, winner).tolist() == [0.75, -0.25, 0, 0]
    assert F.decisiveness(support)[:3].tolist() == [4, 4, 0]
    assert F.all_negative(support, winner).tolist() == [False, True, False, False]
    nobody = torch.full((4,), -1)
    assert not F.conviction(support, nobody).any()
    assert not F.all_negative(support, nobody).any()


def test_controversy_is_the_variance_of_counted_ratings():
    ratings = tensor([[[1.0, math.nan], [0.0, math.nan], [math.nan, 0.3]]])
    mask = torch.tensor([[[True, False], [True, False], [False, False]]])
    assert F.controversy(ratings, mask).tolist() == [[0.25, 0]]


@pytest.mark.parametrize("shape", SHAPES)
def test_gradcheck_support_consensus_conviction(shape):
    b, v, p = shape
    for mask in masks(*shape):
        voter_mask = mask.any(-1)
        assert gradcheck(
            lambda a, w, x, m=voter_mask: F.reliability(a, w, x, m), (randn(b, v), randn(b, v, 2), randn(b, 2))
        )
        assert gradcheck(
            lambda q, t, k, e, h, m=mask: F.support(q, m, t, kappa=k, embeddings=e, hidden=h),
            (randn(*shape), randn(b, v, seed=1), tensor(0.3, grad=True), randn(b, p, 5), randn(b, 5, seed=1)),
        )
        voters, authors = torch.arange(v).expand(b, -1), torch.arange(p).flip(0).expand(b, -1)
        assert gradcheck(lambda t, i=voters, a=authors: F.author_weight(t, i, a), randn(b, v))
        counts = mask.any(1)
        assert gradcheck(lambda s, beta, m=counts: F.consensus(s, m, beta)[0], (randn(b, p), tensor(1.3, grad=True)))
        winner = F.consensus(randn(b, p), counts, 1.0)[1]
        assert gradcheck(lambda s, w=winner: F.conviction(s, w), randn(b, p))
        assert gradcheck(F.decisiveness, randn(b, p))
