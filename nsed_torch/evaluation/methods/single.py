"""One agent by itself: answering once, and correcting itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from nsed_torch.agents import Agent
from nsed_torch.evaluation.methods.growth import Course, answers, revised
from nsed_torch.evaluation.methods.panel import Answer, Panel
from nsed_torch.records import Task


@dataclass(frozen=True)
class Single:
    """One answer of one agent: its proposal in round 1 of a deliberation. It has one size, whatever the budget.

    Args:
        agent: its name.
    """

    agent: str

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`.

        Raises:
            ValueError: if the ensemble has no such agent that may propose.
        """
        agent = panel.proposer(self.agent)
        drafts = panel.propose([(task, agent) for task in tasks], phase=f"single:{agent.name}")
        return [Answer(draft.text, draft.usage) for draft in drafts]


@dataclass(frozen=True)
class SelfCorrection:
    """The lead answers, then reads its last answer and revises it; its last text counts.

    Published as Self-Refine (Madaan et al. 2023, arXiv 2303.17651), and for reasoning without any outside hint by Huang
    et al. 2023 (arXiv 2310.01798), who find that it rarely helps. There feedback and revision are two calls; that one
    call does both is our reading. Smallest form: the answer alone.

    Args:
        rounds: corrections, without a budget; 0 or more.

    Raises:
        ValueError: for fewer than 0 rounds.
    """

    rounds: int = 2

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise ValueError(f"expected rounds of self-correction of at least 0, got {self.rounds}")

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""

        def reads(course: Course) -> list[tuple[Agent, list[str]]]:
            return [(panel.lead(course.task), answers(course.steps[-1]))]

        courses = revised(
            panel,
            tasks,
            budgets,
            lambda task: [panel.lead(task)],
            reads,
            kind="correct",
            size=1 + self.rounds,
            name="self_correction",
        )
        return [c.answer(c.steps[-1][0].text, f"corrections: {len(c.steps) - 1}") for c in courses]
