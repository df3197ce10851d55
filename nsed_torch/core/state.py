"""The hidden state in words: which texts sit in the memory slots, and what of them agents are shown."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.ledger import TokenLedger
from nsed_torch.core.memory import MemoryState
from nsed_torch.records.transcript import Proposal, Round


class SlotText(NamedTuple):
    """What a memory slot holds in words: a proposal, its author and its round."""

    text: str
    agent: str
    round: int


@dataclass(frozen=True)
class DeliberationState:
    """What passes from round to round for a batch of tasks; what agents read of it does not grow with the rounds."""

    memory: MemoryState
    slots: tuple[tuple[SlotText, ...], ...]  # the same in words: of each task, in slot order, empty slots left out
    critiques: tuple[dict[str, tuple[str, ...]], ...]  # of each task, author -> what others wrote of its last proposal
    last: tuple[Round | None, ...]  # the record of each task's last round, of which proposals may stand
    ledgers: tuple[TokenLedger, ...]  # what each task's calls have had computed; no agent reads of it

    @classmethod
    def start(cls, tasks: int, consensus: ConsensusCell) -> "DeliberationState":
        """What so many tasks begin with: no memory, in the type of a consensus cell's parameters."""
        parameter = next(consensus.parameters())
        size = (tasks, consensus.slots, consensus.dim)
        memory = MemoryState.empty(*size, dtype=parameter.dtype, device=parameter.device)
        ledgers = tuple(TokenLedger() for _ in range(tasks))
        return cls(memory, ((),) * tasks, ({},) * tasks, (None,) * tasks, ledgers)

    def select(self, tasks: Sequence[int]) -> "DeliberationState":
        """The state of some of the tasks."""
        index = torch.tensor(tasks, dtype=torch.long)
        return DeliberationState(
            MemoryState(*(tensor[index] for tensor in self.memory)),
            tuple(self.slots[i] for i in tasks),
            tuple(self.critiques[i] for i in tasks),
            tuple(self.last[i] for i in tasks),
            tuple(self.ledgers[i] for i in tasks),
        )

    def without(self, proposals: Sequence[Mapping[str, Proposal]]) -> "DeliberationState":
        """The state with the slots emptied that hold proposals which stand: they enter the memory anew each round."""
        if not any(proposals):
            return self
        kept = self.memory.mask.clone()
        for i, (slots, standing) in enumerate(zip(self.slots, proposals, strict=True)):
            for s, slot in enumerate(slots):
                kept[i, s] &= slot.agent not in standing or standing[slot.agent].text != slot.text
        emptied = (x.masked_fill(~kept[..., None] if x.ndim == 3 else ~kept, 0) for x in self.memory)
        return replace(self, memory=MemoryState(*emptied))


def shown_texts(texts: Sequence[str], budget: int, count: Callable[[str], int]) -> list[str | None]:
    """Fit texts, strongest first, into a token budget.

    A text that was shown already is skipped. The first one that does not fit whole is cut to its end, where answers
    stand; nothing follows it. For each text comes out what is shown of it, or None.
    """
    shown: list[str | None] = []
    for i, text in enumerate(texts):
        if text in texts[:i]:
            shown.append(None)
            continue
        fits = longest_end(text, budget, count)
        shown.append(fits or None)
        budget = budget - count(fits) if fits == text else 0
    return shown


def longest_end(text: str, budget: int, count: Callable[[str], int]) -> str:
    """The text if it fits the budget, else an ellipsis and the longest run of its last words that does, or ""."""
    if budget <= 0 or count(text) <= budget:
        return text if budget > 0 else ""
    words = text.split(" ")

    def end(kept: int) -> str:
        return "… " + " ".join(words[-kept:])

    fit = bisect_right(range(1, len(words)), budget, key=lambda kept: count(end(kept)))
    return end(fit) if fit else ""
