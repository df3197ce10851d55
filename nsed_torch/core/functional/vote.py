"""From ratings to ballots: the quadratic vote, and what it is compared with.

Ratings r are in [-1, 1] and the mask says which count; ballots are 0 where masked. Where a vote has no slope, the
`temperature`, above 0, is that of its backward pass alone: no value depends on it.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.functional.floats import (
    Coefficient,
    first_largest,
    masked_softmax,
    root,
    straight_through,
    tolerance,
    unit,
)

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
    sloped = ratings.abs().sum(-1, keepdim=True) > torch.finfo(ratings.dtype).eps
    ratings = torch.where(sloped, ratings, ratings.detach())
    total = ratings.abs().sum(-1, keepdim=True)
    return ratings / torch.where(total > 0, total, 1)


def quadratic_vote(ratings: Ratings, mask: Mask) -> Ballots:
    """Signed quadratic vote `q = sign(f) sqrt|f|`, `f = r / sum_j |r|`: the votes one unit of credit buys.

    At a rating of zero, where the root has no slope, the subgradient 0 is used; a ballot whose absolute sum
    is below machine epsilon passes no gradient. Neither changes the value.

    Ballots have unit L2 norm, or are 0 without a non-zero rating. Published in the authors' SDK.
    """
    share = linear_vote(ratings, mask)
    return share.sign() * root(share.abs())


def token_vote(tokens: Ratings, mask: Mask) -> Ballots:
    """Older, unsigned quadratic vote `q = sqrt(tokens) / 10`; a voter has 100 tokens to spend.

    Tokens are 0..100 each, negative ones count as 0; they are rescaled to a sum of 100 only where they exceed it. The
    slope at zero tokens is the subgradient 0. Published in the authors' SDK; that it is the paper's first form is our
    reading.
    """
    tokens = torch.where(mask, tokens, 0).clamp(min=0)
    total = tokens.sum(-1, keepdim=True)
    return root(torch.where(total > 100, tokens * 100 / total.clamp(min=100), tokens)) / 10


def l2_vote(ratings: Ratings, mask: Mask) -> Ballots:
    """Ratings at unit length, `r / ||r||_2`: the quadratic vote's norm without its root. Our ablation.

    A ballot whose norm is below the square root of the smallest normal number (float32: 1e-19) counts as empty: zeros,
    with gradient 0.
    """
    return unit(torch.where(mask, ratings, 0))


def plurality_vote(ratings: Ratings, mask: Mask, temperature: Coefficient = 0.25) -> Ballots:
    """One whole vote for the best-rated proposal, the lowest index among ties as in `consensus`. Our ablation.

    A voter that rates all alike and none above zero prefers nothing and casts no vote: else whoever stands first
    would collect the votes of the indifferent.

    Returns:
        1 at each voter's choice, 0 elsewhere. Constant almost everywhere, so the gradient is that of
        `softmax(r / temperature)` over the counted ratings (straight-through).
    """
    ratings = torch.where(mask, ratings, 0)
    best = first_largest(ratings, mask)[..., None]
    highest = torch.where(mask, ratings, -torch.inf).amax(-1, keepdim=True)
    lowest = torch.where(mask, ratings, torch.inf).amin(-1, keepdim=True)
    prefers = torch.maximum(highest, highest - lowest) > tolerance(ratings)
    choice = prefers & (torch.arange(ratings.shape[-1], device=ratings.device) == best)
    return straight_through(choice.to(ratings.dtype), masked_softmax(ratings / temperature, mask))


def borda_vote(ratings: Ratings, mask: Mask) -> Ballots:
    """Rank scores `b_j = sum_k sign(r_j - r_k) / (m - 1)` over a voter's m counted ratings. Our ablation.

    Borda's points shifted to mean zero and scaled to [-1, 1], so that the proposal a voter may not rate, its own,
    is neither favoured nor punished for it. Ratings equal to 9 decimals (float32: 5) are tied.

    Returns:
        1 for a voter's sole best, -1 for its sole worst, the mean of their ranks for ties; zeros where masked and
        for a ballot of one rating. Constant almost everywhere, so the gradient is that of the formula with
        `sign(x)` replaced by `x / 2`, the line through its ends (straight-through).
    """
    ratings = torch.where(mask, ratings, 0)
    count = mask.sum(-1, keepdim=True)
    others = (count - 1).clamp(min=1)
    level = (ratings.detach() / tolerance(ratings)).round()
    level = torch.where(mask, level, torch.inf).contiguous()
    ranked = level.sort(-1).values
    below = torch.searchsorted(ranked, level)
    above = count - torch.searchsorted(ranked, level, right=True)
    points = torch.where(mask, below - above, 0).to(ratings.dtype) / others
    centred = ratings - ratings.sum(-1, keepdim=True) / count.clamp(min=1)
    return straight_through(points, torch.where(mask, centred * count / (2 * others), 0))


def approval_vote(
    ratings: Ratings, mask: Mask, threshold: Coefficient = 0.0, temperature: Coefficient = 0.25
) -> Ballots:
    """A whole vote for every proposal rated above the threshold t; one equal to it does not approve. Our ablation.

    Returns:
        1 where approved, 0 elsewhere. Constant almost everywhere, so the gradient is that of
        `sigmoid((r - t) / temperature)` (straight-through).
    """
    margin = torch.where(mask, ratings - threshold, 0)
    approved = (margin > 0).to(ratings.dtype)
    return straight_through(approved, torch.where(mask, torch.sigmoid(margin / temperature), 0))


def entmax_vote(ratings: Ratings, mask: Mask, alpha: Coefficient = 1.5, temperature: Coefficient = 0.25) -> Ballots:
    """Sparse, unsigned vote: `argmax_q  q . r / temperature + sum_j (q_j - q_j^alpha) / (alpha (alpha - 1))`.

    The maximum is over q >= 0 with sum 1; the second term is Tsallis' entropy. Its solution is
    `q_j = [1 + (alpha - 1) (r_j / temperature - theta)]_+^(1 / (alpha - 1))` with the theta at which q sums to 1
    (Peters, Niculae and Martins, 2019). Towards alpha = 1 it becomes softmax; alpha = 2 is the nearest point of
    the simplex. Its use as a vote is our ablation.

    Args:
        ratings: r.
        mask: which ratings count.
        alpha: in (1, 2]; higher is sparser. Broadcasts against `batch voter 1`, like the temperature.
        temperature: above 0; lower is sparser.

    Returns:
        Ballots of unit L1 norm, zeros where masked. theta is bisected to float resolution; one Newton step from
        there carries the gradient of the implicit function, to ratings, alpha and temperature. At alpha = 2 a
        proposal on the edge of the support has the subgradient 0. Second derivatives are not provided.
    """
    scores = torch.where(mask, ratings, 0) / temperature
    alpha = torch.as_tensor(alpha, dtype=scores.dtype, device=scores.device)
    with torch.no_grad():
        theta = _entmax_threshold(scores, mask, alpha)
        votes = _entmax_votes(scores - theta, mask, alpha)
        slope = torch.where(votes > 0, votes ** (2 - alpha), 0).sum(-1, keepdim=True)
    excess = _entmax_votes(scores - theta, mask, alpha).sum(-1, keepdim=True) - 1
    return _entmax_votes(scores - (theta + excess / torch.where(slope > 0, slope, 1)), mask, alpha)


def calibrate(
    ratings: Ratings,
    mask: Mask,
    scale: Float[Tensor, "batch voter"],
    shift: Float[Tensor, "batch voter"],
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


def _entmax_threshold(scores: Tensor, mask: Tensor, alpha: Tensor) -> Tensor:
    """The theta at which the votes sum to 1; at the bracket's ends the largest vote is 1, and one in n."""
    highest = torch.where(mask, scores, -torch.inf).amax(-1, keepdim=True)
    low = torch.where(mask.any(-1, keepdim=True), highest, 0)
    count = mask.sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)
    high = low - torch.expm1((1 - alpha) * count.log()) / (alpha - 1)
    for _ in range(56 if scores.dtype == torch.float64 else 27):  # the mantissa, and the bracket's width
        middle = (low + high) / 2
        enough = _entmax_votes(scores - middle, mask, alpha).sum(-1, keepdim=True) >= 1
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return (low + high) / 2


def _entmax_votes(scores: Tensor, mask: Tensor, alpha: Tensor) -> Tensor:
    """`[1 + (alpha - 1) score]_+^(1 / (alpha - 1))`, by logarithms so that alpha near 1 keeps its digits."""
    base = (alpha - 1) * scores
    inside = mask & (base > -1)
    return torch.where(inside, (torch.where(inside, base, 0).log1p() / (alpha - 1)).exp(), 0)
