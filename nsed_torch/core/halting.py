"""When to stop: the interface of halting rules, and a fixed number of rounds. Others are in `parts.halting_rules`."""

from typing import Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class Halting(Protocol):
    """When a task is done, in one method; any object with it will do.

    One that has `rounds` says by that how many rounds there are at most; else `MacroRNN(rounds=...)` does. One that has
    a method `stands(task, rounds, answers)` goes back: it names round and proposal of the answer that stands after some
    rounds, both from 0, and whether that is sure enough to stop; or None, and the last winner stands.

    Examples:
        >>> class Sure:  # stop as soon as the winner has nine tenths of all support
        ...     def reasons(self, convictions):
        ...         return ["sure" if row[-1] > 0.9 else "" for row in convictions]
        >>> Sure().reasons(torch.tensor([[0.2, 0.95], [0.95, 0.3]]))
        ['sure', '']
    """

    def reasons(self, convictions: Float[Tensor, "batch round"]) -> list[str]:
        """Why each task stops after the rounds given, the winner's conviction of each; "" where it goes on."""
        ...


class FixedHalting(nn.Module):
    """Stop after a fixed number of rounds, for the reason "rounds".

    Raises:
        ValueError: if it is below 1.
    """

    def __init__(self, rounds: int = 3) -> None:
        super().__init__()
        if rounds < 1:
            raise ValueError(f"halting rounds: expected at least 1, got {rounds}")
        self.rounds = rounds

    def forward(self, convictions: Float[Tensor, "batch round"]) -> Bool[Tensor, "batch"]:
        """Whether each task stops."""
        return torch.tensor([bool(r) for r in self.reasons(convictions)], dtype=torch.bool, device=convictions.device)

    def reasons(self, convictions: Float[Tensor, "batch round"]) -> list[str]:
        """Why each task stops."""
        return ["rounds" if convictions.shape[1] >= self.rounds else ""] * len(convictions)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"rounds={self.rounds}"
