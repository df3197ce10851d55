"""What a live broker knows of its agents: who sits out a round, what they are worth, and what the round adds."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nsed_torch.nn import InfeasibleBudgetError, Telemetry, Utility
from nsed_torch.records import Round

Bench = Mapping[str, int]
"""Who sits out -> after how many failures; whoever is back first stands first."""


def bench(telemetry: Telemetry) -> Bench:
    """Who sits out by the telemetry's clock, which is read once here for all tasks of a round."""
    benched = (~telemetry.available()).nonzero()[:, 0].tolist()
    benched.sort(key=lambda agent: int(telemetry.benched_until[agent]))
    return {telemetry.agents[agent]: int(telemetry.strikes[agent]) for agent in benched}


def seated(
    solve: Callable[[Bool[Tensor, "1 agent role"]], Tensor],
    sits_out: Bench,
    agents: Sequence[str],
    may: Bool[Tensor, "agent role"],
    minimum: Sequence[int],
) -> Tensor:
    """The team of those who do not sit out, if they make one; else as few as need be are called back.

    They are called back one by one, whoever would be back first in front, until there are as many agents as every role
    needs and a team that the budget pays for. So a bench never ends a task that could go on without it. Ours.

    Args:
        solve: the team out of those marked True, in the roles marked so.
        sits_out: the bench.
        agents: names, in the ensemble's order.
        may: which roles each of them may take.
        minimum: agents that each role needs.

    Raises:
        InfeasibleBudgetError: if not even everybody makes a team that the budget pays for.
    """

    def without(benched: Sequence[str]) -> Tensor:
        return (torch.tensor([name not in benched for name in agents])[:, None] & may)[None]

    benched = list(sits_out)
    for back in range(len(benched)):
        available = without(benched[back:])
        if (available.sum(1) >= torch.tensor(minimum)).all():
            with suppress(InfeasibleBudgetError):
                return solve(available)
    return solve(without([]))


def worth(
    utility: Utility, telemetry: Telemetry | None, question: Float[Tensor, "dim"], hidden: Float[Tensor, "dim"] | None
) -> Float[Tensor, "1 agent role"]:
    """Utilities for one task, in the dtype of their parameters; float64 keeps them independent of the batch.

    Args:
        utility: one of the ensemble's size.
        telemetry: its features are zero where there is none.
        question: the task's embedding.
        hidden: the state after the rounds so far; None before the first.
    """
    weight = utility.telemetry_weight
    features = weight.new_zeros(len(utility.bias), weight.shape[1]) if telemetry is None else telemetry.features()
    state = None if hidden is None else hidden.to(weight)[None]
    with torch.no_grad():
        utilities: Tensor = utility(question.to(weight)[None], features.to(weight), state)
    return utilities


def observe(telemetry: Telemetry, records: Sequence[Round]) -> None:
    """Count what a round's proposers did: an answer and its seconds, or none, which is a failure.

    Whether an answer was right nobody knows here: to win a vote is not to be right. Judges are not counted, for a
    round keeps what its judges took in sum only.

    Args:
        telemetry: of all agents that proposed.
        records: one a task, in the order of the tasks.
    """
    for proposal in (proposal for record in records for proposal in record.proposals):
        if proposal.text:
            telemetry.success(proposal.agent, proposal.usage.seconds)
        else:
            telemetry.failure(proposal.agent)


def with_bench(record: Round, sits_out: Bench) -> Round:
    """The record with a note in front for everybody who sat out, or was called back to take part."""
    team = {*record.proposers, *record.voters}
    notes = []
    for name, failures in sits_out.items():
        after = f"after {failures} failure{'s' * (failures != 1)}"
        called = f"{name}: called back from the bench {after}, for the others make no team"
        notes.append(called if name in team else f"{name}: on the bench {after}")
    return replace(record, notes=[*notes, *record.notes])
