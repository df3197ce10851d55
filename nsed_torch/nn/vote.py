"""Vote activations: what makes ballots of ratings."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from nsed_torch import functional


class QuadraticVote(nn.Module):
    """Signed quadratic vote, see `functional.quadratic_vote`. Published in the authors' SDK."""

    def forward(
        self, ratings: Float[Tensor, "batch voter proposal"], mask: Bool[Tensor, "batch voter proposal"]
    ) -> Float[Tensor, "batch voter proposal"]:
        """Ballots of ratings in [-1, 1]; zeros where masked."""
        return functional.quadratic_vote(ratings, mask)


class TokenVote(nn.Module):
    """Older unsigned vote, see `functional.token_vote`.

    Ratings become tokens by `50 (r + 1)`, so that -1 buys none and 1 asks for all hundred. The vote is
    published in the authors' SDK; this map from signed ratings is ours.
    """

    def forward(
        self, ratings: Float[Tensor, "batch voter proposal"], mask: Bool[Tensor, "batch voter proposal"]
    ) -> Float[Tensor, "batch voter proposal"]:
        """Ballots of ratings in [-1, 1]; zeros where masked."""
        return functional.token_vote(50 * (ratings + 1), mask)
