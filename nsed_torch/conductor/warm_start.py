"""Workflows to begin with, random or by hand, for models too small to find the language by themselves."""

import random
from collections.abc import Mapping, Sequence

from nsed_torch.conductor.policy import Conductor
from nsed_torch.conductor.workflow import Workflow, WorkflowStep
from nsed_torch.core.engine import Message, call_seed
from nsed_torch.questions.known import Hop
from nsed_torch.records.transcript import Task

# Subtasks of steps that read nothing.
BEGIN = (
    "Answer the question.",
    "Solve it step by step.",
    "Solve it in another way.",
    "Say what is asked, then answer.",
    "Write down the facts that matter.",
    "Give a first answer.",
)
# Subtasks of steps that read what came before.
GO_ON = (
    "Check the replies so far.",
    "Correct what is wrong.",
    "Compare the replies.",
    "Decide, and write the answer.",
    "Finish what was begun.",
    "Say which reply is right.",
)
LENGTHS = (4, 3, 2, 1, 1)  # how often workflows have one step, two, and so on; at most five


def workflow_lessons(
    conductor: Conductor, tasks: Sequence[Task], hops: Mapping[str, Sequence[Hop]] | None = None, *, seed: int = 0
) -> list[tuple[tuple[Message, ...], str]]:
    """Per task what the Conductor is asked with a pool drawn for it, and as a reply a valid workflow for that pool.

    Each reply thinks first, a line per step: what its worker is good at in the pool's words, then the number. Whom to
    ask is then a choice of words, which a small model can make by the question; the number is looked up. Without it two
    runs of SmolLM2-135M learned to write one number always (ours).

    Where a task's hops are known, the workflow is a step a hop, by the worker whose name the hop's kind is and who is
    then in the pool; model 0 does what has no kind. Elsewhere it is random, and teaches the language, not what to do
    with it: length, workers, access and subtasks are drawn without a look at the question, so that reinforcement finds
    all of them among the first texts. First steps read nothing, later ones everything or nothing; no two subtasks of a
    workflow are equal. Published: nothing on a warm start; all is ours.

    Raises:
        ValueError: for a hop's kind that no worker bears, or more hops than a workflow may have steps.
    """
    lessons = []
    for task in tasks:
        draw = random.Random(call_seed(seed, task.id, "lesson"))  # noqa: S311 - variety, not secrecy
        pool = conductor.pool(task, call_seed(seed, "lessons"))
        draw.random()  # belongs to the stream that shipped Conductors learned from
        if parts := (hops or {}).get(task.id):
            pool, flow = _known(conductor, task, parts, pool, draw)
        else:
            flow = random_workflow(draw, range(len(pool)), conductor.executor.max_steps)
        skills = [(conductor.descriptions.get(pool[step.worker], ""), step.worker) for step in flow.steps]
        thoughts = [f"{skill}: model {number}\n" for skill, number in skills if skill]
        lessons.append((conductor.request(task, pool).messages, "".join(thoughts) + flow.render()))
    return lessons


def _known(
    conductor: Conductor, task: Task, hops: Sequence[Hop], drawn: Sequence[str], draw: random.Random
) -> tuple[tuple[str, ...], Workflow]:
    """A pool with whom the hops need, as large as the one drawn if that is enough, and the workflow that they say."""
    workers, most = conductor.executor.workers, conductor.executor.max_steps
    needed = sorted({hop.kind for hop in hops if hop.kind})
    if strange := [kind for kind in needed if kind not in workers]:
        expected = f"expected hops of a kind out of {', '.join(workers)}"
        raise ValueError(f"task {task.id!r}: {expected}, got {strange[0]!r}: rename it")
    if len(hops) > most:
        raise ValueError(f"task {task.id!r}: expected at most {most} hops, got {len(hops)}: raise max_steps")
    pool = [*needed, *(name for name in drawn if name not in needed)][: max(len(drawn), len(needed))]
    draw.shuffle(pool)
    near = conductor.nearest(task.question, [conductor.descriptions.get(name, "") for name in pool])
    pool = [pool[place] for place in near]
    whom = [pool.index(hop.kind) if hop.kind else 0 for hop in hops]
    steps = [WorkflowStep(who, hop.subtask, "all" if hop.reads else ()) for who, hop in zip(whom, hops, strict=True)]
    return tuple(pool), Workflow(tuple(steps))


def random_workflow(draw: random.Random, workers: Sequence[int], max_steps: int) -> Workflow:
    """A valid workflow: length as in `LENGTHS`, workers uniform, "all" or [] at random behind the first step."""
    most = min(max_steps, len(LENGTHS))
    n = draw.choices(range(1, most + 1), LENGTHS[:most])[0]
    begin, go_on = draw.sample(BEGIN, n), draw.sample(GO_ON, n)
    steps = []
    for k in range(n):
        reads = k > 0 and draw.random() < (0.8 if k == n - 1 else 0.4)
        steps.append(WorkflowStep(draw.choice(workers), (go_on if reads else begin)[k], "all" if reads else ()))
    return Workflow(tuple(steps))
