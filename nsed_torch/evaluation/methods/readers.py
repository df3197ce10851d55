"""Ways of one agent to answer from a text in pieces: part of it in one prompt, a memory of it; and the best memory.

They have one size, whatever the budget. Each is asked what a deliberation's agents are asked, and reads the pieces that
are given to the lead alone. Where a task has no pieces, the answer is the lead's own.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nsed_torch.agents import Agent
from nsed_torch.agents.prompts import unseen
from nsed_torch.agents.requests import call_seed
from nsed_torch.evaluation.methods.growth import Trail, ledgers_of
from nsed_torch.evaluation.methods.panel import Answer, Panel
from nsed_torch.records import Task


class Excerpt(ABC):
    """As many pieces, the best first, as one prompt may hold; they stand in it in the order of the text."""

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` where nobody says how long a prompt may be."""
        shown = [self._shown(panel, task, panel.lead(task)) for task in tasks]
        drafts = panel.propose([(task, panel.lead(task)) for task, _ in shown])
        return [Answer(draft.text, draft.usage, note) for draft, (_, note) in zip(drafts, shown, strict=True)]

    def _shown(self, panel: Panel, task: Task, agent: Agent) -> tuple[Task, str]:
        """The task with what is shown of it, and a note on how much that is."""
        given = panel.pieces(task, agent)
        if not given:
            return task, ""
        order, limit = self.best_first(panel, task, given), self.prompt_tokens(panel, agent)

        def with_best(count: int) -> Task:
            return replace(task, inputs=tuple(given[i] for i in sorted(order[:count])))

        count = bisect_right(range(1, len(given) + 1), limit, key=lambda n: panel.prompt_tokens(with_best(n), agent))
        return with_best(count), f"pieces: {count} of {len(given)}"

    @abstractmethod
    def best_first(self, panel: Panel, task: Task, given: Sequence[str]) -> list[int]:
        """The places of the pieces that are given."""

    @abstractmethod
    def prompt_tokens(self, panel: Panel, agent: Agent) -> int:
        """How long the prompt may be."""


@dataclass(frozen=True)
class CutToWindow(Excerpt):
    """The end of the text: the last pieces that fit the lead's window beside the question and the longest answer.

    `tokens` stands for the window where it is smaller, or where the engine does not know its own.
    """

    tokens: int | None = None

    def best_first(self, panel: Panel, task: Task, given: Sequence[str]) -> list[int]:
        """The last piece first."""
        return list(range(len(given)))[::-1]

    def prompt_tokens(self, panel: Panel, agent: Agent) -> int:
        """What the window leaves."""
        return _room(panel, agent, self.tokens)


@dataclass(frozen=True)
class Retrieval(Excerpt):
    """The pieces nearest to the question, by the encoder that the gate reads with, in a prompt of so many tokens.

    What the encoder computes is not counted, as it is not in a deliberation.
    """

    tokens: int = 512

    def best_first(self, panel: Panel, task: Task, given: Sequence[str]) -> list[int]:
        """By cosine with the question; the earlier piece of equals."""
        if panel.encoder is None:
            raise ValueError("expected an encoder to find pieces by, got none: build the panel with one")
        question, *pieces = panel.encoder.embed([task.question, *given])
        return sorted(range(len(given)), key=lambda i: -float(pieces[i] @ question))

    def prompt_tokens(self, panel: Panel, agent: Agent) -> int:
        """The tokens, or what the window leaves."""
        known = panel.ensemble.engine(agent).context_window is not None
        return min(self.tokens, _room(panel, agent, None)) if known else self.tokens


@dataclass(frozen=True)
class OverwrittenMemory:
    """One agent reads piece after piece and writes its memory anew at each, then answers from the last one.

    Published as MemAgent (Yu et al. 2025, arXiv 2507.02259), with a model trained for it by reinforcement; that any
    agent does it as it is, and that a memory stays where it writes none, are our readings. `tokens` are what it may
    write of memory; what it reads at a piece is as long at piece 256 as at piece 2.
    """

    tokens: int = 256

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""
        trails, readers = [Trail(task, None) for task in tasks], {task.id: panel.lead(task) for task in tasks}
        given = {task.id: panel.pieces(task, readers[task.id]) for task in tasks}
        memory: dict[str, str] = {}
        for index in range(max(map(len, given.values()), default=0)):
            active = [trail for trail in trails if index < len(given[trail.task.id])]
            asked = []
            for trail in active:
                name, reader = trail.task.id, readers[trail.task.id]
                written = replace(reader, decoding=replace(reader.decoding, max_new_tokens=self.tokens))
                asked.append((_rewriting(panel, trail.task, memory.get(name, ""), given[name][index]), written))
            # From 2 on, for sample 1 is the answer.
            for trail, draft in zip(active, panel.propose(asked, index + 2, ledgers=ledgers_of(active)), strict=True):
                trail.steps.append([draft])
                memory |= {trail.task.id: draft.text} if draft.text else {}
        closing = [(replace(task, inputs=()), readers[task.id]) for task in tasks]
        kept = {name: (text,) for name, text in memory.items()}
        drafts = panel.propose(closing, memories=kept, ledgers=ledgers_of(trails))
        return [
            trail.answer(draft.text, f"rewritten: {len(trail.steps)} times", closing=draft.usage)
            for trail, draft in zip(trails, drafts, strict=True)
        ]


@dataclass(frozen=True)
class PerfectMemory:
    """The lead answers from the facts that matter in the end, as from a memory that holds nothing else: a ceiling."""

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` where nobody knows what matters."""
        if unknown := [task.id for task in tasks if not panel.facts.get(task.id)]:
            wanted = "expected a benchmark that knows which notes matter, such as benchmark=reading"
            raise ValueError(f"task {unknown[0]!r}: {wanted}: leave this method out")
        asked = [(replace(task, inputs=()), panel.lead(task)) for task in tasks]
        notes = [f"notes: {len(panel.facts[task.id])}" for task in tasks]
        drafts = panel.propose(asked, memories=panel.facts)
        return [Answer(draft.text, draft.usage, note) for draft, note in zip(drafts, notes, strict=True)]


ONE_SIZE = (Excerpt, OverwrittenMemory, PerfectMemory)
"""Methods that no budget makes larger."""


def _room(panel: Panel, agent: Agent, tokens: int | None) -> int:
    """Tokens that a prompt may have beside the longest answer."""
    known = [size for size in (panel.ensemble.engine(agent).context_window, tokens) if size is not None]
    if not known:
        wanted = f"expected the window of agent {agent.name!r}"
        raise ValueError(f"{wanted}, which its engine does not know: set method.cut.tokens or its context_window")
    return min(known) - agent.decoding.max_new_tokens


def _rewriting(panel: Panel, task: Task, memory: str, piece: str) -> Task:
    """What is asked at a piece, in the question's place."""
    mark = unseen(call_seed(panel.seed, task.id, "read"), [memory, piece])
    question = panel.prompts.rewrite(task.question, memory=memory, piece=piece, seed=mark)
    return replace(task, question=question, inputs=())
