"""Who sits at the table: agents for roles under budgets, exactly."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.nn.knapsack import InfeasibleBudgetError, Problem

__all__ = ["InfeasibleBudgetError", "KnapsackBroker"]


class KnapsackBroker(nn.Module):
    """Choose agents for roles: maximise `sum u_ar z_ar` over binary z, as far as the budgets reach, with HiGHS.

    Subject to, for every resource, `sum cost_ar z_ar + sum opening_b y_b <= budget`, and for every role
    `minimum <= sum_a z_ar <= maximum`, with y_b = 1 once any agent of backbone b takes any role. An agent may
    take several roles. That model selection is a knapsack variant is published; this objective is ours, since
    the paper's is not public.

    The answer is unique. Among teams of equal utility the one that spends less of the first resource wins,
    then of the second, and so on; then the one that holds the lowest (agent, role) the other lacks. Each
    preference is one more solve with the totals so far held, until no other team is left. Every team is
    checked in exact sums and excluded if it breaks a budget or a held total.

    Args:
        resources: names of the resources, in the order of preference and of the last axis of costs.

    Raises:
        ValueError: if no resource is named, or one twice.
    """

    def __init__(self, resources: Sequence[str]) -> None:
        super().__init__()
        if not resources or len(set(resources)) != len(resources):
            raise ValueError(f"broker resources: expected one or more different names, got {list(resources)}")
        self.resources = tuple(resources)

    @torch.no_grad()
    def forward(
        self,
        utilities: Float[Tensor, "batch agent role"],
        costs: Float[Tensor, "batch agent role resource"],
        budgets: Float[Tensor, "batch resource"],
        *,
        minimum: Int[Tensor, "role"],
        maximum: Int[Tensor, "role"],
        opening: Float[Tensor, "backbone resource"] | None = None,
        backbone: Int[Tensor, "agent"] | None = None,
        available: Bool[Tensor, "batch agent"] | Bool[Tensor, "batch agent role"] | None = None,
    ) -> Bool[Tensor, "batch agent role"]:
        """Teams for all tasks.

        Args:
            utilities: what each agent is worth in each role, any sign.
            costs: what it spends there, at least 0, in each resource's unit.
            budgets: what may be spent, inf for no limit. Kept up to rounding of their dtype.
            minimum: agents a role needs.
            maximum: agents a role takes.
            opening: charge for each backbone that is used at all, at least 0; none if None.
            backbone: which one each agent uses; needed with opening.
            available: False for agents that cannot take part, or for the roles they cannot take; all can if None.

        Returns:
            Who takes which role.

        Raises:
            InfeasibleBudgetError: if no team fits a task's budgets.
            ValueError: if an argument is out of range, or a role needs more agents than are available.
        """
        agents = utilities.shape[1]
        device = utilities.device
        if (opening is None) != (backbone is None):
            raise ValueError("broker: expected opening and backbone together, got one of them")
        if opening is None or backbone is None:
            opening, backbone = costs.new_zeros(1, len(self.resources)), torch.zeros(agents, dtype=torch.long)
        if costs.shape[-1] != len(self.resources):
            names = ", ".join(self.resources)
            raise ValueError(
                f"broker: expected costs of {len(self.resources)} resources ({names}), got {costs.shape[-1]}"
            )
        if available is None:
            available = torch.ones_like(utilities, dtype=torch.bool)
        if available.dim() < utilities.dim():
            available = available[:, :, None].expand(utilities.shape)
        available = available.to(device)
        problem = Problem(
            self.resources,
            torch.where(available, utilities, 0).double(),
            torch.where(available[..., None], costs.to(device), 0).double(),
            budgets.to(device).double(),
            minimum.to(device),
            maximum.to(device),
            opening.to(device).double(),
            backbone.to(device),
            available,
            4 * torch.finfo(budgets.dtype).eps,
        )
        team = torch.zeros_like(available)
        for task in range(len(team)):
            team[task] = problem.best(task)
        return team

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"resources={list(self.resources)}"
