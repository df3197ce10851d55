"""`nsed tune`: fit a consensus cell to recorded answers or traces, and say with intervals whether it helped."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from nsed_torch.agents import Encoder
from nsed_torch.benchmarks import (
    Episodes,
    RecordedAnswers,
    joined,
    load_recorded,
    load_traces,
    recorded_episodes,
    split,
)
from nsed_torch.config import conf_dir, instantiate, register
from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.experiments.broker import BrokerSettings, priced_pool, tune_broker
from nsed_torch.experiments.judges import tune_judges
from nsed_torch.experiments.tune_cell import fresh_cell, refit, tune_seed
from nsed_torch.experiments.utility import UtilitySettings, check_traces, tune_utility
from nsed_torch.nn import ConsensusCell

register()


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="tune")
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
    budgeting: BrokerSettings = instantiate(cfg.budgeting)
    teams: UtilitySettings = instantiate(cfg.teams)
    began = perf_counter()
    recorded = (
        None
        if _holds_traces(cfg, folders)
        else load_recorded(folders[0], agents=cfg.agents, max_parameters_b=cfg.max_parameters_b)
    )
    # What the cost curve lacks is told before anything is trained.
    pool = priced_pool(recorded) if cfg.cost_curve else None
    if cfg.utility:
        check_traces(traces=recorded is None)
    episodes = joined([load_traces(path) for path in folders]) if recorded is None else _replayed(cfg, recorded)
    cell_of = partial(_electing_cell, cfg, teams.cell, episodes, folder)
    if cfg.utility and teams.cell != "tuned":
        cell_of(0)  # so that a folder without a cell is told before anything is trained
    splits = [split(episodes.ids, cfg.fractions, turn=seed * cfg.fractions[2]) for seed in range(cfg.seeds)]
    report(f"{len(episodes)} tasks, {len(episodes.agents)} agents, {episodes.round_mask.shape[1]} rounds")
    results = [
        tune_seed(cfg, episodes, seed, parts, folder / f"seed_{seed}", report) for seed, parts in enumerate(splits)
    ]
    comparison = Comparison.of([result["scores"] for result in results])
    refit(cfg, episodes, folder, comparison.card(), report)
    comparison.write(
        folder,
        seeds=[{key: value for key, value in result.items() if key != "scores"} for result in results],
        overrides=list(HydraConfig.get().overrides.task),
        agents=list(episodes.agents),
        tasks=len(episodes),
        seconds=round(perf_counter() - began, 1),
    )
    console.print(comparison.table())
    if pool is not None:
        tune_broker(pool, folder, splits, settings=budgeting, report=report)
        report(f"plot: {folder / 'cost.png'}")
    if cfg.utility:
        tune_utility(
            episodes, folders[0], folder, splits, settings=teams, cell_of=cell_of, refit=cfg.refit, report=report
        )
        report(
            f"plot: {folder / 'teams.png'}; live: broker=learned broker.utility={folder / 'broker'}/SHARE.safetensors"
        )
    if cfg.halting_price is not None:
        costs, rounds = ([float(r[key]) for r in results] for key in ("halted_cost", "halted_rounds"))
        report(f"halted after {fmean(rounds):.2f} rounds on average, at {fmean(costs):.1%} of the cost of all rounds")
    print(folder / "metrics.json")  # noqa: T201 - the result


def _holds_traces(cfg: DictConfig, folders: Sequence[str]) -> bool:
    """Whether `data_dir` holds traces of `nsed collect` rather than recorded answers.

    Raises:
        ValueError: if agents are to be chosen or to join in waves, but the folder holds traces of whole deliberations;
            or for several folders that do not all hold traces.
    """
    traces = [(Path(path).expanduser() / "traces.jsonl").is_file() for path in folders]
    if len(folders) > 1 and not all(traces):
        path = folders[traces.index(False)]
        raise ValueError(f"{path}: expected traces in each of several folders, got no traces.jsonl: pass one data_dir")
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


def _replayed(cfg: DictConfig, recorded: RecordedAnswers) -> Episodes:
    encoder: Encoder = instantiate(cfg.encoder)
    return recorded_episodes(recorded, encoder, rounds=cfg.rounds)


def _electing_cell(cfg: DictConfig, which: str, episodes: Episodes, folder: Path, seed: int | None) -> ConsensusCell:
    """What elects the winners of sub-teams: the seed's own cell (None: the one for use), a fresh one, a folder's."""
    if which == "fresh":
        return fresh_cell(cfg, episodes)
    own = folder if seed is None else folder / f"seed_{seed}"
    source = own / "cell" if which == "tuned" else which
    return ConsensusCell.from_pretrained(source, agents=episodes.agents).to(episodes.task.dtype)
