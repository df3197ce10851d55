"""One agent writes the answer out of several: of its own samples, or of all agents in layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nsed_torch.agents import Agent
from nsed_torch.evaluation.methods.growth import Course, answers, check_size, reading, revised, sampled
from nsed_torch.evaluation.methods.panel import Answer, Draft, Panel
from nsed_torch.records import Task

KIND = "aggregate"
"""The template."""


@dataclass(frozen=True)
class SelfMoA:
    """The lead writes its answer out of its own samples.

    Published: Self-MoA of Li et al. 2025 (arXiv 2502.00674), who take it for better than mixing models of different
    quality. Smallest form: one sample, with nothing to aggregate, which is also all that a lead at temperature 0 gives;
    that is our reading.

    Args:
        samples: without a budget.

    Raises:
        ValueError: for less than one sample.
    """

    samples: int = 3

    def __post_init__(self) -> None:
        check_size("samples of Self-MoA", self.samples)

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""

        def closing(course: Course) -> float:
            texts = answers(course.drafts)
            return reading(panel, course, KIND, panel.lead(course.task), [*texts, max(texts, key=len, default="")])

        courses = sampled(
            panel,
            tasks,
            budgets,
            lambda task: [panel.lead(task)],
            samples=self.samples,
            name="self_moa",
            closing=closing,
        )
        several = [course for course in courses if len(course.steps) > 1]
        last = _aggregated(panel, several, lambda course: course.drafts, "self_moa")
        return [_handed_in(c, last.get(c.task.id), f"samples: {len(c.steps)}") for c in courses]


@dataclass(frozen=True)
class MixtureOfAgents:
    """Layers of agents that all read what the layer before wrote; the lead writes the last text.

    Published: Wang et al. 2024 (arXiv 2406.04692), who count the aggregator as the last layer, so that our `layers` is
    theirs less one. Authors are not named. Smallest form: one layer and the aggregation.

    Args:
        layers: of all agents, without a budget; the aggregation comes on top.

    Raises:
        ValueError: for less than one layer.
    """

    layers: int = 2

    def __post_init__(self) -> None:
        check_size("layers of a mixture of agents", self.layers)

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""
        agents = panel.ensemble.proposers

        def reads(course: Course) -> list[tuple[Agent, list[str]]]:
            return [(agent, answers(course.steps[-1])) for agent in agents]

        def closing(course: Course) -> float:
            # The layer to come is not written yet: taken to be as long as the last one.
            return reading(panel, course, KIND, panel.lead(course.task), answers(course.steps[-1]))

        courses = revised(
            panel,
            tasks,
            budgets,
            lambda _: agents,
            reads,
            kind=KIND,
            size=self.layers,
            name="mixture_of_agents",
            closing=closing,
        )
        last = _aggregated(panel, courses, lambda course: course.steps[-1], "mixture_of_agents")
        return [_handed_in(c, last[c.task.id], f"layers: {len(c.steps)}") for c in courses]


def _aggregated(
    panel: Panel, courses: Sequence[Course], drafts: Callable[[Course], Sequence[Draft]], name: str
) -> dict[str, Draft]:
    """Task id -> what the lead made of the drafts."""
    # Step 1 of the template is the last text, for layers that read count from 2: the seed of a task's call must not
    # depend on how far other tasks got.
    asked = [(course.task, panel.lead(course.task), answers(drafts(course))) for course in courses]
    written = panel.ask(KIND, asked, 1, phase=f"{name}, aggregation")
    return {course.task.id: draft for course, draft in zip(courses, written, strict=True)}


def _handed_in(course: Course, last: Draft | None, note: str) -> Answer:
    if last is None:
        return course.answer(course.steps[0][0].text, note)
    return course.answer(last.text, note, closing=last.usage)
