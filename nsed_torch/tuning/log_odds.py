"""How likely it pays to ask an agent in a role, by what the question is about: regressions on recorded rounds."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.traces.rounds import Rounds
from nsed_torch.traces.splits import place

FOLDS = 5
OUT = 100.0
"""Log-odds that nobody has: a threshold this high keeps a role empty, one this low fills it."""


class LogOdds(NamedTuple):
    """What an agent in a role is worth by question: `log(q / (1 - q)) = bias + weight . x`, x the task embedding."""

    bias: Float[Tensor, "agent role"]
    weight: Float[Tensor, "agent role dim"]

    def __call__(self, task: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch agent role"]:
        """Log-odds for tasks."""
        return self.bias + torch.einsum("bd,ard->bar", task, self.weight)


def fit_log_odds(rounds: Rounds, ridges: Sequence[float]) -> LogOdds:
    """Logistic regressions of `Rounds.worth` on the task embedding, all agents and roles at once.

    Each minimises `sum_b CE(worth_b, sigmoid(bias + w . x_b)) + ridge |w|^2 / 2 + bias^2 / 20` over the tasks where its
    worth is known, by L-BFGS, with x centred on the tasks given. The last term makes few observations a coin. An agent
    that was never seen in a role gets `-10 OUT` there. Ridges are those of the roles. Ours.
    """
    (worth, known), task = rounds.worth(), rounds.task
    centre = task.mean(0)
    rows, ridge = task - centre, task.new_tensor(ridges)
    bias = task.new_zeros(worth.shape[1:], requires_grad=True)
    weight = task.new_zeros(*worth.shape[1:], task.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [bias, weight], max_iter=300, tolerance_grad=1e-4, history_size=10, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = bias + torch.einsum("bd,ard->bar", rows, weight)
        misfit = nn.functional.binary_cross_entropy_with_logits(logits, worth, known.to(logits), reduction="sum")
        total = misfit + (ridge * weight.square().sum(-1)).sum() / 2 + bias.square().sum() / 20
        total.backward()
        return total

    optimizer.step(loss)
    bias, weight = bias.detach(), weight.detach()
    return LogOdds(torch.where(known.any(0), bias - weight @ centre, -10 * OUT), weight)


def left_out(rounds: Rounds, ridges: Sequence[float]) -> tuple[Float[Tensor, "batch agent role"], tuple[float, ...]]:
    """Log-odds of every task from regressions on others, and each role's ridge of least cross-entropy so.

    Tasks are dealt into `FOLDS` parts by a hash of their ids; each is predicted by the regressions on the others. Ties
    go to the first ridge.
    """
    if len(rounds) < FOLDS:
        raise ValueError(f"broker: expected at least {FOLDS} tasks to choose on, got {len(rounds)}: collect more")
    spots = torch.tensor([place(name, seed=1) for name in rounds.ids], dtype=torch.float64)
    fold = spots.argsort().argsort() % FOLDS
    worth, known = rounds.worth()
    roles = range(worth.shape[2])
    predicted, losses = [], []
    for ridge in ridges:
        logits = torch.zeros_like(worth)
        for part in range(FOLDS):
            inside = (fold != part).nonzero()[:, 0]
            outside = (fold == part).nonzero()[:, 0]
            logits[outside] = fit_log_odds(rounds.select(inside), [ridge] * len(roles))(rounds.task[outside])
        misfit = nn.functional.binary_cross_entropy_with_logits(logits, worth, known.to(worth), reduction="none")
        predicted.append(logits)
        losses.append(misfit.sum((0, 1)))
    best = torch.stack(losses).argmin(0)
    chosen = torch.stack([predicted[int(best[role])][..., role] for role in roles], -1)
    return chosen, tuple(float(ridges[int(best[role])]) for role in roles)
