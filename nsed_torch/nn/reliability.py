"""How much each voter's ballot weighs."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch import functional


class Reliability(nn.Module):
    """Voter weights `tau_i = N softmax_i(a_i + w_i . [x; h])`, all one at the start. Ours.

    Args:
        agents: size of the pool; each agent owns one a and one w.
        dim: width of task embedding and hidden state.

    Raises:
        ValueError: if a size is below 1.
    """

    def __init__(self, agents: int, dim: int) -> None:
        super().__init__()
        if agents < 1 or dim < 1:
            raise ValueError(f"expected agents and dim of at least 1, got agents={agents} and dim={dim}")
        self.bias = nn.Parameter(torch.zeros(agents))
        self.weight = nn.Parameter(torch.zeros(agents, 2 * dim))

    def forward(
        self,
        voters: Int[Tensor, "batch voter"],
        task: Float[Tensor, "batch dim"],
        hidden: Float[Tensor, "batch dim"],
        voter_mask: Bool[Tensor, "batch voter"],
    ) -> Float[Tensor, "batch voter"]:
        """Weights of the voters, given by their index in the pool; 0 where masked, mean 1 over the others."""
        voters = torch.where(voter_mask, voters, 0)
        context = torch.cat([task, hidden], dim=-1)
        return functional.reliability(self.bias[voters], self.weight[voters], context, voter_mask)
