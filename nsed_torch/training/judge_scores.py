"""How well judges rate: what they learn by and what is reported of them."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class JudgeScores(NamedTuple):
    """How well judges rate, a row a task, so that intervals and paired differences can be taken over tasks.

    Args:
        pairs: share of a judge's (right, wrong) pairs in which it rates the right candidate higher; a tie is half.
        signs: share of a judge's ratings that are positive for a right candidate and negative for a wrong one.
        consensus: 1 where the winner of the vote is right.
        loss: negative logarithm of the consensus on right candidates.
    """

    pairs: Float[Tensor, "batch voter"]
    signs: Float[Tensor, "batch voter"]
    consensus: Float[Tensor, "batch"]
    loss: Float[Tensor, "batch"]


def surprise(
    consensus: Float[Tensor, "batch proposal"], correct: Bool[Tensor, "batch proposal"]
) -> Float[Tensor, "batch"]:
    """`-log sum_j p_j` over the right candidates, one number a task; ours.

    Args:
        consensus: probabilities; 0 where masked.
        correct: which candidates are right; at least one a task.
    """
    right = (consensus * correct).sum(-1)
    return -right.clamp(min=torch.finfo(right.dtype).tiny).log()


def verdict_loss(
    ratings: Float[Tensor, "batch voter proposal"], correct: Bool[Tensor, "batch proposal"]
) -> Float[Tensor, "batch"]:
    """`-log((1 + r) / 2)` for a right and `-log((1 - r) / 2)` for a wrong candidate, the mean over a task; ours.

    Ballots do not change when all of a judge's ratings grow alike, so a judge that cannot tell candidates apart yet
    lowers `surprise` by rating all of them 1, where its gradient vanishes. This loss leads back from there.

    Args:
        ratings: in [-1, 1]; NaN where there is none.
        correct: which candidates are right.
    """
    given = ~ratings.isnan()
    right = torch.where(given, 1 + torch.where(correct[:, None], ratings, -ratings), 2) / 2
    losses = -right.clamp(min=1e-12).log()
    return losses.sum((-1, -2)) / given.sum((-1, -2))


def judge_scores(
    ratings: Float[Tensor, "batch voter proposal"],
    consensus: Float[Tensor, "batch proposal"],
    winner: Int[Tensor, "batch"],
    correct: Bool[Tensor, "batch proposal"],
    answered: Bool[Tensor, "batch proposal"],
) -> JudgeScores:
    """Score judges on tasks that have right and wrong answers.

    Args:
        ratings: in [-1, 1]; NaN where there is no answer.
        consensus: of the vote on these ratings.
        winner: likewise.
        correct: which candidates are right.
        answered: which are there.
    """
    right, wrong = (correct & answered)[:, None], (~correct & answered)[:, None]
    better = (ratings[..., :, None] - ratings[..., None, :]).sign() / 2 + 0.5
    counted = (right[..., :, None] & wrong[..., None, :]).expand_as(better)
    told = torch.where(right, ratings > 0, ratings < 0) & answered[:, None]
    return JudgeScores(
        pairs=torch.where(counted, better, 0).sum((-1, -2)) / counted.sum((-1, -2)),
        signs=told.sum(-1) / answered.sum(-1, keepdim=True),
        consensus=correct.gather(1, winner[:, None])[:, 0].double(),
        loss=surprise(consensus, correct),
    )
