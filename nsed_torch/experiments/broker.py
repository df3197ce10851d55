"""`nsed tune cost_curve=true`: the round-by-round broker on recorded answers, cost against accuracy."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from nsed_torch.data import RecordedAnswers, Split
from nsed_torch.evaluation.cost_curves import Curve, cost_json, cost_tables, oracle_curve
from nsed_torch.evaluation.plots import plot_curves
from nsed_torch.evaluation.statistics import student
from nsed_torch.nn import ConsensusCell, LearnedBroker
from nsed_torch.records import write_json
from nsed_torch.training.broker_fit import fit_broker
from nsed_torch.training.partial import Pool, all_teams, replay, tune_cell, verdict, widened
from nsed_torch.training.static import best_teams, random_teams, shortlist

POLICIES = ("tuned broker", "static best-k", "static best subset", "random-k", "oracle")


@dataclass(frozen=True)
class BrokerSettings:
    """How the broker is fitted and at which budgets it is shown.

    Args:
        budgets: shares of the full team's mean cost; a broker is saved for each.
        pool: most agents the broker may choose from.
        steps: of the cell's tuning.
        ridges: strengths of regularisation, of which validation tasks choose one.

    Raises:
        ValueError: if a number is out of range.
    """

    budgets: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
    pool: int = 8
    steps: int = 250
    ridges: Sequence[float] = (30.0,)

    def __post_init__(self) -> None:
        if not self.budgets or not all(b > 0 for b in self.budgets):
            raise ValueError(f"expected budgets above 0, got {list(self.budgets)}")
        if not 1 <= self.pool <= 10:
            raise ValueError(f"expected a pool of 1 to 10 agents, got {self.pool}")
        if self.steps < 1 or not self.ridges or not all(r > 0 for r in self.ridges):
            raise ValueError(f"expected steps and ridges above 0, got {self.steps} and {list(self.ridges)}")


def priced_pool(recorded: RecordedAnswers | None) -> Pool:
    """Recorded agents with what their answers cost, for `tune_broker`.

    Args:
        recorded: None where the data are traces.

    Raises:
        ValueError: if matplotlib is missing, the data are traces, or an agent's parameters are not known.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("expected matplotlib for the cost curve, got no such package: pip install nsed_torch[report]")
    if recorded is None:
        raise ValueError("expected recorded answers for a cost curve, got traces: set cost_curve=false")
    return Pool.of(recorded)


