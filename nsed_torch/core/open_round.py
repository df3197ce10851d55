"""A task's round as it comes about, and the record of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from nsed_torch.core.agent import Agent
from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.kinds.round_kind import Asked, RoundKind
from nsed_torch.core.ledger import TokenLedger
from nsed_torch.core.memory import MemoryState
from nsed_torch.core.prompts import NOTHING
from nsed_torch.core.ratings_received import DIGITS, Hearing
from nsed_torch.core.state import SlotText
from nsed_torch.core.team import Standing, Team
from nsed_torch.records.transcript import AnswerSet, MemorySlot, Proposal, Round, Task, Usage


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
