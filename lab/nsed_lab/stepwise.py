"""Computations that take many dependent steps: generated tasks, and the work as it stands after each step.

A step is written from the step before alone, so that each is as short as any other (Meyerson et al. 2025, arXiv
2511.09030, cut tasks up that far).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nsed_lab.chains import CHAINS, GIVEN, hanoi_moves
from nsed_torch.core.prompts import FINISHED
from nsed_torch.questions.generated import GymItem, mixed_tasks, shares
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader, question_id
from nsed_torch.questions.known import Chain
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality


@dataclass(frozen=True)
class WorksGrader(AnswerGrader):
    """Right if equal to the target; where the first work is given, only behind works that lead there by legal moves.

    Where a tower of Hanoi ends is said in its question, so an answer without its moves proves nothing.
    """

    items: Mapping[str, GymItem] = field(default_factory=dict)  # by id of the question, of works that are given

    def extract(self, task: Task, text: str) -> str | None:
        """The answer that a text gives, in which each work is a line; None of moves without the scorer's full marks."""
        item = self.items.get(question_id(task))
        if item is not None:
            works = [line for line in text.splitlines() if not line.startswith(FINISHED)]
            try:
                moves = hanoi_moves([task.start, *works])
            except ValueError:
                return None
            if item.dataset.score_answer(moves, item.entry) != 1:
                return None
        return super().extract(task, text)

    def identity(self) -> dict[str, Any]:
        """The equality's, and how towers are graded."""
        return {**super().identity(), **({"towers": "legal moves"} if self.items else {})}


def stepwise_tasks(families: Mapping[str, Mapping[str, Any]], size: int = 100, seed: int = 0) -> GradedTasks:
    """Tasks of reasoning-gym families, as `mixed_tasks`, one family after the other, with their chains of steps.

    The families are those of `CHAINS`. `tower_of_hanoi` (three pegs) begins with a work that is given, for there are
    six questions of a height and nothing to learn from so few; its answer says where each disk lies in the end, and
    `hanoi_moves` gives what its own scorer reads. The others begin with the work that the question becomes. A setting
    `most` bounds a family's tasks. Another family is a ValueError.

    Examples:
        >>> tasks = stepwise_tasks({"chain_sum": {"min_terms": 3, "max_terms": 3, "max_digits": 2}}, size=1)
        >>> tasks.tasks[0].question
        'State the final answer to the following arithmetic problem: 15 - 43 - 75 ='
        >>> tasks.chains[tasks.tasks[0].id]
        ('start: 15 - 43 - 75', '15 - 43 = -28: -28 - 75', '-28 - 75 = -103: -103', 'Answer: -103')
    """
    tasks: list[Task] = []
    strata: dict[str, str] = {}
    chains: dict[str, Chain] = {}
    identities: dict[str, Any] = {}
    given_items: dict[str, GymItem] = {}
    for name, family, options, count in shares(families, size):
        most = options.pop("most", None)
        if family not in CHAINS:
            raise ValueError(f"expected families out of {', '.join(CHAINS)}, got {family!r}: choose among them")
        graded = mixed_tasks(
            {name: {**options, "family": family}}, count if most is None else min(count, int(most)), seed
        )
        for task in graded.tasks:
            item = graded.grader.items[task.id]  # type: ignore[attr-defined]
            works = tuple(CHAINS[family](item.entry))
            given_items |= {task.id: item} if family in GIVEN else {}
            start, chain = (works[0], works[1:]) if family in GIVEN else ("", works)
            chains[task.id] = chain
            tasks.append(replace(task, target=chain[-1].removeprefix(FINISHED), start=start))
        strata |= graded.strata
        identities |= graded.identity["families"]
    # No formulas: where one stops at `3 + 4`, the work is not done, whatever it comes to.
    grader = WorksGrader(Equality(math_verify=False), kind="text", items=given_items)
    about = {"name": f"stepwise {', '.join(families)}", "seed": seed, "families": identities}
    return GradedTasks(tuple(tasks), grader, {**grader.identity(), **about}, strata, chains=chains)
