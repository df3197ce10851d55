"""Rounds of whole answers: the published protocol."""

from collections.abc import Sequence

from nsed_torch.core.agent import Agent
from nsed_torch.core.answer_classes import AnswerClasses
from nsed_torch.core.kinds import Asked, Counted
from nsed_torch.records.transcript import Task


class Answers:
    """Everybody answers the question anew, beside what the memory holds, and all answers enter the memory.

    Behind the last piece of a task's inputs the memory stays as it was read: answers are no notes. Ours. Where an
    answer took a note's place, the next round drew its conclusions from what was left (lab/pages/reading.md).

    Args:
        task: whose question it is.
        agents: all of the team.
        rule: tells which answers are the same, so that they pool their support; None makes each its own, as published.
    """

    notes = False
    in_turn = True
    winner_alone = False
    begins_with = ""

    def __init__(self, task: Task, agents: Sequence[Agent], rule: AnswerClasses | None) -> None:
        self.task, self.agents, self.rule = task, agents, rule
        self.remembers = not task.inputs

    def quoted(self, shown: Sequence[str]) -> list[str]:
        """What of the memory stands beside the question."""
        return list(shown)

    def shown(self, agent: Agent, text: str) -> str:
        """As it was written."""
        return text

    def ask(self, shown: Sequence[str], mark: int) -> Asked:
        """The question itself."""
        return Asked({agent.name: self.task.question for agent in self.agents}, tuple(shown))

    def count(self, agent: Agent, text: str, reason: str) -> Counted:
        """All of it."""
        return Counted(text, reason)

    def longest(self, agent: Agent) -> int:
        """What it may write."""
        return agent.decoding.max_new_tokens

    def candidate(self, judge: Agent, text: str) -> str:
        """As it was written."""
        return text

    def finished(self, text: str) -> str | None:
        """No answer says that it is the last."""
        return None
