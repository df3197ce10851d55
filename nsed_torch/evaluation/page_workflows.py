"""What workflows were like, on a study's page, from the executions of nsed evaluate."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nsed_torch.evaluation.page_tables import Markdown, table
from nsed_torch.evaluation.statistics import clopper_pearson
from nsed_torch.evaluation.workflows import workflow_of
from nsed_torch.records import Execution, Level


def workflows_table(found: Mapping[str, Sequence[Execution]]) -> Markdown:
    """Runs side by side: how often a first text was a valid workflow as it stood, its size and shapes, who was asked.

    Args:
        found: name of a run -> its executions.
    """
    rows = []
    for name, executions in found.items():
        first = [execution.levels[0] for execution in executions]
        flows = [workflow_of(level) for level in first]
        steps = [step.worker for level in first for step in level.steps]
        rows.append(
            [
                name,
                len(first),
                _share(sum(map(_valid, first)), len(first)),
                f"{len(steps) / len(first):.2f}",
                _most([str(flow.topology()) for flow in flows]),
                _most(steps),
                _accepted(executions),
            ]
        )
    return table(rows, ["run", "n", "valid as written", "steps", "shapes", "workers", "answers accepted"])


def _valid(level: Level) -> bool:
    return level.plan is not None and not level.plan.reasons and not level.plan.fallback


def _accepted(executions: Sequence[Execution]) -> str:
    """Of the answers that were looked at again, those that stood; "" without recursion."""
    further = [execution for execution in executions if len(execution.levels) > 1]
    stood = sum(not execution.levels[-1].steps for execution in further)
    return f"{stood} of {len(further)}" if further else ""


def _share(count: int, n: int) -> Any:
    low, high = clopper_pearson(count, n)
    return {"mean": count / n, "low": low, "high": high}


def _most(values: Sequence[str]) -> str:
    return ", ".join(f"{value} {count / len(values):.0%}" for value, count in Counter(values).most_common())
