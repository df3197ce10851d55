"""What a round may cost at most, and what a task may use."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.deliberation.macro_rnn_cell import MacroRNNCell
from nsed_torch.deliberation.rating import JudgeQuestion, count
from nsed_torch.records import Task, Usage

RESOURCES = ("money", "tokens", "memory")
"""US$, tokens read and written, GiB of weights."""

MARKUP = 16
"""Tokens a chat template may add to a message."""


@dataclass(frozen=True)
class Budget:
    """What a task may use; None is unlimited.

    Raises:
        ValueError: if a budget is negative or no number.
    """

    money: float | None = None  # US$ over all rounds
    tokens: float | None = None  # read and written over all rounds
    memory: float | None = None  # GiB of weights at any moment, each backbone counted once

    def __post_init__(self) -> None:
        for name in RESOURCES:
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                raise ValueError(f"expected a {name} budget of at least 0, or null for no limit, got {value!r}")

    def left(self, spent: Usage) -> Float[Tensor, " resource"]:
        """What remains for the next round; memory is held, not used up."""
        limits = [math.inf if getattr(self, name) is None else float(getattr(self, name)) for name in RESOURCES]
        # In float32 a budget could be rounded up and then exceeded; a sum of prices may end a rounding below zero.
        used = torch.tensor([spent.price, float(spent.tokens), 0.0], dtype=torch.float64)
        return (torch.tensor(limits, dtype=torch.float64) - used).clamp(min=0)


def round_costs(task: Task, cell: MacroRNNCell, proposers: int) -> Float[Tensor, "agent role resource"]:
    """What one round costs at most: US$, tokens, and no GiB beyond the backbone's opening charge.

    `proposers` is the most answers that a judge may have to read.
    """
    authors = cell.ensemble.proposers
    longest = max(agent.decoding.max_new_tokens for agent in authors)
    answers = (" ".join(["word"] * longest),) * proposers
    memory = ["…"] * cell.consensus.slots
    rows = []
    for agent in cell.ensemble.agents:
        engine = cell.ensemble.engine(agent)
        longest_name = max((a.name for a in authors), key=engine.count_tokens)
        names = None if cell.anonymous else (longest_name,) * proposers
        question = JudgeQuestion(agent, task.question, answers, seed=0, names=names)
        judged_read, judged_written = cell.rating.most_tokens(cell.prompts, engine, question)
        critics = sum(judge != agent for judge in cell.ensemble.judges) if judged_written else 0
        # All fences of memory and critiques, whose words are counted by their allowances.
        prompt = cell.prompts.propose(
            task.question, memory=memory, critiques=["…"] * critics, persona=agent.persona, seed=0
        )
        tokens = count(engine, prompt) + cell.memory_tokens + judged_written // proposers * critics + 2 * MARKUP
        usages = (
            agent.usage(tokens, agent.decoding.max_new_tokens),
            agent.usage(judged_read + 2 * MARKUP * proposers, judged_written),
        )
        rows.append([[usage.price, float(usage.tokens), 0.0] for usage in usages])
    return torch.tensor(rows, dtype=torch.float64)
