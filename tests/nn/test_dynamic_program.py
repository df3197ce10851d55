import itertools
import math

import pytest
import torch

from nsed_torch.nn.broker import DynamicBroker, InfeasibleBudgetError, KnapsackBroker


def every_team(agents, roles):
    """All of them, those with the lowest indices first."""
    return torch.tensor(list(itertools.product((True, False), repeat=agents * roles))).reshape(-1, agents, roles)


def brute(u, c, budget, *, minimum, maximum, opening, backbone, available):
    """The preferred teams of all tasks, and which tasks have one, by looking at every team."""
    teams = every_team(*u.shape[1:])
    flat = teams.flatten(1).double()
    value = u.flatten(1) @ flat.T
    used = torch.stack([teams[:, backbone == b].flatten(1).any(1) for b in range(len(opening))], 1)
    spend = c.flatten(1) @ flat.T + (used.double() @ opening[:, 0])
    sizes = teams.sum(1)
    fits = ((sizes >= minimum) & (sizes <= maximum)).all(1) & (spend <= budget + 1e-9)
    may = (available if available.dim() == 3 else available[:, :, None]).expand(u.shape)
    fits &= ~(teams & ~may[:, None]).flatten(2).any(2)
    value = torch.where(fits, value, -math.inf)
    best = value >= value.amax(1, keepdim=True) - 1e-8
    spend = torch.where(best & fits, spend, math.inf)
    cheapest = spend <= spend.amin(1, keepdim=True) + 1e-8
    return teams[(cheapest & best & fits).int().argmax(1)], fits.any(1)


def batch(seed, tasks=64, *, mixed=False):
    """Tasks whose costs are whole numbers; utilities are whole every other time, which makes ties."""
    g = torch.Generator().manual_seed(seed)
    agents, roles, backbones = (int(torch.randint(1, n, (), generator=g)) for n in (5, 3, 4))
    u = torch.randint(-2, 4, (tasks, agents, roles), generator=g).double()
    u = u if seed % 2 else u + torch.randn(tasks, agents, roles, generator=g, dtype=torch.float64)
    c = torch.randint(0, 4, (tasks, agents, roles, 1), generator=g).double()
    budget = torch.randint(0, 10, (tasks, 1), generator=g).double()
    budget[torch.rand(tasks, generator=g) < 0.2] = math.inf
    minimum = torch.randint(0, 2, (roles,), generator=g)
    backbone = torch.randint(0, backbones, (agents,), generator=g)
    available = torch.rand(tasks, agents, generator=g) < 0.85
    available[:, 0] |= ~available.any(1)
    if seed % 3 == 0:  # not everybody in every role
        available = available[:, :, None] & (torch.rand(tasks, agents, roles, generator=g) < 0.7)
        minimum = torch.minimum(minimum, available.sum(1).amin(0))
    rest = {
        "minimum": minimum,
        "maximum": minimum + torch.randint(0, 4, (roles,), generator=g),
        "opening": torch.randint(0, 3, (backbones, 1), generator=g).double(),
        "backbone": backbone if mixed else backbone.sort().values,
        "available": available,
    }
    return u, c, budget, rest


def narrow(u, c, budget, rest, tasks):
    return u[tasks], c[tasks], budget[tasks], rest | {"available": rest["available"][tasks]}


def compare(seeds):
    """How many tasks agree with brute force, team by team, and how many have no team."""
    agreed = lost = 0
    broker = DynamicBroker("money", unit=1.0)
    for seed in seeds:
        u, c, budget, rest = batch(seed)
        expected, found = brute(u, c, budget, **rest)
        lost += int((~found).sum())
        if not found.all():
            with pytest.raises(InfeasibleBudgetError, match="money of at least"):
                broker(u, c, budget, **rest)
        u, c, budget, rest = narrow(u, c, budget, rest, found)
        if len(u):
            assert torch.equal(broker(u, c, budget, **rest), expected[found]), seed
        agreed += len(u)
    return agreed, lost


