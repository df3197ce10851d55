"""What a consensus has to beat."""

import torch
from jaxtyping import Bool
from torch import Tensor

from nsed_torch.data import Episodes
from nsed_torch.data.equality import plurality


def oracle(episodes: Episodes) -> Bool[Tensor, "batch"]:
    """Whether anybody's last answer is right: what a perfect choice would reach."""
    return episodes.by_agent().right.any(1)


def best_single(train: Episodes, episodes: Episodes) -> tuple[Bool[Tensor, "batch"], str]:
    """Whether the agent that is best on the training tasks is right, and its name; ties go to the lowest index."""
    agent = int(train.by_agent().right.float().mean(0).argmax())
    return episodes.by_agent().right[:, agent], episodes.agents[agent]


def plurality_correct(episodes: Episodes) -> Bool[Tensor, "batch"]:
    """Whether the commonest answer of each last round is right; ties go to the first proposal in it."""
    rows = torch.arange(len(episodes), device=episodes.task.device)
    winner = plurality(episodes.classes[rows, episodes.last])
    return episodes.correct[rows, episodes.last, winner.clamp(min=0)] & (winner >= 0)
