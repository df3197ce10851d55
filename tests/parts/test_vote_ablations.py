import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from nsed_torch.core import functional as F
from nsed_torch.parts import votes

REAL = torch.float64
ABLATIONS = {
    "linear": F.linear_vote,
    "l2": votes.l2_vote,
    "plurality": votes.plurality_vote,
    "borda": votes.borda_vote,
    "approval": votes.approval_vote,
    "entmax": votes.entmax_vote,
}


def linear(row):
    total = sum(map(abs, row))
    return [r / total if total else 0.0 for r in row]


def l2(row):
    norm = math.sqrt(sum(r * r for r in row))
    return [r / norm if norm else 0.0 for r in row]


def plurality(row):
    if not row or (max(row) <= 0 and max(row) == min(row)):
        return [0.0] * len(row)
    return [float(j == row.index(max(row))) for j in range(len(row))]


def borda(row):
    return [sum((r > s) - (r < s) for s in row) / max(len(row) - 1, 1) for r in row]


def approval(row):
    return [float(r > 0) for r in row]


def entmax(row):
    """alpha = 1.5 in closed form: z/2 = (r/temperature)/2, q = [z/2 - tau]_+^2, by trying every support size."""
    halves = [2 * r for r in row]
    for m in range(len(row), 0, -1):
        top = sorted(halves, reverse=True)[:m]
        mean = sum(top) / m
        under = 1 / m - sum((z - mean) ** 2 for z in top) / m
        if under >= 0 and mean - math.sqrt(under) < top[-1]:
            return [max(z - mean + math.sqrt(under), 0) ** 2 for z in halves]
    return []


ORACLES = {"linear": linear, "l2": l2, "plurality": plurality, "borda": borda, "approval": approval, "entmax": entmax}


def a_ballot_box(seed, grid=False):
    """Ratings with ties if on a grid, NaN wherever masked, one voter without a say."""
    g = torch.Generator().manual_seed(seed)
    ratings = torch.rand(2, 4, 5, generator=g, dtype=REAL) * 2 - 1
    ratings = (ratings * 2).round() / 2 if grid else ratings
    mask = torch.rand(2, 4, 5, generator=g) < 0.7
    mask[0, 0] = False
    return torch.where(mask, ratings, math.nan), mask


@pytest.mark.parametrize("name", ABLATIONS)
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.booleans())
def test_votes_are_their_plain_formulas(name, seed, grid):
    ratings, mask = a_ballot_box(seed, grid)
    got = ABLATIONS[name](ratings, mask)
    assert not got[~mask].any()
    for b in range(2):
        for i in range(4):
            counted = ratings[b, i][mask[b, i]].tolist()
            assert got[b, i][mask[b, i]].tolist() == pytest.approx(ORACLES[name](counted), abs=1e-9)


@pytest.mark.parametrize("name", ABLATIONS)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31))
def test_masking_equals_deleting_and_order_does_not_matter(name, seed):
    ratings, mask = a_ballot_box(seed)
    vote = ABLATIONS[name]
    close = {"atol": 1e-12, "rtol": 0}
    mask[:, :, 2], mask[:, 1] = False, False
    columns, rows = [0, 1, 3, 4], [0, 2, 3]
    got = vote(ratings, mask)
    small = vote(ratings[:, rows][:, :, columns], mask[:, rows][:, :, columns])
    torch.testing.assert_close(got[:, rows][:, :, columns], small, **close)
    g = torch.Generator().manual_seed(seed)
    order, turn = torch.randperm(5, generator=g), torch.randperm(4, generator=g)
    torch.testing.assert_close(
        vote(ratings[:, turn][:, :, order], mask[:, turn][:, :, order]), got[:, turn][:, :, order], **close
    )


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, REAL])
@pytest.mark.parametrize(
    "row", [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [-1.0, -1.0, 1.0], [1e-45, 0.0, 1e-40], [0.3, 0.3, -0.1]]
)
def test_values_and_gradients_are_finite_at_zeros_ties_and_ends(name, dtype, row):
    mask = torch.ones(1, 3, 3, dtype=torch.bool)
    mask[0, 1], mask[0, 2, 1:] = False, False  # a voter without a say, one with a single proposal
    ratings = torch.tensor([[row] * 3], dtype=dtype)
    ratings[~mask] = math.nan
    ratings.requires_grad_()
    ballots = ABLATIONS[name](ratings, mask)
    (ballots * torch.arange(3)).sum().backward()
    assert ballots.isfinite().all()
    assert not ballots[~mask].any()
    assert ratings.grad.isfinite().all()
    assert not ratings.grad[~mask].any()


