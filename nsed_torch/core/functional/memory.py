"""What memory forgets, admits and means."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.functional.floats import tolerance


def forget_gate(
    features: Float[Tensor, "*batch slot feature"], weight: Float[Tensor, "feature"], bias: Float[Tensor, ""]
) -> Float[Tensor, "*batch slot"]:
    """Factor on each slot's retention, `sigmoid(b + w . [cos(m, c), cos(m, x), support, age])`.

    The paper names the gate; this formula is ours. Features are the bracket's, for every slot.
    """
    return torch.sigmoid(bias + features @ weight)


def update_memory(
    retention: Float[Tensor, "batch slot"],
    mask: Bool[Tensor, "batch slot"],
    gate: Float[Tensor, "batch slot"],
    entering: Float[Tensor, "batch proposal"],
    proposal_mask: Bool[Tensor, "batch proposal"],
) -> tuple[Float[Tensor, "batch slot"], Int[Tensor, "batch slot"]]:
    """Forget, let the proposals in, keep the strongest: the memory never grows. Ours.

    Retention and mask are of the old slots, the gate is the factor on them, and proposals enter with a retention each.

    Returns:
        Retentions of the new slots, strongest first, and each new slot's index among old slots followed by
        proposals, -1 (retention 0) where empty. Retentions equal to 9 decimals (float32: 5) keep that order.
    """
    counted = torch.cat([mask, proposal_mask], 1)
    pool = torch.where(counted, torch.cat([gate * retention, entering], 1), 0)
    scale = 1 / tolerance(pool)
    strength = torch.where(counted, (pool.detach() * scale).round(), -1)
    order = strength.sort(dim=1, descending=True, stable=True).indices[:, : retention.shape[1]]
    return pool.gather(1, order), torch.where(counted.gather(1, order), order, -1)


def hidden_state(
    embeddings: Float[Tensor, "batch slot dim"],
    retention: Float[Tensor, "batch slot"],
    mask: Bool[Tensor, "batch slot"],
) -> Float[Tensor, "batch dim"]:
    """Mean of the slots, `h = sum_k retention_k m_k / sum_k retention_k`; 0 without slots. Ours."""
    weights = torch.where(mask, retention, 0)
    total = weights.sum(-1, keepdim=True)
    alive = total > torch.finfo(total.dtype).tiny
    weights = torch.where(alive, weights / torch.where(alive, total, 1), 0)
    return (weights[:, None, :] @ torch.where(mask[:, :, None], embeddings, 0))[:, 0]


def held(source: Int[Tensor, "batch round slot"], proposals: int) -> Int[Tensor, "batch slot"]:
    """What each slot holds after the last round: `round * proposals + proposal`, both from 0; -1 where it is empty.

    The source is what `update_memory` gave in each round, of so many proposals.
    """
    slots = source.shape[2]
    origin = torch.full_like(source[:, 0], -1)
    for r, chosen in enumerate(source.unbind(1)):
        old = origin.gather(1, chosen.clamp(0, slots - 1))
        new = r * proposals + chosen - slots
        origin = torch.where(chosen < 0, -1, torch.where(chosen < slots, old, new))
    return origin
