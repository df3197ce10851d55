"""How methods grow, to a size of their own or to a budget: by whole steps, all tasks together."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from nsed_torch.core.agent import Agent
from nsed_torch.core.ratings import MARKUP
from nsed_torch.evaluation.methods.method import Answer, Attempt, Panel, Tied
from nsed_torch.records.ledger import TokenLedger
from nsed_torch.records.transcript import Task, Usage

MOST = 64
"""Steps at most under a budget, for agents that cost next to nothing."""

GREEDY = "temperature 0: another sample would be equal"


@dataclass
class Trail:
    """A task on its way through a method."""

    task: Task
    budget: int | None  # tokens it may take; None for the method's own size
    steps: list[list[Attempt]] = field(default_factory=list)
    note: str = ""  # why it stopped growing, where that is neither size nor budget
    ledger: TokenLedger = field(default_factory=TokenLedger)  # what its calls have had computed

    @property
    def drafts(self) -> list[Attempt]:
        """All drafts, step by step."""
        return [draft for step in self.steps for draft in step]

    @property
    def usage(self) -> Usage:
        """What the drafts cost."""
        return Usage.sum(draft.usage for draft in self.drafts)

    def answer(self, text: str, *notes: str, closing: Usage = Usage(), tied: Sequence[Tied] = ()) -> Answer:
        """Hand in a text, with notes on how it was chosen; `closing` was spent beside the drafts.

        `tied` are texts that stood level, the one handed in first among them; one alone is no tie.
        """
        note = "; ".join(filter(None, (*notes, self.note)))
        return Answer(text, self.usage + closing, note, tuple(tied) if len(tied) > 1 else ())


@dataclass(frozen=True)
class Growth:
    """Takes the first step, then steps as long as they fit; each for all tasks together that still grow.

    The first step is an answer of each member. Without `reads`, further steps are further samples, each taken to cost
    the mean so far, without the prompt where the engine reads that once; a member at temperature 0 would repeat itself:
    its text stands again at no cost, and where all are such, one step is all. With `reads`, further steps are revisions
    that read texts, taken to cost `reading_tokens`. Whether a task grows depends on its own trail alone, so its drafts
    do not depend on the other tasks.
    """

    panel: Panel
    size: int  # steps without a budget, the first included
    everybody: bool = False  # whether all who propose are members; else the task's lead alone
    temperature: float | None = None  # at which members draw; None is each one's own
    reads: Callable[[Trail], Sequence[tuple[Agent, list[str]]]] | None = None  # who writes next, and reads what
    kind: str = ""  # the template of revisions
    closing: Callable[[Trail], float] = lambda trail: 0.0  # tokens of what must follow, if one more step is taken

    def trails(self, tasks: Sequence[Task], budgets: Sequence[int] | None) -> list[Trail]:
        """Grow tasks of different ids to budgets in tokens, one per task; None for `size` steps each.

        Returns:
            A trail per task. With constant costs that are not underestimated, one of more than one step keeps its
            budget.
        """
        limits: Sequence[int | None] = [None] * len(tasks) if budgets is None else budgets
        trails = [Trail(task, limit) for task, limit in zip(tasks, limits, strict=True)]
        active, index = trails, 1
        while active:
            step = self._revised if self.reads and index > 1 else self._sampled
            for trail, drafts in zip(active, step(active, index), strict=True):
                trail.steps.append(drafts)
            active = [trail for trail in active if self._fits(trail)]
            for trail in active:
                if not self.reads and not any(map(_draws, self._members(trail))):
                    trail.note = GREEDY
            active, index = [trail for trail in active if not trail.note], index + 1
        return trails

    def _members(self, trail: Trail) -> Sequence[Agent]:
        members = self.panel.ensemble.proposers if self.everybody else [self.panel.lead(trail.task)]
        if self.temperature is None:
            return members
        return [replace(a, decoding=replace(a.decoding, temperature=self.temperature)) for a in members]

    def _sampled(self, active: list[Trail], index: int) -> list[list[Attempt]]:
        drawn = [[agent for agent in self._members(trail) if index == 1 or _draws(agent)] for trail in active]
        pairs = [(trail.task, agent) for trail, agents in zip(active, drawn, strict=True) for agent in agents]
        drafts = iter(self.panel.propose(pairs, index, ledgers=ledgers_of(active)))
        return [
            [
                next(drafts) if agent in agents else trail.steps[0][i]._replace(usage=Usage())
                for i, agent in enumerate(self._members(trail))
            ]
            for trail, agents in zip(active, drawn, strict=True)
        ]

    def _revised(self, active: list[Trail], index: int) -> list[list[Attempt]]:
        readers = [[(t.task, agent, texts) for agent, texts in self.reads(t)] for t in active] if self.reads else []
        flat = [reader for group in readers for reader in group]
        drafts = iter(self.panel.ask(self.kind, flat, index, ledgers=ledgers_of(active)))
        return [[next(drafts) for _ in group] for group in readers]

    def _fits(self, trail: Trail) -> bool:
        steps, spent = len(trail.steps), trail.usage.tokens
        if trail.budget is None:
            return steps < self.size
        if steps >= MOST:
            return False
        following = sum(map(self._again, trail.drafts)) / steps
        if self.reads:
            following = sum(reading_tokens(self.panel, trail, self.kind, *reader) for reader in self.reads(trail))
        return spent + following + self.closing(trail) <= trail.budget

    def _again(self, draft: Attempt) -> int:
        """Tokens at most to compute for another sample as long as a draft, of the same prompt."""
        shares = self.panel.ensemble.engine(draft.agent).shares_prefixes
        return draft.usage.completion_tokens if shares else draft.usage.billed


def ledgers_of(trails: Sequence[Trail]) -> dict[str, TokenLedger]:
    """What calls for each task have had computed, by the task's id."""
    return {trail.task.id: trail.ledger for trail in trails}


def reading_tokens(panel: Panel, trail: Trail, kind: str, agent: Agent, texts: Sequence[str]) -> int:
    """Tokens that a call of the template `kind`, in which an agent reads texts, is taken to cost.

    Its whole prompt, counted; what a chat template may add; an answer as long as the agent's drafts on this task were
    on average.
    """
    question = panel.question(trail.task, agent)
    messages = panel.prompts.ask(kind, question, texts=texts, persona=agent.persona, seed=0)
    written = fmean(draft.usage.completion_tokens for draft in trail.drafts if draft.agent == agent)
    return panel.ensemble.engine(agent).count_prompt(messages) + MARKUP * len(messages) + math.ceil(written)


def answers(drafts: Sequence[Attempt]) -> list[str]:
    """The texts that say anything; an empty one is no answer."""
    return [draft.text for draft in drafts if draft.text]


def _draws(agent: Agent) -> bool:
    return agent.decoding.temperature > 0