@pytest.mark.parametrize("shape", [(1, 3, 3), (1, 1, 3), (1, 3, 1)])
def test_gradcheck_of_the_smooth_votes(shape):
    g = torch.Generator().manual_seed(1)
    ratings = torch.rand(shape, generator=g, dtype=REAL) * 1.8 - 0.9
    ratings = (ratings + 0.05 * ratings.sign()).requires_grad_()
    partial = torch.rand(shape, generator=g) < 0.6
    partial[:, 0] = False
    for mask in (torch.ones(shape, dtype=torch.bool), partial):
        assert gradcheck(lambda r, m=mask: F.linear_vote(r, m), ratings)
        assert gradcheck(lambda r, m=mask: votes.l2_vote(r, m), ratings)
        for alpha in (1.01, 1.5, 2.0):
            cold = torch.tensor(0.6, dtype=REAL, requires_grad=True)
            assert gradcheck(lambda r, t, m=mask, a=alpha: votes.entmax_vote(r, m, a, t), (ratings, cold))
            if alpha < 2:
                a = torch.tensor(alpha, dtype=REAL, requires_grad=True)
                assert gradcheck(lambda r, a, m=mask: votes.entmax_vote(r, m, a, 0.6), (ratings, a))


def test_linear_vote_at_zero_uses_subgradient_zero_of_the_sum():
    ratings = torch.tensor([[[0.0, 0.25, -0.25]]], dtype=REAL, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(
        lambda r: F.linear_vote(r, torch.ones(1, 1, 3, dtype=torch.bool)), ratings
    )
    # one credit a half a unit of |r|: own slope 1/0.5, and no pull on the others
    torch.testing.assert_close(jacobian[0, 0, :, 0, 0, 0], torch.tensor([2.0, 0.0, 0.0], dtype=REAL))


def softmax_of_counted(ratings, mask):
    return torch.where(mask, torch.where(mask, ratings / 0.5, -1e300).softmax(-1), 0)


def halved_signs(ratings, mask):
    pairs = mask[..., :, None] & mask[..., None, :]
    differences = torch.where(pairs, (ratings[..., :, None] - ratings[..., None, :]) / 2, 0)
    return differences.sum(-1) / (mask.sum(-1, keepdim=True) - 1).clamp(min=1)


SOFT = {
    "plurality": (lambda r, m: votes.plurality_vote(r, m, 0.5), softmax_of_counted),
    "borda": (votes.borda_vote, halved_signs),
    "approval": (
        lambda r, m: votes.approval_vote(r, m, 0.1, 0.5),
        lambda r, m: torch.where(m, torch.sigmoid((r - 0.1) / 0.5), 0),
    ),
}


@pytest.mark.parametrize("name", SOFT)
def test_straight_through_is_exact_forward_and_soft_backward(name):
    hard, soft = SOFT[name]
    ratings, mask = a_ballot_box(5)
    ratings = torch.where(mask, ratings, 0.7).requires_grad_()
    weights = torch.randn(2, 4, 5, dtype=REAL, generator=torch.Generator().manual_seed(2))
    ballots = hard(ratings, mask)
    m = (mask.sum(-1, keepdim=True) - 1).clamp(min=1)
    units = ballots.detach() * (m if name == "borda" else 1)
    torch.testing.assert_close(units, units.round(), atol=1e-15 if name == "borda" else 0, rtol=0)
    (got,) = torch.autograd.grad((ballots * weights).sum(), ratings)
    (expected,) = torch.autograd.grad((soft(ratings, mask) * weights).sum(), ratings)
    assert expected.any()
    torch.testing.assert_close(got, expected, atol=1e-13, rtol=0)


def test_approval_threshold_learns():
    threshold = torch.tensor(0.2, dtype=REAL, requires_grad=True)
    ratings = torch.tensor([[[0.2, 0.3, -1.0]]], dtype=REAL)
    ballots = votes.approval_vote(ratings, torch.ones(1, 1, 3, dtype=torch.bool), threshold)
    assert ballots.tolist() == [[[0, 1, 0]]]
    ballots.sum().backward()
    assert threshold.grad < 0


def test_plurality_on_agreement_keeps_the_largest_camp():
    # ratings +1 for an equal answer, -1 for another; camps A (0, 2, 4), B (1, 3), C (5)
    camp = torch.tensor([0, 1, 0, 1, 0, 2])
    ratings = torch.where(camp[:, None] == camp, 1.0, -1.0)[None]
    mask = ~torch.eye(6, dtype=torch.bool)[None]
    assert votes.plurality_vote(ratings, mask).sum(1).tolist() == [[2, 1, 1, 1, 0, 0]]
    assert not votes.plurality_vote(ratings, mask)[0, 5].any()  # agrees with nobody, prefers nobody


def objective(q, scores, alpha):
    return (q * scores).sum(-1) + (q - q**alpha).sum(-1) / (alpha * (alpha - 1))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(1.05, 2), st.floats(0.05, 3), st.integers(1, 7))
