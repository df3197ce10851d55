"""Drawing tokens row by row, so that what a row says does not depend on its neighbours."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_torch.agents.chat import Chat
from nsed_torch.agents.requests import Decoding

NUCLEUS_GUESS = 512
"""Tokens looked at first when the nucleus is cut; the whole vocabulary is sorted only where they fall short."""


class RowSampler:
    """Chooses the next token of every row by that row's own decoding and random stream.

    A row draws one uniform number a step and inverts its own truncated distribution with it, so the same seed and
    the same logits give the same token in any batch. Used as a logits processor: all but the chosen token get
    minus infinity, and a greedy loop does the rest.

    Args:
        decodings: one a row.
        seeds: one a row.
        prompt_length: columns of the padded prompt; tokens after it count as written by the model.
    """

    def __init__(self, decodings: Sequence[Decoding], seeds: Sequence[int], prompt_length: int) -> None:
        self.prompt_length = prompt_length
        self.temperature = torch.tensor([d.temperature for d in decodings])
        self.top_p = torch.tensor([d.top_p for d in decodings])
        self.penalty = torch.tensor([d.repetition_penalty for d in decodings])
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Int[Tensor, "row length"], scores: Float[Tensor, "row token"]) -> Tensor:
        """Scores with every token but the chosen one at minus infinity."""
        written = input_ids[:, self.prompt_length :]
        logits = penalize(scores.float(), written, self.penalty.to(scores.device))
        uniform = torch.stack([torch.rand((), generator=g) for g in self.generators])
        token = sample(
            logits,
            self.temperature.to(scores.device),
            self.top_p.to(scores.device),
            uniform.to(scores.device),
        )
        return torch.full_like(scores, -torch.inf).scatter(1, token[:, None], 0.0)


def penalize(
    logits: Float[Tensor, "row token"], written: Int[Tensor, "row length"], penalty: Float[Tensor, " row"]
) -> Float[Tensor, "row token"]:
    """Divide positive logits of tokens already written by the penalty and multiply negative ones by it."""
    if written.shape[1] == 0 or bool((penalty == 1).all()):
        return logits
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
    # The largest logit moves to 0, so that no temperature above 0 overflows.
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    probabilities = (shifted / torch.where(greedy, 1.0, temperature)[:, None]).softmax(dim=-1)
    top, order = probabilities.topk(min(NUCLEUS_GUESS, logits.shape[1]), dim=-1)
    drawn = invert(top, order, top_p, uniform)
    # The two ways may order equal tokens differently: a row takes the second because of itself, not of a neighbour.
    short = (top.sum(dim=-1) < top_p) & ~greedy
    if bool(short.any()):
        everything = probabilities[short].sort(dim=-1, descending=True)
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


class RowStops:
    """Stops each row at its own allowance, or where a plain-template model opens another turn.

    Args:
        allowances: tokens each row may write.
        prompt_length: columns of the padded prompt.
        chat: whose `stop`, if there is one, ends a row.
    """

    def __init__(self, allowances: Sequence[int], prompt_length: int, chat: Chat) -> None:
        self.allowances = torch.tensor(allowances)
        self.prompt_length = prompt_length
        self.chat = chat

    def __call__(self, input_ids: Int[Tensor, "row length"], scores: Any, **kwargs: Any) -> Tensor:
        """Which rows are done."""
        written = input_ids[:, self.prompt_length :]
        done = written.shape[1] >= self.allowances.to(input_ids.device)
        if self.chat.stop is None:
            return done
        tails = self.chat.tokenizer.batch_decode(written[:, -8:])
        return done | torch.tensor([self.chat.stop in tail for tail in tails], device=input_ids.device)
