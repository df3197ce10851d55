"""The efficiency-fatigue law: what rounds gain, and what they cost."""

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.core.functional.floats import Coefficient


def utility(t: Float[Tensor, "..."], p_g: Coefficient, k: Coefficient, beta: Coefficient) -> Float[Tensor, "..."]:
    """Efficiency-fatigue law `U(t) = 1 - (1 - p_g) exp(-k t) - beta t^2`. Published by the paper.

    After t rounds, with p_g the accuracy before deliberation, k the gain per round (the paper's
    Lambda (p_v - p_g)) and beta the fatigue per round squared.
    """
    return 1 - (1 - p_g) * torch.exp(-k * t) - beta * t.square()


def marginal_utility(
    t: Float[Tensor, "..."], p_g: Coefficient, k: Coefficient, beta: Coefficient
) -> Float[Tensor, "..."]:
    """Slope of `utility`, `U'(t) = (1 - p_g) k exp(-k t) - 2 beta t`. Our derivation; arguments as there."""
    return (1 - p_g) * k * torch.exp(-k * t) - 2 * beta * t


def optimal_round(k: Float[Tensor, "..."], p_g: Coefficient, beta: Coefficient) -> Float[Tensor, "..."]:
    """Where `utility` peaks, `T = W0((1 - p_g) k^2 / (2 beta)) / k`; 0 where k <= 0. Our derivation."""
    gains = k > 0
    k = torch.where(gains, k, 1)
    return torch.where(gains, lambert_w0((1 - p_g) * k.square() / (2 * beta)) / k, 0)


def lambert_w0(z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Principal branch of Lambert's W for z >= 0: the w with `w exp(w) = z`.

    The iteration `w <- w / (1 + w) (1 + log(z / w))` (Iacono and Boyd, 2017) doubles the digits at each step;
    the last step alone carries the gradient, and its slope is W'. Second derivatives are not provided.
    """
    positive = z > 0
    z = torch.where(positive, z, 1)
    w = z.detach().log1p()
    for _ in range(6):
        w = w / (1 + w) * (1 + torch.log(z.detach() / w))
    return torch.where(positive, w / (1 + w) * (1 + torch.log(z / w)), 0)


def evidence(
    convictions: Float[Tensor, "batch round"], p_g: Coefficient, k: Coefficient, beta: Coefficient
) -> Float[Tensor, "batch round"]:
    """Evidence after each round, `E(r) = sum_{s <= r} max(conviction_s, 0) U'(s)`.

    Published in the authors' SDK. Convictions are of rounds 1, 2, ...; the rest is as in `utility`.
    """
    rounds = torch.arange(1, convictions.shape[1] + 1, dtype=convictions.dtype, device=convictions.device)
    return (convictions.clamp(min=0) * marginal_utility(rounds, p_g, k, beta)).cumsum(-1)
