"""Who sits at the table: agents for roles under budgets, exactly."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from nsed_torch.core.broker import InfeasibleBudgetError

Array = NDArray[np.float64]
Choice = NDArray[np.bool_]


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

    Examples:
        >>> import torch
        >>> broker = KnapsackBroker(["tokens"])
        >>> utilities = torch.tensor([[3.0, 1.0], [2.0, 2.0], [1.0, 0.5]])  # of three agents as proposer and as judge
        >>> costs = torch.tensor([[[5.0], [1.0]], [[2.0], [1.0]], [[2.0], [1.0]]])
        >>> one = torch.tensor([1, 1])
        >>> broker(utilities, costs, torch.tensor([4.0]), minimum=one, maximum=2 * one).int().tolist()
        [[0, 1], [1, 1], [0, 0]]
    """

    def __init__(self, resources: Sequence[str]) -> None:
        super().__init__()
        if not resources or len(set(resources)) != len(resources):
            raise ValueError(f"broker resources: expected one or more different names, got {list(resources)}")
        self.resources = tuple(resources)

    @torch.no_grad()
    def forward(
        self,
        utilities: Float[Tensor, "agent role"],
        costs: Float[Tensor, "agent role resource"],
        budgets: Float[Tensor, "resource"],
        *,
        minimum: Int[Tensor, "role"],
        maximum: Int[Tensor, "role"],
        opening: Float[Tensor, "backbone resource"] | None = None,
        backbone: Int[Tensor, "agent"] | None = None,
        available: Bool[Tensor, "agent role"] | None = None,
    ) -> Bool[Tensor, "agent role"]:
        """Who takes which role.

        Args:
            utilities: what each agent is worth in each role, any sign.
            costs: what it spends there, at least 0, in each resource's unit.
            budgets: what may be spent, inf for no limit. Kept up to rounding of their dtype.
            minimum: agents a role needs.
            maximum: agents a role takes.
            opening: charge for each backbone that is used at all, at least 0; none if None.
            backbone: which one each agent uses; needed with opening.
            available: False for roles that an agent cannot take; all can if None.

        Raises:
            InfeasibleBudgetError: if no team fits the budgets.
            ValueError: if an argument is out of range, or a role needs more agents than are available.
        """
        if (opening is None) != (backbone is None):
            raise ValueError("broker: expected opening and backbone together, got one of them")
        if opening is None or backbone is None:
            opening, backbone = costs.new_zeros(1, costs.shape[-1]), torch.zeros(len(utilities), dtype=torch.long)
        if (got := costs.shape[-1]) != (count := len(self.resources)):
            raise ValueError(f"broker: expected costs of {count} resources ({', '.join(self.resources)}), got {got}")
        can = torch.ones_like(utilities, dtype=torch.bool) if available is None else available
        slack = 1 + 4 * torch.finfo(budgets.dtype).eps
        utilities, costs = torch.where(can, utilities, 0), torch.where(can[..., None], costs, 0)
        numbers = [x.detach().cpu().double().numpy() for x in (utilities, costs, budgets, minimum, maximum, opening)]
        problem = _Knapsack(self.resources, slack, backbone.cpu().numpy(), can.cpu().numpy(), *numbers)
        problem.check()
        if (team := problem.best()) is None:
            raise InfeasibleBudgetError(f"broker: {problem.explain()}")
        return torch.from_numpy(team).to(utilities.device)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"resources={list(self.resources)}"


class _Row(NamedTuple):
    """A total over the agents and backbones that are used, and the most it may come to."""

    each: Array
    charge: Array
    limit: float = math.inf

    @property
    def near(self) -> float:
        """Totals closer than this count as equal."""
        return 1e-9 * float(max(np.abs(self.each).max(), self.charge.max()))


