"""`nsed tune utility=true`: whom a question is worth asking, learned from traces; cost against accuracy."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from nsed_torch.data import Episodes, Split
from nsed_torch.evaluation.cost_curves import Curve, cost_json, cost_tables, oracle_curve
from nsed_torch.evaluation.plots import plot_curves
from nsed_torch.evaluation.statistics import student
from nsed_torch.experiments.broker import save_brokers
from nsed_torch.nn import ConsensusCell, Heard, LearnedBroker
from nsed_torch.records import read_traces, write_json
from nsed_torch.training.rivals import fixed_teams, random_teams
from nsed_torch.training.seats import RecordedSeats
from nsed_torch.training.utility import LearnedTeams

POLICIES = ("learned broker", "fixed team", "random team", "oracle")


@dataclass(frozen=True)
class UtilitySettings:
    """How utilities are learned and at which budgets they are shown.

    Args:
        budgets: shares of the full team's mean tokens; a broker is saved for each.
        ridges: strengths of regularisation, of which left-out tasks choose one a role.
        prices: log-odds that the full team's tokens may be worth, of which left-out tasks choose one a budget.
        judging: share of a judge's tokens that does not fall with the number of answers it reads, 0 to 1; 1 charges
            judges of sub-teams in full, which is the most they could take.
        cell: what elects winners: "tuned" on the same tasks, "fresh", or the folder of a saved one.

    Raises:
        ValueError: if a number is out of range.
    """

    budgets: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
    ridges: Sequence[float] = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    prices: Sequence[float] = (0.0, 10.0)
    judging: float = 1.0
    cell: str = "tuned"

    def __post_init__(self) -> None:
        if not self.budgets or not all(b > 0 for b in self.budgets):
            raise ValueError(f"expected budgets above 0, got {list(self.budgets)}")
        if not self.ridges or not all(r > 0 for r in self.ridges):
            raise ValueError(f"expected ridges above 0, got {list(self.ridges)}")
        if not self.prices or not all(p >= 0 for p in self.prices):
            raise ValueError(f"expected prices of at least 0, got {list(self.prices)}")
        if not 0 <= self.judging <= 1:
            raise ValueError(f"expected judging in [0, 1], got {self.judging}")


def check_traces(*, traces: bool) -> None:
    """Say what `tune_utility` would lack, before anything is trained.

    Args:
        traces: whether the data are traces, not recorded answers.

    Raises:
        ValueError: if matplotlib is missing or the data are recorded answers.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "expected matplotlib for the broker's plot, got no such package: pip install nsed_torch[report]"
        )
    if not traces:
        raise ValueError("expected traces for utility=true, got recorded answers: set cost_curve=true for those")


def tune_utility(
    episodes: Episodes,
    data_dir: str,
    folder: Path,
    splits: Sequence[Split],
    *,
    settings: UtilitySettings,
    cell_of: Callable[[int | None], ConsensusCell],
    refit: bool = True,
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Learn on each split's training and validation tasks, test on the rest; write `teams.json`, `.png` and `broker/`.

    `broker/SHARE.safetensors` are learned once more, from all tasks, after every split has tested its own.

    Args:
        episodes: all tasks, as they were recorded.
        data_dir: where they were read from; its first trace names the encoder.
        folder: where results go.
        splits: of the tasks.
        settings: how.
        cell_of: what elects winners, by split; None asks for the cell of `broker/`.
        refit: whether to do so; otherwise `broker/` holds the first split's, whose test tasks it has not seen.
        report: hears of every split.

    Returns:
        What `teams.json` holds.

    Raises:
        ValueError: if nothing can be learned or drawn from these traces.
    """
    seats, budgets = RecordedSeats.of(episodes, shared=settings.judging), sorted(settings.budgets)
    encoder = next(read_traces(data_dir)).transcript.settings.get("encoder")
    if not isinstance(encoder, Mapping):
        raise ValueError(f"{data_dir}: expected traces that name their encoder, got {encoder!r}: collect them anew")
    sums = torch.zeros(len(POLICIES), 2, len(budgets), len(seats), dtype=torch.float64)
    full, count, tokens = torch.zeros(3, len(seats), dtype=torch.float64)
    chosen = []
    for seed, part in enumerate(splits):
        cell, fit, test = cell_of(seed), seats.select(torch.cat([part.train, part.validation])), seats.select(part.test)
        learned = LearnedTeams(cell, fit, ridges=settings.ridges, prices=settings.prices)
        policies = [learned.within(budget * learned.whole) for budget in budgets]
        brokers = [learned.broker(policy, encoder) for policy in policies]
        if seed == 0 and not refit:
            save_brokers(brokers, budgets, folder)
        sums[:, :, :, part.test] += _curves(cell, brokers, learned.whole, fit, test, budgets, seed)
        full[part.test] += test.right(cell, test.there).double()
        tokens[part.test] += test.cost(test.there)
        count[part.test] += 1
        ridges = learned.log_odds.ridges
        chosen.append({"ridges": ridges, "policies": [policy._asdict() for policy in policies]})
        report(f"broker, seed {seed}: ridges {' and '.join(f'{r:g}' for r in ridges)} chosen on {len(fit)} tasks")
    if refit:
        learned = LearnedTeams(cell_of(None), seats, ridges=settings.ridges, prices=settings.prices)
        policies = [learned.within(budget * learned.whole) for budget in budgets]
        save_brokers([learned.broker(policy, encoder) for policy in policies], budgets, folder)
    tested = count > 0
    curves = [Curve(name, *(means[..., tested] / count[tested])) for name, means in zip(POLICIES, sums, strict=True)]
    team = student(full[tested] / count[tested])
    found = {
        "agents": list(episodes.agents),
        "full_team_tokens": float((tokens[tested] / count[tested]).mean()),
        "judging": settings.judging,
        "cell": settings.cell,
        "seeds": chosen,
        **cost_json(curves, budgets, team),
    }
    write_json(folder / "teams.json", found)
    title = f"{int(tested.sum())} questions, {len(episodes.agents)} agents, {len(splits)} splits, round 1 as recorded"
    plot_curves(curves, folder / "teams.png", full=team, title=title, unit="tokens")
    Console(width=120).print(*cost_tables(curves, budgets, team))
    return found


def _curves(
    cell: ConsensusCell,
    brokers: Sequence[LearnedBroker],
    whole: float,
    fit: RecordedSeats,
    test: RecordedSeats,
    budgets: Sequence[float],
    seed: int,
) -> Tensor:
    """Shares of the full team's tokens and accuracy on one split's test tasks, [policy, 2, budget, question].

    Args:
        cell: elects winners.
        brokers: learned, one a budget.
        whole: the full team's mean tokens on the tasks learned from.
        fit: those tasks.
        test: the others.
        budgets: shares of the whole.
        seed: of random teams.
    """
    means = whole * torch.tensor(budgets, dtype=torch.float64)
    with torch.no_grad():
        nothing = Heard.nothing(len(test), len(test.episodes.agents))
        teams = [test.seated(broker(0, nothing, test.episodes.task)) for broker in brokers]
    pairs = [
        (torch.stack([test.cost(team) for team in teams]), torch.stack([test.right(cell, team) for team in teams])),
        fixed_teams(cell, fit, test, means),
        random_teams(cell, fit, test, means, seed=seed),
    ]
    best = oracle_curve(test.worth[..., 0] > 0, test.tokens[..., 0] / whole, budgets)
    rows = [torch.stack([cost / whole, right.double()]) for cost, right in pairs]
    return torch.stack([*rows, torch.stack([best.cost, best.right])])
