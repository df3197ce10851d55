"""`nsed fit-broker`: learn from recorded rounds whom it pays to ask, and show cost against accuracy."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from omegaconf import DictConfig
from torch import Tensor

from nsed_torch.app.recordings import folders_of, hold_traces, traces_of
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.evaluation.cost_curves import Curve, cost_json, cost_tables, oracle_curve
from nsed_torch.evaluation.plots import plot_curves
from nsed_torch.evaluation.statistics import Estimate, student
from nsed_torch.parts.learned_broker import Heard, LearnedBroker
from nsed_torch.parts.ties import Ties
from nsed_torch.records.extras import missing
from nsed_torch.records.files import read_json, write_json
from nsed_torch.records.trace import read_traces
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.rounds import Rounds
from nsed_torch.traces.splits import Split, divisions, split
from nsed_torch.tuning.broker_fit import SeatingFit
from nsed_torch.tuning.broker_rivals import best_teams, random_seated, teams_to_try

SEATING = ("learned broker", "fixed team", "random team", "router", "oracle")


class Division(NamedTuple):
    """What one division taught, and what its test tasks say to that."""

    brokers: Sequence[LearnedBroker]  # one per budget
    cell: tuple[ConsensusCell, Sequence[str]] | None  # that they go with live, with its agents; None where any may
    ridges: Sequence[float]  # that were chosen
    router: LearnedBroker | None = None  # of traces: one call of one agent
    # Shares of the full team's mean cost, and accuracy; then accuracy and cost of the full team.
    points: Float[Tensor, "policy 2 budget question"] = torch.empty(0)
    full: Float[Tensor, "2 question"] = torch.empty(0)
    facts: Mapping[str, Any] = {}


Learn = Callable[[Split, int | None], Division]
"""From a division and its number, None for all tasks, to what it taught."""


@verb("fit_broker", ("broker", "cost.json", "cost.png"))
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Compose, load, learn and test on every division, then learn from all tasks; write numbers, plot and brokers."""
    check(cfg)
    folders = folders_of(cfg)
    if not hold_traces(folders):
        raise ValueError(f"{folders[0]}: expected traces of nsed collect, got answers: the laboratory's fit-asking")
    episodes = traces_of(cfg, folders).episodes
    rounds, facts = Rounds.of(episodes, shared=cfg.judging), {"judging": cfg.judging, "cell": cfg.cell}
    splits = divisions(episodes.ids, cfg.fractions, cfg.divisions)
    learn = partial(seating, cfg, rounds, encoder_of(folders[0]), electing(cfg.cell, episodes, splits))
    live = f"broker=learned broker.learned={run.folder / 'broker'}/SHARE.safetensors"
    return learned(cfg, run, episodes, splits, learn, names=SEATING, unit="tokens", live=live, facts=facts)


def learned(
    cfg: DictConfig,
    run: VerbRun,
    episodes: Episodes,
    splits: Sequence[Split],
    learn: Learn,
    *,
    names: Sequence[str],
    unit: str,
    live: str,
    facts: Mapping[str, Any],
) -> Path:
    """Learn from every division and from all tasks; write `cost.json`, the plot and the brokers."""
    folder, ties = run.folder, Ties.named(cfg.ties or Ties.ACCURACY)
    run.report(f"{len(episodes)} tasks, {len(episodes.agents)} agents")
    budgets, divided = sorted(cfg.budgets), []
    for seed, part in enumerate(splits):
        division = learn(part, seed)
        divided.append((part, division))
        ridges = " and ".join(f"{ridge:g}" for ridge in division.ridges)
        run.report(f"broker, seed {seed}: ridge {ridges} chosen by {len(part.train) + len(part.validation)} tasks")
    kept = divided[0][1]
    if cfg.refit:
        kept = learn(split(episodes.ids, (1 - cfg.fractions[1], cfg.fractions[1], 0.0)), None)
    save(kept, budgets, folder / "broker")
    curves, full, cost = measure(divided, names, len(episodes))
    chosen = [{"ridges": list(division.ridges), **division.facts} for _, division in divided]
    about = {**facts, "splits": len(splits), "full_team_cost": cost, "ties": ties, "seeds": chosen}
    write_json(folder / "cost.json", {"agents": list(episodes.agents), **about, **cost_json(curves, budgets, full)})
    title = f"{curves[0].right.shape[1]} questions, {len(episodes.agents)} agents, {len(splits)} splits"
    plot_curves(curves, folder / "cost.png", full=full, title=title, unit=unit)
    run.console.print(*cost_tables(curves, budgets, full), ties.note)
    run.report(f"plot: {folder / 'cost.png'}; live, {live}")
    return folder / "cost.json"


