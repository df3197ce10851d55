"""What passes from round to round in words, and a task's round as it comes about, with the record of it."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from nsed_torch.core.agent import Agent
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.engine import Note
from nsed_torch.core.kinds import Asked, RoundKind
from nsed_torch.core.memory import MemoryState
from nsed_torch.core.prompts import NOTHING, fence, nonce
from nsed_torch.core.ratings import DIGITS, Hearing
from nsed_torch.core.team import Standing, Team
from nsed_torch.records.ledger import TokenLedger
from nsed_torch.records.transcript import AnswerSet, MemorySlot, Proposal, Round, Task, Usage


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


@dataclass
class OpenRound:
    """A task's round as it comes about."""

    row: int  # in the batch
    task: Task
    kind: RoundKind
    team: Team
    authors: list[Agent]
    voters: list[Agent]
    standing: Standing
    asked: Asked
    mark: int = 0  # seed of the fences around what agents are shown
    critiques: Mapping[str, Sequence[str]] = field(default_factory=dict)  # author -> what others wrote of its last one
    ledger: TokenLedger = field(default_factory=TokenLedger)  # what the task's calls have had computed
    proposals: list[Proposal] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    trust: list[float] = field(default_factory=list)  # in each author, where who is asked depends on it
    hearing: Hearing = field(default_factory=lambda: Hearing.of([], 0))
    weights: Sequence[tuple[str, float]] = ()  # what agents are shown of the memory, and the retention of each
    beside: bool = False  # whether they read that side by side

    @property
    def given(self) -> dict[str, Proposal]:
        """Proposals that nobody is asked for."""
        return {**{name: Proposal(name, "", NOTHING) for name in self.asked.excused}, **self.standing.proposals}

    @property
    def texts(self) -> list[str]:
        """What the proposals say, in their order."""
        return [proposal.text for proposal in self.proposals]

    def said(self, name: str) -> str:
        """What an agent proposed; "" for nothing, or where nobody could have said the same."""
        return next((p.text for p in self.proposals if p.agent == name and self.asked.alike), "")

    def heard(self, agent: Agent) -> tuple[Note, ...]:
        """What an agent hears in part of what it is shown."""
        texts = [(self.kind.shown(agent, text), retention) for text, retention in self.weights]
        return tuple(Note(fence(text, nonce(self.mark)), retention) for text, retention in texts)

    def narrow(self) -> None:
        """Leave out those who were not asked, as proposers and as voters."""
        if len(self.proposals) == len(self.authors):
            return
        self.authors = self.authors[: len(self.proposals)]
        left_out = set(self.team.proposers[len(self.proposals) :])
        voters = tuple(v for v in self.team.voters if v not in left_out)
        self.voters = [a for v, a in zip(self.team.voters, self.voters, strict=True) if v in voters]
        self.team = Team(self.team.proposers[: len(self.proposals)], voters, self.team.standing)

    @property
    def author_names(self) -> list[str]:
        """Of the agents that propose."""
        return [author.name for author in self.authors]

    @property
    def voter_names(self) -> list[str]:
        """Of the agents that rate."""
        return [voter.name for voter in self.voters]

    def received(self) -> dict[str, tuple[str, ...]]:
        """Author -> what others wrote about its proposal, for the next round; of a note nothing, for it is no answer.

        Who stands has heard before what was said, and hears it again.
        """
        before = {name: tuple(self.critiques.get(name, ())) for name in self.standing.proposals}
        return {} if self.kind.notes else self.hearing.received(self.voter_names, self.author_names, before)


def round_record(
    turn: OpenRound,
    index: int,
    output: ConsensusOutput,
    memory: MemoryState,
    slots: Sequence[SlotText],
    shown: Sequence[str | None],
    answer_set: AnswerSet | None,
) -> Round:
    """One task's round out of a batch.

    `output` is padded to the widest team, `slots` say what the memory's slots hold in words, and `shown` what of each
    fits the token budget.
    """
    task, hearing, v, p = turn.row, turn.hearing, len(turn.voters), len(turn.proposals)
    winner = int(output.winner[task])
    width = output.gate.shape[1]
    sources = [s for s in output.source[task].tolist() if s >= 0]
    return Round(
        index=index,
        proposers=turn.author_names,
        voters=turn.voter_names,
        proposals=turn.proposals,
        ratings=hearing.ratings,
        vote_mask=[[r is not None for r in row] for row in hearing.ratings],
        ballots=[_floats(row[:p]) for row in output.ballots[task, :v]],
        trust=_floats(output.trust[task, :v]),
        support=_floats(output.support[task, :p]),
        consensus=_floats(output.consensus[task, :p]),
        winner=None if winner < 0 else winner,
        all_negative=bool(output.all_negative[task]),
        conviction=_float(output.conviction[task]),
        decisiveness=_float(output.decisiveness[task]),
        controversy=_floats(output.controversy[task, :p]),
        memory=[
            MemorySlot(
                *slot,
                retention=_float(memory.retention[task, k]),
                gate=_float(output.gate[task, source]) if source < width else 1.0,
                shown=text is not None,
            )
            for k, (slot, source, text) in enumerate(zip(slots, sources, shown, strict=True))
        ],
        classes=turn.classes,
        answer_set=answer_set,
        standing=list(turn.standing.proposals),
        critiques=hearing.critiques,
        notes=turn.notes + hearing.notes,
        usage=Usage.sum(p.usage for p in turn.proposals) + hearing.usage,
    )


def _float(value: Tensor) -> float:
    # Adding 0.0 turns a rounded -0.0 into 0.0, so that equal values read equal.
    return round(value.item(), DIGITS) + 0.0


def _floats(values: Tensor) -> list[float]:
    return [_float(value) for value in values]
