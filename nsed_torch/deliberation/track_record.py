"""What a live broker knows of its agents: who sits out a round, what they are worth, and what the round adds."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Tensor

from nsed_torch.nn import InfeasibleBudgetError, Telemetry
from nsed_torch.nn.learned_broker import Heard
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


def heard_in(record: Round | None, agents: Sequence[str]) -> Heard:
    """What a learned broker reads of a task's last round, as a batch of one; None before the first.

    Args:
        record: whose proposals are all that were heard.
        agents: names, in the broker's order.
    """
    if record is None:
        return Heard.nothing(1, len(agents))
    winner = record.winner
    place = {proposal.agent: i for i, proposal in enumerate(record.proposals)}
    rows = []
    for name in agents:
        i = place.get(name)
        text = "" if i is None else record.proposals[i].text
        same = i is not None and winner is not None and i != winner and record.classes[i] >= 0
        agrees = i is not None and (i == winner or (same and record.classes[i] == record.classes[winner or 0]))
        rows.append((i is not None, bool(text), agrees, math.log(max(len(text), 1))))
    asked, answered, agree, length = (torch.tensor([column]) for column in zip(*rows, strict=True))
    chances = [record.consensus[i] for i in range(len(place)) if i != winner]
    lead = 0.0 if winner is None else record.consensus[winner]
    top = torch.tensor([[lead], [max(chances, default=0.0)]], dtype=torch.float64)
    return Heard(asked, answered, agree, length.double(), *top)


def observe(telemetry: Telemetry, records: Sequence[Round]) -> None:
    """Count what proposers that were asked did: an answer and its seconds, or none, which is a failure.

    Whether an answer was right nobody knows here: to win a vote is not to be right. Judges are not counted, for a
    round keeps what its judges took in sum only.

    Args:
        telemetry: of all agents that proposed.
        records: one a task, in the order of the tasks.
    """
    for proposal in (p for record in records for p in record.proposals if p.agent not in record.standing):
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
