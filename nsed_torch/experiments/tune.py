"""`nsed tune`: fit a consensus cell to recorded answers or traces, and say with intervals whether it helped."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from nsed_torch.agents import Encoder
from nsed_torch.config import instantiate, verb
from nsed_torch.data import Episodes, RecordedAnswers, joined, load_recorded, load_traces, recorded_episodes, split
from nsed_torch.data.featured import CachedEncoder, featured, featured_traces
from nsed_torch.evaluation.comparison import Comparison, scored
from nsed_torch.evaluation.set_coverage import coverage_summary, coverage_tables
from nsed_torch.evaluation.tables import markdown, show
from nsed_torch.experiments.broker import BrokerSettings, priced_pool, tune_broker
from nsed_torch.experiments.judges import tune_judges
from nsed_torch.experiments.tune_cell import fresh_cell, refit, tune_seed
from nsed_torch.experiments.utility import UtilitySettings, check_traces, tune_utility
from nsed_torch.nn import ConsensusCell
from nsed_torch.records import read_traces, write_json


@verb("tune")
def main(cfg: DictConfig) -> None:
    """Compose, load, train a cell a seed, compare on the tasks held out, write `metrics.json` and the cells."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    console = Console(highlight=False)
    report = partial(console.print, style="dim", markup=False, emoji=False, soft_wrap=True)
    if not cfg.data_dir:
        raise ValueError("expected recorded answers or traces, got no folder: pass data_dir=DIR")
    folders = [cfg.data_dir] if isinstance(cfg.data_dir, str) else list(cfg.data_dir)
    if cfg.judges and len(folders) > 1:
        raise ValueError(f"expected one folder of recorded answers for judges=true, got {len(folders)}: pass one")
    if cfg.judges:
        tune_judges(cfg, folder, report)
        print(folder / "metrics.json")  # noqa: T201 - the result
        return
    if cfg.seeds < 1:
        raise ValueError(f"expected seeds of at least 1, got {cfg.seeds}")
    traces = _holds_traces(cfg, folders)
    if traces or len(folders) == 1:
        _tune(cfg, folders, folder, console, report, traces=traces)
        return
    # Recorded answers of other pools to other tasks: a comparison each.
    names = [Path(path).expanduser().resolve().name for path in folders]
    if len(set(names)) < len(names):
        raise ValueError(f"expected folders of different names, got {', '.join(names)}: pass them one by one")
    for path, name in zip(folders, names, strict=True):
        report(f"{name}:")
        _tune(cfg, [path], folder / name, console, report, traces=False)


def _tune(
    cfg: DictConfig, folders: Sequence[str], folder: Path, console: Console, report: partial[None], *, traces: bool
) -> None:
    """One comparison: of all folders' traces, or of one folder's recorded answers."""
    budgeting: BrokerSettings = instantiate(cfg.budgeting)
    teams: UtilitySettings = instantiate(cfg.teams)
    began = perf_counter()
    recorded = None if traces else load_recorded(folders[0], agents=cfg.agents, max_parameters_b=cfg.max_parameters_b)
    # What the cost curve lacks is told before anything is trained.
    pool = priced_pool(recorded) if cfg.cost_curve else None
    if cfg.utility:
        check_traces(traces=recorded is None)
    episodes = _collected(cfg, folders) if recorded is None else _replayed(cfg, recorded)
    cell_of = partial(_electing_cell, cfg, teams.cell, episodes, folder)
    if cfg.utility and teams.cell != "tuned":
        cell_of(0)  # so that a folder without a cell is told before anything is trained
    splits = [split(episodes.ids, cfg.fractions, turn=seed * cfg.fractions[2]) for seed in range(cfg.seeds)]
    report(f"{len(episodes)} tasks, {len(episodes.agents)} agents, {episodes.round_mask.shape[1]} rounds")
    others = _others(cfg, folders[0], episodes.ids) if cfg.against else {}
    results = [
        tune_seed(cfg, episodes, seed, parts, folder / f"seed_{seed}", report, others)
        for seed, parts in enumerate(splits)
    ]
    _conclude(cfg, episodes, results, recorded, folder, console, report, began)
    if pool is not None:
        whole = split(episodes.ids, (1 - cfg.fractions[1], cfg.fractions[1], 0.0)) if cfg.refit else None
        width = episodes.task.shape[1]
        tune_broker(pool, folder, splits, dim=width, settings=budgeting, refit=whole, report=report)
        live = f"broker=learned broker.learned={folder / 'broker'}/SHARE.safetensors cell={folder / 'broker'}/cell"
        report(f"plot: {folder / 'cost.png'}; live, with the agents of the saved cell: {live} rounds={budgeting.pool}")
    if cfg.utility:
        tune_utility(
            episodes, folders[0], folder, splits, settings=teams, cell_of=cell_of, refit=cfg.refit, report=report
        )
        report(
            f"plot: {folder / 'teams.png'}; live: broker=learned broker.learned={folder / 'broker'}/SHARE.safetensors"
        )
    print(folder / "metrics.json")  # noqa: T201 - the result


