"""The best workflow for a composite question, written by hand: what a Conductor could come to at most. Ours."""

from collections.abc import Sequence

from nsed_torch.benchmarks.composite import Hop
from nsed_torch.conductor.workflow import Workflow, WorkflowStep

GENERALIST = ("generalist", "adds, counts siblings and friends, writes words backwards, knows families")
SPECIALISTS = {
    "sums": "adds two small numbers",
    "siblings": "counts brothers, sisters and friends",
    "words": "writes words backwards",
    "relations": "tells who is what to whom in a family",
}
"""What the experts say of themselves, by the kind of hop they know."""


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


def known(hops: Sequence[Hop], pool: Sequence[str]) -> bool:
    """Whether somebody in the pool knows each kind of hop, so that there is a `best_workflow`."""
    try:
        best_workflow(hops, pool)
    except ValueError:
        return False
    return True


def _who(kind: str, pool: Sequence[str]) -> int:
    """The number of the worker who knows a kind."""
    for called in ((kind, SPECIALISTS[kind]), GENERALIST):
        for number, worker in enumerate(pool):
            if worker in called:
                return number
    raise ValueError(
        f"expected {kind!r} or 'generalist' in a pool for hops of that kind, got {', '.join(pool)}: add one of them"
    )
