"""One task's team, exactly: the problem that every broker solves, its checks, and HiGHS."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Choice = NDArray[np.bool_]

NEAR = 1e-9
"""Utility and spend totals closer than this, relative to the largest single one, count as equal."""


class InfeasibleBudgetError(ValueError):
    """No team fits the budgets; the message names the binding resource, what would do and the remedy."""


@dataclass(frozen=True)
class Problem:
    """The team problems of a batch of tasks, as `broker.Broker` states them.

    Args:
        resources: names, one an entry of the last axis of costs.
        utilities: in float64, as all numbers here; zero for unavailable agents.
        costs: likewise.
        budgets: inf for no limit.
        minimum: agents a role needs.
        maximum: agents a role takes.
        opening: charge for each backbone that is used at all.
        backbone: which one each agent uses.
        available: who can take which role.
        slack: budgets are kept up to this share of them, the rounding of the dtype they came in.

    Raises:
        ValueError: if an argument is out of range, or a role needs more agents than are available.
    """

    resources: tuple[str, ...]
    utilities: Float[Tensor, "batch agent role"]
    costs: Float[Tensor, "batch agent role resource"]
    budgets: Float[Tensor, "batch resource"]
    minimum: Int[Tensor, "role"]
    maximum: Int[Tensor, "role"]
    opening: Float[Tensor, "backbone resource"]
    backbone: Int[Tensor, "agent"]
    available: Bool[Tensor, "batch agent role"]
    slack: float

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_roles()

    def _check_numbers(self) -> None:
        backbones = self.backbone.tolist()
        if min(backbones) < 0 or max(backbones) >= len(self.opening):
            raise ValueError(f"broker: expected backbones 0 to {len(self.opening) - 1}, got {backbones}")
        self._refuse(
            ~self.utilities.isfinite(), "expected finite utilities, got nan or inf: mark such agents unavailable"
        )
        opening = self.opening.expand(len(self.costs), *self.opening.shape)
        for name, values in (("costs", self.costs), ("opening charges", opening)):
            fault = f"expected finite {name} of at least 0, got one that is not: mark it unavailable"
            self._refuse(~(values.isfinite() & (values >= 0)), fault)
        for name, budget in zip(self.resources, self.budgets.unbind(1), strict=True):
            wrong = ~(budget >= 0)
            shown = budget[wrong][:1].tolist()
            self._refuse(wrong, f"expected a budget of at least 0 for {name}, got {', '.join(map(str, shown))}")

    def _check_roles(self) -> None:
        have = self.available.sum(1)
        for role, (least, most) in enumerate(zip(self.minimum.tolist(), self.maximum.tolist(), strict=True)):
            if not 0 <= least <= most:
                raise ValueError(f"broker: role {role}: expected 0 <= minimum <= maximum, got {least} and {most}")
            few = have[:, role] < least
            shown = ", ".join(map(str, have[few, role][:1].tolist()))
            self._refuse(few, f"role {role}: expected {least} available agents, got {shown}: lower its minimum")

    def _refuse(self, wrong: Tensor, fault: str) -> None:
        """Name the first task that has an entry wrong."""
        if wrong.any():
            task = int(wrong.reshape(len(wrong), -1).any(1).nonzero()[0, 0])
            raise ValueError(f"broker: {self._where(task)}{fault}")

    def _where(self, task: int) -> str:
        return f"task {task}: " if len(self.utilities) > 1 else ""

    def best(self, task: int) -> Bool[Tensor, "agent role"]:
        """One task's unique best team, by HiGHS.

        Raises:
            InfeasibleBudgetError: if no team fits its budgets.
        """
        team = self._knapsack(task).best()
        if team is None:
            raise self.infeasible(task)
        return torch.from_numpy(team).to(self.utilities.device)

    def infeasible(self, task: int) -> InfeasibleBudgetError:
        """What to raise for a task that no team fits."""
        return InfeasibleBudgetError(f"broker: {self._where(task)}{self._knapsack(task).explain()}")

    def _knapsack(self, task: int) -> "_Knapsack":
        return _Knapsack(
            resources=self.resources,
            utilities=_array(self.utilities[task]),
            costs=_array(self.costs[task]),
            budgets=_array(self.budgets[task]),
            minimum=_array(self.minimum),
            maximum=_array(self.maximum),
            opening=_array(self.opening),
            backbone=self.backbone.cpu().numpy(),
            available=self.available[task].cpu().numpy(),
            slack=1 + self.slack,
        )


class _Row(NamedTuple):
    """A total over the agents and backbones that are used, and the most it may come to."""

    each: Array
    charge: Array
    limit: float = math.inf


@dataclass
class _Knapsack:
    """One task's problem, in NumPy."""

    resources: Sequence[str]
    utilities: Array
    costs: Array
    budgets: Array
    minimum: Array
    maximum: Array
    opening: Array
    backbone: NDArray[np.int_]
    available: Choice
    slack: float

    def __post_init__(self) -> None:
        self.spend = [_Row(self.costs[:, :, r], self.opening[:, r]) for r in range(len(self.resources))]

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
            if self._total(objective, rival) < self._total(objective, team) - self._near(objective):
                team = rival
            rows.append(self._held(objective, team))
        return team

    def _held(self, row: _Row, team: Choice) -> _Row:
        return row._replace(limit=self._total(row, team) + self._near(row))

    @staticmethod
    def _near(row: _Row) -> float:
        return NEAR * float(max(np.abs(row.each).max(), row.charge.max()))

    def explain(self) -> str:
        """Which budgets are too small, and the least that would do."""
        everything = range(len(self.resources))
        alone = {}
        for r in everything:
            team = self._solve(self.spend[r], [self._kept(other) for other in everything if other != r])
            if team is not None and math.isfinite(self.budgets[r]):
                alone[r] = self._total(self.spend[r], team)
        least = alone or self._least_together()
        needs = [
            f"{self.resources[r]} of at least {_text(amount)} (got {self.budgets[r]:g})" for r, amount in least.items()
        ]
        return (
            f"no team fits the budgets: expected {(' or ' if alone else ' and ').join(needs)}; "
            "raise the budget, lower a role's minimum or add cheaper agents"
        )

    def _least_together(self) -> dict[int, float]:
        """Where no single budget is to blame: each one's least amount, given those before it."""
        rows: list[_Row] = []
        least = {}
        for r, row in enumerate(self.spend):
            team = self._solve(row, rows)
            if team is None:
                raise RuntimeError("broker: HiGHS found no team although no budget limits it")
            amount = self._total(row, team)
            if amount > self._kept(r).limit:
                least[r] = amount
            rows.append(row._replace(limit=max(amount, self._kept(r).limit)))
        return least

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


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)
