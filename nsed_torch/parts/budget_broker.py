"""Who takes part in the next round, under what is left of a task's budget."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from safetensors.torch import save
from torch import Tensor, nn

from nsed_torch.core.broker import InfeasibleBudgetError, RunBroker
from nsed_torch.core.prompts import NOTHING
from nsed_torch.core.ratings import MARKUP, JudgeQuestion, most_usage
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.team import Team
from nsed_torch.parts.knapsack import KnapsackBroker
from nsed_torch.parts.learned_broker import Heard, LearnedBroker
from nsed_torch.parts.telemetry import Telemetry
from nsed_torch.records.transcript import ROLES, Round, Task, Usage

RESOURCES = ("money", "tokens", "memory")
"""US$ billed, tokens computed, GiB of weights."""

Bench = Mapping[str, int]
"""Who sits out -> after how many failures; whoever is back first stands first."""


@dataclass(frozen=True)
class Budget:
    """What a task may use; None is unlimited.

    Raises:
        ValueError: if a budget is negative or no number.
    """

    money: float | None = None  # US$ over all rounds
    tokens: float | None = None  # computed (`Usage`) over all rounds
    memory: float | None = None  # GiB of weights at any moment, each backbone counted once

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


@dataclass
class _Run:
    """What a broker keeps from `begin` on; a module's own attributes would make the cell a part of it."""

    cell: MacroRNNCell
    questions: Mapping[str, Tensor]  # task id -> embedding, where the learned broker reads it
    bench: Bench | None = None  # of the round that is being seated or held


