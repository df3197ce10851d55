import itertools
import math
import re

import numpy as np
import pytest
import torch

from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.parts.knapsack import KnapsackBroker

NAMES = ("money", "tokens")
INF = math.inf


def brute(u, c, budget, least, most, opening, backbone, available):
    """The preferred team by looking at all of them; None if none fits."""
    agents, roles = u.shape
    best = None
    for bits in itertools.product((1, 0), repeat=agents * roles):  # the lowest indices come first
        z = np.array(bits, dtype=bool).reshape(agents, roles)
        if (z & ~available).any() or (z.sum(0) < least).any() or (z.sum(0) > most).any():
            continue
        used = np.unique(backbone[z.any(1)])
        spend = [math.fsum([*c[z][:, r], *opening[used, r]]) for r in range(c.shape[-1])]
        if any(s > b * (1 + 1e-15) for s, b in zip(spend, budget, strict=True)):
            continue
        key = (-math.fsum(u[z]), *spend)
        if best is None or key_below(key, best[0]):
            best = key, z
    return None if best is None else best[1]


def key_below(key, best):
    for a, b in zip(key, best, strict=True):
        if abs(a - b) > 1e-8:
            return a < b
    return False


def instance(rng):
    agents, roles, resources, backbones = (rng.integers(1, n) for n in (5, 3, 3, 4))
    whole = rng.random() < 0.5  # whole numbers make ties
    u = rng.integers(-2, 4, (agents, roles)) if whole else rng.normal(0.5, 1, (agents, roles))
    c = rng.integers(0, 4, (agents, roles, resources)) if whole else rng.random((agents, roles, resources)) * 3
    opening = rng.integers(0, 3, (backbones, resources)) if whole else rng.random((backbones, resources)) * 2
    budget = rng.integers(0, 8, resources) if whole else rng.random(resources) * 8
    budget = np.where(rng.random(resources) < 0.2, np.inf, budget)
    available = np.repeat(rng.random(agents) < 0.85, roles).reshape(agents, roles)
    if rng.random() < 0.3:  # not everybody in every role
        available &= rng.random((agents, roles)) < 0.7
    least = np.minimum(rng.integers(0, 2, roles), available.sum(0))
    most = least + rng.integers(0, 3, roles)
    return (
        u.astype(float), c.astype(float), budget, least, most, opening.astype(float),
        rng.integers(0, backbones, agents), available,
    )  # fmt: skip


def solve(u, c, budget, least, most, opening, backbone, available):
    broker = KnapsackBroker([f"r{i}" for i in range(c.shape[-1])])
    more = {"minimum": least, "maximum": most, "opening": opening, "backbone": backbone, "available": available}
    tensors = {name: torch.from_numpy(value) for name, value in more.items()}
    return broker(*map(torch.from_numpy, (u, c, budget)), **tensors).numpy()


def agree(count, seed):
    """How many instances agree with brute force, and how many of them have no team."""
    rng = np.random.default_rng(seed)
    infeasible = 0
    for i in range(count):
        problem = instance(rng)
        expected = brute(*problem)
        if expected is None:
            infeasible += 1
            with pytest.raises(InfeasibleBudgetError):
                solve(*problem)
        else:
            assert (solve(*problem) == expected).all(), (i, problem)
    return infeasible


def test_agrees_with_brute_force():
    assert 20 < agree(500, 0) < 480


def team(utilities, costs, budget, *, least=0, most=9, **more):
    numbers = torch.tensor(utilities)[:, None], torch.tensor(costs)[:, None], torch.tensor(budget)
    broker = KnapsackBroker(NAMES)
    return broker(*numbers, minimum=torch.tensor([least]), maximum=torch.tensor([most]), **more)[:, 0].tolist()


def test_ties_go_to_the_cheaper_then_to_the_lower_index():
    assert team([1.0, 1.0, 1.0], [[2.0, 1.0], [1.0, 9.0], [1.0, 8.0]], [INF, INF], most=1) == [False, False, True]
    assert team([1.0] * 20, [[1.0, 1.0]] * 20, [3.0, INF]) == [True] * 3 + [False] * 17


