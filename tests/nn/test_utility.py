import pytest
import torch

from nsed_torch.nn.broker import KnapsackBroker, SmoothedBroker
from nsed_torch.nn.utility import Utility


def test_all_agents_are_worth_one_at_the_start():
    u = Utility(3, 2, 4)(torch.randn(5, 4), torch.randn(3, 3), torch.randn(5, 4))
    assert torch.equal(u, torch.ones(5, 3, 2))


def test_formula():
    torch.manual_seed(0)
    utility = Utility(3, 2, 4).double()
    for parameter in utility.parameters():
        torch.nn.init.normal_(parameter)
    x, h, f = torch.randn(2, 4).double(), torch.randn(2, 4).double(), torch.randn(2, 3, 3).double()
    u = utility(x, f, h)
    for b, a, r in ((0, 0, 0), (1, 2, 1)):
        fit = sum((utility.weight[a, r] * torch.cat([x[b], h[b]])).tolist())
        track = sum((utility.telemetry_weight[r] * f[b, a]).tolist())
        assert u[b, a, r].item() == pytest.approx(1 + utility.bias[a, r].item() + fit + track)
    torch.testing.assert_close(utility(x, f[0])[0], utility(x, f, torch.zeros_like(h))[0])


def test_gradients():
    utility = Utility(2, 1, 3).double()
    inputs = [torch.randn(2, 3).double(), torch.randn(2, 3).double(), torch.randn(2, 3).double()]
    torch.nn.init.normal_(utility.weight)
    assert torch.autograd.gradcheck(utility, [x.requires_grad_() for x in inputs])


def test_training_through_the_smoothed_broker_finds_the_specialists():
    """Two kinds of tasks, one agent good at each, money for one agent."""
    torch.manual_seed(0)
    task = torch.eye(2).repeat(8, 1)
    utility, broker = Utility(2, 1, 2), SmoothedBroker(["money"], 0.2)
    optimizer = torch.optim.Adam(utility.parameters(), lr=0.1)
    costs, budgets = torch.ones(16, 2, 1, 1), torch.ones(16, 1)
    sizes = {"minimum": torch.tensor([0]), "maximum": torch.tensor([2])}
    telemetry = torch.zeros(2, 3)
    for _ in range(30):
        shares = broker(utility(task, telemetry), costs, budgets, **sizes).shares[..., 0]
        optimizer.zero_grad()
        (-(shares * task).sum(1).mean()).backward()
        optimizer.step()
    team = KnapsackBroker(["money"])(utility(task, telemetry), costs, budgets, **sizes)
    assert torch.equal(team[..., 0], task > 0)


def test_bad_sizes():
    with pytest.raises(ValueError, match="agents, roles and dim of at least 1"):
        Utility(0, 1, 1)
    assert repr(Utility(3, 2, 4)) == "Utility(agents=3, roles=2, dim=4, features=3)"