class BudgetBroker(nn.Module, RunBroker):
    """Chooses each round's proposers and judges: as many as the budget allows, the cheapest of equals.

    Costs are what a round may take at most, from the very prompts that will be sent: a full memory, every answer at
    its full allowance. A backbone's weights are charged once, however many agents share it. All agents are worth
    the same until they are told apart by data (the published runs use fixed teams; the knapsack's objective is ours).

    A learned broker tells them apart by the question and by what the rounds so far have brought, and says when nobody
    else is worth asking. Where its agents join one at a time, those heard keep their proposals and ratings, and only
    the one who joins is asked anew; the least and most numbers do not count then. Otherwise an agent worth less than
    0 in a role takes it only to make up the least number.

    With telemetry it is counted as rounds go by who gave no answer, and sits out for a while: of those
    who do not sit out a team is made if they make one, else as few as need be are called back. A transcript then
    depends on what came before it; it is the same again for the same telemetry at the start and the same tasks in one
    call, as far as nobody's bench ends in between.

    Args:
        budget: per task; or what it is made of, by the names of its fields, as `BudgetBroker(tokens=9000)`.
        min_proposers: of a round.
        max_proposers: None is all agents.
        min_judges: of a round.
        max_judges: None is all agents.
        learned: what agents are worth; None is one for everybody.
        telemetry: who has failed of late; None keeps no record, and nobody sits out.
        telemetry_file: JSON that the telemetry is saved to after every round; loading it is the caller's.

    Raises:
        ValueError: if a least number is below 1 (judges: 0) or above its most, or a file has no telemetry to keep.
    """

    _run: _Run

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
        **limits: float | None,
    ) -> None:
        super().__init__()
        if unknown := set(limits) - set(RESOURCES) or (set(limits) if budget is not None else set()):
            wanted = f"expected a budget, or limits out of {', '.join(RESOURCES)}"
            raise ValueError(f"broker: {wanted}, got {', '.join(sorted(unknown))}: pass one or the other")
        for role, fewest, least, most in (
            ("proposers", 1, min_proposers, max_proposers),
            ("judges", 0, min_judges, max_judges),
        ):
            if not fewest <= least <= (least if most is None else most):
                raise ValueError(f"broker: expected {fewest} <= min_{role} <= max_{role}, got {least} and {most}")
        if telemetry_file is not None and telemetry is None:
            raise ValueError(f"broker: expected telemetry to save in {telemetry_file}, got none: pass telemetry too")
        self.budget = budget or Budget(**limits)
        self.minimum = (min_proposers, min_judges)
        self.maximum = (max_proposers, max_judges)
        self.knapsack = KnapsackBroker(RESOURCES)
        self.learned, self.telemetry, self.telemetry_file = learned, telemetry, telemetry_file

    def check(self, cell: MacroRNNCell) -> None:
        """Refuse telemetry of another team than the cell's, or what was learned of other agents or another encoder."""
        names = tuple(agent.name for agent in cell.ensemble.agents)
        if self.telemetry is not None and self.telemetry.agents != names:
            raise ValueError(f"broker: expected telemetry of {names}, got one of {self.telemetry.agents}: build it so")
        if self.learned is not None:
            self.learned.check(names, cell.encoder.identity())

    def begin(self, tasks: Sequence[Task], cell: MacroRNNCell) -> None:
        """A run begins; questions are embedded where the learned broker reads them."""
        questions = {}
        if self.learned is not None and self.learned.dim > 0:
            vectors = cell.encoder.embed([task.question for task in tasks])
            questions = {task.id: vector for task, vector in zip(tasks, vectors, strict=True)}
        self._run = _Run(cell, questions)

    def heard(self, records: Sequence[Round]) -> list[Round]:
        """Add a round to the track record, for all tasks together and in their order, and save it.

        To the records come notes on the bench that the round was held with.
        """
        noted = [_with_bench(record, self._run.bench or {}) for record in records]
        self._run.bench = None
        if self.telemetry is not None:
            for proposal in (p for record in records for p in record.proposals if p.agent not in record.standing):
                if proposal.text or (proposal.finish_reason == NOTHING and proposal.usage.calls):
                    self.telemetry.success(proposal.agent)
                elif proposal.finish_reason == NOTHING:
                    continue  # it had nothing to read
                else:
                    self.telemetry.failure(proposal.agent)
            if self.telemetry_file is not None:
                self.telemetry.save(self.telemetry_file)
        return noted

    def settings(self) -> dict[str, Any]:
        """The budget; of a learned broker a fingerprint, of telemetry what is printed."""
        settings: dict[str, Any] = {"budget": asdict(self.budget)}
        if self.learned is not None:
            weights = {name: value.detach().cpu().contiguous() for name, value in self.learned.state_dict().items()}
            settings["broker"] = hashlib.sha256(save(weights)).hexdigest()[:12]
        if self.telemetry is not None:
            settings["telemetry"] = str(self.telemetry)
        return settings

    def team(self, task: Task, rounds: Sequence[Round]) -> Team | None:
        """The team for the next round of a task of the run, or None where nobody else is worth asking.

        Raises:
            InfeasibleBudgetError: if what is left pays for no team of the least size; names the resource.
            ValueError: if the ensemble has fewer agents for a role than that team.
        """
        if self.learned is not None and len(rounds) >= self.learned.rounds:
            return None
        if self._run.bench is None:  # read once per round, so that all its tasks see the same one
            self._run.bench = {} if self.telemetry is None else self.telemetry.benched()
        worth = self._worth(task, rounds)
        if self.learned is not None and self.learned.one_by_one:
            return self._joined(task, rounds, worth, self._run.bench)
        agents = self._run.cell.ensemble.agents
        may = torch.tensor([[role in agent.roles for role in ROLES] for agent in agents])
        have = may.sum(0).tolist()
        for role, least, most in zip(ROLES, self.minimum, have, strict=True):
            if least > most:
                raise ValueError(f"broker: expected min_{role}s of at most {most}, the ensemble's, got {least}")
        maximum = [h if m is None else min(m, h) for m, h in zip(self.maximum, have, strict=True)]
        costs = round_costs(task, self._run.cell, proposers=maximum[0], index=len(rounds) + 1)

        def solve(available: Tensor) -> Tensor:
            return self._solve(worth, costs, rounds, self.minimum, maximum, available)

        chosen = _seated(solve, self._run.bench, [agent.name for agent in agents], may, self.minimum)
        proposers, judges = (tuple(chosen[:, role].nonzero()[:, 0].tolist()) for role in range(len(ROLES)))
        return Team(proposers, judges)

    @torch.no_grad()
    def _worth(self, task: Task, rounds: Sequence[Round]) -> Float[Tensor, "agent role"]:
        agents = self._run.cell.ensemble.agents
        if self.learned is None:
            return torch.ones(len(agents), len(ROLES), dtype=torch.float64)
        heard = _heard_in(rounds[-1] if rounds else None, self.learned.agents)
        question = self._run.questions.get(task.id)
        worth: Tensor = self.learned(len(rounds), heard, None if question is None else question[None])
        return worth[0][[self.learned.agents.index(agent.name) for agent in agents]]

    def _joined(self, task: Task, rounds: Sequence[Round], worth: Tensor, benched: Bench) -> Team | None:
        """The team grown by the one agent that is worth most above 0, of those that what is left pays for."""
        agents = self._run.cell.ensemble.agents
        heard = set(rounds[-1].proposers) if rounds else set()
        free = torch.tensor([["proposer" in agent.roles and agent.name not in heard] for agent in agents])
        if rounds:
            free &= worth > 0
            free &= torch.tensor([[agent.name not in benched] for agent in agents])
        if not free.any():
            return None
        standing = [i for i, agent in enumerate(agents) if agent.name in heard]
        costs = self._joining_costs(task, standing, len(rounds) + 1)

        def solve(available: Tensor) -> Tensor:
            if costs is None:  # nothing binds: no knapsack is needed to find the largest
                best = worth.masked_fill(~available, -torch.inf).argmax(0)
                return torch.eye(len(agents), dtype=torch.bool)[:, best]
            return self._solve(worth, costs, rounds, (1,), [1], available, standing)

        chosen = _seated(solve, {} if rounds else benched, [agent.name for agent in agents], free, (1,))
        proposers = tuple(sorted([*standing, *chosen[:, 0].nonzero()[:, 0].tolist()]))
        # Nobody rates while there is one answer.
        judges = tuple(i for i in proposers if "judge" in agents[i].roles) if standing else ()
        return Team(proposers, judges, tuple(standing))

    def _joining_costs(
        self, task: Task, standing: Sequence[int], index: int
    ) -> Float[Tensor, "agent role resource"] | None:
        """What each agent's joining costs at most: its answer, its ratings of all others, theirs of its own."""
        if self.budget == Budget():
            return None
        judges = torch.tensor([["judge" in agent.roles] for agent in self._run.cell.ensemble.agents])
        own = round_costs(task, self._run.cell, max(len(standing), 1), index)
        one = torch.where(judges, round_costs(task, self._run.cell, 1, index)[:, 1], 0)
        joining = own[:, 0] + torch.where(judges, own[:, 1], 0) + one[list(standing)].sum(0)
        return joining[:, None]

    def _solve(
        self,
        worth: Float[Tensor, "agent role"],
        costs: Float[Tensor, "agent role resource"],
        rounds: Sequence[Round],
        minimum: Sequence[int],
        maximum: Sequence[int],
        available: Bool[Tensor, "agent role"],
        standing: Sequence[int] = (),
    ) -> Float[Tensor, "agent role"]:
        """The knapsack's team under what is left; backbones of those who stand are open already."""
        ensemble = self._run.cell.ensemble
        names = list(ensemble.engines)
        backbone = torch.tensor([names.index(agent.backbone) for agent in ensemble.agents])
        opened = torch.isin(torch.arange(len(names)), backbone[list(standing)])
        weights = torch.tensor([engine.memory_bytes() / 2**30 for engine in ensemble.engines.values()])
        held = torch.tensor([0.0, 0.0, float(weights[opened].sum())])
        opening = torch.stack([torch.zeros_like(weights)] * 2 + [torch.where(opened, 0, weights)], dim=1)
        left = self.budget.left(Usage.sum(record.usage for record in rounds))
        chosen: Tensor = self.knapsack(
            worth.to(costs),
            costs,
            (left - held).clamp(min=0),
            minimum=torch.tensor(minimum),
            maximum=torch.tensor(maximum),
            opening=opening.to(costs),
            backbone=backbone,
            available=available,
        )
        return chosen


