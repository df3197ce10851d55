"""What logits stand for: ratings, and how likely texts are."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.core.engine import Likelihood, RatingScale
from nsed_torch.engines.chat import Turn
from nsed_torch.records.ledger import common_prefix

CHUNK = 64
"""Rows whose exponentials are held at once: beside a pass' logits no second copy of their size is made."""


def verdicts(
    logits: Float[Tensor, "candidate token"], scale: RatingScale, labels: Sequence[int]
) -> tuple[Float[Tensor, "candidate"], Float[Tensor, "candidate"]]:
    """Expected value of a scale under the probabilities of its labels' tokens, and their share of the vocabulary's."""
    logits = precise(logits)
    on_scale = logits[:, labels]
    values = on_scale.softmax(dim=-1) @ torch.tensor(scale.values, device=logits.device, dtype=logits.dtype)
    return values, (on_scale.logsumexp(dim=-1) - logits.logsumexp(dim=-1)).exp()


def precise(logits: Tensor) -> Tensor:
    """In float32 at least."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def log_likelihoods(
    logits: Float[Tensor, "place token"], rows: Sequence[Sequence[int]], turns: Sequence[Turn], stop_ids: Sequence[int]
) -> Float[Tensor, "text"]:
    """Mean log-probability of the tokens of texts and of their ends.

    `l = (sum_t log p(y_t | chat, y_<t) + log sum_{s in stop} p(s | chat, y)) / (n + 1)` over the n tokens of a text:
    any stop token ends a turn. Length-normalised likelihoods of given texts are published (Brown et al. 2020, arXiv
    2005.14165, per token); that the end counts as one more token is our reading.

    Args:
        logits: of the next token, behind places of a pass.
        rows: the rows of `logits` behind each text's chat and each of its tokens, one sequence of rows per text.
        turns: the texts' token ids.
        stop_ids: tokens that end a turn.
    """
    totals = torch.cat([precise(part).logsumexp(dim=-1) for part in logits.split(CHUNK)])
    ends = precise(logits[:, list(stop_ids)]).logsumexp(dim=-1)
    # One look at the logits for all texts: each would cost a gradient of all vocabularies.
    before = [place for places in rows for place in places[:-1]]
    written = [token for turn in turns for token in turn.ids[turn.start :]]
    said = (precise(logits[before, written]) - totals[before]).split([len(places) - 1 for places in rows])
    last = [places[-1] for places in rows]
    closed = ends[last] - totals[last]
    return torch.stack([torch.cat([own, end[None]]).mean() for own, end in zip(said, closed, strict=True)])


def likelihood(logs: Sequence[float], read: int, seconds: float) -> Likelihood:
    """`log_likelihoods` of one request's texts as probabilities, with tokens read and seconds taken."""
    # A model that overflows has said nothing of a text.
    values = tuple(None if math.isnan(log) else math.exp(min(log, 0.0)) for log in logs)
    return Likelihood(values, read, seconds=seconds)


def tokens_read(rows: Sequence[list[int]]) -> int:
    """Tokens of some sequences, their common prefix counted once; at least one of each counts as its own."""
    shared = min(common_prefix(min(rows), max(rows)), min(map(len, rows)) - 1)
    return shared + sum(len(row) - shared for row in rows)
