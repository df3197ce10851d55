"""What an agent is worth in a role, as far as task, state and track record tell."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.nn.telemetry import FEATURES


class Utility(nn.Module):
    """Utilities `u_ar = 1 + b_ar + w_ar . [x; h] + v_r . f_a`, all one at the start. Ours.

    With x the task embedding, h the hidden state and f an agent's telemetry. Utilities of one make a broker seat as
    many agents as its budgets pay for, which is what an untrained one should do. v is shared by all agents, so a track
    record counts alike for whoever has it.

    Args:
        agents: size of the pool.
        roles: number of roles.
        dim: width of task embedding and hidden state.
        features: width of the telemetry.

    Raises:
        ValueError: if a size is below 1 (features: 0).
    """

    def __init__(self, agents: int, roles: int, dim: int, *, features: int = len(FEATURES)) -> None:
        super().__init__()
        if min(agents, roles, dim) < 1 or features < 0:
            raise ValueError(
                "utility: expected agents, roles and dim of at least 1 and features of at least 0, "
                f"got {agents}, {roles}, {dim} and {features}"
            )
        self.bias = nn.Parameter(torch.zeros(agents, roles))
        self.weight = nn.Parameter(torch.zeros(agents, roles, 2 * dim))
        self.telemetry_weight = nn.Parameter(torch.zeros(roles, features))

    def forward(
        self,
        task: Float[Tensor, "batch dim"],
        telemetry: Float[Tensor, "*batch agent feature"],
        hidden: Float[Tensor, "batch dim"] | None = None,
    ) -> Float[Tensor, "batch agent role"]:
        """Utilities for a broker.

        Args:
            task: embeddings of the tasks.
            telemetry: features of the agents, `Telemetry.features`; one for all tasks, or one a task.
            hidden: the state after the rounds so far; zero before the first, as is None.
        """
        context = torch.cat([task, torch.zeros_like(task) if hidden is None else hidden], dim=-1)
        fit = torch.einsum("bd,ard->bar", context, self.weight)
        return 1 + self.bias + fit + telemetry.to(task.dtype) @ self.telemetry_weight.T

    def extra_repr(self) -> str:
        """What `print` shows."""
        agents, roles, width = self.weight.shape
        return f"agents={agents}, roles={roles}, dim={width // 2}, features={self.telemetry_weight.shape[1]}"
