"""What is known of each voter: how much its ballot weighs, and how it uses the rating scale."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core import functional


class Trust(nn.Module):
    """Trust `tau_i = 1 + a_i + w_i . [x; h]` in each voter, one at the start; it may become negative. Ours.

    Each agent of the pool owns one a and one w; `dim` is the width of task embedding and hidden state. Any module that
    is called alike may stand in its place.

    Examples:
        >>> class FirstKnowsBest(nn.Module):
        ...     def forward(self, voters, task, hidden, voter_mask):
        ...         return torch.where(voters == 0, 2.0, 1.0) * voter_mask
        >>> from nsed_torch.core.cell import ConsensusCell
        >>> cell = ConsensusCell(dim=2, agents=2, trust=FirstKnowsBest())
        >>> ratings, mask = torch.tensor([[[0.0, 0.5], [1.0, 0.0]]]), ~torch.eye(2, dtype=torch.bool)[None]
        >>> cell(torch.randn(1, 2, 2), ratings, mask, torch.randn(1, 2))[0].trust.tolist()
        [[2.0, 1.0]]
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


def trusted(
    trust: Any,
    voters: Int[Tensor, "batch voter"],
    task: Float[Tensor, "batch dim"],
    hidden: Float[Tensor, "batch dim"],
    voter_mask: Bool[Tensor, "batch voter"],
) -> Float[Tensor, "batch voter"]:
    """What any trust makes of the voters, 0 where masked.

    Raises:
        ValueError: if it gives something else than a number for each voter.
    """
    tau = trust(voters, task, hidden, voter_mask)
    if not isinstance(tau, Tensor) or tau.shape != voters.shape:
        got = tuple(tau.shape) if isinstance(tau, Tensor) else type(tau).__name__
        name, expected = type(trust).__name__, tuple(voters.shape)
        raise ValueError(f"trust {name}: expected a number for each voter, {expected}, got {got}: correct its forward")
    return torch.where(voter_mask, tau, 0)


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
