"""Who takes part in the next round, under what is left of a task's budget."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save
from torch import Tensor, nn

from nsed_torch.agents import Ensemble
from nsed_torch.deliberation.cell import MacroRNNCell
from nsed_torch.deliberation.costs import RESOURCES, Budget, round_costs
from nsed_torch.deliberation.team import Team
from nsed_torch.deliberation.track_record import Bench, bench, heard_in, observe, seated, with_bench
from nsed_torch.nn import KnapsackBroker, LearnedBroker, Telemetry
from nsed_torch.records import ROLES, Round, Task, Usage


class Broker(nn.Module):
    """Chooses each round's proposers and judges: as many as the budget allows, the cheapest of equals.

    Costs are what a round may take at most, from the very prompts that will be sent: a full memory, every answer at
    its full allowance. A backbone's weights are charged once, however many agents share it. All agents are worth
    the same until they are told apart by data (the published runs use fixed teams; the knapsack's objective is ours).

    A learned broker tells them apart by the question and by what the rounds so far have brought, and says when nobody
    else is worth asking. Where its agents join one at a time, those heard keep their proposals and ratings, and only
    the one who joins is asked anew; the least and most numbers do not count then. Otherwise an agent worth less than
    0 in a role takes it only to make up the least number.

    With telemetry a track record is kept as rounds go by, and agents that gave no answer sit out for a while
    (`track_record`). A transcript then depends on what came before it; it is the same again for the same telemetry at
    the start and the same tasks in one call, as far as nobody's bench ends in between.

    Args:
        budget: per task.
        min_proposers: fewest proposers of a round.
        max_proposers: most proposers; None is all agents.
        min_judges: fewest judges.
        max_judges: most judges; None is all agents.
        learned: what agents are worth; None is one for everybody.
        telemetry: how they have been doing; None keeps no record, and nobody sits out.
        telemetry_file: JSON that the telemetry is saved to after every round; loading it is the caller's.

    Raises:
        ValueError: if a least number is below 1 (judges: 0) or above its most, or a file has no telemetry to keep.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        min_proposers: int = 2,
        max_proposers: int | None = None,
        min_judges: int = 2,
        max_judges: int | None = None,
        learned: LearnedBroker | None = None,
        telemetry: Telemetry | None = None,
        telemetry_file: Path | None = None,
    ) -> None:
        super().__init__()
        for role, fewest, least, most in (
            ("proposers", 1, min_proposers, max_proposers),
            ("judges", 0, min_judges, max_judges),
        ):
            if not fewest <= least <= (least if most is None else most):
                raise ValueError(f"broker: expected {fewest} <= min_{role} <= max_{role}, got {least} and {most}")
        if telemetry_file is not None and telemetry is None:
            raise ValueError(f"broker: expected telemetry to save in {telemetry_file}, got none: pass telemetry too")
        self.budget = budget or Budget()
        self.minimum = (min_proposers, min_judges)
        self.maximum = (max_proposers, max_judges)
        self.knapsack = KnapsackBroker(RESOURCES)
        self.learned, self.telemetry, self.telemetry_file = learned, telemetry, telemetry_file

    def check(self, cell: MacroRNNCell) -> None:
        """Refuse telemetry of another team than the cell's, or what was learned of other agents or another encoder.

        Raises:
            ValueError: says what to build them with.
        """
        names = tuple(agent.name for agent in cell.ensemble.agents)
        if self.telemetry is not None and self.telemetry.agents != names:
            raise ValueError(f"broker: expected telemetry of {names}, got one of {self.telemetry.agents}: build it so")
        if self.learned is not None:
            self.learned.check(names, cell.encoder.identity())

    @property
    def reads_question(self) -> bool:
        """Whether the team depends on the question's embedding."""
        return self.learned is not None and self.learned.dim > 0

    def begin(self, tasks: Sequence[Task], cell: MacroRNNCell) -> None:
        """A run begins: a broker that asks a model asks about all tasks together here. This one asks none.

        Args:
            tasks: of the run.
            cell: knows the agents and the prompts.
        """

    def bench(self) -> Bench:
        """Who sits out now; asked once a round, so that all its tasks see the same bench."""
        return {} if self.telemetry is None else bench(self.telemetry)

    def heard(self, records: Sequence[Round], sits_out: Bench) -> list[Round]:
        """Add a round to the track record, for all tasks together and in their order, and save it.

        Args:
            records: of the round, one a task.
            sits_out: the bench it was held with.

        Returns:
            The records, with notes on the bench.

        Raises:
            OSError: if the file cannot be written.
        """
        if self.telemetry is not None:
            observe(self.telemetry, records)
            if self.telemetry_file is not None:
                self.telemetry.save(self.telemetry_file)
        return [with_bench(record, sits_out) for record in records]

    def settings(self) -> dict[str, str]:
        """What a transcript keeps of learned broker and telemetry, if there are any: a fingerprint, and as printed."""
        settings = {}
        if self.learned is not None:
            weights = {name: value.detach().cpu().contiguous() for name, value in self.learned.state_dict().items()}
            settings["broker"] = hashlib.sha256(save(weights)).hexdigest()[:12]
        if self.telemetry is not None:
            settings["telemetry"] = str(self.telemetry)
        return settings

    def team(
        self,
        task: Task,
        cell: MacroRNNCell,
        rounds: Sequence[Round] = (),
        *,
        question: Float[Tensor, "dim"] | None = None,
        sits_out: Bench | None = None,
    ) -> Team | None:
        """The team for a task's next round, or None where nobody else is worth asking.

        Args:
            task: what is asked.
            cell: knows the agents, the prompts and how ratings are made.
            rounds: the task's so far.
            question: the task's embedding, where `reads_question`; None embeds it here.
            sits_out: the bench; None reads it now.

        Raises:
            InfeasibleBudgetError: if what is left pays for no team of the least size; names the resource.
            ValueError: if the ensemble has fewer agents for a role than that team.
        """
        if self.learned is not None and len(rounds) >= self.learned.rounds:
            return None
        worth = self._worth(task, cell, rounds, question)
        benched = self.bench() if sits_out is None else sits_out
        if self.learned is not None and self.learned.one_by_one:
            return self._joined(task, cell, rounds, worth, benched)
        agents = cell.ensemble.agents
        may = torch.tensor([[role in agent.roles for role in ROLES] for agent in agents])
        have = may.sum(0).tolist()
        for role, least, most in zip(ROLES, self.minimum, have, strict=True):
            if least > most:
                raise ValueError(f"broker: expected min_{role}s of at most {most}, the ensemble's, got {least}")
        maximum = [h if m is None else min(m, h) for m, h in zip(self.maximum, have, strict=True)]
        costs = round_costs(task, cell, proposers=maximum[0])

        def solve(available: Tensor) -> Tensor:
            return self._solve(cell, worth, costs, self._left(rounds), self.minimum, maximum, available)

        chosen = seated(solve, benched, [agent.name for agent in agents], may, self.minimum)
        proposers, judges = (tuple(chosen[:, role].nonzero()[:, 0].tolist()) for role in range(len(ROLES)))
        return Team(proposers, judges)

    @torch.no_grad()
    def _worth(
        self, task: Task, cell: MacroRNNCell, rounds: Sequence[Round], question: Tensor | None
    ) -> Float[Tensor, "agent role"]:
        """Utilities of the cell's agents."""
        agents = cell.ensemble.agents
        if self.learned is None:
            return torch.ones(len(agents), len(ROLES), dtype=torch.float64)
        if question is None and self.reads_question:
            question = cell.encoder.embed([task.question])[0]
        heard = heard_in(rounds[-1] if rounds else None, self.learned.agents)
        found: Tensor = self.learned(len(rounds), heard, None if question is None else question[None])
        return found[0][[self.learned.agents.index(agent.name) for agent in agents]]

    def _joined(
        self, task: Task, cell: MacroRNNCell, rounds: Sequence[Round], worth: Tensor, benched: Bench
    ) -> Team | None:
        """The team grown by the one agent that is worth most above 0, of those that what is left pays for."""
        agents = cell.ensemble.agents
        heard = set(rounds[-1].proposers) if rounds else set()
        free = torch.tensor([["proposer" in agent.roles and agent.name not in heard] for agent in agents])
        if rounds:
            free &= worth > 0
            free &= torch.tensor([[agent.name not in benched] for agent in agents])
        if not free.any():
            return None
        standing = [i for i, agent in enumerate(agents) if agent.name in heard]
        costs = self._joining_costs(task, cell, standing)

        def solve(available: Tensor) -> Tensor:
            if costs is None:  # nothing binds: no knapsack is needed to find the largest
                best = worth.masked_fill(~available[0], -torch.inf).argmax(0)
                return torch.eye(len(agents), dtype=torch.bool)[:, best]
            return self._solve(cell, worth, costs, self._left(rounds), (1,), [1], available, standing)

        chosen = seated(solve, {} if rounds else benched, [agent.name for agent in agents], free, (1,))
        proposers = tuple(sorted([*standing, *chosen[:, 0].nonzero()[:, 0].tolist()]))
        # Nobody rates while there is one answer.
        judges = tuple(i for i in proposers if "judge" in agents[i].roles) if standing else ()
        return Team(proposers, judges, tuple(standing))

    def _joining_costs(
        self, task: Task, cell: MacroRNNCell, standing: Sequence[int]
    ) -> Float[Tensor, "agent role resource"] | None:
        """What each agent's joining costs at most: its answer, its ratings of all others, theirs of its own."""
        agents = cell.ensemble.agents
        if self.budget == Budget():
            return None
        judges = torch.tensor([["judge" in agent.roles] for agent in agents])
        own = round_costs(task, cell, proposers=max(len(standing), 1))
        one = torch.where(judges, round_costs(task, cell, proposers=1)[:, 1], 0)
        joining = own[:, 0] + torch.where(judges, own[:, 1], 0) + one[list(standing)].sum(0)
        return joining[:, None]

    def _left(self, rounds: Sequence[Round]) -> Float[Tensor, " resource"]:
        return self.budget.left(Usage.sum(record.usage for record in rounds))

    def _solve(
        self,
        cell: MacroRNNCell,
        worth: Float[Tensor, "agent role"],
        costs: Float[Tensor, "agent role resource"],
        left: Float[Tensor, " resource"],
        minimum: Sequence[int],
        maximum: Sequence[int],
        available: Float[Tensor, "1 agent role"],
        standing: Sequence[int] = (),
    ) -> Float[Tensor, "agent role"]:
        """The knapsack's team; backbones of those who stand are open already."""
        names = list(cell.ensemble.engines)
        backbone = torch.tensor([names.index(agent.backbone) for agent in cell.ensemble.agents])
        opened = torch.isin(torch.arange(len(names)), backbone[list(standing)])
        weights = torch.tensor([engine.memory_bytes() / 2**30 for engine in cell.ensemble.engines.values()])
        held = torch.tensor([0.0, 0.0, float(weights[opened].sum())])
        opening = torch.stack([torch.zeros_like(weights)] * 2 + [torch.where(opened, 0, weights)], dim=1)
        chosen: Tensor = self.knapsack(
            worth[None].to(costs),
            costs[None],
            (left - held).clamp(min=0)[None],
            minimum=torch.tensor(minimum),
            maximum=torch.tensor(maximum),
            opening=opening.to(costs),
            backbone=backbone,
            available=available,
        )
        return chosen[0]


def full_team(ensemble: Ensemble) -> Team:
    """Everybody in every role that it may take; in the published runs that is every role."""
    proposers, judges = (tuple(i for i, a in enumerate(ensemble.agents) if role in a.roles) for role in ROLES)
    return Team(proposers, judges)
