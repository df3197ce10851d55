"""Votes with one weight per agent: weights from accuracies, and weights from agreement alone."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nsed_torch.traces.episodes import Episodes
from nsed_torch.tuning.rules import accuracy, summed, weighted

_CERTAIN = 0.02  # accuracies are kept this far from 0 and 1, so that a few lucky answers do not decide every vote


def log_odds(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """`w = log(p (K - 1) / (1 - p))` (Nitzan and Paroush, 1982, there for K = 2), best if errors are independent.

    With p from graded tasks it is also the Optimal Weight of arXiv 2510.01499. p is the accuracy on training tasks,
    where silence counts as wrong, kept in [0.02, 0.98]. Ours: the bounds.
    """
    return weighted(test, _odds(accuracy(train), options(train)))


def surprising_popularity(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """After Inverse Surprising Popularity (arXiv 2510.01499): votes beyond those expected had others said otherwise.

    `sum over i of 1[i says s] - mean over j != i of P(i says s | j says anything but what j says)`; no grades are used.
    After its random shuffling of labels this is a vote, up to a constant, with, for q the rate at which i and j agree,

        w_j = 1 + sum over i != j of (q_ij - (1 - q_ij) / (K - 1)) / ((N - 1) (K - 1)).

    The idea and the random shuffling of labels are published. The formula is our reconstruction from summaries of the
    paper and has not been held against its text; the shuffling is done in expectation, which gives the weights, q
    counts training tasks that both answered, and the sum is over the pool, whoever answers.
    """
    return weighted(test, _surprise_weights(train))


def optimal_weight(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """Log-odds of accuracies that agreement alone tells (arXiv 2510.01499, its OW-L); no grades are used.

    Accuracies x are least squares of the rates of agreement, `q_ij = x_i x_j + (1 - x_i)(1 - x_j) / (K - 1)`, which
    holds for independent errors. With `y = x - 1/K` that is `q_ij - 1/K = y_i y_j K / (K - 1)`, a matrix of rank one
    but for its diagonal. Published: the weights, and least squares over all pairs of labels, to which this one is
    proportional when labels are shuffled. Ours: the solver, one y after the other, and that the sum of y is positive.
    """
    options_ = options(train)
    rate, known = agreement(train)
    target = torch.where(known, (rate - 1 / options_) * (options_ - 1) / options_, 0)
    y = target.sum(1).abs().add(1e-6).sqrt() / max(len(target) - 1, 1) ** 0.5
    for _ in range(200):
        for i in range(len(y)):
            y[i] = (target[i] * y).sum() / (known[i] * y * y).sum().clamp(min=1e-12)
    y = y if y.sum() >= 0 else -y
    return weighted(test, _odds(y + 1 / options_, options_))


def optimal_weight_pseudo(train: Episodes, test: Episodes) -> Float[Tensor, "batch agent"]:
    """Log-odds of how often an agent says what `surprising_popularity` elects (after arXiv 2510.01499, its OW-I).

    No grades are used. As far from the paper's text as `surprising_popularity`; tied winners count by equal shares.
    """
    classes, answered = train.by_agent().classes, train.by_agent().answered
    score = summed(classes, _surprise_weights(train).expand(classes.shape))
    elected = answered & (score >= score.amax(1, keepdim=True) - 1e-9)
    # Each of several tied answers of a task is the elected one with the same chance.
    size = summed(classes, answered.double())
    ties = torch.where(elected, 1 / size, 0).sum(1, keepdim=True)
    share = torch.where(elected, 1 / ties, 0).sum(0) / answered.sum(0).clamp(min=1)
    return weighted(test, _odds(share, options(train)))


def options(train: Episodes) -> int:
    """The number of different labels where tasks share them, else the most answers to any one task; at least 2."""
    _, _, classes, labels = train.by_agent()
    if (labels >= 0).any():
        return max(2, len(labels[labels >= 0].unique()))
    return max(2, int(classes.max()) + 1 if classes.numel() else 0)


def _odds(share: Float[Tensor, "agent"], options: int) -> Float[Tensor, "agent"]:
    return share.clamp(_CERTAIN, 1 - _CERTAIN).logit() + torch.tensor(options - 1.0).double().log()


def agreement(train: Episodes) -> tuple[Float[Tensor, "agent agent"], Bool[Tensor, "agent agent"]]:
    """How often two agents that both answer agree, and for which two, not the same, that is known."""
    classes = train.by_agent().classes
    answered = classes >= 0
    same = ((classes[:, :, None] == classes[:, None, :]) & answered[:, :, None]).sum(0)
    both = answered.double().T @ answered.double()
    return same / both.clamp(min=1), (both > 0) & ~torch.eye(len(both), dtype=torch.bool, device=both.device)


def _surprise_weights(train: Episodes) -> Float[Tensor, "agent"]:
    wrong = options(train) - 1
    rate, known = agreement(train)
    expected = torch.where(known, rate - (1 - rate) / wrong, 0).sum(1)
    return 1 + expected / (wrong * max(len(expected) - 1, 1))
