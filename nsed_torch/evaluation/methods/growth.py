"""How methods grow, to a size of their own or to a budget: by whole steps, all tasks together."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from nsed_torch.agents import Agent
from nsed_torch.deliberation.costs import MARKUP
from nsed_torch.deliberation.rating import count
from nsed_torch.evaluation.methods.panel import Answer, Draft, Panel
from nsed_torch.records import Task, Usage

MOST = 64
"""Steps at most under a budget, for agents that cost next to nothing."""

GREEDY = "temperature 0: another sample would be equal"


@dataclass
class Course:
    """A task on its way through a method.

    Args:
        task: what is asked.
        budget: tokens it may take; None for the method's own size.
        steps: the drafts of each step so far.
        note: why it stopped growing, where that is neither size nor budget.
    """

    task: Task
    budget: int | None
    steps: list[list[Draft]] = field(default_factory=list)
    note: str = ""

    @property
    def drafts(self) -> list[Draft]:
        """All drafts, step by step."""
        return [draft for step in self.steps for draft in step]

    @property
    def usage(self) -> Usage:
        """What the drafts cost."""
        return Usage.sum(draft.usage for draft in self.drafts)

    @property
    def mean(self) -> float:
        """Tokens that a step so far cost on average."""
        return self.usage.tokens / len(self.steps)

    def answer(self, text: str, *notes: str, closing: Usage = Usage()) -> Answer:
        """Hand in a text.

        Args:
            text: the method's.
            notes: how it was chosen.
            closing: what was spent beside the drafts.
        """
        return Answer(text, self.usage + closing, "; ".join(filter(None, (*notes, self.note))))


Step = Callable[[list[Course], int], list[list[Draft]]]
"""One more step, counted from 1, of every course that is given: its drafts."""

Tokens = Callable[[Course], float]
"""What a course is taken to cost in tokens."""

Members = Callable[[Task], Sequence[Agent]]
"""The agents that answer a task."""

Reads = Callable[[Course], list[tuple[Agent, list[str]]]]
"""Who writes in the next step, and which texts they read."""


def free(course: Course) -> float:
    """Nothing follows the last step."""
    return 0.0


def never(course: Course) -> str:
    """No reason to stop beside size and budget."""
    return ""


def grow(
    tasks: Sequence[Task],
    budgets: Sequence[int] | None,
    step: Step,
    *,
    size: int,
    cost: Tokens,
    stop: Callable[[Course], str] = never,
) -> list[Course]:
    """Take the first step, then steps as long as they fit; each for all tasks together that still grow.

    Whether a task grows depends on its own course alone, so its drafts do not depend on the other tasks.

    Args:
        tasks: with different ids.
        budgets: tokens, one a task; None for `size` steps each.
        step: writes the drafts.
        size: steps without a budget.
        cost: under a budget, what the next step and all that must follow it are taken to cost.
        stop: why a task does not grow although it might; "" where it may.

    Returns:
        A course a task. With constant costs that are not underestimated, a course of more than one step keeps its
        budget.
    """
    limits: Sequence[int | None] = [None] * len(tasks) if budgets is None else budgets
    courses = [Course(task, limit) for task, limit in zip(tasks, limits, strict=True)]
    active, index = courses, 1
    while active:
        for course, drafts in zip(active, step(active, index), strict=True):
            course.steps.append(drafts)
        active = [course for course in active if _fits(course, size, cost)]
        for course in active:
            course.note = stop(course)
        active, index = [course for course in active if not course.note], index + 1
    return courses


def sampled(
    panel: Panel,
    tasks: Sequence[Task],
    budgets: Sequence[int] | None,
    members: Members,
    *,
    samples: int,
    name: str,
    closing: Tokens = free,
) -> list[Course]:
    """Grow by samples: every step is one more answer of each member. A further one is taken to cost the mean so far.

    A member at temperature 0 would repeat itself: it is asked once, and its text stands again in each further step at
    no cost; where all are such, one step is all.

    Args:
        panel: agents, prompts, rules.
        tasks: with different ids.
        budgets: tokens, one a task; None for `samples` each.
        members: who answers.
        samples: of each member, without a budget.
        name: the method's, for reports.
        closing: what must follow, if one more sample is drawn.
    """

    def step(courses: list[Course], index: int) -> list[list[Draft]]:
        asked = [(c.task, a) for c in courses for a in members(c.task) if index == 1 or _draws(a)]
        drafts = iter(panel.propose(asked, index, phase=f"{name}, sample {index}"))
        return [
            [
                next(drafts) if index == 1 or _draws(agent) else course.steps[0][i]._replace(usage=Usage())
                for i, agent in enumerate(members(course.task))
            ]
            for course in courses
        ]

    def stop(course: Course) -> str:
        return "" if any(map(_draws, members(course.task))) else GREEDY

    return grow(tasks, budgets, step, size=samples, cost=lambda course: course.mean + closing(course), stop=stop)


def revised(
    panel: Panel,
    tasks: Sequence[Task],
    budgets: Sequence[int] | None,
    members: Members,
    reads: Reads,
    *,
    kind: str,
    size: int,
    name: str,
    closing: Tokens = free,
) -> list[Course]:
    """Grow by revisions: first answers, then steps in which agents read texts and write again.

    A revision is taken to cost what `reading` says, for it reads more than the first answers did.

    Args:
        panel: agents, prompts, rules.
        tasks: with different ids.
        budgets: tokens, one a task; None for `size` steps each, the first answers included.
        members: who answers first.
        reads: who writes next, and reads what.
        kind: the template of revisions.
        size: steps without a budget.
        name: the method's, for reports.
        closing: what must follow, if one more step is taken.
    """

    def step(courses: list[Course], index: int) -> list[list[Draft]]:
        phase = f"{name}, step {index}"
        if index == 1:
            asked = [[(course.task, agent) for agent in members(course.task)] for course in courses]
            drafts = iter(panel.propose([pair for pairs in asked for pair in pairs], phase=phase))
            return [[next(drafts) for _ in pairs] for pairs in asked]
        read = [[(course.task, agent, texts) for agent, texts in reads(course)] for course in courses]
        drafts = iter(panel.ask(kind, [entry for entries in read for entry in entries], index, phase=phase))
        return [[next(drafts) for _ in entries] for entries in read]

    def cost(course: Course) -> float:
        following = sum(reading(panel, course, kind, agent, texts) for agent, texts in reads(course))
        return following + closing(course)

    return grow(tasks, budgets, step, size=size, cost=cost)


def reading(panel: Panel, course: Course, kind: str, agent: Agent, texts: Sequence[str]) -> int:
    """Tokens that a call of the template `kind` is taken to cost.

    Its prompt, counted; what a chat template may add; an answer as long as the agent's drafts on this task were on
    average.

    Args:
        panel: prompts and engines.
        course: has a draft of the agent.
        kind: the template.
        agent: who writes.
        texts: what it reads.
    """
    messages = panel.prompts.ask(kind, course.task.question, texts=texts, persona=agent.persona, seed=0)
    written = fmean(draft.usage.completion_tokens for draft in course.drafts if draft.agent == agent)
    return count(panel.ensemble.engine(agent), messages) + MARKUP * len(messages) + math.ceil(written)


def answers(drafts: Sequence[Draft]) -> list[str]:
    """The texts that say anything; an empty one is no answer."""
    return [draft.text for draft in drafts if draft.text]


def check_size(what: str, got: int) -> None:
    """Refuse a size below 1.

    Raises:
        ValueError: in one line that names it.
    """
    if got < 1:
        raise ValueError(f"expected {what} of at least 1, got {got}")


def _fits(course: Course, size: int, cost: Tokens) -> bool:
    if course.budget is None:
        return len(course.steps) < size
    return len(course.steps) < MOST and course.usage.tokens + cost(course) <= course.budget


def _draws(agent: Agent) -> bool:
    return agent.decoding.temperature > 0
