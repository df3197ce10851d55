"""Vote activations: modules `(ratings, mask) -> ballots` of ratings in [-1, 1]; zeros where masked.

The formula of each, its gradient and its source stand with its function in `nsed_torch.core.functional`.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nsed_torch.core import functional
from nsed_torch.core.functional.vote import Ballots, Mask, Ratings

Voting = Callable[[Tensor, Tensor], Tensor]
"""Anything that is called with ratings and their mask and gives ballots: a module, or a plain function."""


class Vote(nn.Module):
    """What each judge's ratings buy: subclass it and write `forward`, or give a cell a plain function.

    Examples:
        >>> class Loudest(Vote):
        ...     def forward(self, ratings, mask):
        ...         return torch.where(mask, ratings.sign() * ratings.square(), 0)
        >>> from nsed_torch.core.cell import ConsensusCell
        >>> cell = ConsensusCell(dim=2, agents=2, vote=Loudest())
        >>> ratings, mask = torch.tensor([[[0.0, 0.5], [1.0, 0.0]]]), ~torch.eye(2, dtype=torch.bool)[None]
        >>> output, _ = cell(torch.randn(1, 2, 2), ratings, mask, torch.randn(1, 2))
        >>> output.ballots
        tensor([[[0.0000, 0.2500],
                 [1.0000, 0.0000]]])
    """

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots of ratings in [-1, 1], of which those count where the mask is True; what is masked is not read."""
        raise NotImplementedError(f"{type(self).__name__}: expected forward(ratings, mask) -> ballots: write it")


def balloted(vote: Voting, ratings: Ratings, mask: Mask) -> Ballots:
    """What any vote makes of ratings, 0 where masked.

    Raises:
        ValueError: if it gives something else than a ballot for each judge.
    """
    ballots: Any = vote(ratings, mask)
    if not isinstance(ballots, Tensor) or ballots.shape != ratings.shape:
        name = getattr(vote, "__name__", type(vote).__name__)
        got = tuple(ballots.shape) if isinstance(ballots, Tensor) else type(ballots).__name__
        raise ValueError(f"vote {name}: expected ballots of shape {tuple(ratings.shape)}, got {got}: correct it")
    return torch.where(mask, ballots, 0)


class _Plain(Vote):
    """A vote without settings."""

    vote: "ClassVar[staticmethod[[Tensor, Tensor], Tensor]]"

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return self.vote(ratings, mask)


class QuadraticVote(_Plain):
    """The published vote, `functional.quadratic_vote`."""

    vote = staticmethod(functional.quadratic_vote)


class LinearVote(_Plain):
    """Credit in proportion to the ratings, `functional.linear_vote`."""

    vote = staticmethod(functional.linear_vote)


class L2Vote(_Plain):
    """Ratings at unit length, `functional.l2_vote`."""

    vote = staticmethod(functional.l2_vote)


class BordaVote(_Plain):
    """Rank scores, `functional.borda_vote`."""

    vote = staticmethod(functional.borda_vote)


class TokenVote(Vote):
    """The older unsigned vote, `functional.token_vote`.

    Ratings become tokens by `50 (r + 1)`, so that -1 buys none and 1 asks for all hundred; this map is ours.
    """

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return functional.token_vote(50 * (ratings + 1), mask)


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
    """One vote for the best-rated proposal, `functional.plurality_vote`."""

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return functional.plurality_vote(ratings, mask, self.temperature)


class ApprovalVote(_Tempered):
    """A vote for every proposal rated above a learnable threshold, `functional.approval_vote`."""

    def __init__(self, threshold: float = 0.0, temperature: float = 0.25) -> None:
        super().__init__(temperature)
        self.threshold = nn.Parameter(torch.tensor(float(threshold)))

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return functional.approval_vote(ratings, mask, self.threshold, self.temperature)


class EntmaxVote(_Tempered):
    """Sparse, unsigned vote with a learnable alpha, `functional.entmax_vote`.

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
        return functional.entmax_vote(ratings, mask, self.alpha, self.temperature)


VOTES: dict[str, type[Vote]] = {
    "quadratic": QuadraticVote,
    "token": TokenVote,
    "linear": LinearVote,
    "plurality": PluralityVote,
    "borda": BordaVote,
    "approval": ApprovalVote,
    "l2": L2Vote,
    "entmax": EntmaxVote,
}
"""Votes by the names that configs use, at their default settings."""


def vote_named(name: str) -> Vote:
    """A fresh vote by its name; a ValueError for an unknown one."""
    if name not in VOTES:
        raise ValueError(f"vote: expected one of {', '.join(VOTES)} or a vote of your own, got {name!r}: correct it")
    return VOTES[name]()
