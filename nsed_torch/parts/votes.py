"""Votes beside the published one: the older token form, and what the quadratic vote is compared with.

Ratings r are in [-1, 1] and the mask says which count; ballots are 0 where masked. Where a vote has no slope, the
`temperature`, above 0, is that of its backward pass alone: no value depends on it.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from nsed_torch.core.functional.floats import (
    Coefficient,
    first_largest,
    masked_softmax,
    root,
    straight_through,
    tolerance,
    unit,
)
from nsed_torch.core.functional.vote import Ballots, Mask, Ratings, linear_vote
from nsed_torch.core.vote import Vote


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


class _Plain(Vote):
    """A vote without settings."""

    vote: "ClassVar[staticmethod[[Tensor, Tensor], Tensor]]"

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return self.vote(ratings, mask)


class LinearVote(_Plain):
    """Credit in proportion to the ratings, `linear_vote`."""

    vote = staticmethod(linear_vote)


class L2Vote(_Plain):
    """Ratings at unit length, `l2_vote`."""

    vote = staticmethod(l2_vote)


class BordaVote(_Plain):
    """Rank scores, `borda_vote`."""

    vote = staticmethod(borda_vote)


class TokenVote(Vote):
    """The older unsigned vote, `token_vote`.

    Ratings become tokens by `50 (r + 1)`, so that -1 buys none and 1 asks for all hundred; this map is ours.
    """

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return token_vote(50 * (ratings + 1), mask)


class _Tempered(Vote):
    """A vote whose temperature is that of its backward pass, or says how sparse it is.

    Raises:
        ValueError: if that is not above 0.
    """

    def __init__(self, temperature: float = 0.25) -> None:
        super().__init__()
        if not temperature > 0:
            name = type(self).__name__.removesuffix("Vote").lower()
            raise ValueError(f"{name} vote temperature: expected a value above 0, got {temperature}")
        self.temperature = temperature

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"temperature={self.temperature}"


class PluralityVote(_Tempered):
    """One vote for the best-rated proposal, `plurality_vote`."""

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return plurality_vote(ratings, mask, self.temperature)


class ApprovalVote(_Tempered):
    """A vote for every proposal rated above a learnable threshold, `approval_vote`."""

    def __init__(self, threshold: float = 0.0, temperature: float = 0.25) -> None:
        super().__init__(temperature)
        self.threshold = nn.Parameter(torch.tensor(float(threshold)))

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return approval_vote(ratings, mask, self.threshold, self.temperature)


class EntmaxVote(_Tempered):
    """Sparse, unsigned vote with a learnable alpha, `entmax_vote`.

    The parameter is `logit(alpha - 1)`, which keeps alpha in (1, 2]; 2 itself is reached to float rounding, where
    its gradient fades.

    Raises:
        ValueError: unless alpha, at the start, is in (1, 2] and the temperature above 0.
    """

    def __init__(self, alpha: float = 1.5, temperature: float = 0.25) -> None:
        super().__init__(temperature)
        if not 1 < alpha <= 2:
            raise ValueError(f"entmax vote alpha: expected a value in (1, 2], got {alpha}")
        start = torch.tensor(float(alpha) - 1)
        self.alpha_logit = nn.Parameter(torch.logit(start, eps=torch.finfo(start.dtype).eps))

    @property
    def alpha(self) -> Tensor:
        """How sparse ballots are."""
        # Far below zero the sigmoid would round alpha to 1, where the formula divides by zero.
        floor = 1 + 8 * torch.finfo(self.alpha_logit.dtype).eps
        return (1 + self.alpha_logit.sigmoid()).clamp(min=floor)

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return entmax_vote(ratings, mask, self.alpha, self.temperature)
