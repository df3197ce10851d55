"""Vote activations: modules `(ratings, mask) -> ballots` of ratings in [-1, 1]; zeros where masked."""

from collections.abc import Callable
from typing import Any

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


class QuadraticVote(Vote):
    """The published vote, `functional.quadratic_vote`."""

    def forward(self, ratings: Ratings, mask: Mask) -> Ballots:
        """Ballots."""
        return functional.quadratic_vote(ratings, mask)
