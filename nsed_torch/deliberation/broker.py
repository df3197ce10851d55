"""Who takes part in the next round, under what is left of a task's budget."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save
from torch import Tensor, nn

from nsed_torch.agents import Ensemble, Prompts
from nsed_torch.deliberation.cell import MacroRNNCell, Team
from nsed_torch.deliberation.rating import JudgeQuestion
from nsed_torch.deliberation.track_record import Bench, bench, observe, seated, with_bench, worth
from nsed_torch.nn import KnapsackBroker, Telemetry, Utility
from nsed_torch.nn.telemetry import FEATURES
from nsed_torch.records import ROLES, Round, Task, Usage

RESOURCES = ("money", "tokens", "memory")
"""US$, tokens read and written, GiB of weights."""

MARKUP = 16
"""Tokens a chat template may add to a message."""


@dataclass(frozen=True)
class Budget:
    """What a task may use.

    Args:
        money: US$ over all rounds; None is unlimited.
        tokens: tokens read and written over all rounds; None is unlimited.
        memory: GiB of weights at any moment, each backbone counted once; None is unlimited.

    Raises:
        ValueError: if a budget is negative or no number.
    """

    money: float | None = None
    tokens: float | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        for name in RESOURCES:
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                raise ValueError(f"expected a {name} budget of at least 0, or null for no limit, got {value!r}")

    def left(self, spent: Usage) -> Float[Tensor, " resource"]:
        """What remains for the next round; memory is held, not used up."""
        limits = [math.inf if getattr(self, name) is None else float(getattr(self, name)) for name in RESOURCES]
        # In float32 a budget could be rounded up and then exceeded; a sum of prices may end a rounding below zero.
        used = torch.tensor([spent.price, float(spent.tokens), 0.0], dtype=torch.float64)
        return (torch.tensor(limits, dtype=torch.float64) - used).clamp(min=0)


class Broker(nn.Module):
    """Chooses each round's proposers and judges: as many as the budget allows, the cheapest of equals.

    Costs are what a round may take at most, from the very prompts that will be sent: a full memory, every answer at
    its full allowance. A backbone's weights are charged once, however many agents share it. All agents are worth
    the same until they are told apart by data (the published runs use fixed teams; the knapsack's objective is ours).

    With a utility they are told apart by the question, the hidden state after the rounds so far and their track
    record; an agent worth less than 0 in a role takes it only to make up the least number. With telemetry that record
    is kept as rounds go by, and agents that gave no answer sit out for a while (`track_record`). A transcript then
    depends on what came before it; it is the same again for the same telemetry at the start and the same tasks in one
    call, as far as nobody's bench ends in between and the utility gives no weight to measured seconds.

    Args:
        budget: per task.
        min_proposers: fewest proposers of a round.
        max_proposers: most proposers; None is all agents.
        min_judges: fewest judges.
        max_judges: most judges; None is all agents.
        utility: what agents are worth, its roles in the order of `records.ROLES`; None is one for everybody.
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
        utility: Utility | None = None,
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
        self.utility, self.telemetry, self.telemetry_file = utility, telemetry, telemetry_file

    def check(self, cell: MacroRNNCell) -> None:
        """Refuse a utility or telemetry of another team than the cell's, or a utility of another encoder.

        Raises:
            ValueError: says what to build them with.
        """
        names = tuple(agent.name for agent in cell.ensemble.agents)
        if self.telemetry is not None and self.telemetry.agents != names:
            raise ValueError(f"broker: expected telemetry of {names}, got one of {self.telemetry.agents}: build it so")
        if self.utility is not None:
            width = self.utility.telemetry_weight.shape[1] if self.telemetry is None else len(FEATURES)
            fitting = Utility(len(names), len(ROLES), cell.consensus.dim, features=width)
            if repr(self.utility) != repr(fitting):
                raise ValueError(f"broker: expected {fitting}, got {self.utility}: build it so")
            self.utility.check(names, cell.encoder.identity())

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
        """What a transcript keeps of utility and telemetry, where there are any: a fingerprint, and as printed."""
        settings = {}
        if self.utility is not None:
            weights = {name: value.detach().cpu().contiguous() for name, value in self.utility.state_dict().items()}
            settings["utility"] = hashlib.sha256(save(weights)).hexdigest()[:12]
        if self.telemetry is not None:
            settings["telemetry"] = str(self.telemetry)
        return settings

    def team(
        self,
        task: Task,
        cell: MacroRNNCell,
        spent: Usage,
        *,
        question: Float[Tensor, "dim"] | None = None,
        hidden: Float[Tensor, "dim"] | None = None,
        sits_out: Bench | None = None,
    ) -> Team:
        """The team for a task's next round.

        Args:
            task: what is asked.
            cell: knows the agents, the prompts and how ratings are made.
            spent: what the task has used so far.
            question: the task's embedding, for the utility; None embeds it here.
            hidden: the state after the rounds so far, for the utility; None before the first.
            sits_out: the bench; None reads it now.

        Raises:
            InfeasibleBudgetError: if what is left pays for no team of the least size; names the resource.
            ValueError: if the ensemble has fewer agents for a role than that team.
        """
        agents = cell.ensemble.agents
        may = torch.tensor([[role in agent.roles for role in ROLES] for agent in agents])
        have = may.sum(0).tolist()
        for role, least, most in zip(ROLES, self.minimum, have, strict=True):
            if least > most:
                raise ValueError(f"broker: expected min_{role}s of at most {most}, the ensemble's, got {least}")
        maximum = [h if m is None else min(m, h) for m, h in zip(self.maximum, have, strict=True)]
        costs = round_costs(task, cell, proposers=maximum[0])
        names = list(cell.ensemble.engines)
        weights = torch.tensor([engine.memory_bytes() / 2**30 for engine in cell.ensemble.engines.values()])
        utilities = torch.ones(1, len(agents), len(ROLES), dtype=costs.dtype)
        if self.utility is not None:
            embedding = cell.encoder.embed([task.question])[0] if question is None else question
            utilities = worth(self.utility, self.telemetry, embedding, hidden).to(costs)

        def solve(available: Tensor) -> Tensor:
            team: Tensor = self.knapsack(
                utilities,
                costs[None],
                self.budget.left(spent)[None],
                minimum=torch.tensor(self.minimum),
                maximum=torch.tensor(maximum),
                opening=torch.stack([torch.zeros_like(weights), torch.zeros_like(weights), weights], dim=1).to(costs),
                backbone=torch.tensor([names.index(agent.backbone) for agent in agents]),
                available=available,
            )
            return team[0]

        everybody = [agent.name for agent in agents]
        chosen = seated(solve, self.bench() if sits_out is None else sits_out, everybody, may, self.minimum)
        proposers, judges = (tuple(chosen[:, role].nonzero()[:, 0].tolist()) for role in range(len(ROLES)))
        return Team(proposers, judges)


def full_team(ensemble: Ensemble) -> Team:
    """Everybody in every role that it may take; in the published runs that is every role."""
    proposers, judges = (tuple(i for i, a in enumerate(ensemble.agents) if role in a.roles) for role in ROLES)
    return Team(proposers, judges)


def round_costs(task: Task, cell: MacroRNNCell, proposers: int) -> Float[Tensor, "agent role resource"]:
    """What one round costs at most: US$, tokens, and no GiB beyond the backbone's opening charge.

    Args:
        task: what is asked.
        cell: knows the agents, the prompts and how ratings are made.
        proposers: most answers a judge may have to read.
    """
    authors = cell.ensemble.proposers
    longest = max(agent.decoding.max_new_tokens for agent in authors)
    filler = " ".join(["word"] * longest)
    rows = []
    for agent in cell.ensemble.agents:
        engine = cell.ensemble.engine(agent)
        critics = sum(judge != agent for judge in cell.ensemble.judges) if cell.rating.written_tokens else 0
        read = _proposal_texts(task, cell.prompts, agent.persona, slots=cell.consensus.slots, critics=critics)
        criticism = cell.rating.written_tokens * critics
        tokens = sum(engine.count_tokens(text) for text in read) + cell.memory_tokens + criticism + 2 * MARKUP
        answers = (filler,) * proposers
        longest_name = max((a.name for a in authors), key=engine.count_tokens)
        names = None if cell.anonymous else (longest_name,) * proposers
        question = JudgeQuestion(agent, task.question, answers, seed=0, names=names)
        judged_read, judged_written = cell.rating.most_tokens(cell.prompts, engine, question)
        rows.append(
            [
                _resources(agent.usage(tokens, agent.decoding.max_new_tokens)),
                _resources(agent.usage(judged_read + 2 * MARKUP * proposers, judged_written)),
            ]
        )
    return torch.tensor(rows, dtype=torch.float64)


def _proposal_texts(task: Task, prompts: Prompts, persona: str, *, slots: int, critics: int) -> list[str]:
    """What a proposer reads besides the words of memory and critiques: with all of their fences."""
    messages = prompts.propose(task.question, memory=["…"] * slots, critiques=["…"] * critics, persona=persona, seed=0)
    return [message.content for message in messages]


def _resources(usage: Usage) -> Sequence[float]:
    return [usage.price, float(usage.tokens), 0.0]
