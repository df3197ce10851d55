import torch

from nsed_torch.core.trust import Calibration, Trust

TASK, HIDDEN = torch.ones(2, 3), torch.zeros(2, 3)
VOTERS = torch.tensor([[4, 0, -1], [1, 2, 3]])
MASK = torch.tensor([[True, True, False], [True, True, True]])


def test_everyone_counts_alike_at_the_start():
    torch.testing.assert_close(Trust(5, 3)(VOTERS, TASK, HIDDEN, MASK), MASK.float())


def test_each_voter_uses_its_own_row_of_the_pool():
    module = Trust(5, 3)
    with torch.no_grad():
        module.bias[4], module.weight[2, 0] = 1.0, 1.0
    tau = module(VOTERS, TASK, HIDDEN, MASK)
    assert tau.tolist() == [[2, 1, 0], [1, 2, 1]]
    tau[:, 0].sum().backward()
    assert module.bias.grad.tolist() == [0, 1, 0, 0, 1]
    assert module.weight.grad.isfinite().all()


def test_calibration_is_each_judges_own():
    module = Calibration(5)
    ratings = torch.tensor([[[0.5, -0.5], [0.2, 0.9], [float("nan"), float("nan")]]])
    mask = ~ratings.isnan()
    torch.testing.assert_close(module(ratings, mask, VOTERS[:1]), torch.where(mask, ratings, 0))
    with torch.no_grad():
        module.shift[4], module.scale[0] = 1.0, -1.0
    got = module(ratings, mask, VOTERS[:1])
    torch.testing.assert_close(got[0, 0], (ratings[0, 0].atanh() + 1).tanh())
    torch.testing.assert_close(got[0, 1], -ratings[0, 1])
    got.sum().backward()
    assert module.scale.grad.isfinite().all()
    assert module.shift.grad.tolist()[1:4] == [0, 0, 0]
