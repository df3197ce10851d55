"""Workflows written by hand: the most that a Conductor could come to on composite questions, and lessons from them."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from nsed_lab.composite import ALONE, KINDS, CompositeGrader, referring
from nsed_lab.descriptions import GENERALIST, OTHERS, SPECIALISTS, described
from nsed_lab.natural_words import planned_by_rules
from nsed_torch.conductor.executor import Executor, WorkflowJob
from nsed_torch.conductor.policy import Conductor
from nsed_torch.conductor.workflow import Workflow, WorkflowStep
from nsed_torch.core.engine import Message, call_seed
from nsed_torch.evaluation.methods.conducted import noted
from nsed_torch.evaluation.methods.method import Answer, Panel
from nsed_torch.questions.generated import mixed_tasks
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import question_id
from nsed_torch.questions.known import Hop
from nsed_torch.records.transcript import Task

LARGEST = 5
"""Workers of a lesson's pool at most."""

MET = 8
"""How much oftener than a worker of another kind a specialist is in a pool where it is not needed."""

ALL_ROUND = 0.4
"""Share of the lessons with the generalist in the pool."""

MISSING = 0.2
"""Share of those where a specialist who is needed is missing."""


def best_workflow(hops: Sequence[Hop], pool: Sequence[str]) -> Workflow:
    """A step a hop, each by the worker who knows its kind, and with the earlier ones to read where it needs them.

    `pool` holds the workers' names or their descriptions in the order of their numbers. Where the specialist of a kind
    is not in it, the generalist is asked.

    Raises:
        ValueError: for a kind that nobody in the pool knows.
    """
    return Workflow(
        tuple(WorkflowStep(_who(hop.kind, pool), hop.subtask.strip(), "all" if hop.reads else ()) for hop in hops)
    )


@dataclass(frozen=True)
class HandWritten:
    """The best workflow for each composite question, written by hand: what a Conductor could come to at most. Ours.

    It has one size, whatever the budget, and is told what its questions are made of, which no other method is. `bare`
    has every step answer the question, which shows what subtasks are worth. With `alone` a subtask is all that its
    worker reads, and refers to earlier responses (`referring`). With `rules` the plan is not the best one but what
    regular expressions read off the question, in subtasks that stand alone.
    """

    one_size: ClassVar[bool] = True
    led: ClassVar[bool] = False

    bare: bool = False
    alone: bool = False
    rules: bool = False

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` for tasks whose hops nobody knows."""
        grader = panel.grader
        if not isinstance(grader, CompositeGrader):
            raise ValueError(
                "hand_written: expected tasks whose hops are known, got others: choose composite questions"
            )
        executor = Executor(panel.ensemble, prompts=panel.prompts, seed=panel.seed, bare=self.bare)
        pool = tuple(agent.name for agent in panel.ensemble.proposers)
        if self.rules:
            hops = [planned_by_rules(task.question) for task in tasks]
        else:
            known = (grader.hops[question_id(task)] for task in tasks)
            hops = [referring(parts) if self.alone else parts for parts in known]
        flows = [best_workflow(parts, pool) for parts in hops]
        jobs = [
            WorkflowJob(task, flow, pool, alone=self.alone or self.rules)
            for task, flow in zip(tasks, flows, strict=True)
        ]
        return [Answer(execution.answer, execution.usage, noted(execution)) for execution in executor.run(jobs)]


def lessons_by_hand(
    conductor: Conductor, graded: GradedTasks, count: int, *, others: float = 0.25, seed: int = 0
) -> list[tuple[tuple[Message, ...], str]]:
    """What the Conductor is asked about tasks, and the best workflow for each, behind a line a step on whom it asks.

    A pool has whom the workflow needs, and others, two to five in all, in any order or as the Conductor lays them out,
    but nobody whom its own pools leave out. In a share of `ALL_ROUND` there is the generalist as well, who is asked
    where a specialist is missing and nowhere else. Words are drawn (`described`). A share of `others` are questions of
    `OTHERS`, so that to find the description that fits is learned from many kinds of questions and not from four. All
    is ours.

    Raises:
        ValueError: for tasks whose hops nobody knows, a count below 1, a share out of range, or too few tasks.
    """
    if not graded.hops:
        raise ValueError("expected tasks whose hops are known, got others: set tasks=composite")
    strange = round(count * others)
    if count < 1 or not 0 <= others <= 1 or count - strange > len(graded.tasks):
        raise ValueError(
            f"expected lessons from 1, others from 0 to 1 and a task for each lesson, got {count}, {others} and "
            f"{len(graded.tasks)} tasks: lower warm.lessons or raise tasks.size"
        )
    asked = [(task, graded.hops[task.id]) for task in graded.tasks[: count - strange]]
    asked += _strange(strange, seed)
    random.Random(seed).shuffle(asked)  # noqa: S311 - variety, not secrecy
    return [_lesson(conductor, task, hops, seed) for task, hops in asked if _allowed(conductor, hops)]


def _strange(count: int, seed: int) -> Iterator[tuple[Task, tuple[Hop, ...]]]:
    """Questions that one of `OTHERS` answers alone."""
    if count:
        graded = mixed_tasks({name: {} for name in OTHERS}, max(count, len(OTHERS)), seed)
        for task in graded.tasks[:count]:
            yield task, (Hop(graded.strata[task.id], ALONE, task.target or ""),)


def _lesson(conductor: Conductor, task: Task, hops: Sequence[Hop], seed: int) -> tuple[tuple[Message, ...], str]:
    draw = random.Random(call_seed(seed, task.id, "lesson by hand"))  # noqa: S311 - variety, not secrecy
    pool = list(dict.fromkeys(hop.kind for hop in hops))
    everybody = [kind for kind in (*KINDS, *OTHERS) if _allowed(conductor, [Hop(kind, "", "")])]
    if GENERALIST[0] not in conductor.pools.without and draw.random() < ALL_ROUND:
        if pool[0] in KINDS and draw.random() < MISSING:
            everybody.remove(missing := draw.choice(pool))
            pool.remove(missing)
        pool.append(GENERALIST[0])
    more = [kind for kind in everybody if kind not in pool]
    weights = [MET if kind in KINDS else 1 for kind in more]
    size = draw.randint(max(2, len(pool)), LARGEST)
    while len(pool) < size:
        (kind,) = draw.choices(more, weights)
        pool += [kind] if kind not in pool else []
    draw.shuffle(pool)
    drawn = [described(kind, draw) for kind in pool]
    order = conductor.nearest(task.question, drawn)
    pool, words = [pool[place] for place in order], [drawn[place] for place in order]
    flow, executor = best_workflow(hops, pool), conductor.executor
    thoughts = [f"{words[step.worker]}: model {step.worker}\n" for step in flow.steps]
    asked = executor.prompts.conduct(
        task.question,
        workers=words,
        max_steps=executor.max_steps,
        previous=None,
        persona=conductor.agent.persona,
        seed=call_seed(seed, task.id),
    )
    return asked, "".join(thoughts) + flow.render()


def _allowed(conductor: Conductor, hops: Sequence[Hop]) -> bool:
    return not {hop.kind for hop in hops} & set(conductor.pools.without)


def _who(kind: str, pool: Sequence[str]) -> int:
    """The number of the worker who knows a kind."""
    for called in ((kind, SPECIALISTS.get(kind, kind)), GENERALIST):
        for number, worker in enumerate(pool):
            if worker in called:
                return number
    raise ValueError(
        f"expected {kind!r} or 'generalist' in a pool for hops of that kind, got {', '.join(pool)}: add one of them"
    )
