"""The commonest final answer: of all agents, or of one agent's samples."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nsed_torch.benchmarks import Grader
from nsed_torch.evaluation.methods.growth import Members, answers, check_size, sampled
from nsed_torch.evaluation.methods.panel import Answer, Draft, Panel
from nsed_torch.records import Task


@dataclass(frozen=True)
class Plurality:
    """The commonest final answer of all agents, each with as many votes as samples.

    With one sample each it votes on the proposals of round 1 of a deliberation. Smallest form: one sample of every
    agent. Which answers are the same, the grader says; which are right it does not.

    Args:
        samples: of every agent, without a budget.

    Raises:
        ValueError: for less than one sample.
    """

    samples: int = 1

    def __post_init__(self) -> None:
        check_size("samples of plurality", self.samples)

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""
        return _voted(panel, tasks, budgets, lambda _: panel.ensemble.proposers, self.samples, "plurality")


@dataclass(frozen=True)
class SelfConsistency:
    """The commonest final answer of the lead's samples.

    Published: Wang et al. 2022 (arXiv 2203.11171), the unweighted majority vote over sampled chains of thought. Ties
    to the first sample are our reading. Smallest form: one sample, which is also all that a lead at temperature 0
    gives.

    Args:
        samples: without a budget.

    Raises:
        ValueError: for less than one sample.
    """

    samples: int = 5

    def __post_init__(self) -> None:
        check_size("samples of self-consistency", self.samples)

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""
        return _voted(panel, tasks, budgets, lambda task: [panel.lead(task)], self.samples, "self_consistency")


def commonest(grader: Grader, task: Task, drafts: Sequence[Draft]) -> tuple[str, str]:
    """The first text of the largest class of equal final answers, and a note on its votes.

    Texts without a final answer do not vote; of classes of one size the one that was named first wins. If nobody gave
    a final answer, the first text that says anything is handed in.

    Args:
        grader: finds final answers and tells equal ones.
        task: what was asked.
        drafts: in the order that breaks ties.
    """
    classes = grader.classes(task, [grader.extract(task, draft.text) for draft in drafts])
    # A counter keeps the order of appearance, and max takes the first of equals.
    votes = Counter(number for number in classes if number >= 0)
    if not votes:
        return next(iter(answers(drafts)), ""), f"votes: 0 of {len(drafts)}"
    winner = max(votes, key=votes.__getitem__)
    return drafts[classes.index(winner)].text, f"votes: {votes[winner]} of {len(drafts)}"


def _voted(
    panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None, members: Members, samples: int, name: str
) -> list[Answer]:
    courses = sampled(panel, tasks, budgets, members, samples=samples, name=name)
    return [c.answer(*commonest(panel.grader, c.task, c.drafts)) for c in courses]
