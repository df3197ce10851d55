"""The knapsack made smooth: shares in place of choices, and gradients to everything that shapes them."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nsed_torch.nn.dual import System, attached, solve
from nsed_torch.nn.knapsack import Problem

NEAR = 1e-9
"""Budgets (in units of their largest cost) and role sizes may be missed by this much, so that shares strictly between
0 and 1 can meet them."""


class SmoothedTeam(NamedTuple):
    """What `smoothed_team` finds.

    Args:
        shares: how much of each role each agent takes, in [0, 1].
        prices: shadow prices: what one more unit of each resource is worth, in utility; 0 where the budget is slack.
        spent: of each resource, opening charges included.
        value: the smoothed objective at its optimum, differentiable as well.
    """

    shares: Float[Tensor, "batch agent role"]
    prices: Float[Tensor, "batch resource"]
    spent: Float[Tensor, "batch resource"]
    value: Float[Tensor, "batch"]


def smoothed_team(problem: Problem, temperature: float) -> SmoothedTeam:
    """Maximise `sum u z + T sum H(z) + T sum H(y)` over shares z and openings y in [0, 1].

    Subject to the budgets `sum cost z + sum opening y <= budget`, the role sizes, and `z <= y` for the agents of a
    backbone that has an opening charge; H is the binary entropy. Without rows that bind, `z = sigmoid(u / T)`. The
    entropy makes the solution unique and smooth: `x = sigmoid((gain - rows^T price) / T)` for x = (z, y), with prices
    that minimise the dual `sum T softplus((gain - rows^T price) / T) + limits . price`. As T falls, x approaches the
    linear relaxation. Solved for all tasks at once by Newton steps on the dual with a vanishing logarithmic barrier,
    T coming down from the scale of the utilities. Gradients follow from the implicit function theorem at the solution,
    first order only. Where a budget just begins to bind, the barrier blends the two one-sided derivatives. Ours.

    Args:
        problem: the tasks; gradients reach utilities, costs, budgets and opening charges above 0.
        temperature: T above 0, in units of utility.

    Raises:
        InfeasibleBudgetError: if not even shares fit a task's budgets.
    """
    batch, agents, roles = problem.utilities.shape
    system, scale = _system(problem, temperature)
    with torch.no_grad():
        solution = solve(system.detach())
    if solution.lost.any():
        raise problem.infeasible(int(solution.lost.nonzero()[0, 0]))
    prices = attached(system, solution)
    columns = system.shares(prices)
    resources = len(problem.resources)
    z, y = columns[:, : agents * roles], columns[:, agents * roles :]
    z = z.reshape(batch, agents, roles)
    charged = problem.opening[_charged(problem)]
    spent = torch.einsum("bar,barc->bc", z, problem.costs) + y @ charged
    return SmoothedTeam(
        z, temperature * prices[:, :resources] / scale, spent, temperature * system.dual(solution.prices)
    )


def _charged(problem: Problem) -> Bool[Tensor, "backbone"]:
    """Backbones that cost anything to open; only these need a share y."""
    return (problem.opening > 0).any(1)


def _system(problem: Problem, temperature: float) -> tuple[System, Float[Tensor, "batch resource"]]:
    """The problem at temperature 1 with rows of budgets, roles and links, and the scale of each budget row."""
    batch, charged = len(problem.utilities), _charged(problem)
    used_by = problem.backbone[:, None] == charged.nonzero()[:, 0]  # [agent, opened backbone]
    column_mask = torch.cat([problem.available.flatten(1), problem.available.any(2).double() @ used_by.double() > 0], 1)
    gain = torch.cat(
        [problem.utilities.flatten(1) / temperature, problem.utilities.new_zeros(batch, used_by.shape[1])], 1
    )
    blocks = [_budgets(problem, column_mask), _roles(problem), _links(problem, used_by)]
    rows = torch.cat([block.rows for block in blocks], 1)
    limits = torch.cat([block.limits for block in blocks], 1)
    row_mask = torch.cat([block.row_mask for block in blocks], 1)
    equal = torch.cat([block.equal for block in blocks])
    rows = torch.where(row_mask[:, :, None] & column_mask[:, None], rows, 0)
    limits = torch.where(row_mask, limits, 0)
    return System(gain, column_mask, rows, limits, row_mask, equal), blocks[0].scale


class _Block(NamedTuple):
    rows: Tensor
    limits: Tensor
    row_mask: Tensor
    equal: Tensor
    scale: Tensor


def _budgets(problem: Problem, column_mask: Tensor) -> _Block:
    """Rows in units of their largest cost; a budget that pays for everything does not count."""
    batch = len(problem.utilities)
    charges = problem.opening[_charged(problem)].T.expand(batch, -1, -1)
    rows = torch.cat([problem.costs.flatten(1, 2).transpose(1, 2), charges], 2)
    rows = torch.where(column_mask[:, None], rows, 0)
    scale = rows.detach().amax(2)
    scale = torch.where(scale > 0, scale, 1.0)
    counted = problem.budgets < rows.sum(2)
    limits = torch.where(counted, problem.budgets, 0) / scale + NEAR
    equal = torch.zeros(rows.shape[1], dtype=torch.bool, device=rows.device)
    return _Block(rows / scale[..., None], limits, counted, equal, scale)


def _roles(problem: Problem) -> _Block:
    """Sizes: one row of equality where a role's bounds meet, else one for each bound that can bind."""
    batch, agents, roles = problem.utilities.shape
    available = problem.available.double().sum(1)
    rows, limits, equal, anybody = [], [], [], []
    bounds = zip(problem.minimum.tolist(), problem.maximum.tolist(), strict=True)
    for role, (least, most) in enumerate(bounds):
        row = problem.utilities.new_zeros(agents, roles)
        row[:, role] = 1
        have = available[:, role]
        if least == most:
            rows.append(row)
            limits.append(torch.full_like(have, least).clamp(min=NEAR).minimum(have - NEAR))
            equal.append(True)
            anybody.append(have > 0)
            continue
        for sign, bound, binds in ((1, most, most < agents), (-1, -least, least > 0)):
            if binds:
                rows.append(sign * row)
                limits.append(torch.full_like(have, bound) + NEAR)
                equal.append(False)
                anybody.append(have > 0)
    width = int(_charged(problem).sum())
    block = problem.utilities.new_zeros(batch, len(rows), agents * roles + width)
    if rows:
        block[:, :, : agents * roles] = torch.stack(rows).flatten(1)
    stacked = torch.stack(limits, 1) if limits else problem.utilities.new_zeros(batch, 0)
    kind = torch.tensor(equal, dtype=torch.bool, device=available.device)
    mask = torch.stack(anybody, 1) if anybody else torch.zeros_like(stacked, dtype=torch.bool)
    return _Block(block, stacked, mask, kind, stacked)


def _links(problem: Problem, used_by: Tensor) -> _Block:
    """`z - y <= 0` for every agent and role of a backbone with a charge."""
    batch, agents, roles = problem.utilities.shape
    picks = torch.eye(agents * roles, dtype=problem.utilities.dtype, device=used_by.device)
    opens = used_by.repeat_interleave(roles, 0)
    linked = opens.any(1)
    rows = torch.cat([picks, -opens.to(picks)], 1)[linked].expand(batch, -1, -1)
    limits = torch.full_like(rows[..., 0], NEAR)
    mask = problem.available.flatten(1)[:, linked]
    return _Block(rows, limits, mask, torch.zeros(rows.shape[1], dtype=torch.bool, device=rows.device), limits)
