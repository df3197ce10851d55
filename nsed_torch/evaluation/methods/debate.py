"""All agents answer, read each other and answer again."""

from collections.abc import Sequence
from dataclasses import dataclass

from nsed_torch.agents import Agent
from nsed_torch.evaluation.methods.growth import Course, answers, check_size, revised
from nsed_torch.evaluation.methods.panel import Answer, Panel
from nsed_torch.evaluation.methods.plurality import commonest
from nsed_torch.records import Task


@dataclass(frozen=True)
class Debate:
    """Multi-agent debate: each round every agent reads the others' last answers and updates its own.

    Published: Du et al. 2023 (arXiv 2305.14325), three agents and two rounds, the majority of the last answers. There
    an agent's whole chat stays in its prompt; that it reads its own last answer and the others' is our reading, as are
    ties to the first agent. Authors are not named. Smallest form: the first answers, which is the plurality.

    Args:
        rounds: without a budget, the first answers included.

    Raises:
        ValueError: for less than one round.
    """

    rounds: int = 2

    def __post_init__(self) -> None:
        check_size("rounds of a debate", self.rounds)

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""
        agents = panel.ensemble.proposers

        def reads(course: Course) -> list[tuple[Agent, list[str]]]:
            last = course.steps[-1]
            # The template takes the first text for the agent's own, "" where it has none.
            return [(d.agent, [d.text, *answers([*last[:i], *last[i + 1 :]])]) for i, d in enumerate(last)]

        courses = revised(
            panel, tasks, budgets, lambda _: agents, reads, kind="debate", size=self.rounds, name="debate"
        )
        return [c.answer(*commonest(panel.grader, c.task, c.steps[-1]), f"rounds: {len(c.steps)}") for c in courses]