def test_agrees_with_brute_force_on_thousands_ties_included():
    agreed, lost = compare(range(80))
    assert agreed > 3000
    assert lost > 300


def test_agrees_with_highs():
    for seed in range(8):
        u, c, budget, rest = batch(seed, tasks=12)
        found = brute(u, c, budget, **rest)[1]
        u, c, budget, rest = narrow(u, c, budget, rest, found)
        assert torch.equal(
            DynamicBroker("m", unit=1.0)(u, c, budget, **rest), KnapsackBroker(["m"])(u, c, budget, **rest)
        )


def test_scattered_backbones_keep_utility_and_spend():
    for seed in range(20):
        u, c, budget, rest = batch(seed, mixed=True)
        expected, found = brute(u, c, budget, **rest)
        u, c, budget, rest = narrow(u, c, budget, rest, found)
        team = DynamicBroker("money", unit=1.0)(u, c, budget, **rest)
        torch.testing.assert_close((u * team).sum((1, 2)), (u * expected[found]).sum((1, 2)))


def test_whole_steps_never_exceed_a_budget_and_lose_little():
    g = torch.Generator().manual_seed(0)
    u, c = torch.rand(200, 6, 1, generator=g), torch.rand(200, 6, 1, 1, generator=g)
    budget = torch.rand(200, 1, generator=g) * 3
    sizes = {"minimum": torch.tensor([0]), "maximum": torch.tensor([6])}
    free = {
        "opening": torch.zeros(1, 1).double(),
        "backbone": torch.zeros(6).long(),
        "available": torch.ones(200, 6) > 0,
    }
    exact, _ = brute(u.double(), c.double(), budget.double(), **sizes, **free)
    for levels in (10, 100, 1000):
        team = DynamicBroker("money", levels=levels)(u, c, budget, **sizes)
        spent = (c[..., 0] * team).sum((1, 2), dtype=torch.float64)
        assert (spent <= budget[:, 0].double() * (1 + 1e-6)).all()
        # Rounding costs an agent at most one step, so a budget of six steps less buys no more than the table does.
        less, _ = brute(u.double(), c.double(), budget.double() * (1 - 6 / levels), **sizes, **free)
        worth = (u * team).sum((1, 2))
        assert ((u * less).sum((1, 2)) - 1e-6 <= worth).all()
        assert (worth <= (u * exact).sum((1, 2)) + 1e-6).all()


def test_no_limit_seats_everybody_worth_it():
    u = torch.tensor([[[1.0], [-1.0], [2.0]]])
    broker = DynamicBroker("money", levels=3)
    team = broker(
        u, torch.rand(1, 3, 1, 1), torch.tensor([[math.inf]]), minimum=torch.tensor([0]), maximum=torch.tensor([3])
    )
    assert team[0, :, 0].tolist() == [True, False, True]


def test_decimal_units_are_counted_whole():
    for dtype in (torch.float32, torch.float64):
        team = DynamicBroker("money", unit=0.1)(
            torch.ones(1, 3, 1), torch.full((1, 3, 1, 1), 0.1, dtype=dtype), torch.tensor([[0.3]], dtype=dtype),
            minimum=torch.tensor([0]), maximum=torch.tensor([3]),
        )  # fmt: skip
        assert team.all()


def test_a_team_lost_to_rounding_is_found_exactly():
    c = torch.tensor([[[[0.7]], [[0.3]]]])
    broker = DynamicBroker("money", levels=1)
    team = broker(torch.ones(1, 2, 1), c, torch.ones(1, 1), minimum=torch.tensor([2]), maximum=torch.tensor([2]))
    assert team.all()
    assert broker(
        torch.ones(0, 2, 1), c[:0], torch.ones(0, 1), minimum=torch.tensor([2]), maximum=torch.tensor([2])
    ).shape == (0, 2, 1)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"levels of at least 1, got 0\.0 and 0"):
        DynamicBroker("money", levels=0)
    with pytest.raises(ValueError, match="unit of at least 0"):
        DynamicBroker("money", unit=math.nan)
    assert "levels=7" in repr(DynamicBroker("money", levels=7))
