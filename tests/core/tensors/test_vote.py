import math

import pytest
import torch

from nsed_torch.core import functional
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.named import NAMED, part_named
from nsed_torch.core.vote import QuadraticVote
from nsed_torch.parts import votes
from nsed_torch.parts.votes import ApprovalVote, EntmaxVote, PluralityVote, TokenVote

RATINGS = torch.tensor([[[0.25, -0.75, math.nan]]])
MASK = torch.tensor([[[True, True, False]]])


def test_quadratic_vote_spends_one_credit():
    ballots = QuadraticVote()(RATINGS, MASK)
    torch.testing.assert_close(ballots, torch.tensor([[[0.5, -math.sqrt(0.75), 0.0]]]))


def test_token_vote_maps_ratings_to_tokens():
    ballots = TokenVote()(torch.tensor([[[-1.0, -0.5, 1.0]], [[-1.0, 0.28, math.nan]]]), MASK.expand(2, 1, 3))
    torch.testing.assert_close(ballots, torch.tensor([[[0.0, 0.5, 0.0]], [[0.0, 0.8, 0.0]]]))


@pytest.mark.parametrize("name", NAMED["vote"])
def test_votes_by_name_are_their_functions(name):
    tokens = 50 * (RATINGS + 1) if name == "token" else RATINGS
    torch.testing.assert_close(
        part_named("vote", name)(RATINGS, MASK), {**vars(functional), **vars(votes)}[f"{name}_vote"](tokens, MASK)
    )


@pytest.mark.parametrize("name", NAMED["vote"])
def test_every_vote_votes_and_learns_in_a_cell(name):
    torch.manual_seed(0)
    cell = ConsensusCell(4, 3, vote=name)
    ratings = (torch.rand(2, 3, 3) * 2 - 1).requires_grad_()
    out, _ = cell(torch.randn(2, 3, 4), ratings, ~torch.eye(3, dtype=torch.bool).expand(2, 3, 3), torch.randn(2, 4))
    assert (out.winner >= 0).all()
    out.consensus[:, 0].sum().backward()
    assert ratings.grad.any()
    for key, parameter in cell.vote.named_parameters():
        assert parameter.grad.isfinite(), key
        assert parameter.grad.any(), key


def test_entmax_alpha_stays_in_its_range():
    assert EntmaxVote().alpha.item() == pytest.approx(1.5)
    assert EntmaxVote(2.0).alpha.item() == pytest.approx(2, abs=1e-6)
    vote = EntmaxVote()
    with torch.no_grad():
        vote.alpha_logit.fill_(-200.0)
    assert vote(RATINGS, MASK).isfinite().all()
    assert 1 < vote.alpha < 1.001


def test_bad_settings():
    with pytest.raises(ValueError, match=r"entmax vote alpha: expected a value in \(1, 2\], got 1.0"):
        EntmaxVote(1.0)
    for vote in (PluralityVote, ApprovalVote, EntmaxVote):
        with pytest.raises(ValueError, match="vote temperature: expected a value above 0, got 0"):
            vote(temperature=0.0)
    assert "temperature=0.25" in repr(ApprovalVote())
