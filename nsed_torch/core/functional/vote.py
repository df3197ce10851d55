"""From ratings to ballots: the quadratic vote.

Ratings r are in [-1, 1] and the mask says which count; ballots are 0 where masked.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.functional.floats import root

Ratings = Float[Tensor, "batch voter proposal"]
Mask = Bool[Tensor, "batch voter proposal"]
Ballots = Float[Tensor, "batch voter proposal"]


def vote_mask(
    voters: Int[Tensor, "batch voter"],
    authors: Int[Tensor, "batch proposal"],
    answered: Bool[Tensor, "batch proposal"],
    own: bool = False,
) -> Bool[Tensor, "batch voter proposal"]:
    """Who may rate what: every answered proposal but one's own. Published by the paper.

    Voters and authors are indices of agents; answered is False for a proposal that is no answer. With `own` one's own
    may be rated too: our ablation of the diagonal mask.
    """
    others = authors[:, None, :] != voters[:, :, None]
    return (others | own) & answered[:, None, :]


def linear_vote(ratings: Ratings, mask: Mask) -> Ballots:
    """Linear vote `f = r / sum_j |r|`: one unit of credit, handed out in proportion.

    The slope of |r| at 0 is the subgradient 0. A ballot whose absolute sum is below machine epsilon passes no
    gradient; its value is exact all the same.

    Ballots have unit L1 norm, or are 0 without a non-zero rating. Published in the authors' SDK as the quadratic vote's
    first half; its use as a vote of its own is our ablation.
    """
    ratings = torch.where(mask, ratings, 0)
    total = ratings.abs().sum(-1, keepdim=True)
    sloped = total > torch.finfo(ratings.dtype).eps
    total = torch.where(sloped, total, torch.where(total > 0, total.detach(), 1))
    return torch.where(sloped, ratings, ratings.detach()) / total


def quadratic_vote(ratings: Ratings, mask: Mask) -> Ballots:
    """Signed quadratic vote `q = sign(f) sqrt|f|`, `f = r / sum_j |r|`: the votes one unit of credit buys.

    At a rating of zero, where the root has no slope, the subgradient 0 is used; a ballot whose absolute sum
    is below machine epsilon passes no gradient. Neither changes the value.

    Ballots have unit L2 norm, or are 0 without a non-zero rating. Published in the authors' SDK.
    """
    share = linear_vote(ratings, mask)
    return share.sign() * root(share.abs())


def calibrate(
    ratings: Ratings, mask: Mask, scale: Float[Tensor, "batch voter"], shift: Float[Tensor, "batch voter"]
) -> Ratings:
    """Ratings read through their judge's habits, `tanh(a atanh(r) + b)`. Ours.

    Args:
        ratings: r in [-1, 1]; one within machine epsilon of an end, or beyond it, counts as that far from it and
            passes no gradient on.
        mask: which ratings count.
        scale: a, each voter's; 1 keeps, below 1 tempers, below 0 turns ratings round.
        shift: b, each voter's; above 0 is kinder than the rating.

    Returns:
        Ratings in (-1, 1), the given ones to float rounding at a = 1 and b = 0; 0 where masked.
    """
    limit = 1 - torch.finfo(ratings.dtype).eps
    logits = torch.where(mask, ratings, 0).clamp(-limit, limit).atanh()
    return torch.where(mask, torch.tanh(scale[..., None] * logits + shift[..., None]), 0)
