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


def entry_gate(
    features: Float[Tensor, "*batch proposal feature"], weight: Float[Tensor, "feature"]
) -> Float[Tensor, "*batch proposal"]:
    """Factor on the retention that a proposal enters with, `min(1, 2 sigmoid(u . features))`; 1 for u = 0. Ours."""
    return (2 * torch.sigmoid(features @ weight)).clamp(max=1)


def vector_gate(
    embeddings: Float[Tensor, "batch slot dim"],
    consensus: Float[Tensor, "batch dim"],
    task: Float[Tensor, "batch dim"],
    features: Float[Tensor, "batch slot feature"],
    *,
    weight: Float[Tensor, "dim 3"],
    mixing: Float[Tensor, "dim feature"],
    bias: Float[Tensor, "dim"],
) -> Float[Tensor, "batch slot dim"]:
    """A factor for each dimension d of each slot, as in a GRU: `sigmoid(b_d + u_d . [m_d, c_d, x_d] + v_d . features)`.

    Diagonal where a GRU has full matrices: 8 numbers a dimension, not 3 dim, for a few thousand tasks to fit.
    The paper names the gate; this formula is ours.
    m are the slots' embeddings, c the consensus's, x the task's; u is the weight and v the mixing. Features are
    `[cos(m, c), cos(m, x), support, age]`, for every slot.
    """
    own = weight[:, 0] * embeddings
    shared = weight[:, 1] * consensus + weight[:, 2] * task + bias
    return torch.sigmoid(own + shared[:, None, :] + features @ mixing.T)


def split_gate(
    gate: Float[Tensor, "batch slot dim"], embeddings: Float[Tensor, "batch slot dim"]
) -> tuple[Float[Tensor, "batch slot"], Float[Tensor, "batch slot dim"]]:
    """A gate on every dimension as a factor on the slot's retention and a new embedding. Ours.

    With `g = mean_d gate_d` and `m' = m gate / g`, retention times embedding fades by the gate in each dimension:
    `(g retention) m' = gate (retention m)`. Where all dimensions agree, g is their factor and m' is m, bit by bit.

    Returns:
        g, and m'; where g underflows, 0 and m.
    """
    anchor = gate[..., :1].detach()
    factor = anchor + (gate - anchor).mean(-1, keepdim=True)
    alive = factor > torch.finfo(gate.dtype).tiny
    relative = torch.where(alive, gate / torch.where(alive, factor, 1), 1)
    return torch.where(alive, factor, 0)[..., 0], embeddings * relative


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
    return (weights[:, :, None] * torch.where(mask[:, :, None], embeddings, 0)).sum(1)


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