def check(cfg: DictConfig) -> None:
    """Refuse what cannot be, before anything is loaded."""
    if cfg.ties is not None:
        Ties.named(cfg.ties)
    if not cfg.budgets or not all(budget > 0 for budget in cfg.budgets):
        raise ValueError(f"expected budgets above 0, got {list(cfg.budgets)}")
    if cfg.ridges is not None and (not cfg.ridges or not all(ridge > 0 for ridge in cfg.ridges)):
        raise ValueError(f"expected ridges above 0, got {list(cfg.ridges)}")
    if "prices" in cfg and (not cfg.prices or not all(price >= 0 for price in cfg.prices)):
        raise ValueError(f"expected prices of at least 0, got {list(cfg.prices)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(missing("matplotlib", "the cost curve", "report"))


def encoder_of(folder: str) -> Mapping[str, Any]:
    """What embedded the traces of a folder."""
    encoder = next(read_traces(folder)).transcript.settings.get("encoder")
    if not isinstance(encoder, Mapping):
        raise ValueError(f"{folder}: expected traces that name their encoder, got {encoder!r}: collect them anew")
    return encoder


def electing(source: str, episodes: Episodes, splits: Sequence[Split]) -> Callable[[int | None], ConsensusCell]:
    """What elects winners by division, None for the broker that is kept.

    The source is "" for a fresh cell; a saved one, which should have learned from other tasks; or a run of `nsed tune`
    on the same tasks and divisions, of which each division's cell elects there.
    """
    folder = Path(source).expanduser()
    if not source:
        fresh = ConsensusCell(episodes.dim, len(episodes.agents)).to(episodes.task.dtype)
        return lambda seed: fresh
    if not (folder / "seed_0").is_dir():
        saved = ConsensusCell.from_pretrained(source, agents=episodes.agents).to(episodes.task.dtype)
        return lambda seed: saved
    for seed, part in enumerate(splits):
        where = folder / f"seed_{seed}"
        tested = read_json(where / "result.json")["scores"]["oracle"] if where.is_dir() else {}
        if set(tested) != {episodes.ids[i] for i in part.test.tolist()}:
            raise ValueError(
                f"{where}: expected a cell that was tested on the same tasks, got another: "
                "use the data_dir, divisions and fractions of that run"
            )

    def load(seed: int | None) -> ConsensusCell:
        where = folder / "cell" if seed is None else folder / f"seed_{seed}" / "cell"
        return ConsensusCell.from_pretrained(where, agents=episodes.agents).to(episodes.task.dtype)

    return load


def seating(
    cfg: DictConfig,
    rounds: Rounds,
    encoder: Mapping[str, Any],
    cell_of: Callable[[int | None], ConsensusCell],
    part: Split,
    seed: int | None,
) -> Division:
    """A broker that seats proposers and judges by the question."""
    cell, tests = cell_of(seed), len(part.test) > 0
    taught = torch.cat([part.train, part.validation]) if tests else torch.arange(len(rounds))
    rounds = rounds.settling(Ties.named(cfg.ties or Ties.ACCURACY), taught)
    learned_on = rounds.select(taught)
    ridges = [0.3, 1.0, 3.0, 10.0, 30.0, 100.0] if cfg.ridges is None else list(cfg.ridges)
    fit = SeatingFit(cell, learned_on, encoder, ridges=ridges, prices=list(cfg.prices))
    budgets = sorted(cfg.budgets)
    brokers = [fit.within(budget * fit.whole) for budget in budgets]
    facts, router = {"policies": [fit.policy(budget * fit.whole)._asdict() for budget in budgets]}, fit.router()
    if not tests:
        return Division(brokers, None, fit.ridges, router)
    test, means = rounds.select(part.test), fit.whole * torch.tensor(budgets, dtype=torch.float64)
    with torch.no_grad():
        nothing = Heard.nothing(len(test), len(test.agents))
        teams = [test.seated(broker(0, nothing, test.task)) for broker in brokers]
        asked = router.next_one(0, nothing, test.task) & test.there[..., 0]
    once = torch.where(asked, test.answer_cost, 0).sum(1), (asked & test.correct).any(1).double()
    points = [
        (torch.stack([test.cost(team) for team in teams]), torch.stack([test.right(cell, team) for team in teams])),
        best_teams(cell, learned_on, test, teams_to_try(cell, learned_on), means),
        random_seated(cell, learned_on, test, means, seed=seed or 0),
        # It has no size: the same at every budget.
        (once[0].expand(len(budgets), -1), once[1].expand(len(budgets), -1)),
    ]
    oracle = oracle_curve(test.correct, test.answer_cost / fit.whole, budgets)
    full = torch.stack([test.right(cell), test.cost(test.there)])
    return Division(brokers, None, fit.ridges, router, shares(points, fit.whole, oracle), full, facts)


def measure(
    divided: Sequence[tuple[Split, Division]], names: Sequence[str], tasks: int
) -> tuple[list[Curve], Estimate, float]:
    """Averages over divisions, task by task: curves by policy; the full team's accuracy and cost."""
    sums = torch.zeros(len(names), *divided[0][1].points.shape[1:3], tasks, dtype=torch.float64)
    full, count = torch.zeros(2, tasks, dtype=torch.float64), torch.zeros(tasks, dtype=torch.float64)
    for part, division in divided:
        sums[..., part.test] += division.points
        full[:, part.test] += division.full
        count[part.test] += 1
    tested = count > 0
    curves = [Curve(name, *(means[..., tested] / count[tested])) for name, means in zip(names, sums, strict=True)]
    accuracy, cost = full[:, tested] / count[tested]
    return curves, student(accuracy), float(cost.mean())


def save(division: Division, budgets: Sequence[float], folder: Path) -> None:
    """Write `SHARE.safetensors`, one a budget, `router.safetensors` and `cell` where brokers need their own."""
    for budget, broker in zip(budgets, division.brokers, strict=True):
        broker.save_pretrained(folder / f"{budget:.2f}.safetensors")
    if division.router is not None:
        division.router.save_pretrained(folder / "router.safetensors")
    if division.cell is not None:
        cell, agents = division.cell
        cell.save_pretrained(folder / "cell", agent_names=tuple(agents))


def shares(points: Sequence[tuple[Tensor, Tensor]], whole: float, oracle: Curve) -> Tensor:
    """Cost as shares of the full team's, the oracle's, which are, behind."""
    rows = [torch.stack([cost / whole, right]) for cost, right in points]
    return torch.stack([*rows, torch.stack([oracle.cost, oracle.right])])