def round_costs(task: Task, cell: MacroRNNCell, proposers: int, index: int = 1) -> Float[Tensor, "agent role resource"]:
    """What round `index` costs at most: US$ billed, tokens computed, and no GiB beyond the backbone's opening charge.

    What calls share beyond the candidates of one judge is not foreseen. `proposers` is the most answers that a judge
    may have to read.

    Raises:
        ValueError: if the cell's rating cannot tell what it costs.
    """
    authors, kind = cell.ensemble.proposers, cell.kind(task, index)
    longest = max(map(kind.longest, authors))
    proposers = min(proposers, cell.protocol.candidates or proposers)
    answers = (" ".join(["word"] * longest),) * proposers
    # All fences of the memory, and as many words as its allowance.
    full = ["…"] * cell.consensus.slots
    full[-1] += " word" * cell.protocol.memory_tokens
    if kind.begins_with and cell.ensemble.count_tokens(kind.begins_with) > cell.protocol.memory_tokens:
        full = []  # the work may always begin anew, where nothing was elected
    asked = kind.ask(full, 0)
    rows = []
    for agent in cell.ensemble.agents:
        engine = cell.ensemble.engine(agent)
        longest_name = max((a.name for a in authors), key=engine.count_tokens)
        names = None if cell.protocol.anonymous else (longest_name,) * proposers
        question = JudgeQuestion(agent, asked.questions[agent.name], answers, seed=0, names=names, notes=kind.notes)
        judged = most_usage(cell.rating, cell.prompts, engine, question)
        written = judged.completion_tokens
        critics = sum(judge != agent for judge in cell.ensemble.judges) if written else 0
        told, memory = ["…"] * critics, asked.memory
        prompt = cell.prompts.propose(question.text, memory=memory, critiques=told, persona=agent.persona, seed=0)
        tokens = engine.count_prompt(prompt) + written // proposers * critics + 2 * MARKUP
        markup = agent.usage(2 * MARKUP * proposers, 0)
        usages = agent.usage(tokens, agent.decoding.max_new_tokens), judged + markup
        rows.append([[usage.price, float(usage.tokens), 0.0] for usage in usages])
    return torch.tensor(rows, dtype=torch.float64)


