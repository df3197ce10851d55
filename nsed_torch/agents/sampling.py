"""The mathematics of drawing tokens row by row, so that no row depends on its neighbours."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

NUCLEUS_GUESS = 512
"""Tokens looked at first when the nucleus is cut; the whole vocabulary is sorted only where they fall short."""


def penalize(
    logits: Float[Tensor, "row token"], written: Int[Tensor, "row length"], penalty: Float[Tensor, " row"]
) -> Float[Tensor, "row token"]:
    """Divide positive logits of tokens already written by the penalty and multiply negative ones by it."""
    seen = logits.gather(1, written)
    factor = penalty[:, None]
    return logits.scatter(1, written, torch.where(seen > 0, seen / factor, seen * factor))


def sample(
    logits: Float[Tensor, "row token"],
    temperature: Float[Tensor, " row"],
    top_p: Float[Tensor, " row"],
    uniform: Float[Tensor, " row"],
) -> Int[Tensor, " row"]:
    """Invert each row's nucleus distribution at `uniform` in [0, 1); temperature 0 takes the likeliest token.

    Logits are float32, `top_p` is in (0, 1].
    """
    greedy = temperature == 0
    likeliest = logits.argmax(dim=-1)
    if bool(greedy.all()):
        return likeliest
    # The largest logit moves to 0, so that no temperature above 0 overflows. In place: this is a vocabulary a row.
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    mass = shifted.div_(torch.where(greedy, 1.0, temperature)[:, None]).exp_()
    top, order = mass.topk(min(NUCLEUS_GUESS, logits.shape[1]), dim=-1)
    whole = mass.sum(dim=-1, keepdim=True)
    share = top / whole
    drawn = invert(share, order, top_p, uniform)
    held = share.cumsum(dim=-1)
    short = (share.sum(dim=-1) < top_p) & ~greedy
    # Of everything, the likeliest tokens are mostly enough: a draw that falls among them needs no order of the others.
    among = short & (top_p >= 1) & (uniform < held[:, -1])
    if bool(among.any()):
        rank = (held[among] > uniform[among, None]).int().argmax(dim=-1)
        drawn[among] = order[among].gather(1, rank[:, None])[:, 0]
    short &= ~among
    # The two ways may order equal tokens differently: a row takes the second because of itself, not of a neighbour.
    if bool(short.any()):
        everything = (mass[short] / whole[short]).sort(dim=-1, descending=True)
        drawn[short] = invert(everything.values, everything.indices, top_p[short], uniform[short])
    return torch.where(greedy, likeliest, drawn)


def invert(
    top: Float[Tensor, "row rank"],
    order: Int[Tensor, "row rank"],
    top_p: Float[Tensor, " row"],
    uniform: Float[Tensor, " row"],
) -> Int[Tensor, " row"]:
    """The token of `order` at which the nucleus' cumulative mass exceeds `uniform` times its whole mass.

    `top` holds probabilities, largest first; the nucleus is the shortest prefix whose mass reaches `top_p`.
    """
    kept = torch.where(top.cumsum(dim=-1) - top < top_p[:, None], top, 0.0)
    cumulative = kept.cumsum(dim=-1)
    rank = (cumulative > uniform[:, None] * cumulative[:, -1:]).int().argmax(dim=-1)
    return order.gather(1, rank[:, None])[:, 0]
