import math

import pytest
import torch
from drawn_tensors import REAL, SHAPES, full, masks, randn, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from nsed_torch.core import functional as F
from nsed_torch.parts import votes


def test_vote_mask_hides_own_and_unanswered():
    mask = F.vote_mask(torch.tensor([[0, 2]]), torch.tensor([[2, 1, 0]]), torch.tensor([[True, False, True]]))
    assert mask.tolist() == [[[True, False, False], [False, False, True]]]


def test_vote_mask_with_own_hides_the_unanswered_alone():
    mask = F.vote_mask(torch.tensor([[0, 2]]), torch.tensor([[2, 1, 0]]), torch.tensor([[True, False, True]]), own=True)
    assert mask.tolist() == [[[True, False, True], [True, False, True]]]


def test_quadratic_vote_by_hand():
    mask = full(1, 3, 3)
    mask[0, 2, 0] = False
    half = math.sqrt(0.5)
    q = F.quadratic_vote(tensor([[[0.5, -0.5, 0.0], [0.0, 0.0, 0.0], [math.nan, 0.2, 0.6]]]), mask)
    expected = tensor([[[half, -half, 0], [0, 0, 0], [0, math.sqrt(0.25), math.sqrt(0.75)]]])
    torch.testing.assert_close(q, expected, atol=1e-15, rtol=0)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=6),
    st.sampled_from([torch.float32, torch.float64]),
    st.floats(0.1, 1),
)
def test_quadratic_vote_unit_norm_scale_free_finite(row, dtype, scale):
    ratings = torch.tensor([[row]], dtype=dtype, requires_grad=True)
    q = F.quadratic_vote(ratings, full(1, 1, len(row)))
    q.sum().backward()
    assert ratings.grad.isfinite().all()
    assert torch.equal(q.sign(), ratings.sign()) or min(abs(r) for r in row if r) < 1e-20
    if any(row):
        assert q.norm().item() == pytest.approx(1, abs=1e-5)
    else:
        assert not q.any()
    if max(map(abs, row)) > 1e-30:
        torch.testing.assert_close(F.quadratic_vote(ratings * scale, full(1, 1, len(row))), q, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", [[0.0, 0.0], [0.0, 1.0], [1e-45, 0.0], [1e-38, 1e-30], [1e-40, 1.0]])
def test_quadratic_vote_gradients_finite_at_zero_and_next_to_it(row, dtype):
    ratings = torch.tensor([[row]], dtype=dtype, requires_grad=True)
    F.quadratic_vote(ratings, full(1, 1, 2)).sum().backward()
    assert ratings.grad.isfinite().all()


def test_token_vote_rescales_only_above_a_hundred():
    q = votes.token_vote(tensor([[[25.0, 36.0], [100.0, 100.0], [-5.0, 0.0]]]), full(1, 3, 2))
    half = math.sqrt(0.5)
    torch.testing.assert_close(q, tensor([[[0.5, 0.6], [half, half], [0, 0]]]), atol=1e-15, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradcheck_votes_and_controversy(shape):
    for mask in masks(*shape):
        assert gradcheck(lambda r, mask=mask: F.quadratic_vote(r, mask), randn(*shape))
        tokens = (torch.rand(shape, dtype=REAL) * 80 + 1).requires_grad_()
        assert gradcheck(lambda t, mask=mask: votes.token_vote(t, mask), tokens)
        assert gradcheck(lambda r, mask=mask: F.controversy(r, mask), randn(*shape))


def test_shapes_are_checked_under_test():
    with pytest.raises(Exception, match="Type-check error"):
        F.quadratic_vote(torch.zeros(1, 2, 3), full(1, 3, 2))