@dataclass
class _Knapsack:
    """The problem in NumPy."""

    resources: Sequence[str]
    slack: float  # budgets are kept up to this factor, the rounding of the dtype they came in
    backbone: NDArray[np.int_]
    available: Choice
    utilities: Array
    costs: Array
    budgets: Array
    minimum: Array
    maximum: Array
    opening: Array

    def __post_init__(self) -> None:
        self.spend = [_Row(self.costs[:, :, r], self.opening[:, r]) for r in range(len(self.resources))]

    def check(self) -> None:
        """Refuse what is no problem, in one line."""
        if fault := next(self._faults(), ""):
            raise ValueError(f"broker: {fault}")

    def _faults(self) -> Iterator[str]:
        if self.backbone.min() < 0 or self.backbone.max() >= len(self.opening):
            yield f"expected backbones 0 to {len(self.opening) - 1}, got {self.backbone.tolist()}"
        if not np.isfinite(self.utilities).all():
            yield "expected finite utilities, got nan or inf: mark such agents unavailable"
        for name, values in (("costs", self.costs), ("opening charges", self.opening)):
            if not (np.isfinite(values) & (values >= 0)).all():
                yield f"expected finite {name} of at least 0, got one that is not: mark it unavailable"
        for name, budget in zip(self.resources, self.budgets, strict=True):
            if not budget >= 0:
                yield f"expected a budget of at least 0 for {name}, got {budget}"
        numbers = zip(self.minimum, self.maximum, self.available.sum(0), strict=True)
        for role, (least, most, have) in enumerate(numbers):
            if not 0 <= least <= most:
                yield f"role {role}: expected 0 <= minimum <= maximum, got {least:g} and {most:g}"
            if have < least:
                yield f"role {role}: expected {least:g} available agents, got {have}: lower its minimum"

    def best(self) -> Choice | None:
        """The team of most utility, made unique by the preferences; None if no team fits."""
        free = np.zeros(len(self.opening))
        rows = [self._kept(r) for r in range(len(self.resources))]
        value = _Row(-self.utilities, free)
        team = self._solve(value, rows)
        if team is None:
            return None
        rows.append(self._held(value, team))
        for objective in (*self.spend, *self._lowest_index()):
            rival = self._solve(objective, [*rows, self._excluded(team)])
            if rival is None:
                break
            if self._total(objective, rival) < self._total(objective, team) - objective.near:
                team = rival
            rows.append(self._held(objective, team))
        return team

    def _held(self, row: _Row, team: Choice) -> _Row:
        return row._replace(limit=self._total(row, team) + row.near)

    def explain(self) -> str:
        """Which budgets are too small, and the least that would do: of each resource, given those before it."""
        rows: list[_Row] = []
        needs = []
        for r, row in enumerate(self.spend):
            if (team := self._solve(row, rows)) is None:
                raise RuntimeError("broker: HiGHS found no team although no budget limits it")
            amount, kept = self._total(row, team), self._kept(r)
            if amount > kept.limit:
                needs.append(f"{self.resources[r]} of at least {_text(amount)} (got {self.budgets[r]:g})")
            rows.append(row._replace(limit=max(amount, kept.limit)))
        return (
            f"no team fits the budgets: expected {' and '.join(needs)}; "
            "raise the budget, lower a role's minimum or add cheaper agents"
        )

    def _kept(self, r: int) -> _Row:
        return self.spend[r]._replace(limit=self.budgets[r] * self.slack)

    def _lowest_index(self) -> Iterator[_Row]:
        """Powers of two prefer the lowest index; 16 at a time keep them within the solver's precision."""
        size = self.utilities.size
        for start in range(0, size, 16):
            weights = np.zeros(size)
            block = weights[start : start + 16]
            block[:] = -(2.0 ** np.arange(15, 15 - len(block), -1))
            yield _Row(weights.reshape(self.utilities.shape), np.zeros(len(self.opening)))

    def _excluded(self, team: Choice) -> _Row:
        """The row that every other team keeps and this one breaks."""
        return _Row(np.where(team, 1.0, -1.0), np.zeros(len(self.opening)), team.sum() - 1.0)

    def _total(self, row: _Row, team: Choice) -> float:
        used = np.unique(self.backbone[team.any(1)])
        return math.fsum([*row.each[team], *row.charge[used]])

    def _solve(self, objective: _Row, rows: Sequence[_Row]) -> Choice | None:
        """The team of least objective under rows that hold in exact sums, None if there is none."""
        rows = list(rows)
        while (team := self._highs(objective, rows)) is not None:
            if all(self._total(row, team) <= row.limit for row in rows):
                return team
            rows.append(self._excluded(team))
        return None

    def _highs(self, objective: _Row, rows: Sequence[_Row]) -> Choice | None:
        """The same, up to the solver's tolerances; columns are z (agent by role), then y (backbone)."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - heavy, and wanted only here

        agents, roles, backbones = *self.utilities.shape, len(self.opening)
        picks = agents * roles
        matrix, most = [], []
        for row in rows:
            if math.isfinite(row.limit):
                columns = np.concatenate([row.each.ravel(), row.charge])
                scale = np.abs(columns).max() or 1.0
                matrix.append(columns / scale)
                most.append(row.limit / scale)
        least = [-np.inf] * len(most)
        role_rows = np.hstack([np.tile(np.eye(roles), agents), np.zeros((roles, backbones))])
        opens = np.eye(backbones)[self.backbone.repeat(roles)]
        links = np.hstack([np.eye(picks), -opens])[opens @ self.opening.sum(1) > 0]
        limits = LinearConstraint(
            np.vstack([*matrix, role_rows, links]),
            np.concatenate([least, self.minimum, np.full(len(links), -np.inf)]),
            np.concatenate([most, self.maximum, np.zeros(len(links))]),
        )
        goal = np.concatenate([objective.each.ravel(), objective.charge])
        goal = goal * (1e3 / (np.abs(goal).max() or 1.0))  # the solver's absolute gap of 1e-6 becomes 1e-9
        result = milp(
            goal,
            integrality=np.repeat([1, 0], [picks, backbones]),  # y follows z to a whole number
            bounds=Bounds(0, np.concatenate([self.available.ravel(), np.ones(backbones)])),
            constraints=limits,
            options={"mip_rel_gap": 0},
        )
        if result.status not in {0, 2}:
            raise RuntimeError(f"broker: HiGHS gave up: {result.message}")
        return None if result.x is None else np.asarray(result.x[:picks] > 0.5).reshape(agents, roles)


def _text(amount: float) -> str:
    """The shortest number that is no less, so that following the advice works."""
    texts = (f"{amount:.{digits}g}" for digits in (4, 6, 9, 12, 17))
    return next(text for text in texts if float(text) >= amount * (1 - 1e-15))