def test_opening_charge_is_paid_once_a_backbone():
    more = {"opening": torch.tensor([[5.0, 0.0], [1.0, 0.0]]), "backbone": torch.tensor([0, 0, 1])}
    costs = [[1.0, 0.0]] * 3
    assert team([2.0, 2.0, 3.0], costs, [7.0, 0.0], **more) == [True, True, False]
    assert team([2.0, 2.0, 3.0], costs, [6.9, 0.0], **more) == [False, False, True]
    assert team([2.0, 2.0, 3.0], costs, [9.0, 0.0], **more) == [True, True, True]


def test_small_prices_and_rounding():
    assert team([1.0, 1.0, 1.0], [[1e-7, 0.0], [1.01e-7, 0.0], [1.02e-7, 0.0]], [2.02e-7, 0.0]) == [True, True, False]
    assert team([1.0, 1.0, 1.0], [[0.1, 0.0]] * 3, [0.3, 0.0]) == [True] * 3


@pytest.mark.parametrize(
    ("costs", "budget", "message"),
    [
        ([[2.0, 1.0], [1.0, 1.0]], [2.0, 9.0], r"expected money of at least 3 \(got 2\); raise"),
        ([[2.0, 1.0], [1.0, 1.0]], [2.0, 1.5], r"money of at least 3 \(got 2\) and tokens of at least 2 \(got 1.5\)"),
    ],
)
def test_infeasible_names_the_binding_resource(costs, budget, message):
    with pytest.raises(InfeasibleBudgetError, match=f"^broker: no team fits the budgets: .*{message}") as info:
        team([1.0, 1.0], costs, budget, least=2)
    assert "\n" not in str(info.value)


def test_the_advice_of_an_infeasible_budget_is_the_least_that_works():
    rng = np.random.default_rng(2)
    tried = 0
    while tried < 40:
        problem = list(instance(rng))
        if brute(*problem) is not None:
            continue
        tried += 1
        with pytest.raises(InfeasibleBudgetError) as info:
            solve(*problem)
        message, budget = str(info.value), problem[2]
        advice = [(int(r), float(least)) for r, least in re.findall(r"r(\d+) of at least (\S+) ", message)]
        for r, least in advice:
            assert least > budget[r]
            budget[r] = least
        assert brute(*problem) is not None
        solve(*problem)
        budget[advice[-1][0]] = advice[-1][1] * 0.999
        assert brute(*problem) is None


def test_numbers_of_the_unavailable_are_not_read():
    available = torch.tensor([[True], [False]])
    costs = [[1.0, 1.0], [math.nan, -1.0]]
    assert team([1.0, math.nan], costs, [INF, INF], available=available) == [True, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"least": 3}, "role 0: expected 3 available agents, got 2: lower its minimum"),
        ({"least": 2, "most": 1}, "role 0: expected 0 <= minimum <= maximum, got 2 and 1"),
        ({"utilities": [math.nan, 1.0]}, "expected finite utilities"),
        ({"costs": [[-1.0, 0.0], [0.0, 0.0]]}, "expected finite costs of at least 0"),
        ({"budget": [1.0, math.nan]}, "expected a budget of at least 0 for tokens, got nan"),
        ({"costs": [[0.0]] * 2, "budget": [1.0]}, r"expected costs of 2 resources \(money, tokens\), got 1"),
        ({"opening": torch.zeros(1, 2)}, "expected opening and backbone together"),
        ({"opening": torch.zeros(1, 2), "backbone": torch.tensor([0, 1])}, r"backbones 0 to 0, got \[0, 1\]"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"utilities": [1.0, 1.0], "costs": [[0.0, 0.0]] * 2, "budget": [1.0, 1.0]} | change
    with pytest.raises(ValueError, match=f"^broker: .*{message}") as info:
        team(**arguments)
    assert not isinstance(info.value, InfeasibleBudgetError)


def test_resources_need_names():
    with pytest.raises(ValueError, match="one or more different names"):
        KnapsackBroker([])
    with pytest.raises(ValueError, match=r"got \['money', 'money'\]"):
        KnapsackBroker(["money", "money"])
    assert "money" in repr(KnapsackBroker(["money"]))
