"""What is known of each voter: how much its ballot weighs, and how it uses the rating scale."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch import functional


class Trust(nn.Module):
    """Trust `tau_i = 1 + a_i + w_i . [x; h]` in each voter, one at the start; it may become negative. Ours.

    Each agent of the pool owns one a and one w; or both are linear in the agent's features phi, `a_i = u . phi_i`
    and `w_i = R^T L^T phi_i`. Then no parameter belongs to an agent: a module built on the features of other
    agents loads the same state dict, so that agents never seen in training get values.

    Args:
        agents: size of the pool.
        dim: width of task embedding and hidden state.
        features: phi, one row an agent, best of unit scale; kept as a buffer outside the state dict.
        rank: of the map from features to w; at most the number of features. L starts as random orthonormal columns
            and R as zeros, so that w starts as zero and still learns.

    Raises:
        ValueError: if the rank is below 1, or there is not one row of finite features an agent.
    """

    features: Tensor | None

    def __init__(
        self,
        agents: int,
        dim: int,
        *,
        features: Float[Tensor, "agent feature"] | None = None,
        rank: int = 8,
    ) -> None:
        super().__init__()
        self.register_buffer("features", features, persistent=False)
        if features is None:
            self.bias = nn.Parameter(torch.zeros(agents))
            self.weight = nn.Parameter(torch.zeros(agents, 2 * dim))
            return
        if rank < 1:
            raise ValueError(f"trust rank: expected at least 1, got {rank}")
        if len(features) != agents or features.shape[1] < 1 or not features.isfinite().all():
            shape = tuple(features.shape)
            raise ValueError(f"expected finite features of (agents, features), {agents} rows, got shape {shape}")
        n = features.shape[1]
        self.bias = nn.Parameter(features.new_zeros(n))
        self.left = nn.Parameter(nn.init.orthogonal_(features.new_empty(n, min(rank, n))))
        self.right = nn.Parameter(features.new_zeros(min(rank, n), 2 * dim))

    def forward(
        self,
        voters: Int[Tensor, "batch voter"],
        task: Float[Tensor, "batch dim"],
        hidden: Float[Tensor, "batch dim"],
        voter_mask: Bool[Tensor, "batch voter"],
    ) -> Float[Tensor, "batch voter"]:
        """Trust in the voters, given by their index in the pool; 0 where masked."""
        context = torch.cat([task, hidden], dim=-1)
        bias: Tensor = self.bias
        if self.features is None:
            weight: Tensor = self.weight
        else:
            bias, weight = self.features @ bias, self.features @ self.left @ self.right
        return functional.trust(bias, weight, context, voters, voter_mask)


class Calibration(nn.Module):
    """Each judge's reading of the rating scale, `functional.calibrate`, the identity at the start."""

    def __init__(self, agents: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(agents))
        self.shift = nn.Parameter(torch.zeros(agents))

    def forward(
        self,
        ratings: Float[Tensor, "batch voter proposal"],
        mask: Bool[Tensor, "batch voter proposal"],
        voters: Int[Tensor, "batch voter"],
    ) -> Float[Tensor, "batch voter proposal"]:
        """Calibrated ratings; 0 where masked. Voters are indices into the pool."""
        voters = torch.where(mask.any(-1), voters, 0)
        return functional.calibrate(ratings, mask, self.scale[voters], self.shift[voters])