def test_entmax_solves_its_problem(seed, alpha, temperature, proposals):
    g = torch.Generator().manual_seed(seed)
    ratings = torch.rand(1, 1, proposals, generator=g, dtype=REAL) * 2 - 1
    q = votes.entmax_vote(ratings, torch.ones(1, 1, proposals, dtype=torch.bool), alpha, temperature)[0, 0]
    assert q.sum().item() == pytest.approx(1, abs=1e-12)
    assert (q >= 0).all()
    others = (
        torch.distributions.Dirichlet(torch.full((proposals,), 0.3, dtype=REAL)).sample((200,))
        if proposals > 1
        else q[None]
    )
    near = 0.999 * q + 0.001 * others
    scores = ratings[0, 0] / temperature
    best = objective(q, scores, alpha)
    assert (best >= objective(others, scores, alpha) - 1e-12).all()
    assert (best >= objective(near, scores, alpha) - 1e-12).all()


def test_entmax_limits():
    ratings, mask = torch.tensor([[[0.4, 0.1, -0.9]]], dtype=REAL), torch.ones(1, 1, 3, dtype=torch.bool)
    sparsemax = torch.tensor([[[0.65, 0.35, 0.0]]], dtype=REAL)
    torch.testing.assert_close(votes.entmax_vote(ratings, mask, 2.0, 1.0), sparsemax, atol=1e-15, rtol=0)
    soft = (ratings / 0.25).softmax(-1)
    torch.testing.assert_close(votes.entmax_vote(ratings, mask, 1 + 1e-7), soft, atol=1e-6, rtol=0)
    assert votes.entmax_vote(ratings.float(), mask, 1.2).sum().item() == pytest.approx(1, abs=1e-6)
    per_voter = torch.tensor([[[2.0], [1.5]]], dtype=REAL)
    both = votes.entmax_vote(ratings.expand(1, 2, 3), mask.expand(1, 2, 3), per_voter, 1.0)
    torch.testing.assert_close(both[:, :1], sparsemax, atol=1e-15, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, REAL])
def test_calibration_starts_as_the_identity(dtype):
    ratings = torch.linspace(-1, 1, 401, dtype=dtype)[None, None]
    one, zero = torch.ones(1, 1, dtype=dtype), torch.zeros(1, 1, dtype=dtype)
    got = F.calibrate(ratings, torch.ones(1, 1, 401, dtype=torch.bool), one, zero)
    torch.testing.assert_close(got, ratings, atol=2 * torch.finfo(dtype).eps, rtol=0)


def test_calibration_by_hand_and_gradients():
    ratings = torch.tensor([[[0.5, math.nan, -0.2], [0.9, 0.1, 0.0]]], dtype=REAL)
    mask = ~ratings.isnan()
    scale = torch.tensor([[2.0, -1.0]], dtype=REAL, requires_grad=True)
    shift = torch.tensor([[0.3, 0.1]], dtype=REAL, requires_grad=True)
    got = F.calibrate(ratings, mask, scale, shift)
    assert got[0, 0, 0].item() == pytest.approx(math.tanh(2 * math.atanh(0.5) + 0.3), abs=1e-14)
    assert got[0, 1, 0].item() == pytest.approx(math.tanh(-math.atanh(0.9) + 0.1), abs=1e-14)
    assert got[0, 0, 1] == 0
    got.sum().backward()
    assert scale.grad.isfinite().all()
    inside = torch.where(mask, ratings, 0).requires_grad_()
    assert gradcheck(lambda r, a, b: F.calibrate(r, mask, a, b), (inside, scale, shift))
