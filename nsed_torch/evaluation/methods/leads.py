"""Which agent speaks for the others: the best one, chosen on tasks that it is not then tested on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from nsed_torch.data.splits import place
from nsed_torch.records import Outcome

SINGLE = "single:"
"""What the names of methods of one agent begin with; the agent's name follows."""


def cross_fitted_leads(
    outcomes: Sequence[Outcome], agents: Sequence[str], folds: int = 5, seed: int = 0
) -> dict[str, str]:
    """For each task the agent with the best mean score on the tasks of other folds.

    Questions are dealt to folds by a hash of their group's id, so that all epochs of a question are in one fold and a
    task's lead depends on no answer to its own question. Ties go to the first agent, who also leads where no other fold
    has a score. Outcomes without a score (programs that were not run) do not count. Our reading of "best single agent":
    the best of several, chosen and tested on the same tasks, would be flattered.

    Returns:
        Task id -> name of its lead, for every task that an agent answered by itself.

    Raises:
        ValueError: for no agents or fewer than 2 folds.
    """
    if not agents or folds < 2:
        raise ValueError(f"expected agents and at least 2 folds, got {list(agents)} and {folds}")
    names = {SINGLE + name: name for name in agents}
    single = [(outcome, names[outcome.method]) for outcome in outcomes if outcome.method in names]
    fold = {outcome.task: int(place(outcome.group, seed) * folds) for outcome, _ in single}

    def lead(held_out: int) -> str:
        scores: dict[str, list[float]] = {name: [] for name in agents}
        for outcome, name in single:
            if outcome.score is not None and fold[outcome.task] != held_out:
                scores[name].append(outcome.score)
        # Agents without a score come last, and max takes the first of equals.
        return max(agents, key=lambda name: fmean(scores[name]) if scores[name] else -1.0)

    leads = {held_out: lead(held_out) for held_out in set(fold.values())}
    return {task: leads[held_out] for task, held_out in fold.items()}


def best_single(outcomes: Sequence[Outcome], leads: Mapping[str, str]) -> list[Outcome]:
    """The outcomes of each task's lead by itself, under the name `best_single`; no call is made for them.

    Their usage is the lead's, for choosing it cost these tasks nothing.

    Raises:
        ValueError: if a lead's outcome is missing.
    """
    by_task = {(outcome.task, outcome.method): outcome for outcome in outcomes}
    chosen = []
    for task, lead in leads.items():
        if not (outcome := by_task.get((task, SINGLE + lead))):
            raise ValueError(f"expected an outcome of {SINGLE}{lead} on task {task!r}, got none: run it on all tasks")
        note = "; ".join(filter(None, (f"by {lead}", outcome.note)))
        chosen.append(replace(outcome, method="best_single", note=note))
    return chosen
