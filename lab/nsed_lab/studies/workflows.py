"""`-m nsed_lab.studies.workflows RUN...`: what the workflows of runs of `nsed evaluate tasks=composite` were like.

A line a run, for single questions and composites: how many texts were valid as written, calls of workers a question,
how often a single question's specialist alone was asked, and shapes.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nsed_lab.composite import KINDS
from nsed_torch.evaluation.statistics import clopper_pearson
from nsed_torch.evaluation.workflows import workflow_of
from nsed_torch.records.execution import Execution


def main(runs: Sequence[str]) -> None:
    """Read and print."""
    for run in runs:
        done = list(Execution.read_lines(Path(run) / "executions" / "conductor.jsonl"))
        kinds = [execution.task.id.rsplit("-", 2)[0] for execution in done]
        alone = [execution for execution, kind in zip(done, kinds, strict=True) if kind in KINDS]
        for name, part in (("single", alone), ("composite", [one for one in done if one not in alone])):
            print(f"{run}, {name}: {described(part)}")


def described(done: Sequence[Execution]) -> str:
    """What first workflows were like."""
    first = [execution.levels[0] for execution in done]
    plans = [level.plan for level in first if level.plan]
    valid = sum(not plan.reasons and not plan.fallback for plan in plans)
    fits = sum(
        {step.worker for step in level.steps} == {one.task.id.rsplit("-", 2)[0]}
        for one, level in zip(done, first, strict=True)
    )
    calls = sum(len(level.steps) for level in first) / len(first)
    shapes = Counter(str(workflow_of(level).topology()) for level in first)
    return (
        f"valid {_share(valid, len(plans))}; {calls:.3f} calls; its specialist alone {_share(fits, len(done))}; "
        + ", ".join(f"{shape} {count}" for shape, count in shapes.most_common())
    )


def _share(count: int, n: int) -> str:
    return "{} of {}, {:.3f} [{:.3f}, {:.3f}]".format(count, n, count / n, *clopper_pearson(count, n))


if __name__ == "__main__":
    main(sys.argv[1:])
