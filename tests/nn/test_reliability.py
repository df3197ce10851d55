import pytest
import torch

from nsed_torch.nn import Reliability

TASK, HIDDEN = torch.ones(2, 3), torch.zeros(2, 3)
VOTERS = torch.tensor([[4, 0, -1], [1, 2, 3]])
MASK = torch.tensor([[True, True, False], [True, True, True]])


def test_everyone_counts_alike_at_the_start():
    torch.testing.assert_close(Reliability(5, 3)(VOTERS, TASK, HIDDEN, MASK), MASK.float())


def test_each_voter_uses_its_own_row_of_the_pool():
    module = Reliability(5, 3)
    with torch.no_grad():
        module.bias[4], module.weight[2, 0] = 1.0, 1.0
    tau = module(VOTERS, TASK, HIDDEN, MASK)
    e = torch.tensor(1.0).exp()
    torch.testing.assert_close(tau[0], torch.stack([2 * e / (1 + e), 2 / (1 + e), torch.tensor(0.0)]))
    torch.testing.assert_close(tau[1], 3 * torch.stack([torch.tensor(1.0), e, torch.tensor(1.0)]) / (2 + e))
    tau[:, 0].sum().backward()
    assert module.bias.grad.count_nonzero() == 5
    assert module.weight.grad.isfinite().all()


def test_sizes():
    with pytest.raises(ValueError, match="at least 1, got agents=0 and dim=3"):
        Reliability(0, 3)
