"""Computations that take many dependent steps: generated tasks, and the work as it stands after each step.

A step is written from the step before alone, so that each is as short as any other (Meyerson et al. 2025, arXiv
2511.09030, cut tasks up that far). How works are written down is ours.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Any

from nsed_torch.agents.prompts import FINISHED
from nsed_torch.benchmarks.generated import GymItem, mixed_tasks, shares
from nsed_torch.benchmarks.graded import GradedTasks
from nsed_torch.benchmarks.graders import AnswerGrader, question_id
from nsed_torch.data.equality import Equality
from nsed_torch.records import Task, Trace, Transcript

PEGS = {1, 2, 3}

Chain = tuple[str, ...]
"""The work as it stands after each step, from the first to the answer."""


@dataclass(frozen=True)
class StepwiseTasks(GradedTasks):
    """Tasks whose every step is known."""

    chains: Mapping[str, Chain] = field(default_factory=dict)  # by task id

    def traces(self, transcripts: Sequence[Transcript]) -> list[Trace]:
        """As of other tasks; where rounds were steps, right is what the chain has in a round's place."""
        return [
            replace(trace, grades=self._steps(trace.transcript)) if trace.transcript.unit == "step" else trace
            for trace in super().traces(transcripts)
        ]

    def _steps(self, transcript: Transcript) -> list[list[bool]]:
        chain = [step.split() for step in self.chains[self.group(transcript.task)]]
        return [
            [record.index <= len(chain) and p.text.split() == chain[record.index - 1] for p in record.proposals]
            for record in transcript.rounds
        ]


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


def stepwise_tasks(families: Mapping[str, Mapping[str, Any]], size: int = 100, seed: int = 0) -> StepwiseTasks:
    """Tasks of reasoning-gym families, as `mixed_tasks`, one family after the other, with their chains of steps.

    The families are `tower_of_hanoi` (three pegs), `chain_sum` and `ab`. The first begins with a work that is given,
    for there are six questions of a height and nothing to learn from so few; its answer says where each disk lies in
    the end, and `hanoi_moves` gives what its own scorer reads. The others begin with the work that the question
    becomes. A setting `most` bounds a family's tasks. Another family is a ValueError.

    Examples:
        >>> tasks = stepwise_tasks({"chain_sum": {"min_terms": 3, "max_terms": 3, "max_digits": 2}}, size=1)
        >>> tasks.tasks[0].question
        'State the final answer to the following arithmetic problem: 15 - 43 - 75 ='
        >>> tasks.chains[tasks.tasks[0].id]
        ('15 - 43 - 75', '-28 - 75', '-103', 'Answer: -103')
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
            works = CHAINS[family](item.entry)
            given_items |= {task.id: item} if family in GIVEN else {}
            start, chain = (works[0], works[1:]) if family in GIVEN else ("", works)
            chains[task.id] = chain
            tasks.append(replace(task, target=chain[-1].removeprefix(FINISHED), start=start))
        strata |= graded.strata
        identities |= graded.identity["families"]
    # No formulas: where one stops at `3 + 4`, the work is not done, whatever it comes to.
    grader = WorksGrader(Equality(math_verify=False), numeric=False, items=given_items)
    about = {"name": f"stepwise {', '.join(families)}", "seed": seed, "families": identities}
    return StepwiseTasks(tuple(tasks), grader, {**grader.identity(), **about}, strata, chains=chains)


def _chain_sum(entry: Mapping[str, Any]) -> Chain:
    """The first two numbers become one, until one is left."""
    parts = entry["metadata"]["expression"].split()
    works = [" ".join(parts)]
    while len(parts) > 1:
        first, sign, second, *others = parts
        parts = [str(int(first) + int(second) * (1 if sign == "+" else -1)), *others]
        works.append(" ".join(parts))
    return (*works, FINISHED + parts[0])


def _rewriting(entry: Mapping[str, Any]) -> Chain:
    """The first two neighbours that face each other are rewritten, until none do; nothing is written as "nothing"."""
    tokens = re.findall("[AB]#|#[AB]", entry["question"].partition("following program:")[2])
    works = []
    while True:
        works.append(" ".join(tokens) or "nothing")
        facing = (i for i in range(len(tokens) - 1) if tokens[i][1] == "#" == tokens[i + 1][0])
        if (i := next(facing, None)) is None:
            return (*works, FINISHED + works[-1])
        left, right = tokens[i : i + 2]
        tokens[i : i + 2] = [] if left[0] == right[1] else [right, left]


def _hanoi(entry: Mapping[str, Any]) -> Chain:
    """Where each disk lies, the smallest first; which way round the smallest goes; and whose turn it is.

    Disks are letters, for a small model copies what has a name and loses count of what has none, and a work begins with
    the move that led to it, so that it is decided before it is done. The smallest disk moves every other time, always
    the same way round; in between there is one move without it. The answer says where each disk lies.
    """
    about = entry["metadata"]
    count, start, target = about["num_disks"], about["start_peg"], about["target_peg"]
    if about["num_pegs"] != len(PEGS):
        raise ValueError(f"expected towers of three pegs, got {about['num_pegs']}: set max_pegs=3")
    (spare,) = PEGS - {start, target}
    way = [start, target, spare] if count % 2 else [start, spare, target]
    places = [start] * count
    works = ["start: " + _tower(places, way, small=True)]
    for move in range(2**count - 1):
        disk = 0 if move % 2 == 0 else next(d for d in range(count) if places[d] != places[0])
        before = places[disk]
        if disk:
            (places[disk],) = PEGS - {places[0], before}
        else:
            places[0] = way[(way.index(before) + 1) % 3]
        moved = f"{ascii_lowercase[disk]}{before} to {ascii_lowercase[disk]}{places[disk]}: "
        works.append(moved + _tower(places, way, small=move % 2 == 1))
    return (*works, FINISHED + _places(places))


def _tower(places: Sequence[int], way: Sequence[int], *, small: bool) -> str:
    return f"{_places(places)} way {''.join(map(str, way))} {'small' if small else 'large'}"


def _places(places: Sequence[int]) -> str:
    """As in "a1 b1 c3"."""
    return " ".join(f"{letter}{peg}" for letter, peg in zip(ascii_lowercase, places, strict=False))


def hanoi_moves(works: Sequence[str]) -> str:
    """The moves between towers, as the family's scorer reads them; a ValueError where a step moves no single disk."""
    towers = [
        dict(found)
        for work in works
        if (found := re.findall("([a-z])([123])", work.rpartition(":")[2].partition("way")[0]))
    ]
    lines = []
    for before, after in itertools.pairwise(towers):
        moved = [disk for disk in before if before[disk] != after.get(disk)]
        if len(moved) != 1 or before.keys() != after.keys():
            raise ValueError(f"expected a step that moves one disk, got one from {before} to {after}")
        (disk,) = moved
        number = ascii_lowercase.index(disk) + 1
        lines.append(f"Move disk {number} from Peg {before[disk]} to Peg {after[disk]}")
    return "\n".join(lines)


CHAINS: dict[str, Callable[[Mapping[str, Any]], Chain]] = {
    "tower_of_hanoi": _hanoi,
    "chain_sum": _chain_sum,
    "ab": _rewriting,
}
"""How the works of a family's tasks are found, the one that the question becomes first."""

GIVEN = ("tower_of_hanoi",)
"""Families whose first work is given."""
