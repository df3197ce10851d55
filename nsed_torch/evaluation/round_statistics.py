"""What graded traces tell of a team: how often it is right, at what cost, what rounds change, what judges know."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from nsed_torch.core.prompts import finished
from nsed_torch.evaluation.statistics import Estimate, clustered_share, share
from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import Task, Transcript, Usage

Tree = dict[str, Any]
"""Names to numbers, estimates and further trees."""

Counted = list[tuple[int, float, float]]
"""The number of a question, hits and what they are out of."""


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
        curves.append(standing(trace, answers_right(trace)))
        for name, right in zip(trace.transcript.rounds[0].proposers, trace.grades[0], strict=True):
            agents.setdefault(name, []).append(right)
        oracle.append(any(map(any, answers_right(trace))))
        usage += trace.transcript.usage
    rows = {f"answer after round {r}": right for r, right in enumerate(by_round(curves), start=1)}
    rows |= {f"{name}, round 1": right for name, right in agents.items()}
    rows["oracle, any proposal"] = oracle
    return Summary(len(curves), {what: share(sum(right), len(right)) for what, right in rows.items()}, usage)


def standing(trace: Trace, grades: Sequence[Sequence[bool]] | None = None) -> list[bool]:
    """Whether the answer that stood after each round, the last winner so far, was right; False while there was none.

    Other `grades` than the trace's, by round and proposal, tell something else of it.
    """
    curve, right = [], False
    for record, row in zip(trace.transcript.rounds, trace.grades if grades is None else grades, strict=True):
        right = right if record.winner is None else row[record.winner]
        curve.append(right)
    return curve


def answers_right(trace: Trace) -> list[list[bool]]:
    """The grades, of answers alone: where rounds are steps, what does not say that nothing is left to do is none."""
    if trace.transcript.unit != "step":
        return trace.grades
    return [
        [right and finished(p.text) is not None for p, right in zip(record.proposals, row, strict=True)]
        for record, row in zip(trace.transcript.rounds, trace.grades, strict=True)
    ]


def elected_steps(transcript: Transcript) -> list[str]:
    """What every round of a deliberation of steps elected; "" where nobody wrote a step."""
    return ["" if r.winner is None else r.proposals[r.winner].text for r in transcript.rounds]


def steps_held(steps: Sequence[str], chain: Sequence[str]) -> int:
    """How many steps were those of the chain before the first that was not.

    Examples:
        >>> steps_held(["1 + 2 + 3", "3 + 3", "7", "Answer: 7"], ["1 + 2 + 3", "3 + 3", "6", "Answer: 6"])
        2
    """
    pairs = enumerate(zip(steps, chain, strict=False))
    return next((i for i, (step, right) in pairs if step.split() != right.split()), min(len(steps), len(chain)))


def insight(traces: Iterable[Trace], *, question: Callable[[Task], str] = lambda task: task.id) -> Tree:
    """Read traces once and measure everything; `statistics.plain` makes JSON data of it.

    Shares have `statistics.clustered_share`'s interval over questions. Where rounds are steps, the course is that of
    answers: there is none before the team says that nothing is left to do.

    p_g is the paper's: the share of right proposals before anybody has heard anybody; an empty one is wrong. The paper
    leaves open how p_v is measured; both readings are ours. `auc` is the chance that a right proposal is rated above a
    wrong one of the same task and round by the same judge, equal ratings counting one half; n are pairs. `sign` is the
    share of ratings above 0 for a right, below 0 for a wrong proposal, 0 counting one half. Ratings of one's own
    proposal do not count.

    Args:
        traces: one or more, graded, of one ensemble; `records.read_traces` gives them one by one.
        question: id of the question a task asks, `GradedTasks.group`; the task's own by default.
    """
    numbers = defaultdict[str, int](count().__next__)
    asked, curves, oracle, tokens = [], [], [], Counter[int]()
    first, pairs, signs = Counted(), Counted(), Counted()
    for trace in traces:
        transcript, number = trace.transcript, numbers[question(trace.transcript.task)]
        asked.append(number)
        curves.append(standing(trace, answers_right(trace)))
        oracle.append(any(map(any, answers_right(trace))))
        first.append((number, sum(trace.grades[0]), len(trace.grades[0])))
        for r, (record, grades) in enumerate(zip(transcript.rounds, trace.grades, strict=True)):
            tokens[r] += record.usage.tokens
            for voter, row in zip(record.voters, record.ratings, strict=True):
                rated: dict[bool, list[float]] = {True: [], False: []}
                for proposal, rating, right in zip(record.proposals, row, grades, strict=True):
                    if rating is not None and proposal.agent != voter:
                        rated[right].append(rating)
                        signs.append((number, (1 + np.sign(rating if right else -rating)) / 2, 1))
                ahead = np.sign(np.subtract.outer(rated[True], rated[False]))
                pairs.append((number, (ahead.sum() + ahead.size) / 2, ahead.size))
    return {
        "tasks": len(curves),
        "questions": len(numbers),  # less than tasks where these are epochs of one question
        "course": _course(asked, curves, oracle, tokens),
        "p_g": {"pooled": share_of(first)},
        "p_v": {"pooled": {"auc": share_of(pairs), "sign": share_of(signs)}},
    }


def _course(
    asked: Sequence[int], curves: Sequence[Sequence[bool]], oracle: Sequence[bool], tokens: Counter[int]
) -> Tree:
    """What rounds do to the answer that stands after each; a task that stopped earlier keeps its answer."""
    accuracies = [clustered_share(asked, right) for right in by_round(curves)]
    spent = np.cumsum([tokens[r] for r in range(len(accuracies))]) / len(curves)
    rounds = [
        {
            "round": r + 1,
            "deliberating": sum(len(curve) > r for curve in curves),  # tasks that held it
            "accuracy": accuracy,
            "tokens": float(spent[r]),  # computed up to it, the mean over all tasks
        }
        for r, accuracy in enumerate(accuracies)
    ]
    missed = [proposed > curve[-1] for proposed, curve in zip(oracle, curves, strict=True)]
    return {
        "rounds": rounds,
        # Share of tasks where some proposal of some round is right and the final answer is not.
        "oracle_gap": clustered_share(asked, missed),
    }


def by_round(curves: Sequence[Sequence[bool]]) -> list[list[bool]]:
    """Whether the standing answer is right, by round and task."""
    return [[curve[min(r, len(curve) - 1)] for curve in curves] for r in range(max(map(len, curves)))]


def share_of(counted: Counted) -> Estimate:
    """The share of hits, with an interval over questions."""
    question, hits, total = zip(*counted, strict=True) if counted else ((), (), ())
    return clustered_share(question, hits, total)
