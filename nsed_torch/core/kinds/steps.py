"""Rounds that are steps: the team elects the next step of some work, written from the work alone. Ours."""

from collections.abc import Sequence

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.answer_classes import SameTexts
from nsed_torch.core.kinds import Asked, Counted
from nsed_torch.core.prompts import Prompts, finished
from nsed_torch.parts.forms import FORMS
from nsed_torch.records.transcript import Task


class Steps:
    """Everybody writes the next step; equal texts are one answer, and the elected one alone enters the memory.

    Each agent reads and writes the work in its own form (`parts.forms`); votes, memory and records have the plain one.

    Args:
        task: whose work it is.
        ensemble: all of the team.
        prompts: the templates.
        most: tokens that a step may have, so that the memory can show it whole.
    """

    notes = False
    in_turn = True
    winner_alone = True
    remembers = True
    rule = SameTexts()

    def __init__(self, task: Task, ensemble: Ensemble, prompts: Prompts, most: int) -> None:
        self.task, self.ensemble, self.prompts, self.most = task, ensemble, prompts, most
        self.begins_with = task.start

    def quoted(self, shown: Sequence[str]) -> list[str]:
        """The work in every form."""
        forms = {agent.form for agent in self.ensemble.agents}
        return [FORMS[form].shown(text) for form in forms for text in (*shown, self.task.start)]

    def shown(self, agent: Agent, text: str) -> str:
        """In the form that the agent reads."""
        return FORMS[agent.form].shown(text)

    def ask(self, shown: Sequence[str], mark: int) -> Asked:
        """What comes next, behind the work or, without any, behind what it begins with."""
        # The strongest is the newest.
        work = shown[::-1] or [self.task.start] * bool(self.task.start)
        forms = {agent.form for agent in self.ensemble.agents}
        read = {form: [FORMS[form].shown(text) for text in work] for form in forms}
        asked = {form: self.prompts.work(self.task.question, texts, seed=mark) for form, texts in read.items()}
        return Asked({agent.name: asked[agent.form] for agent in self.ensemble.agents})

    def count(self, agent: Agent, text: str, reason: str) -> Counted:
        """The text in the plain form; nothing where the work could not go on from it."""
        step = FORMS[agent.form].plain(text)
        if step is None:
            return Counted("", reason, (f"{agent.name}: a step that is not {agent.form} is none",))
        if reason == "length" or self.ensemble.count_tokens(step) > self.most:
            note = f"{agent.name}: a step that does not fit its allowance or memory_tokens is none"
            return Counted("", reason, (note,))
        return Counted(step, reason)

    def longest(self, agent: Agent) -> int:
        """What it may write, or where a form may say more than it takes, what the memory can show whole."""
        return min(agent.decoding.max_new_tokens, self.most) if agent.form == "plain" else self.most

    def candidate(self, judge: Agent, text: str) -> str:
        """In the form that the judge writes."""
        return FORMS[judge.form].written(text)

    def finished(self, text: str) -> str | None:
        """What stands behind "Answer:"; the task's goal, where the work has its words in a row."""
        goal = self.task.goal
        return goal if goal and f" {' '.join(goal.split())} " in f" {' '.join(text.split())} " else finished(text)
