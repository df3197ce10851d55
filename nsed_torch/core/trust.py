"""What is known of each voter: how much its ballot weighs, and how it uses the rating scale."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core import functional


class Trust(nn.Module):
    """Trust `tau_i = 1 + a_i + w_i . [x; h]` in each voter, one at the start; it may become negative. Ours.

    Each agent of the pool owns one a and one w; `dim` is the width of task embedding and hidden state.
    """

    def __init__(self, agents: int, dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(agents))
        self.weight = nn.Parameter(torch.zeros(agents, 2 * dim))

    def forward(
        self,
        voters: Int[Tensor, "batch voter"],
        task: Float[Tensor, "batch dim"],
        hidden: Float[Tensor, "batch dim"],
        voter_mask: Bool[Tensor, "batch voter"],
    ) -> Float[Tensor, "batch voter"]:
        """Trust in the voters, given by their index in the pool; 0 where masked."""
        return functional.trust(self.bias, self.weight, torch.cat([task, hidden], dim=-1), voters, voter_mask)


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
