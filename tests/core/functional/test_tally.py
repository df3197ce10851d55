import math

import pytest
import torch
from drawn_tensors import REAL, SHAPES, full, masks, randn, tensor
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from nsed_torch.core import functional as F
from nsed_torch.core.functional.tally import POOLINGS, answer_support, author_weight, cosine, same_answer
from nsed_torch.tuning.losses import consensus_loss


def test_trust_is_one_at_start_and_each_voters_own():
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    voters = torch.tensor([[3, 0, -1, 1], [-1] * 4])
    ones = F.trust(torch.zeros(4, dtype=REAL), torch.zeros(4, 3, dtype=REAL), randn(2, 3), voters, mask)
    torch.testing.assert_close(ones, mask.to(REAL), atol=1e-15, rtol=0)
    bias, weight, context = tensor([0.5, -3.0, 0.0, 0.0]), torch.zeros(4, 3, dtype=REAL), tensor([[2.0, 1.0, 0.0]] * 2)
    weight[3, 0] = -1
    # Agent 3 by the context, agent 0 by its bias, agent 1 is better not followed.
    assert F.trust(bias, weight, context, voters, mask).tolist() == [[-1, 1.5, 0, -2], [0] * 4]


def test_cosine_of_zero_vectors_is_zero_with_finite_gradients():
    a, b = tensor([[0.0, 0.0], [1.0, 1.0]], grad=True), tensor([[1.0, 0.0], [0.0, 0.0]], grad=True)
    c = cosine(a, b)
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
    assert F.consensus(tensor([support]), full(1, 3), 1.0).winner.item() == winner


def test_consensus_masks_and_nothing_counts():
    found = F.consensus(tensor([[9.0, 1.0, 1.0]] * 2), torch.tensor([[False, True, True], [False] * 3]), 2.0)
    assert found.probability.tolist() == [[0, 0.5, 0.5], [0, 0, 0]]
    assert found.shown_by.tolist() == [[-1, 1, 2], [-1] * 3]
    assert found.winner.tolist() == [1, -1]


def test_equal_proposals_pool_their_support_and_the_best_of_them_shows_the_answer():
    support, classes = tensor([[1.0, 4.0, 3.0, 2.0, 9.0]]), torch.tensor([[0, 1, 0, 0, 1]])
    counts = torch.tensor([[True, True, True, True, False]])
    found = F.consensus(support, counts, 1.0, classes)
    assert found.shown_by.tolist() == [[2, 1, 2, 2, -1]]
    assert found.support.tolist() == [[0, 4, 2, 0, 0]]
    assert found.winner.item() == 1
    torch.testing.assert_close(found.probability[0, [1, 2]], tensor([4.0, 2.0]).softmax(0))
    summed = F.consensus(support, counts, 1.0, classes, "sum")
    assert (summed.support.tolist(), summed.winner.item()) == ([[0, 4, 6, 0, 0]], 2)
    # The probabilities of equal proposals, added up.
    each = F.consensus(support, counts, 0.7).probability[0]
    pooled = F.consensus(support, counts, 0.7, classes, "logsumexp").probability[0]
    torch.testing.assert_close(pooled[[1, 2]], torch.stack([each[1], each[[0, 2, 3]].sum()]))


def test_of_tied_answers_the_one_given_first_wins_shown_by_its_best_proposal():
    found = F.consensus(tensor([[1.0, 2.0, 2.0, 3.0]]), full(1, 4), 1.0, torch.tensor([[0, 1, 1, 0]]))
    assert found.winner.item() == 3


def test_a_class_of_minus_one_is_no_class():
    support = randn(2, 4)
    own = F.consensus(support, full(2, 4), 1.0, torch.full((2, 4), -1))
    for mine, published in zip(own, F.consensus(support, full(2, 4), 1.0), strict=True):
        assert torch.equal(mine, published)


def test_unknown_pooling():
    with pytest.raises(ValueError, match="expected pooling to be mean, sum or logsumexp, got 'median'"):
        answer_support(randn(1, 2), full(1, 2, 2), 1.0, "median")


@st.composite
def elections(draw):
    """Supports, classes and which proposals count, of one task; at least two answers."""
    count = draw(st.integers(2, 7))
    classes = draw(st.lists(st.integers(-1, 3), min_size=count, max_size=count))
    # Far enough apart not to tie within float noise.
    support = draw(st.lists(st.integers(-40, 40), min_size=count, max_size=count))
    mask = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return tensor([[s / 8 for s in support]]), torch.tensor([classes]), torch.tensor([mask])