def tune_broker(
    everybody: Pool,
    folder: Path,
    splits: Sequence[Split],
    *,
    dim: int,
    settings: BrokerSettings | None = None,
    refit: Split | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Tune the broker on each split, report all of them together; write `cost.json`, `cost.png` and `broker/`.

    `broker/SHARE.safetensors` and `broker/cell`, the consensus cell that they go with, are learned once more, from all
    tasks, after every split has tested its own.

    Args:
        everybody: all agents, with their costs.
        folder: where results go.
        splits: of the tasks.
        dim: width of the embeddings that the saved cell will be given live.
        settings: how.
        refit: all tasks in a training and a validation part; without it `broker/` holds the first split's.
        report: hears of every split.

    Returns:
        What `cost.json` holds.

    Raises:
        ValueError: if the plot cannot be drawn.
    """
    settings = settings or BrokerSettings()
    budgets = torch.tensor(sorted(settings.budgets), dtype=torch.float64)
    sums = torch.zeros(len(POLICIES), 2, len(budgets), len(everybody), dtype=torch.float64)
    full, count = torch.zeros(2, len(everybody), dtype=torch.float64)
    for seed, part in enumerate(splits):
        tuned = Tuned.on(settings, everybody, part, budgets, seed)
        rows, right = one_split(tuned, part, budgets, seed)
        sums[:, :, :, part.test] += rows
        full[part.test] += right
        count[part.test] += 1
        report(f"broker, seed {seed}: ridge {tuned.ridge:g} chosen on {len(part.validation)} tasks")
        if seed == 0 and refit is None:
            tuned.save(folder, budgets.tolist(), dim)
    if refit is not None:
        Tuned.on(settings, everybody, refit, budgets, 0).save(folder, budgets.tolist(), dim)
    tested = count > 0
    curves = [Curve(name, *(means[..., tested] / count[tested])) for name, means in zip(POLICIES, sums, strict=True)]
    team = student(full[tested] / count[tested])
    found = {"agents": list(everybody.agents), "splits": len(splits), **cost_json(curves, budgets.tolist(), team)}
    write_json(folder / "cost.json", found)
    title = f"{int(tested.sum())} questions, {len(everybody.agents)} agents, {len(splits)} splits"
    plot_curves(curves, folder / "cost.png", full=team, title=title)
    Console(width=120).print(*cost_tables(curves, budgets.tolist(), team))
    return found


@dataclass(frozen=True)
class Tuned:
    """What one split's training and validation tasks taught.

    Args:
        team: all agents, the most accurate first.
        pool: those that the brokers may choose from.
        whole: the full team's mean cost.
        team_cell: consensus of the team.
        cell: consensus of the pool.
        brokers: one a budget.
        ridge: that was chosen.
    """

    team: Pool
    pool: Pool
    whole: float
    team_cell: ConsensusCell
    cell: ConsensusCell
    brokers: tuple[LearnedBroker, ...]
    ridge: float

    @classmethod
    def on(cls, settings: BrokerSettings, everybody: Pool, part: Split, budgets: Tensor, seed: int) -> "Tuned":
        """Learn from one split's training and validation tasks.

        Args:
            settings: as of `tune_broker`.
            everybody: all agents.
            part: the split.
            budgets: shares of the full team's mean cost on these tasks.
            seed: of the cells' tuning.
        """
        fit = torch.cat([part.train, part.validation])
        team = everybody.by_accuracy(fit)
        whole = float(team.cost[fit].sum(1).mean())
        pool = shortlist(team, fit, budgets * whole, settings.pool)
        team_cell = tune_cell(team, part.train, part.validation, steps=settings.steps, seed=seed)
        same = pool.agents == team.agents
        cell = team_cell if same else tune_cell(pool, part.train, part.validation, steps=settings.steps, seed=seed)
        fitted = fit_broker(cell, pool, part.train, part.validation, ridges=settings.ridges)
        brokers = tuple(fitted.within(budget) for budget in (budgets * whole).tolist())
        return cls(team, pool, whole, team_cell, cell, brokers, fitted.ridge)

    def save(self, folder: Path, budgets: Sequence[float], dim: int) -> None:
        """Write the brokers and the cell that they go with, of width `dim`."""
        save_brokers(self.brokers, budgets, folder)
        widened(self.cell, dim).save_pretrained(folder / "broker" / "cell", agent_names=self.pool.agents)


def save_brokers(brokers: Sequence[LearnedBroker], budgets: Sequence[float], folder: Path) -> None:
    """Write `broker/SHARE.safetensors` below a folder, one a budget."""
    for budget, broker in zip(budgets, brokers, strict=True):
        broker.save_pretrained(folder / "broker" / f"{budget:.2f}.safetensors")


def one_split(tuned: Tuned, part: Split, budgets: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Cost shares and accuracy on one split's test tasks, [policy, 2, budget, question], and the full team's accuracy.

    Args:
        tuned: on its other tasks.
        part: the split.
        budgets: shares of the full team's mean cost.
        seed: of random teams.
    """
    team, pool, whole, team_cell, cell = tuned.team, tuned.pool, tuned.whole, tuned.team_cell, tuned.cell
    fit, test = torch.cat([part.train, part.validation]), pool.select(part.test)
    outcomes = [replay(broker, cell, test) for broker in tuned.brokers]
    prefixes = torch.ones(len(team.agents), len(team.agents), dtype=torch.bool).tril()
    mean_budgets = budgets * whole
    shortlisted = all_teams(len(pool.agents))[1:]
    pairs = [
        torch.stack([torch.stack([o.cost for o in outcomes]), torch.stack([o.right.double() for o in outcomes])]),
        torch.stack(best_teams(team_cell, team, prefixes, fit, part.test, mean_budgets)),
        torch.stack(best_teams(cell, pool, shortlisted, fit, part.test, mean_budgets)),
        torch.stack(random_teams(team, part.test, mean_budgets, seed=seed)),
    ]
    rows = torch.stack(pairs)
    rows[:, 0] /= whole
    asked = torch.ones(len(part.test), len(team.agents), dtype=torch.bool)
    right = verdict(team_cell, team.select(part.test), asked).right.double()
    oracle = oracle_curve(team.correct[part.test], team.cost[part.test] / whole, budgets.tolist())
    return torch.cat([rows, torch.stack([oracle.cost, oracle.right])[None]]), right
