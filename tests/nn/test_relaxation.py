import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from nsed_torch.nn.broker import InfeasibleBudgetError, KnapsackBroker, SmoothedBroker

INF = math.inf


def instance(rng):
    """One task: agents of a few backbones, several roles and resources, some budgets without limit."""
    agents, roles, resources, backbones = (int(rng.integers(1, n)) for n in (7, 3, 4, 4))
    available = torch.from_numpy(rng.random((1, agents)) < 0.85)
    if rng.random() < 0.4:  # not everybody in every role
        available = available[:, :, None] & torch.from_numpy(rng.random((1, agents, roles)) < 0.7)
    minimum = torch.from_numpy(rng.integers(0, 2, roles)).minimum(available[0].sum(0))
    budgets = np.where(rng.random((1, resources)) < 0.2, np.inf, rng.random((1, resources)) * agents * 1.5)
    opening = rng.random((backbones, resources)) * 2 * (rng.random((backbones, 1)) < 0.7)
    tensors = rng.normal(0.5, 1, (1, agents, roles)), rng.random((1, agents, roles, resources)) * 3, budgets
    return [torch.from_numpy(x) for x in tensors], {
        "minimum": minimum,
        "maximum": minimum + torch.from_numpy(rng.integers(0, 3, roles)),
        "opening": torch.from_numpy(opening),
        "backbone": torch.from_numpy(rng.integers(0, backbones, agents)),
        "available": available,
    }


def linear(tensors, rest):
    """The optimum of the linear relaxation by HiGHS, None where nothing fits."""
    u, c, budgets = (x[0].numpy() for x in tensors)
    agents, roles = u.shape
    opening, backbone = rest["opening"].numpy(), rest["backbone"].numpy()
    rows, limits = [], []
    for r in np.flatnonzero(np.isfinite(budgets)):
        rows.append(np.r_[c[:, :, r].ravel(), opening[:, r]])
        limits.append(budgets[r])
    for role in range(roles):
        size = np.r_[np.tile(np.eye(roles)[role], agents), np.zeros(len(opening))]
        rows += [size, -size]
        limits += [rest["maximum"][role].item(), -rest["minimum"][role].item()]
    links = np.hstack([np.eye(agents * roles), -np.eye(len(opening))[backbone.repeat(roles)]])
    available = rest["available"][0].numpy()
    each = available.ravel() if available.ndim == 2 else available.repeat(roles)
    bounds = np.r_[each, np.ones(len(opening))]
    result = linprog(
        -np.r_[u.ravel(), np.zeros(len(opening))],
        A_ub=np.vstack([*rows, links]), b_ub=np.r_[limits, np.zeros(len(links))],
        bounds=np.c_[np.zeros_like(bounds), bounds],
    )  # fmt: skip
    return None if result.status == 2 else -result.fun


def smoothed(tensors, rest, temperature):
    names = [f"r{i}" for i in range(tensors[1].shape[-1])]
    return SmoothedBroker(names, temperature)(*tensors, **rest)


@pytest.mark.parametrize("temperature", [1.0, 0.1, 1e-4])
def test_bounds_hold_and_the_value_approaches_the_linear_optimum(temperature):
    rng = np.random.default_rng(1)
    lost = 0
    for _ in range(8):
        tensors, rest = instance(rng)
        optimum = linear(tensors, rest)
        if optimum is None:
            lost += 1
            with pytest.raises(InfeasibleBudgetError, match=r"r[012] of at least"):
                smoothed(tensors, rest, temperature)
            continue
        team = smoothed(tensors, rest, temperature)
        sizes = team.shares.sum(1)[0]
        assert (team.spent <= tensors[2] + 1e-7).all()
        assert (sizes <= rest["maximum"].double() + 1e-7).all()
        assert (sizes >= rest["minimum"].double() - 1e-7).all()
        assert ((team.shares >= 0) & (team.shares <= 1)).all()
        assert (team.shares[~rest["available"]] == 0).all()
        assert (team.prices >= 0).all()
        worth = float((team.shares * tensors[0]).sum())
        columns = team.shares.numel() + len(rest["opening"])
        # The entropy bends the objective by at most T log 2 a column.
        assert optimum - 1e-6 - temperature * columns * math.log(2) <= worth <= optimum + 1e-6
        assert optimum - 1e-6 <= float(team.value) <= optimum + 1e-6 + temperature * columns * math.log(2)
    assert 0 < lost < 8