@given(elections(), st.sampled_from(POOLINGS), st.sampled_from([0.3, 1.0, 2.5]))
def test_what_training_minimises_ranks_answers_as_the_decision_does(election, pooling, beta):
    support, classes, mask = election
    found = F.consensus(support, mask, beta, classes, pooling)
    heads = found.shown_by == torch.arange(support.shape[1])
    assume(int(heads.sum()) > 1)
    losses = {}
    for head in heads[0].nonzero()[:, 0].tolist():
        # Were this answer the right one.
        right = (found.shown_by == head) & mask
        losses[head] = consensus_loss(found.support, right, heads, beta).item()
    assert losses[found.winner.item()] == pytest.approx(min(losses.values()), abs=1e-9)


@given(elections(), st.sampled_from(POOLINGS))
def test_masking_a_proposal_is_deleting_it(election, pooling):
    support, classes, mask = election
    kept = mask[0].nonzero()[:, 0]
    assume(len(kept))
    whole = F.consensus(support, mask, 1.3, classes, pooling)
    part = F.consensus(support[:, kept], mask[:, kept], 1.3, classes[:, kept], pooling)
    torch.testing.assert_close(whole.probability[:, kept], part.probability)
    torch.testing.assert_close(whole.support[:, kept], part.support)
    assert whole.winner.item() == kept[part.winner.item()].item()


@given(elections(), st.sampled_from(POOLINGS), st.randoms(use_true_random=False))
def test_the_order_of_proposals_changes_nothing_but_ties(election, pooling, random):
    support, classes, mask = election
    order = random.sample(range(support.shape[1]), support.shape[1])
    here = F.consensus(support, mask, 1.0, classes, pooling)
    there = F.consensus(support[:, order], mask[:, order], 1.0, classes[:, order], pooling)
    same = same_answer(mask, classes)
    pooled = answer_support(support, same, 1.0, pooling)
    torch.testing.assert_close(
        answer_support(support[:, order], same_answer(mask[:, order], classes[:, order]), 1.0, pooling),
        pooled[:, order],
    )
    best = pooled[0].masked_fill(~mask[0], -torch.inf)
    if mask.any() and int((best >= best.max() - 1e-6).sum()) == int(same[0, here.winner.item()].sum()):
        assert same[0, here.winner.item(), order[there.winner.item()]]


def test_conviction_decisiveness_negatives():
    support = tensor([[3.0, -1.0], [-1.0, -3.0], [0.0, 0.0], [1e-17, -1e-17]])
    winner = torch.tensor([0, 0, 0, 0])
    assert F.conviction(support, winner).tolist() == [0.75, -0.25, 0, 0]
    assert F.decisiveness(support)[:3].tolist() == [4, 4, 0]
    assert F.all_negative(support, winner).tolist() == [False, True, False, False]
    noise = torch.tensor([[-1e-6, -1.0], [-1e-4, -1.0]])  # of float32, and more than that
    assert F.all_negative(noise, winner[:2]).tolist() == [False, True]
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
            lambda a, w, x, m=voter_mask: F.trust(a, w, x, torch.arange(v).expand(len(m), -1), m),
            (randn(v), randn(v, 2), randn(b, 2)),
        )
        assert gradcheck(
            lambda q, t, m=mask: F.support(q, m, t),
            (randn(*shape), randn(b, v, seed=1)),
        )
        voters, authors = torch.arange(v).expand(b, -1), torch.arange(p).flip(0).expand(b, -1)
        assert gradcheck(lambda t, i=voters, a=authors: author_weight(t, i, a), randn(b, v))
        counts = mask.any(1)
        for pooling in POOLINGS:
            for classes in (None, torch.arange(p).expand(b, -1) // 2):
                assert gradcheck(
                    lambda s, beta, m=counts, c=classes, how=pooling: F.consensus(s, m, beta, c, how)[:2],
                    (randn(b, p), tensor(1.3, grad=True)),
                )
        winner = F.consensus(randn(b, p), counts, 1.0).winner
        assert gradcheck(lambda s, w=winner: F.conviction(s, w), randn(b, p))
        assert gradcheck(F.decisiveness, randn(b, p))
