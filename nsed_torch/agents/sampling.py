"""Drawing tokens row by row, so that what a row says does not depend on its neighbours."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_torch.agents.requests import Decoding

NUCLEUS_GUESS = 512
"""Tokens looked at first when the nucleus is cut; the whole vocabulary is sorted only where they fall short."""


class Row:
    """One answer being written: its own decoding and random stream, and what it has written so far.

    Args:
        decoding: how its tokens are drawn.
        seed: of its random stream.
    """

    def __init__(self, decoding: Decoding, seed: int) -> None:
        self.decoding = decoding
        self.written: list[int] = []
        self._generator = torch.Generator().manual_seed(seed)

    def uniform(self) -> float:
        """The next number of its stream, in [0, 1)."""
        return float(torch.rand((), generator=self._generator))


def draw(logits: Float[Tensor, "row token"], rows: Sequence[Row]) -> list[int]:
    """The next token of every row, and write it down.

    A row takes one uniform number a step and inverts its own truncated distribution with it, so the same seed and
    the same logits give the same token beside any neighbours.
    """
    logits = logits.float()
    decodings = [row.decoding for row in rows]
    repeating = [i for i, row in enumerate(rows) if row.written and row.decoding.repetition_penalty != 1]
    if repeating:
        longest = max(len(rows[i].written) for i in repeating)
        # A token named twice counts once, so a row is filled up with its own first token.
        written = [rows[i].written + rows[i].written[:1] * (longest - len(rows[i].written)) for i in repeating]
        penalty = logits.new_tensor([decodings[i].repetition_penalty for i in repeating])
        logits = logits.clone()
        logits[repeating] = penalize(logits[repeating], torch.tensor(written, device=logits.device), penalty)
    tokens: list[int] = sample(
        logits,
        logits.new_tensor([d.temperature for d in decodings]),
        logits.new_tensor([d.top_p for d in decodings]),
        logits.new_tensor([row.uniform() for row in rows]),
    ).tolist()
    for row, token in zip(rows, tokens, strict=True):
        row.written.append(token)
    return tokens


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
    """Invert each row's nucleus distribution at `uniform`; temperature 0 takes the likeliest token.

    Args:
        logits: float32.
        temperature: at least 0.
        top_p: in (0, 1].
        uniform: one number in [0, 1) a row.

    Returns:
        One token index a row.
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

    Args:
        top: probabilities, largest first; the nucleus is the shortest prefix whose mass reaches `top_p`.
        order: their tokens.
        top_p: in (0, 1].
        uniform: one number in [0, 1) a row.
    """
    kept = torch.where(top.cumsum(dim=-1) - top < top_p[:, None], top, 0.0)
    cumulative = kept.cumsum(dim=-1)
    rank = (cumulative > uniform[:, None] * cumulative[:, -1:]).int().argmax(dim=-1)
    return order.gather(1, rank[:, None])[:, 0]