def _conclude(
    cfg: DictConfig,
    episodes: Episodes,
    results: Sequence[dict[str, Any]],
    recorded: RecordedAnswers | None,
    folder: Path,
    console: Console,
    report: partial[None],
    began: float,
) -> None:
    """Fit the cell for use, write `metrics.json`, print the tables."""
    outcomes = scored([result["scores"] for result in results])
    comparison = Comparison.of(outcomes, reference="consensus_tuned", by_student=True)
    refit(cfg, episodes, folder, f"## Measured on held-out tasks\n\n{markdown(comparison)}", report)
    extra: dict[str, Any] = {}
    if recorded is not None and recorded.parameters.isfinite().all():
        extra["parameter_tokens"] = recorded.cost.sum(1).mean().item()
    if cfg.coverage is not None:
        extra["sets"] = coverage_summary({k: v for result in results for k, v in result["sets"].items()}, cfg.coverage)
    facts = {
        "seeds": [{key: value for key, value in result.items() if key not in {"scores", "sets"}} for result in results],
        "overrides": list(HydraConfig.get().overrides.task),
        "agents": list(episodes.agents),
        "tasks": len(episodes),
        "seconds": round(perf_counter() - began, 1),
    }
    write_json(folder / "metrics.json", {**comparison.to_json(), **facts, **extra})
    show(console, comparison)
    if cfg.coverage is not None:
        console.print(*coverage_tables(extra["sets"]))
    if cfg.halting_price is not None:
        costs, rounds = ([float(r[key]) for r in results] for key in ("halted_cost", "halted_rounds"))
        report(f"halted after {fmean(rounds):.2f} rounds on average, at {fmean(costs):.1%} of the cost of all rounds")


def _holds_traces(cfg: DictConfig, folders: Sequence[str]) -> bool:
    """Whether `data_dir` holds traces of `nsed collect` rather than recorded answers.

    Raises:
        ValueError: if agents are to be chosen or to join in waves, but the folder holds traces of whole deliberations;
            or for several folders of which only some hold traces.
    """
    traces = [(Path(path).expanduser() / "traces.jsonl").is_file() for path in folders]
    if any(traces) and not all(traces):
        path = folders[traces.index(False)]
        raise ValueError(f"{path}: expected traces in each of several folders, got no traces.jsonl: pass one kind")
    if not traces[0]:
        return False
    for name, value, default in (
        ("agents", cfg.agents, None),
        ("max_parameters_b", cfg.max_parameters_b, None),
        ("rounds", cfg.rounds, 1),
    ):
        if value != default:
            raise ValueError(f"{folders[0]}: expected no {name} for traces, whose rounds are as they were held")
    return True


def _others(cfg: DictConfig, folder: str, ids: Sequence[str]) -> dict[str, dict[str, float]]:
    """Agent -> task -> whether it was right, for recorded agents that the team is held against."""
    found = load_recorded(folder, agents=list(cfg.against))
    place = {task.id: i for i, task in enumerate(found.tasks)}
    return {
        name: {task: float(found.correct[place[task], column]) for task in ids}
        for column, name in enumerate(found.agents)
    }


def _collected(cfg: DictConfig, folders: Sequence[str]) -> Episodes:
    parts = [load_traces(path) for path in folders]
    if cfg.reading:
        encoder: Encoder = instantiate(cfg.encoder)
        parts = [
            featured_traces(part, list(read_traces(path)), list(cfg.reading), encoder)
            for part, path in zip(parts, folders, strict=True)
        ]
    return joined(parts)


def _replayed(cfg: DictConfig, recorded: RecordedAnswers) -> Episodes:
    encoder: Encoder = instantiate(cfg.encoder)
    # Hashing is faster than reading what was hashed.
    kept = CachedEncoder(encoder) if "weights" in cfg.encoder else encoder
    episodes = recorded_episodes(recorded, kept, rounds=cfg.rounds)
    return featured(episodes, recorded, list(cfg.reading), kept) if cfg.reading else episodes


def _electing_cell(cfg: DictConfig, which: str, episodes: Episodes, folder: Path, seed: int | None) -> ConsensusCell:
    """What elects the winners of sub-teams: the seed's own cell (None: the one for use), a fresh one, a folder's."""
    if which == "fresh":
        return fresh_cell(cfg, episodes)
    own = folder if seed is None else folder / f"seed_{seed}"
    source = own / "cell" if which == "tuned" else which
    return ConsensusCell.from_pretrained(source, agents=episodes.agents).to(episodes.task.dtype)