def _seated(
    solve: Callable[[Bool[Tensor, "agent role"]], Tensor],
    sits_out: Bench,
    agents: Sequence[str],
    may: Bool[Tensor, "agent role"],
    minimum: Sequence[int],
) -> Tensor:
    """The team of those who do not sit out, if they make one; else as few as need be are called back.

    They are called back one by one, whoever would be back first in front, until there are as many agents as every role
    needs and a team that the budget pays for. So a bench never ends a task that could go on without it. Ours.
    """

    def without(benched: Sequence[str]) -> Tensor:
        return torch.tensor([name not in benched for name in agents])[:, None] & may

    benched = list(sits_out)
    for back in range(len(benched)):
        available = without(benched[back:])
        if (available.sum(0) >= torch.tensor(minimum)).all():
            with suppress(InfeasibleBudgetError):
                return solve(available)
    return solve(without([]))


def _heard_in(record: Round | None, agents: Sequence[str]) -> Heard:
    """What a learned broker reads of a task's last round, whose proposals are all that were heard; a batch of one."""
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


def _with_bench(record: Round, sits_out: Bench) -> Round:
    """The record with a note in front for everybody who sat out, or was called back to take part."""
    team = {*record.proposers, *record.voters}
    notes = []
    for name, failures in sits_out.items():
        after = f"after {failures} failure{'s' * (failures != 1)}"
        called = f"{name}: called back from the bench {after}, for the others make no team"
        notes.append(called if name in team else f"{name}: on the bench {after}")
    return replace(record, notes=[*notes, *record.notes])
