"""`nsed tune`: fit a consensus cell to recorded answers or traces, and say with intervals whether it helped."""

from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from nsed_torch.agents import Encoder
from nsed_torch.benchmarks import Episodes, RecordedAnswers, Split, load_recorded, load_traces, recorded_episodes, split
from nsed_torch.config import conf_dir, instantiate, register
from nsed_torch.evaluation.baselines import best_single, oracle, plurality_correct
from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.experiments.broker import BrokerSettings, priced_pool, tune_broker
from nsed_torch.experiments.build import consensus_cell
from nsed_torch.experiments.judges import tune_judges
from nsed_torch.experiments.utility import UtilitySettings, check_traces, tune_utility
from nsed_torch.nn import ConsensusCell, LearnedHalting
from nsed_torch.nn.pretrained import HALTING
from nsed_torch.records import read_json, write_json
from nsed_torch.training.halting import fit_halting, halted
from nsed_torch.training.logs import FileLog, Log, TensorBoardLog
from nsed_torch.training.trainer import CellTrainer, winners_correct

register()

OWN = (
    *("output_dir", "resume", "seeds", "cost_curve", "budgeting", "utility", "teams"),
    *("judges", "ensemble", "rating", "prompts", "lora"),
)
"""Settings that leave a seed's result as it is."""


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="tune")
def main(cfg: DictConfig) -> None:
    """Compose, load, train a cell a seed, compare on the tasks held out, write `metrics.json` and the cells."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    console = Console(highlight=False)
    report = partial(console.print, style="dim", markup=False, emoji=False, soft_wrap=True)
    if not cfg.data_dir:
        raise ValueError("expected recorded answers or traces, got no folder: pass data_dir=DIR")
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
        if _holds_traces(cfg)
        else load_recorded(cfg.data_dir, agents=cfg.agents, max_parameters_b=cfg.max_parameters_b)
    )
    # What the cost curve lacks is told before anything is trained.
    pool = priced_pool(recorded) if cfg.cost_curve else None
    if cfg.utility:
        check_traces(traces=recorded is None)
    episodes = load_traces(cfg.data_dir) if recorded is None else _replayed(cfg, recorded)
    cell_of = partial(_electing_cell, cfg, teams.cell, episodes, folder)
    if cfg.utility and teams.cell != "tuned":
        cell_of(0)  # so that a folder without a cell is told before anything is trained
    splits = [split(episodes.ids, cfg.fractions, turn=seed * cfg.fractions[2]) for seed in range(cfg.seeds)]
    report(f"{len(episodes)} tasks, {len(episodes.agents)} agents, {episodes.round_mask.shape[1]} rounds")
    results = [
        tune_seed(cfg, episodes, seed, parts, folder / f"seed_{seed}", report) for seed, parts in enumerate(splits)
    ]
    comparison = Comparison.of([result["scores"] for result in results])
    save_first(folder, comparison.card(), halting=cfg.halting_price is not None)
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
        tune_utility(episodes, cfg.data_dir, folder, splits, settings=teams, cell_of=cell_of, report=report)
        report(
            f"plot: {folder / 'teams.png'}; live: broker=learned broker.utility={folder / 'broker'}/SHARE.safetensors"
        )
    if cfg.halting_price is not None:
        costs, rounds = ([float(r[key]) for r in results] for key in ("halted_cost", "halted_rounds"))
        report(f"halted after {fmean(rounds):.2f} rounds on average, at {fmean(costs):.1%} of the cost of all rounds")
    print(folder / "metrics.json")  # noqa: T201 - the result


def save_first(folder: Path, card: str, *, halting: bool) -> None:
    """The first seed's cell, and its halting rule if it has one, once more with the measurements on its card."""
    ConsensusCell.from_pretrained(folder / "seed_0" / "cell").save_pretrained(folder / "cell", card=card)
    (folder / "cell" / HALTING).unlink(missing_ok=True)
    if halting:
        LearnedHalting.from_pretrained(folder / "seed_0" / "cell").save_pretrained(folder / "cell")


def _holds_traces(cfg: DictConfig) -> bool:
    """Whether `data_dir` holds traces of `nsed collect` rather than recorded answers.

    Raises:
        ValueError: if agents are to be chosen or to join in waves, but the folder holds traces of whole deliberations.
    """
    if not (Path(cfg.data_dir).expanduser() / "traces.jsonl").is_file():
        return False
    for name, value, default in (
        ("agents", cfg.agents, None),
        ("max_parameters_b", cfg.max_parameters_b, None),
        ("rounds", cfg.rounds, 1),
    ):
        if value != default:
            raise ValueError(f"{cfg.data_dir}: expected no {name} for traces, whose rounds are as they were held")
    return True


def _replayed(cfg: DictConfig, recorded: RecordedAnswers) -> Episodes:
    encoder: Encoder = instantiate(cfg.encoder)
    return recorded_episodes(recorded, encoder, rounds=cfg.rounds)


