"""What a round may be: the interface of round kinds, of which each has a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nsed_torch.core.agent import Agent
from nsed_torch.core.answer_classes import AnswerClasses
from nsed_torch.records.transcript import Task


@dataclass(frozen=True)
class Asked:
    """What a round asks of a task's agents."""

    questions: Mapping[str, str]  # agent -> what it is asked, as a proposer and, apart from the candidates, as a judge
    memory: tuple[str, ...] = ()  # what proposers are shown beside it, strongest first
    excused: frozenset[str] = frozenset()  # who has nothing to propose about and is not asked
    alike: bool = True  # whether all are asked about the same, so that one could say the same as another


class Counted(NamedTuple):
    """What counts of what an agent wrote."""

    text: str  # "" where that is nothing
    reason: str  # why the text ended
    notes: tuple[str, ...] = ()  # of what does not count


class RoundKind(Protocol):
    """What a round asks for, what counts of what was written, what is elected and what is remembered."""

    notes: bool  # whether proposals are notes for later: rated by their use, and no answers yet
    in_turn: bool  # whether proposers may be asked one after the other, for one may repeat another
    winner_alone: bool  # whether the elected proposal alone is remembered, rather than every answer
    remembers: bool  # whether anything of the round is
    begins_with: str  # what agents are shown where the memory shows nothing; "" for nothing

    @property
    def rule(self) -> AnswerClasses | None:
        """Tells which proposals say the same; None makes each its own answer."""
        ...

    def quoted(self, shown: Sequence[str]) -> list[str]:
        """All texts of others that a question or the memory beside it may show, beside fences that are not in them.

        `shown` is what agents may read of the memory, strongest first.
        """
        ...

    def shown(self, agent: Agent, text: str) -> str:
        """A text of the memory as an agent reads it."""
        ...

    def ask(self, shown: Sequence[str], mark: int) -> Asked:
        """What the agents are asked; `mark` is the seed of the fences around what they are shown."""
        ...

    def count(self, agent: Agent, text: str, reason: str) -> Counted:
        """What counts of a text that ended for a reason."""
        ...

    def longest(self, agent: Agent) -> int:
        """Tokens that a proposal of an agent may have at most, as it is rated and remembered."""
        ...

    def candidate(self, judge: Agent, text: str) -> str:
        """A proposal's text as a judge reads it."""
        ...

    def finished(self, text: str) -> str | None:
        """The answer in an elected text that says that nothing is left to do; None in any other."""
        ...


def check_plain(agents: Sequence[Agent]) -> None:
    """Refuse agents with a form of their own, with a ValueError, where rounds are no steps."""
    if formed := [agent.name for agent in agents if agent.form != "plain"]:
        wanted = "expected agents with a form of their own only where rounds are steps"
        raise ValueError(f"{wanted}, got {', '.join(formed)}: set protocol.unit=step or form=plain")


def check_no_inputs(task: Task) -> None:
    """Refuse a task with inputs, with a ValueError, where rounds are steps."""
    if task.inputs:
        raise ValueError(f"task {task.id!r}: expected no inputs where rounds are steps: set protocol.unit=answer")
