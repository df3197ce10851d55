import math

import torch

from nsed_torch.nn import QuadraticVote, TokenVote

RATINGS = torch.tensor([[[0.25, -0.75, math.nan]]])
MASK = torch.tensor([[[True, True, False]]])


def test_quadratic_vote_spends_one_credit():
    ballots = QuadraticVote()(RATINGS, MASK)
    torch.testing.assert_close(ballots, torch.tensor([[[0.5, -math.sqrt(0.75), 0.0]]]))


def test_token_vote_maps_ratings_to_tokens():
    ballots = TokenVote()(torch.tensor([[[-1.0, -0.5, 1.0]], [[-1.0, 0.28, math.nan]]]), MASK.expand(2, 1, 3))
    torch.testing.assert_close(ballots, torch.tensor([[[0.0, 0.5, 0.0]], [[0.0, 0.8, 0.0]]]))
