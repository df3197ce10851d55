"""One division of `nsed tune`: train on its first parts, compare on the last; and the cell that learns from all."""

from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nsed_torch.benchmarks import Episodes, Split, split
from nsed_torch.config import instantiate
from nsed_torch.evaluation.baselines import best_single, oracle, plurality_correct
from nsed_torch.experiments.build import consensus_cell
from nsed_torch.nn import ConsensusCell, LearnedHalting
from nsed_torch.nn.pretrained import HALTING
from nsed_torch.records import read_json, write_json
from nsed_torch.training.halting import fit_halting, halted
from nsed_torch.training.logs import FileLog, Log, TensorBoardLog
from nsed_torch.training.trainer import CellTrainer, Fit, winners_correct

OWN = (
    *("output_dir", "resume", "seeds", "refit", "cost_curve", "budgeting", "utility", "teams"),
    *("judges", "ensemble", "rating", "prompts", "lora"),
)
"""Settings that leave a seed's result as it is."""


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
    train, validation, test = _in_order(episodes, parts)
    cell = fresh_cell(cfg, episodes)
    single, name = best_single(train, test)
    scores = {
        "oracle": oracle(test),
        "best_single": single,
        "plurality": plurality_correct(test),
        "consensus_untrained": winners_correct(cell, test),
    }
    fit, rule = _fit(cfg, cell, train, validation, seed, folder)
    scores["consensus_tuned"] = winners_correct(cell, test)
    extra: dict[str, Any] = {}
    if rule is not None:
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
    report(f"seed {seed}: {len(train)} + {len(validation)} + {len(test)} tasks, {_told(fit)}")
    return result


def refit(cfg: DictConfig, episodes: Episodes, folder: Path, card: str, report: partial[None]) -> None:
    """The cell for use, `folder/cell`: it learns from the test tasks too, now that each has been tested.

    With `refit=false` it is the first division's, whose test tasks it has not seen.

    Args:
        cfg: a composed config of `nsed tune`.
        episodes: all tasks.
        folder: of the run.
        card: what the divisions measured, in Markdown.
        report: hears how training went.
    """
    if not cfg.refit:
        ConsensusCell.from_pretrained(folder / "seed_0" / "cell").save_pretrained(folder / "cell", card=card)
        (folder / "cell" / HALTING).unlink(missing_ok=True)
        if cfg.halting_price is not None:
            LearnedHalting.from_pretrained(folder / "seed_0" / "cell").save_pretrained(folder / "cell")
        return
    validation = cfg.fractions[1]
    train, chosen, _ = _in_order(episodes, split(episodes.ids, (1 - validation, validation, 0.0)))
    cell = fresh_cell(cfg, episodes)
    fit, _ = _fit(cfg, cell, train, chosen, 0, folder, card=card)
    report(f"cell: {len(train)} + {len(chosen)} tasks, {_told(fit)}")


def _in_order(episodes: Episodes, parts: Split) -> tuple[Episodes, Episodes, Episodes]:
    """Train, validation and test, proposals by their authors' accuracy in training."""
    accuracy = episodes.by_agent()[0][parts.train].float().mean(0)
    train, validation, test = (episodes.sorted_by(accuracy).select(rows) for rows in parts)
    return train, validation, test


def _fit(
    cfg: DictConfig, cell: ConsensusCell, train: Episodes, validation: Episodes, seed: int, folder: Path, card: str = ""
) -> tuple[Fit, LearnedHalting | None]:
    """Train a cell, and its halting rule if it has a price; both into `folder/cell`."""
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
    cell.save_pretrained(folder / "cell", agent_names=train.agents, card=card)
    # An earlier run's rule would be read as this cell's.
    (folder / "cell" / HALTING).unlink(missing_ok=True)
    if cfg.halting_price is None:
        return fit, None
    rule = fit_halting(
        cell,
        train,
        validation,
        price=cfg.halting_price,
        optimizer=instantiate(cfg.optimizer),
        epochs=cfg.training.epochs,
    )
    rule.save_pretrained(folder / "cell")
    return fit, rule


def _told(fit: Fit) -> str:
    return f"{fit.epochs} epochs, best {fit.best_epoch}, validation loss {fit.validation_loss:.4f}"


def fresh_cell(cfg: DictConfig, episodes: Episodes) -> ConsensusCell:
    """The published protocol in the size of these episodes."""
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
