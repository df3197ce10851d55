"""Ways of one agent to answer from a text in pieces: part of it in one prompt, a memory of it; and the best memory.

They have one size, whatever the budget. Each is asked what a deliberation's agents are asked, and reads the pieces that
are given to the lead alone. Where a task has no pieces, the answer is the lead's own.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import call_seed
from nsed_torch.core.inputs import sentences
from nsed_torch.core.prompts import unseen
from nsed_torch.evaluation.methods.method import Answer, Panel
from nsed_torch.evaluation.methods.sizing import Trail, ledgers_of
from nsed_torch.records.transcript import Task


@dataclass(frozen=True)
class CutToWindow:
    """The end of the text: the last pieces that fit the lead's window beside the question and the longest answer.

    `tokens` stands for the window where it is smaller, or where the engine does not know its own.
    """

    one_size: ClassVar[bool] = True

    tokens: int | None = None

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` where nobody says how long a prompt may be."""

        def last_first(task: Task, given: Sequence[str]) -> list[int]:
            return list(range(len(given)))[::-1]

        return _from_excerpts(panel, tasks, last_first, lambda agent: _room(panel, agent, self.tokens))


@dataclass(frozen=True)
class Retrieval:
    """The pieces nearest to the question, by the encoder that the gate reads with, in a prompt of so many tokens.

    It is shorter where the window leaves less. What the encoder computes is not counted, as it is not in a
    deliberation.
    """

    one_size: ClassVar[bool] = True

    tokens: int = 512

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` where there is no encoder."""

        def nearest_first(task: Task, given: Sequence[str]) -> list[int]:
            return _nearest_first(panel, task, given)

        def room(agent: Agent) -> int:
            known = panel.ensemble.engine(agent).context_window is not None
            return min(self.tokens, _room(panel, agent, None)) if known else self.tokens

        return _from_excerpts(panel, tasks, nearest_first, room)


@dataclass(frozen=True)
class RetrievedMemory:
    """The lead answers from the sentences nearest to the question, as from a memory that holds nothing else.

    So many `notes`, found as `Retrieval` finds pieces, in the order of the text: for members who answer from notes and
    never learned to answer from a text.
    """

    one_size: ClassVar[bool] = True

    notes: int = 4

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` where there is no encoder."""
        asked, memories = [], {}
        for task in tasks:
            agent = panel.lead(task)
            given = [one for piece in panel.pieces(task, agent) for one in sentences(piece)]
            nearest = _nearest_first(panel, task, given)[: self.notes] if given else []
            memories[task.id] = tuple(given[i] for i in sorted(nearest))
            asked.append((replace(task, inputs=()), agent))
        drafts = panel.propose(asked, memories=memories)
        return [
            Answer(draft.text, draft.usage, f"notes: {len(memories[task.id])}")
            for draft, task in zip(drafts, tasks, strict=True)
        ]


@dataclass(frozen=True)
class OverwrittenMemory:
    """One agent reads piece after piece and writes its memory anew at each, then answers from the last one.

    Published as MemAgent (Yu et al. 2025, arXiv 2507.02259), with a model trained for it by reinforcement; that any
    agent does it as it is, and that a memory stays where it writes none, are our readings. `tokens` are what it may
    write of memory; what it reads at a piece is as long at piece 256 as at piece 2.
    """

    one_size: ClassVar[bool] = True

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

    one_size: ClassVar[bool] = True

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` where nobody knows what matters."""
        if unknown := [task.id for task in tasks if not panel.facts.get(task.id)]:
            wanted = "expected a benchmark that knows which notes matter, such as tasks=reading"
            raise ValueError(f"task {unknown[0]!r}: {wanted}: leave this method out")
        asked = [(replace(task, inputs=()), panel.lead(task)) for task in tasks]
        notes = [f"notes: {len(panel.facts[task.id])}" for task in tasks]
        drafts = panel.propose(asked, memories=panel.facts)
        return [Answer(draft.text, draft.usage, note) for draft, note in zip(drafts, notes, strict=True)]


def _nearest_first(panel: Panel, task: Task, given: Sequence[str]) -> list[int]:
    if panel.encoder is None:
        raise ValueError("expected an encoder to find texts by, got none: build the panel with one")
    question, *texts = panel.encoder.embed([task.question, *given])
    return sorted(range(len(given)), key=lambda i: -float(texts[i] @ question))


def _from_excerpts(
    panel: Panel,
    tasks: Sequence[Task],
    best_first: Callable[[Task, Sequence[str]], list[int]],
    room: Callable[[Agent], int],
) -> list[Answer]:
    """Answers from as many pieces, the best first, as a prompt has room for; they stand in the order of the text."""
    shown, notes = [], []
    for task in tasks:
        agent, note = panel.lead(task), ""
        if given := panel.pieces(task, agent):
            order = best_first(task, given)
            excerpts = [replace(task, inputs=tuple(given[i] for i in sorted(order[:n]))) for n in range(len(given) + 1)]
            count = bisect_right(excerpts[1:], room(agent), key=lambda excerpt: panel.prompt_tokens(excerpt, agent))
            task, note = excerpts[count], f"pieces: {count} of {len(given)}"  # noqa: PLW2901
        shown.append((task, agent))
        notes.append(note)
    return [Answer(draft.text, draft.usage, note) for draft, note in zip(panel.propose(shown), notes, strict=True)]


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
