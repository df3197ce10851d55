import math

import torch
from drawn_tensors import REAL, randn, tensor
from torch.autograd import gradcheck

from nsed_torch.parts import fatigue_law
from nsed_torch.parts.fatigue_law import lambert_w0, marginal_utility


def test_lambert_w0_against_scipy():
    from scipy.special import lambertw

    z = torch.cat([torch.zeros(1, dtype=REAL), torch.logspace(-300, 300, 2001, dtype=REAL)])
    torch.testing.assert_close(lambert_w0(z), torch.from_numpy(lambertw(z.numpy()).real), rtol=1e-14, atol=0)


def test_optimal_round_is_where_utility_peaks():
    k, p_g, beta = tensor([0.1, 0.3, 1.0]), 0.54, 0.002
    best = fatigue_law.optimal_round(k, p_g, beta)
    torch.testing.assert_close(marginal_utility(best, p_g, k, beta), torch.zeros(3, dtype=REAL), atol=1e-14, rtol=0)
    flat = tensor([0.0, -0.5, 1e-200], grad=True)
    rounds = fatigue_law.optimal_round(flat, p_g, beta)
    rounds.sum().backward()
    assert rounds.tolist() == [0, 0, 0]
    assert flat.grad.isfinite().all()


def test_evidence_by_hand():
    slope = [0.46 * 0.3 * math.exp(-0.3 * r) - 0.004 * r for r in (1, 2, 3)]
    got = fatigue_law.evidence(tensor([[0.5, -1.0, 1.0]]), 0.54, 0.3, 0.002)
    torch.testing.assert_close(got, tensor([[0.5 * slope[0], 0.5 * slope[0], 0.5 * slope[0] + slope[2]]]))


def test_gradcheck_utility():
    t, p_g, k, beta = (
        tensor([1.0, 4.0], grad=True),
        tensor(0.5, grad=True),
        tensor(0.3, grad=True),
        tensor(0.002, grad=True),
    )
    assert gradcheck(fatigue_law.utility, (t, p_g, k, beta))
    assert gradcheck(marginal_utility, (t, p_g, k, beta))
    assert gradcheck(fatigue_law.evidence, (randn(2, 5), p_g, k, beta))
    assert gradcheck(fatigue_law.optimal_round, (tensor([0.2, 0.9, -0.4], grad=True), p_g, tensor(0.02, grad=True)))
    assert gradcheck(lambert_w0, (tensor([1e-3, 0.7, 30.0], grad=True),))
