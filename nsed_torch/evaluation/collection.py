"""What a folder of traces comes to: how often answers were right, and what they cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from nsed_torch.evaluation.statistics import Estimate, share
from nsed_torch.records import Trace, Usage


@dataclass(frozen=True)
class Summary:
    """What was collected."""

    tasks: int
    accuracies: dict[str, Estimate]  # of the answer after each round, of each agent in round 1, and of the oracle
    usage: Usage  # of all calls


def summarize(traces: Iterable[Trace]) -> Summary:
    """Count over traces of one ensemble, one or more.

    The answer after a round is the last winner so far; a task that stopped earlier keeps its answer. An agent counts
    where it took part in round 1. The oracle is right if any proposal of any round is.
    """
    curves: list[list[bool]] = []
    agents: dict[str, list[bool]] = {}
    oracle, usage = [], Usage()
    for trace in traces:
        transcript = trace.transcript
        curves.append(standing(trace))
        for name, right in zip(transcript.rounds[0].proposers, trace.grades[0], strict=True):
            agents.setdefault(name, []).append(right)
        oracle.append(any(map(any, trace.grades)))
        usage += transcript.usage
    rounds = max(map(len, curves))
    rows = {f"answer after round {r + 1}": [c[min(r, len(c) - 1)] for c in curves] for r in range(rounds)}
    rows |= {f"{name}, round 1": right for name, right in agents.items()}
    rows["oracle, any proposal"] = oracle
    return Summary(len(curves), {what: share(sum(right), len(right)) for what, right in rows.items()}, usage)


def standing(trace: Trace) -> list[bool]:
    """Whether the answer that stood after each round, the last winner so far, was right; False while there was none."""
    curve, right = [], False
    for record, grades in zip(trace.transcript.rounds, trace.grades, strict=True):
        right = right if record.winner is None else grades[record.winner]
        curve.append(right)
    return curve
