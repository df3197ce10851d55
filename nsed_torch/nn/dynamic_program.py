"""Teams under one budget, for a whole batch of tasks at once: a dynamic program over what is spent."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.nn.knapsack import NEAR, Problem


class _Seat(NamedTuple):
    """One agent in one role."""

    agent: int
    role: int
    last: bool  # of its backbone


class _Steps(NamedTuple):
    """The problem in whole steps of the one resource."""

    costs: Int[Tensor, "batch agent role"]
    opening: Int[Tensor, "batch backbone"]
    budget: Int[Tensor, "batch"]

    def needed(self, seat: _Seat, backbone: int, state: int) -> Int[Tensor, "batch"]:
        """What a seat takes while its backbone is closed (state 0) or open (1)."""
        cost = self.costs[:, seat.agent, seat.role]
        return cost if state else cost + self.opening[:, backbone]


def table_teams(
    problem: Problem, unit: float, levels: int
) -> tuple[Bool[Tensor, "batch agent role"], Bool[Tensor, "batch"]]:
    """The best teams in whole steps of the resource, and for which tasks there is one.

    `V_i(open, k, s) = max(V_i+1(open, k, s), u_i + V_i+1(1, k + e_i, s - steps_i))` is the most that seats (agent,
    role) from i on add where they spend exactly s steps, with k agents per role seated before them, and open
    whether the current backbone is paid for. Seats go backbone by backbone, so one such bit is enough. Tracing
    forward from the least s of the best value, and taking a seat wherever that loses nothing, gives the team that
    spends least and then the lowest indices. Exact for costs in whole steps; the reading of the knapsack is ours.

    Args:
        problem: of one resource.
        unit: costs are multiples of it; 0 if they are not.
        levels: the most steps a budget is cut into.
    """
    steps = _in_steps(problem, unit, levels)
    seats = list(_seats(problem))
    following = [_following(problem, role) for role in range(len(problem.minimum))]
    takes, best = _table(problem, steps, seats, following)
    found = best.isfinite().any(1)
    near = NEAR * problem.utilities.abs().amax((1, 2))
    enough = best >= (best.amax(1) - near)[:, None]
    spend = (enough & best.isfinite()).int().argmax(1)
    return _trace(problem, steps, seats, following, takes, spend) & found[:, None, None], found


def _in_steps(problem: Problem, unit: float, levels: int) -> _Steps:
    cost, opening = problem.costs[..., 0], problem.opening[:, 0].expand(len(problem.costs), -1)
    everything = cost.sum((1, 2)) + opening.sum(1)
    budget = torch.minimum(problem.budgets[:, 0], everything)
    step = (budget / levels).clamp(min=unit)
    step = torch.where(step > 0, step, 1.0)
    # A multiple of the step may miss it by rounding; half of the allowed slack goes to either side.
    off = problem.slack / 2
    room = (budget / step * (1 + off)).floor().long()
    costs, charges = (
        (amount / step.view(-1, *[1] * (amount.dim() - 1)) * (1 - off)).ceil().clamp(max=levels + 1).long()
        for amount in (cost, opening)
    )
    unlimited = problem.budgets[:, 0] >= everything
    return _Steps(costs, charges, torch.where(unlimited, costs.sum((1, 2)) + charges.sum(1), room))


def _seats(problem: Problem) -> Iterator[_Seat]:
    backbones = problem.backbone.tolist()
    roles = len(problem.minimum)
    for backbone in dict.fromkeys(backbones):
        group = [agent for agent, used in enumerate(backbones) if used == backbone]
        for agent in group:
            yield from (_Seat(agent, role, agent == group[-1] and role == roles - 1) for role in range(roles))


def _counts(problem: Problem) -> tuple[Int[Tensor, "count role"], list[bool]]:
    """The combinations of agents per role that the table tells apart, and for which roles the most means "or more"."""
    agents = len(problem.backbone)
    minimum, maximum = problem.minimum.tolist(), problem.maximum.tolist()
    unbounded = [most >= agents for most in maximum]
    sizes = [least if free else most for least, most, free in zip(minimum, maximum, unbounded, strict=True)]
    ranges = [torch.arange(size + 1, device=problem.backbone.device) for size in sizes]
    return torch.stack(torch.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, len(sizes)), unbounded


def _following(problem: Problem, role: int) -> Int[Tensor, "count"]:
    """For each combination of counts, the one after this role has one agent more; -1 where it is full."""
    counts, unbounded = _counts(problem)
    stride = int((counts[-1, role + 1 :] + 1).prod())
    index = torch.arange(len(counts), device=counts.device)
    full = counts[:, role] == counts[-1, role]
    return torch.where(full, index if unbounded[role] else torch.full_like(index, -1), index + stride)


def _table(
    problem: Problem, steps: _Steps, seats: list[_Seat], following: list[Tensor]
) -> tuple[list[Bool[Tensor, "batch open count step"]], Float[Tensor, "batch step"]]:
    """For every seat, in which states to take it; and the best value by steps spent, -inf beyond the budget."""
    batch, spent = len(problem.utilities), int(steps.budget.max().item()) + 1 if len(steps.budget) else 1
    states = 2 if problem.opening.any() else 1
    value = problem.utilities.new_full((batch, states, len(following[0]), spent), -torch.inf)
    value[:, :, (_counts(problem)[0] >= problem.minimum).all(1), 0] = 0
    axis = torch.arange(spent, device=value.device)
    near = NEAR / len(seats) * problem.utilities.abs().amax((1, 2))
    backbones = problem.backbone.tolist()
    takes = []
    for seat in reversed(seats):
        if seat.last:
            value = value[:, :1].expand(-1, states, -1, -1)
        after = following[seat.role]
        seated = torch.where((after >= 0)[:, None], value[:, -1, after.clamp(min=0)], -torch.inf)
        branches = []
        for state in range(states):
            source = axis - steps.needed(seat, backbones[seat.agent], state)[:, None]
            moved = seated.gather(2, source.clamp(min=0)[:, None].expand(-1, seated.shape[1], -1))
            branches.append(torch.where((source >= 0)[:, None], moved, -torch.inf))
        can = problem.available[:, seat.agent, seat.role, None, None, None]
        gain = problem.utilities[:, seat.agent, seat.role, None, None, None]
        taken = torch.where(can, torch.stack(branches, 1) + gain, -torch.inf)
        takes.append(taken.isfinite() & (taken >= value - near[:, None, None, None]))
        value = torch.maximum(value, taken)
    return takes[::-1], torch.where(axis <= steps.budget[:, None], value[:, 0, 0], -torch.inf)


def _trace(
    problem: Problem,
    steps: _Steps,
    seats: list[_Seat],
    following: list[Tensor],
    takes: list[Tensor],
    spend: Int[Tensor, "batch"],
) -> Bool[Tensor, "batch agent role"]:
    team = torch.zeros_like(problem.utilities, dtype=torch.bool)
    tasks = torch.arange(len(team), device=team.device)
    opened, count = torch.zeros_like(spend), torch.zeros_like(spend)
    backbones = problem.backbone.tolist()
    for seat, take in zip(seats, takes, strict=True):
        chosen = take[tasks, opened, count, spend]
        team[:, seat.agent, seat.role] = chosen
        closed, paid = (steps.needed(seat, backbones[seat.agent], state) for state in (0, 1))
        spend = torch.where(chosen, spend - torch.where(opened > 0, paid, closed), spend)
        count = torch.where(chosen, following[seat.role][count], count)
        opened = torch.zeros_like(opened) if seat.last else torch.where(chosen, take.shape[1] - 1, opened)
    return team
