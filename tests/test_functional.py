import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from nsed_torch import functional as F

REAL = torch.float64


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=REAL, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def full(*shape):
    return torch.ones(*shape, dtype=torch.bool)


def tensor(*values, grad=False):
    return torch.tensor(*values, dtype=REAL, requires_grad=grad)


def test_vote_mask_hides_own_and_unanswered():
    mask = F.vote_mask(torch.tensor([[0, 2]]), torch.tensor([[2, 1, 0]]), torch.tensor([[True, False, True]]))
    assert mask.tolist() == [[[True, False, False], [False, False, True]]]


def test_quadratic_vote_by_hand():
    mask = full(1, 3, 3)
    mask[0, 2, 0] = False
    half = math.sqrt(0.5)
    q = F.quadratic_vote(tensor([[[0.5, -0.5, 0.0], [0.0, 0.0, 0.0], [math.nan, 0.2, 0.6]]]), mask)
    expected = tensor([[[half, -half, 0], [0, 0, 0], [0, math.sqrt(0.25), math.sqrt(0.75)]]])
    torch.testing.assert_close(q, expected, atol=1e-15, rtol=0)


@settings(max_examples=60, deadline=None)
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
    q = F.token_vote(tensor([[[25.0, 36.0], [100.0, 100.0], [-5.0, 0.0]]]), full(1, 3, 2))
    half = math.sqrt(0.5)
    torch.testing.assert_close(q, tensor([[[0.5, 0.6], [half, half], [0, 0]]]), atol=1e-15, rtol=0)


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


def test_lambert_w0_against_scipy():
    from scipy.special import lambertw

    z = torch.cat([torch.zeros(1, dtype=REAL), torch.logspace(-300, 300, 2001, dtype=REAL)])
    torch.testing.assert_close(F.lambert_w0(z), torch.from_numpy(lambertw(z.numpy()).real), rtol=1e-14, atol=0)


def test_optimal_round_is_where_utility_peaks():
    k, p_g, beta = tensor([0.1, 0.3, 1.0]), 0.54, 0.002
    best = F.optimal_round(k, p_g, beta)
    torch.testing.assert_close(F.marginal_utility(best, p_g, k, beta), torch.zeros(3, dtype=REAL), atol=1e-14, rtol=0)
    flat = tensor([0.0, -0.5, 1e-200], grad=True)
    rounds = F.optimal_round(flat, p_g, beta)
    rounds.sum().backward()
    assert rounds.tolist() == [0, 0, 0]
    assert flat.grad.isfinite().all()


def test_evidence_by_hand():
    slope = [0.46 * 0.3 * math.exp(-0.3 * r) - 0.004 * r for r in (1, 2, 3)]
    got = F.evidence(tensor([[0.5, -1.0, 1.0]]), 0.54, 0.3, 0.002)
    torch.testing.assert_close(got, tensor([[0.5 * slope[0], 0.5 * slope[0], 0.5 * slope[0] + slope[2]]]))


def masks(*shape):
    """Everything, and half of it with one row empty."""
    partial = torch.rand(*shape, generator=torch.Generator().manual_seed(3)) < 0.5
    partial[:, 0] = False
    return [full(*shape), partial]


SHAPES = [(2, 3, 4), (1, 1, 3), (1, 3, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_gradcheck_votes_and_controversy(shape):
    for mask in masks(*shape):
        assert gradcheck(lambda r, mask=mask: F.quadratic_vote(r, mask), randn(*shape))
        tokens = (torch.rand(shape, dtype=REAL) * 80 + 1).requires_grad_()
        assert gradcheck(lambda t, mask=mask: F.token_vote(t, mask), tokens)
        assert gradcheck(lambda r, mask=mask: F.controversy(r, mask), randn(*shape))


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
        counts = mask.any(1)
        assert gradcheck(lambda s, beta, m=counts: F.consensus(s, m, beta)[0], (randn(b, p), tensor(1.3, grad=True)))
        winner = F.consensus(randn(b, p), counts, 1.0)[1]
        assert gradcheck(lambda s, w=winner: F.conviction(s, w), randn(b, p))
        assert gradcheck(F.decisiveness, randn(b, p))


def test_gradcheck_memory_and_gate():
    assert gradcheck(F.forget_gate, (randn(2, 3, 4), randn(4, seed=1), randn()))
    assert gradcheck(F.cosine, (randn(2, 1, 3), randn(2, 4, 3, seed=1)))
    old, new = masks(2, 3)[1], masks(2, 4)[0]
    retention, entering = randn(2, 3).exp().detach(), randn(2, 4, seed=1).softmax(-1).detach()
    gate = randn(2, 3, seed=2).sigmoid().detach()
    assert gradcheck(
        lambda r, g, e: F.update_memory(r, old, g, e, new)[0],
        [t.requires_grad_() for t in (retention, gate, entering)],
    )
    assert gradcheck(lambda m, r: F.hidden_state(m, r, old), (randn(2, 3, 5), retention))


def test_gradcheck_utility():
    t, p_g, k, beta = (
        tensor([1.0, 4.0], grad=True),
        tensor(0.5, grad=True),
        tensor(0.3, grad=True),
        tensor(0.002, grad=True),
    )
    assert gradcheck(F.utility, (t, p_g, k, beta))
    assert gradcheck(F.marginal_utility, (t, p_g, k, beta))
    assert gradcheck(F.evidence, (randn(2, 5), p_g, k, beta))
    assert gradcheck(F.optimal_round, (tensor([0.2, 0.9, -0.4], grad=True), p_g, tensor(0.02, grad=True)))
    assert gradcheck(F.lambert_w0, (tensor([1e-3, 0.7, 30.0], grad=True),))


def test_shapes_are_checked_under_test():
    with pytest.raises(Exception, match="Type-check error"):
        F.quadratic_vote(torch.zeros(1, 2, 3), full(1, 3, 2))
