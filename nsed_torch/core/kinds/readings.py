"""Rounds that read: a piece of a task's inputs is new, and proposals are notes of it. Ours."""

from collections.abc import Sequence

from nsed_torch.core.agent import Agent
from nsed_torch.core.answer_classes import SameTexts
from nsed_torch.core.inputs import pieces, sentences, verbatim
from nsed_torch.core.kinds import Asked, Counted
from nsed_torch.core.prompts import NOTHING, Prompts, noted
from nsed_torch.records.transcript import Task


class Readings:
    """Everybody who has something to read notes what it says; all notes enter the memory, equal ones as one.

    Who read another piece repeats nobody, so all are asked at once.

    Args:
        task: whose inputs are read.
        index: the round, from 1, whose piece it is.
        agents: all of the team.
        prompts: the templates.
        verbatim: whether of a note those sentences alone count that its author's piece says word for word.
    """

    notes = True
    in_turn = False
    winner_alone = False
    remembers = True
    begins_with = ""
    rule = SameTexts()

    def __init__(
        self, task: Task, index: int, agents: Sequence[Agent], prompts: Prompts, *, verbatim: bool = False
    ) -> None:
        self.task, self.prompts, self.verbatim = task, prompts, verbatim
        self.names = [agent.name for agent in agents]
        self.pieces = pieces(task, index, self.names)
        self.alike = isinstance(task.inputs[index - 1], str)

    def quoted(self, shown: Sequence[str]) -> list[str]:
        """The notes so far and all pieces."""
        return [*shown, *self.pieces.values()]

    def shown(self, agent: Agent, text: str) -> str:
        """As it was written."""
        return text

    def ask(self, shown: Sequence[str], mark: int) -> Asked:
        """A note of one's own piece, beside the notes so far; who has none is asked the same as a judge alone."""
        asked = {
            piece: self.prompts.read(self.task.question, memory=shown, piece=piece, seed=mark)
            for piece in {"", *self.pieces.values()}
        }
        questions = {name: asked[self.pieces.get(name, "")] for name in self.names}
        return Asked(questions, excused=frozenset(self.names) - set(self.pieces), alike=self.alike)

    def count(self, agent: Agent, text: str, reason: str) -> Counted:
        """The note, or as much of it as its piece says; nothing where it says "nothing"."""
        if not text:
            return Counted("", reason)
        text = noted(text)
        kept = verbatim(text, self.pieces[agent.name]) if self.verbatim else text
        lost = f"{agent.name}: its piece does not say all of {text[:80]!r}"
        notes = (lost,) * (len(sentences(kept)) < len(sentences(text)))
        return Counted(kept, reason if kept else NOTHING, notes)

    def longest(self, agent: Agent) -> int:
        """What it may write."""
        return agent.decoding.max_new_tokens

    def candidate(self, judge: Agent, text: str) -> str:
        """As it was noted."""
        return text

    def finished(self, text: str) -> str | None:
        """Answers come behind the last piece."""
        return None
