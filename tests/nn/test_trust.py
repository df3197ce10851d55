import pytest
import torch

from nsed_torch.nn import Calibration, Trust

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


def test_sizes():
    with pytest.raises(ValueError, match=r"finite features of \(agents, features\), 5 rows, got shape \(4, 2\)"):
        Trust(5, 3, features=torch.ones(4, 2))
    with pytest.raises(ValueError, match="rank: expected at least 1, got 0"):
        Trust(5, 3, features=torch.ones(5, 2), rank=0)


def test_features_start_equal_and_learn():
    torch.manual_seed(0)
    module = Trust(5, 3, features=torch.randn(5, 4), rank=2)
    assert {n: tuple(p.shape) for n, p in module.named_parameters()} == {"bias": (4,), "left": (4, 2), "right": (2, 6)}
    tau = module(VOTERS, TASK, HIDDEN, MASK)
    torch.testing.assert_close(tau, MASK.float())
    tau[:, 0].sum().backward()
    assert module.bias.grad.any()
    assert module.right.grad.any()


def test_agents_never_seen_get_values_from_their_features():
    torch.manual_seed(0)
    features = torch.randn(5, 4)
    trained = Trust(5, 3, features=features)
    with torch.no_grad():
        trained.bias.normal_()
        trained.right.normal_()
    newcomers = torch.cat([features[[4, 0]], torch.randn(5, 4)])
    other = Trust(7, 3, features=newcomers)
    other.load_state_dict(trained.state_dict())
    here = other(torch.tensor([[0, 1, -1]]), TASK[:1], HIDDEN[:1], MASK[:1])
    torch.testing.assert_close(here, trained(VOTERS[:1], TASK[:1], HIDDEN[:1], MASK[:1]))
    logits = torch.stack([f @ trained.bias + (trained.right.T @ trained.left.T @ f)[:3].sum() for f in newcomers])
    everyone = other(torch.arange(7)[None], TASK[:1], HIDDEN[:1], torch.ones(1, 7, dtype=torch.bool))
    torch.testing.assert_close(everyone[0], 1 + logits)


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