def tune_seed(
    cfg: DictConfig, episodes: Episodes, seed: int, parts: Split, folder: Path, report: partial[None]
) -> dict[str, Any]:
    """Train on one division of the tasks and compare on its test part.

    Every seed turns the ring of hashed ids on by the size of the test part, so that seeds test different tasks until
    all have been tested. Proposals stand in the order of their authors' accuracy on the training tasks: that is how
    the plurality, the untrained and the tuned consensus all break ties.

    Args:
        cfg: a composed config of `nsed tune`.
        episodes: all tasks.
        seed: of training.
        parts: the division.
        folder: where the seed's checkpoint, log, cell and result go.
        report: hears how training went.

    Returns:
        What `result.json` holds: scores by method and task, the fit, the cell's small parameters.

    Raises:
        ValueError: if `resume` finds the result of other settings.
    """
    settings = {key: value for key, value in _plain(cfg).items() if key not in OWN}
    if cfg.resume and (folder / "result.json").is_file():
        result: dict[str, Any] = read_json(folder / "result.json")
        if result["settings"] != settings:
            raise ValueError(f"{folder}: expected a run of the same settings to resume, got another: change output_dir")
        report(f"seed {seed}: done before")
        return result
    accuracy = episodes.by_agent()[0][parts.train].float().mean(0)
    episodes = episodes.sorted_by(accuracy)
    train, validation, test = (episodes.select(rows) for rows in parts)
    cell = _fresh_cell(cfg, episodes)
    single, name = best_single(train, test)
    scores = {
        "oracle": oracle(test),
        "best_single": single,
        "plurality": plurality_correct(test),
        "consensus_untrained": winners_correct(cell, test),
    }
    trainer = CellTrainer(
        cell,
        train,
        validation,
        optimizer=instantiate(cfg.optimizer),
        scheduler=instantiate(cfg.scheduler),
        schedule=instantiate(cfg.training),
        seed=seed,
        logs=_logs(cfg, folder),
        checkpoint=folder / "checkpoint.pt",
    )
    fit = trainer.fit(resume=cfg.resume)
    scores["consensus_tuned"] = winners_correct(cell, test)
    cell.save_pretrained(folder / "cell", agent_names=episodes.agents)
    # An earlier run's rule would be read as this cell's.
    (folder / "cell" / HALTING).unlink(missing_ok=True)
    extra: dict[str, Any] = {}
    if cfg.halting_price is not None:
        rule = fit_halting(
            cell,
            train,
            validation,
            price=cfg.halting_price,
            optimizer=instantiate(cfg.optimizer),
            epochs=cfg.training.epochs,
        )
        rule.save_pretrained(folder / "cell")
        stopped = halted(rule, cell, test)
        scores["consensus_halted"] = stopped.right
        extra = {"halted_cost": stopped.cost.mean().item(), "halted_rounds": stopped.rounds.mean().item()}
    result = {
        "seed": seed,
        "settings": settings,
        "fit": fit._asdict(),
        "best_single": name,
        "parameters": {k: v.tolist() for k, v in cell.state_dict().items() if v.numel() <= 64},
        **extra,
        "scores": {k: dict(zip(test.ids, v.float().tolist(), strict=True)) for k, v in scores.items()},
    }
    write_json(folder / "result.json", result)
    report(
        f"seed {seed}: {len(train)} + {len(validation)} + {len(test)} tasks, {fit.epochs} epochs, "
        f"best {fit.best_epoch}, validation loss {fit.validation_loss:.4f}"
    )
    return result


def _electing_cell(cfg: DictConfig, which: str, episodes: Episodes, folder: Path, seed: int) -> ConsensusCell:
    """What elects the winners of sub-teams: the seed's own cell, a fresh one, or one from a folder."""
    if which == "fresh":
        return _fresh_cell(cfg, episodes)
    source = folder / f"seed_{seed}" / "cell" if which == "tuned" else which
    return ConsensusCell.from_pretrained(source, agents=episodes.agents).to(episodes.task.dtype)


def _fresh_cell(cfg: DictConfig, episodes: Episodes) -> ConsensusCell:
    agents = len(episodes.agents)
    cell = consensus_cell(
        dim=episodes.dim,
        agents=agents,
        slots=cfg.slots,
        vote=cfg.voting,
        gate=cfg.gate,
        calibration=cfg.calibration,
    )
    return cell.to(episodes.task.dtype)


def _logs(cfg: DictConfig, folder: Path) -> list[Log]:
    logs: list[Log] = [FileLog(folder / "log.jsonl")]
    return [*logs, TensorBoardLog(folder / "tensorboard")] if cfg.logger.tensorboard else logs


def _plain(cfg: DictConfig) -> dict[str, Any]:
    plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    return {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}
