"""Methods whose agents read texts and write again: their own, their samples, each other's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nsed_torch.core.agent import Agent
from nsed_torch.evaluation.methods.independent import elected
from nsed_torch.evaluation.methods.method import Answer, Attempt, Panel
from nsed_torch.evaluation.methods.sizing import Growth, Trail, answers, ledgers_of, reading_tokens
from nsed_torch.records.transcript import Task

AGGREGATE = "aggregate"
"""The template of those who write one answer out of several."""


@dataclass(frozen=True)
class SelfCorrection:
    """The lead answers, then reads its last answer and revises it; its last text counts.

    Published as Self-Refine (Madaan et al. 2023, arXiv 2303.17651), and for reasoning without any outside hint by Huang
    et al. 2023 (arXiv 2310.01798), who find that it rarely helps. There feedback and revision are two calls; that one
    call does both is our reading. Smallest form: the answer alone. `rounds` are corrections, without a budget.
    """

    rounds: int = 2

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""

        def reads(trail: Trail) -> list[tuple[Agent, list[str]]]:
            return [(panel.lead(trail.task), answers(trail.steps[-1]))]

        trails = Growth(panel, 1 + self.rounds, reads=reads, kind="correct").trails(tasks, budgets)
        return [t.answer(t.steps[-1][0].text, f"corrections: {len(t.steps) - 1}") for t in trails]


@dataclass(frozen=True)
class Debate:
    """Multi-agent debate: each round every agent reads the others' last answers and updates its own.

    Published: Du et al. 2023 (arXiv 2305.14325), three agents and two rounds, the majority of the last answers. There
    an agent's whole chat stays in its prompt; that it reads its own last answer and the others' is our reading, as are
    ties by `functional.ties`. Authors are not named. Smallest form: the first answers, which is the plurality. `rounds`
    are those without a budget, the first answers included.
    """

    rounds: int = 2

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""

        def reads(trail: Trail) -> list[tuple[Agent, list[str]]]:
            last = trail.steps[-1]
            # The template takes the first text for the agent's own, "" where it has none.
            return [(d.agent, [d.text, *answers([*last[:i], *last[i + 1 :]])]) for i, d in enumerate(last)]

        trails = Growth(panel, self.rounds, everybody=True, reads=reads, kind="debate").trails(tasks, budgets)
        return [elected(panel.grader, t, t.steps[-1], f"rounds: {len(t.steps)}") for t in trails]


@dataclass(frozen=True)
class SelfMoA:
    """The lead writes its answer out of its own samples.

    Published: Self-MoA of Li et al. 2025 (arXiv 2502.00674), who take it for better than mixing models of different
    quality. Smallest form: one sample, with nothing to aggregate, which is also all that a lead at temperature 0 gives;
    that is our reading.
    """

    samples: int = 3

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""

        def closing(trail: Trail) -> float:
            texts = answers(trail.drafts)
            texts.append(max(texts, key=len, default=""))  # the sample to come is taken to be as long as the longest
            return reading_tokens(panel, trail, AGGREGATE, panel.lead(trail.task), texts)

        trails = Growth(panel, self.samples, closing=closing).trails(tasks, budgets)
        several = [trail for trail in trails if len(trail.steps) > 1]
        done = {t.task.id: t.answer(t.drafts[0].text, "samples: 1") for t in trails}
        done |= _aggregated(panel, several, lambda trail: trail.drafts, "samples")
        return [done[task.id] for task in tasks]


@dataclass(frozen=True)
class MixtureOfAgents:
    """Layers of agents that all read what the layer before wrote; the lead writes the last text.

    Published: Wang et al. 2024 (arXiv 2406.04692), who count the aggregator as the last layer, so that our `layers` is
    theirs less one. Authors are not named. Smallest form: one layer and the aggregation. `layers` are those of all
    agents, without a budget; the aggregation comes on top.
    """

    layers: int = 2

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""

        def reads(trail: Trail) -> list[tuple[Agent, list[str]]]:
            return [(agent, answers(trail.steps[-1])) for agent in panel.ensemble.proposers]

        def closing(trail: Trail) -> float:
            # The layer to come is not written yet: taken to be as long as the last one.
            return reading_tokens(panel, trail, AGGREGATE, panel.lead(trail.task), answers(trail.steps[-1]))

        trails = Growth(panel, self.layers, everybody=True, reads=reads, kind=AGGREGATE, closing=closing).trails(
            tasks, budgets
        )
        return list(_aggregated(panel, trails, lambda trail: trail.steps[-1], "layers").values())


def _aggregated(
    panel: Panel, trails: Sequence[Trail], drafts: Callable[[Trail], Sequence[Attempt]], steps: str
) -> dict[str, Answer]:
    """Task id -> what the lead made of the drafts; a note counts the steps, by their name."""
    # Step 1 of the template is the last text, for layers that read count from 2: the seed of a task's call must not
    # depend on how far other tasks got.
    readers = [(trail.task, panel.lead(trail.task), answers(drafts(trail))) for trail in trails]
    return {
        t.task.id: t.answer(last.text, f"{steps}: {len(t.steps)}", closing=last.usage)
        for t, last in zip(trails, panel.ask(AGGREGATE, readers, 1, ledgers=ledgers_of(trails)), strict=True)
    }