def test_without_binding_rows_shares_are_a_sigmoid():
    u = torch.tensor([[[0.3], [-0.2], [1.0]]], dtype=torch.float64)
    sizes = {"minimum": torch.tensor([0]), "maximum": torch.tensor([3])}
    for budget in (INF, 9.0):
        team = SmoothedBroker(["money"], 0.5)(u, torch.ones(1, 3, 1, 1), torch.tensor([[budget]]), **sizes)
        torch.testing.assert_close(team.shares, (u / 0.5).sigmoid())
        assert team.prices.item() == 0


def test_one_budget_agrees_with_bisection():
    g = torch.Generator().manual_seed(3)
    u = torch.randn(50, 6, generator=g, dtype=torch.float64)
    c = torch.rand(50, 6, generator=g, dtype=torch.float64)
    budget = torch.rand(50, generator=g, dtype=torch.float64) * 3
    low, high = torch.zeros(50, dtype=torch.float64), torch.full((50,), 1e4, dtype=torch.float64)
    for _ in range(200):
        price = (low + high) / 2
        over = (((u - price[:, None] * c) / 0.2).sigmoid() * c).sum(1) > budget
        low, high = torch.where(over, price, low), torch.where(over, high, price)
    team = SmoothedBroker(["money"], 0.2)(
        u[..., None], c[..., None, None], budget[:, None], minimum=torch.tensor([0]), maximum=torch.tensor([6])
    )
    torch.testing.assert_close(team.prices[:, 0], high, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(team.shares[..., 0], ((u - high[:, None] * c) / 0.2).sigmoid(), atol=1e-7, rtol=1e-6)


FIXED = {
    "slack": ([9.0, 9.0], [0, 0], [3, 3]),
    "tight": ([1.2, 9.0], [0, 0], [3, 3]),
    "several": ([1.2, 0.8], [0, 0], [3, 3]),
    "infinite": ([INF, 0.9], [0, 1], [3, 3]),
    "exact sizes": ([2.5, INF], [1, 2], [1, 2]),
    "most": ([INF, INF], [0, 0], [1, 1]),
}


@pytest.mark.parametrize(
    ("case", "charges"),
    [("tight", True), ("exact sizes", True), ("infinite", True), ("several", False), ("most", False), ("slack", False)],
)
def test_gradients_reach_utilities_costs_budgets_and_charges(case, charges):
    budgets, minimum, maximum = FIXED[case]
    g = torch.Generator().manual_seed(7)
    numbers = partial(torch.rand, generator=g, dtype=torch.float64)
    u, c, opening = numbers(2, 3, 2), numbers(2, 3, 2, 2) * 0.5 + 0.1, numbers(2, 2) * 0.2 + 0.05
    limit = torch.tensor([budgets, budgets], dtype=torch.float64)
    finite = limit.isfinite()
    broker = SmoothedBroker(["money", "tokens"], 0.3)

    def run(u, c, b, opening):
        more = {"opening": opening, "backbone": torch.tensor([0, 1, 1])} if charges else {}
        limits = torch.where(finite, b, INF)
        return tuple(broker(u, c, limits, minimum=torch.tensor(minimum), maximum=torch.tensor(maximum), **more))

    inputs = [x.requires_grad_() for x in (u, c, torch.where(finite, limit, 0), opening)]
    assert torch.autograd.gradcheck(run, inputs, atol=1e-5, fast_mode=True)


def test_gradients_on_random_problems():
    rng = np.random.default_rng(5)
    checked = 0
    for _ in range(3):
        tensors, rest = instance(rng)
        if linear(tensors, rest) is None:
            continue
        finite, charged = tensors[2].isfinite(), rest["opening"] > 0

        def run(u, c, b, opening, rest=rest, finite=finite, charged=charged):
            rest = rest | {"opening": torch.where(charged, opening, 0)}
            return tuple(smoothed([u, c, torch.where(finite, b, INF)], rest, 0.5))

        inputs = [tensors[0], tensors[1], torch.where(finite, tensors[2], 0), rest["opening"].clone()]
        assert torch.autograd.gradcheck(run, [x.requires_grad_() for x in inputs], atol=1e-4, fast_mode=True)
        checked += 1
    assert checked > 1


def test_the_price_is_what_a_unit_of_budget_adds_to_the_value():
    g = torch.Generator().manual_seed(1)
    budgets = torch.tensor([[0.7, 0.9], [5.0, 0.5]], dtype=torch.float64, requires_grad=True)
    team = SmoothedBroker(["money", "tokens"], 0.1)(
        torch.rand(2, 4, 1, generator=g, dtype=torch.float64), torch.rand(2, 4, 1, 2, generator=g, dtype=torch.float64),
        budgets, minimum=torch.tensor([0]), maximum=torch.tensor([4]),
    )  # fmt: skip
    (gradient,) = torch.autograd.grad(team.value.sum(), budgets)
    torch.testing.assert_close(gradient, team.prices.detach())
    assert gradient[1, 0] == 0
    assert gradient[0, 0] > 0


def test_a_budget_that_only_one_team_fits():
    u = torch.tensor([[[1.0], [5.0]]], requires_grad=True)
    budget = torch.tensor([[1.0]], requires_grad=True)
    team = SmoothedBroker(["money"])(
        u, torch.tensor([[[[1.0]], [[2.0]]]]), budget, minimum=torch.tensor([1]), maximum=torch.tensor([1])
    )
    assert team.shares[0, :, 0].tolist() == pytest.approx([1, 0], abs=1e-6)
    assert team.spent.item() <= 1 + 1e-7
    team.shares.square().sum().backward()
    assert u.grad.isfinite().all()
    assert budget.grad.isfinite().all()


def test_a_task_does_not_depend_on_its_batch():
    rng = np.random.default_rng(11)
    u, c, b = (torch.from_numpy(rng.random(shape)) for shape in ((5, 4, 1), (5, 4, 1, 1), (5, 1)))
    broker = SmoothedBroker(["money"], 0.05)
    sizes = {"minimum": torch.tensor([0]), "maximum": torch.tensor([3])}
    together = broker(u, c, b, **sizes).shares
    alone = torch.cat([broker(u[i : i + 1], c[i : i + 1], b[i : i + 1], **sizes).shares for i in range(5)])
    torch.testing.assert_close(together, alone, atol=1e-9, rtol=0)
    assert broker(u[:0], c[:0], b[:0], **sizes).shares.shape == (0, 4, 1)


def test_infeasible_names_task_and_resource():
    with pytest.raises(InfeasibleBudgetError, match=r"^broker: task 1: no team fits.*tokens of at least 2 \(got 1.5\)"):
        SmoothedBroker(["money", "tokens"])(
            torch.ones(2, 2, 1), torch.ones(2, 2, 1, 2), torch.tensor([[3.0, 2.0], [3.0, 1.5]]),
            minimum=torch.tensor([2]), maximum=torch.tensor([2]),
        )  # fmt: skip


def test_rounding_gives_the_nearest_team_that_fits():
    rng = np.random.default_rng(2)
    rounded = 0
    for _ in range(8):
        tensors, rest = instance(rng)
        names = [f"r{i}" for i in range(tensors[1].shape[-1])]
        broker = SmoothedBroker(names, 1e-3)
        try:
            exact = KnapsackBroker(names)(*tensors, **rest)
        except InfeasibleBudgetError:
            continue
        shares = broker(*tensors, **rest).shares
        team = broker.round(shares, *tensors[1:], **rest)
        whole = (shares - shares.round()).abs().max() < 1e-3
        if whole:
            assert torch.equal(team, exact)
        # The exact team fits as well, so it is no nearer.
        assert (team.double() - shares).abs().sum() <= (exact.double() - shares).abs().sum() + 1e-9
        used = torch.stack([team[0, rest["backbone"] == b].any() for b in range(len(rest["opening"]))]).double()
        spent = torch.einsum("ar,arc->c", team[0].double(), tensors[1][0]) + used @ rest["opening"]
        assert (spent <= tensors[2][0] + 1e-9).all()
        rounded += 1
    assert rounded > 2


def test_bad_temperature():
    with pytest.raises(ValueError, match="temperature: expected a value above 0, got 0"):
        SmoothedBroker(["money"], 0.0)
    assert "temperature=0.1" in repr(SmoothedBroker(["money"]))
