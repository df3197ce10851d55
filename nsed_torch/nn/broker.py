"""Who sits at the table: one problem, solved exactly, by a table, or smoothly enough to learn from."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.nn.dynamic_program import table_teams
from nsed_torch.nn.knapsack import InfeasibleBudgetError, Problem
from nsed_torch.nn.relaxation import SmoothedTeam, smoothed_team

__all__ = ["Broker", "DynamicBroker", "InfeasibleBudgetError", "KnapsackBroker", "SmoothedBroker", "SmoothedTeam"]

Answer = TypeVar("Answer")


class Broker(nn.Module, Generic[Answer]):
    """Choose agents for roles: maximise `sum u_ar z_ar` over binary z, as far as the budgets reach.

    Subject to, for every resource, `sum cost_ar z_ar + sum opening_b y_b <= budget`, and for every role
    `minimum <= sum_a z_ar <= maximum`, with y_b = 1 once any agent of backbone b takes any role. An agent may
    take several roles. That model selection is a knapsack variant is published; this objective is ours, since
    the paper's is not public. Subclasses say how they solve it.

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
    ) -> Answer:
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
            Who takes which role: booleans [batch agent role], or a `SmoothedTeam` of the smoothed broker.

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
        return self.solve(problem)

    def solve(self, problem: Problem) -> Answer:
        """Teams of checked problems."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"resources={list(self.resources)}"


class KnapsackBroker(Broker[Tensor]):
    """The exact broker over any number of resources, solved task by task with HiGHS.

    The answer is unique. Among teams of equal utility the one that spends less of the first resource wins,
    then of the second, and so on; then the one that holds the lowest (agent, role) the other lacks. Each
    preference is one more solve with the totals so far held, until no other team is left. Every team is
    checked in exact sums and excluded if it breaks a budget or a held total.

    Args:
        resources: as of `Broker`.
    """

    @torch.no_grad()
    def solve(self, problem: Problem) -> Bool[Tensor, "batch agent role"]:
        """Teams of checked problems."""
        team = torch.zeros_like(problem.utilities, dtype=torch.bool)
        for task in range(len(team)):
            team[task] = problem.best(task)
        return team


class DynamicBroker(Broker[Tensor]):
    """The broker over one resource, solved for all tasks at once by a dynamic program over what is spent.

    Costs are counted in whole steps, rounded up, and budgets rounded down, so no budget is ever exceeded. With
    costs in multiples of `unit`, and a budget (or all costs together) of at most `levels` of them, the answer is
    exact and the one of `KnapsackBroker`, ties included; where a backbone's agents do not stand side by side, ties
    of utility and spend go by the order of first agents of backbones. Otherwise a step is `budget / levels`, and
    what rounding costs is at most one step an agent, role and backbone. A task that has no team in whole steps is
    solved by HiGHS.

    Memory grows with batch x agents x roles x levels x the numbers of agents a bounded role may hold.

    Args:
        resource: its name.
        unit: what costs are multiples of, in the resource's unit; 0 where they are not.
        levels: the most steps a budget is cut into.

    Raises:
        ValueError: if unit is negative or levels is below 1.
    """

    def __init__(self, resource: str, *, unit: float = 0.0, levels: int = 1000) -> None:
        super().__init__([resource])
        if not unit >= 0 or levels < 1:
            raise ValueError(f"broker: expected unit of at least 0 and levels of at least 1, got {unit} and {levels}")
        self.unit, self.levels = unit, levels

    @torch.no_grad()
    def solve(self, problem: Problem) -> Bool[Tensor, "batch agent role"]:
        """Teams of checked problems."""
        team, found = table_teams(problem, self.unit, self.levels)
        for task in (~found).nonzero()[:, 0].tolist():
            team[task] = problem.best(task)
        return team

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{super().extra_repr()}, unit={self.unit}, levels={self.levels}"


class SmoothedBroker(Broker[SmoothedTeam]):
    """The broker that can be trained: shares in [0, 1] in place of choices, by `relaxation.smoothed_team`.

    Gradients reach utilities, costs, opening charges and budgets. As the temperature falls, shares approach the
    linear relaxation's. `round` turns shares into a team.

    Args:
        resources: as of `Broker`.
        temperature: of the entropy, in units of utility.

    Raises:
        ValueError: if the temperature is not above 0.
    """

    def __init__(self, resources: Sequence[str], temperature: float = 0.1) -> None:
        super().__init__(resources)
        if not temperature > 0:
            raise ValueError(f"broker temperature: expected a value above 0, got {temperature}")
        self.temperature = temperature
        self._nearest = KnapsackBroker(resources)

    def solve(self, problem: Problem) -> SmoothedTeam:
        """Shares of checked problems, in float64."""
        return smoothed_team(problem, self.temperature)

    def round(
        self,
        shares: Float[Tensor, "batch agent role"],
        costs: Float[Tensor, "batch agent role resource"],
        budgets: Float[Tensor, "batch resource"],
        *,
        minimum: Int[Tensor, "role"],
        maximum: Int[Tensor, "role"],
        opening: Float[Tensor, "backbone resource"] | None = None,
        backbone: Int[Tensor, "agent"] | None = None,
        available: Bool[Tensor, "batch agent"] | Bool[Tensor, "batch agent role"] | None = None,
    ) -> Bool[Tensor, "batch agent role"]:
        """The team within all budgets and role sizes that differs least from the shares, `sum |z - share|`.

        That is the exact knapsack over utilities `share - 1/2`.

        Args:
            shares: of `forward`; the other arguments are those it was called with.
            costs: as there.
            budgets: as there.
            minimum: as there.
            maximum: as there.
            opening: as there.
            backbone: as there.
            available: as there.

        Raises:
            InfeasibleBudgetError: if no whole team fits, though shares do.
        """
        team: Tensor = self._nearest(
            shares.detach() - 0.5, costs.detach(), budgets.detach(), minimum=minimum, maximum=maximum,
            opening=opening, backbone=backbone, available=available,
        )  # fmt: skip
        return team

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{super().extra_repr()}, temperature={self.temperature}"
