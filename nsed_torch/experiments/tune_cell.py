"""One division of `nsed tune`: train on its first parts, compare on the last; and the cell that learns from all."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from jaxtyping import Float
from omegaconf import DictConfig
from torch import Tensor

from nsed_torch.config import instantiate, plain_config
from nsed_torch.data import Episodes, joined, split
from nsed_torch.data.rounds import winners_correct
from nsed_torch.data.splits import Split
from nsed_torch.experiments.build import consensus_cell
from nsed_torch.functional.ties import Ties
from nsed_torch.nn import ConformalSets, ConsensusCell, Reading
from nsed_torch.nn.pretrained import CONFORMAL
from nsed_torch.records import read_json, write_json
from nsed_torch.training.answer_sets import fit_sets, set_rows
from nsed_torch.training.logs import FileLog, track
from nsed_torch.training.memory_fit import kept, rivals
from nsed_torch.training.rules import RULES, decide
from nsed_torch.training.rules.weighted_votes import accuracy
from nsed_torch.training.trainer import MEMORY, Refit, fit_cell

FREE = ("resume", "seeds", "refit")
"""Settings by which a run may be gone on with otherwise than it began."""


def tune_seed(
    cfg: DictConfig,
    episodes: Episodes,
    seed: int,
    parts: Split,
    folder: Path,
    report: Callable[[str], None],
    others: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """Train on one division of the tasks and compare on its test part.

    With `ties=accuracy` proposals stand in the order of their authors' accuracy on the training tasks: that is how the
    plurality, the untrained and the tuned consensus all break ties. By lot all of them count shares.

    Returns:
        What `result.json` holds: scores by method and task, of memories also what they found, the fit, the cell's small
        parameters.
    """
    settings = {key: value for key, value in plain_config(cfg).items() if key not in FREE}
    if cfg.resume is not False and (folder / "result.json").is_file():
        result: dict[str, Any] = read_json(folder / "result.json")
        report(f"seed {seed}: done before")
        return result
    train, validation, test = _in_order(cfg, episodes, parts)
    learned = joined([train, validation])
    cell = fresh_cell(cfg, train)
    if keeps_notes(cfg):
        measured: dict[str, Sequence[Tensor]] = {**rivals(cell, learned, test, seed)}
    else:
        rules = {"oracle": test.by_agent().right.any(1), **_by_rules(cfg, train, learned, test, report)}
        measured = {name: (right,) for name, right in rules.items()}
    measured["consensus_untrained"] = _own(cfg, cell, test)
    fit, sets = _fit(cfg, cell, train, validation, folder)
    measured["consensus_tuned"] = _own(cfg, cell, test)
    result = {
        "seed": seed,
        "settings": settings,
        "fit": {**fit._asdict(), "chosen": fit.chosen and fit.chosen._asdict(), "last": fit.last._asdict()},
        **({} if keeps_notes(cfg) else {"best_single": test.agents[int(accuracy(learned).argmax())]}),
        "parameters": {k: v.tolist() for k, v in cell.state_dict().items() if v.numel() <= 64},
        **({} if sets is None else {"sets": set_rows(sets, cell, test)}),
        **{
            what: {k: dict(zip(test.ids, v[i].double().tolist(), strict=True)) for k, v in measured.items()}
            for i, what in enumerate(("scores", "found")[: len(measured["consensus_tuned"])])
        },
    }
    result["scores"] |= {k: {task: v[task] for task in test.ids} for k, v in others.items()}
    write_json(folder / "result.json", result)
    report(f"seed {seed}: {len(train)} + {len(validation)} + {len(test)} tasks, {fit}")
    return result


def keeps_notes(cfg: DictConfig) -> bool:
    """Whether what a memory keeps is learned, rather than what a vote decides."""
    return bool(cfg.training.loss == MEMORY)


def _own(cfg: DictConfig, cell: ConsensusCell, test: Episodes) -> Sequence[Tensor]:
    if keeps_notes(cfg):
        return kept(cell, test)
    # With accuracy proposals stand in its order.
    ties = Ties.LOT if Ties.named(cfg.ties) is Ties.LOT else Ties.FIRST
    return (winners_correct(cell, test, ties),)


def refit(cfg: DictConfig, episodes: Episodes, folder: Path, card: str, report: Callable[[str], None]) -> None:
    """The cell for use, `folder/cell`: it learns from the test tasks too, now that each has been tested.

    With `refit=false` it is the first division's, whose test tasks it has not seen. The card is what the divisions
    measured, in Markdown.
    """
    if not cfg.refit:
        ConsensusCell.from_pretrained(folder / "seed_0" / "cell").save_pretrained(folder / "cell", card=card)
        return
    validation = cfg.fractions[1]
    train, chosen, _ = _in_order(cfg, episodes, split(episodes.ids, (1 - validation, validation, 0.0)))
    cell = fresh_cell(cfg, train)
    fit, _ = _fit(cfg, cell, train, chosen, folder, card=card)
    report(f"cell: {len(train)} + {len(chosen)} tasks, {fit}")


def _in_order(cfg: DictConfig, episodes: Episodes, parts: Split) -> tuple[Episodes, Episodes, Episodes]:
    """Train, validation and test; proposals by their authors' accuracy in training where that decides ties."""
    if Ties.named(cfg.ties) is Ties.ACCURACY:
        episodes = episodes.sorted_by(accuracy(episodes.select(parts.train)))
    train, validation, test = (episodes.select(rows) for rows in parts)
    return train, validation, test


def _by_rules(
    cfg: DictConfig, train: Episodes, learned: Episodes, test: Episodes, report: Callable[[str], None]
) -> dict[str, Float[Tensor, "batch"]]:
    """The chance that the answers are right that the rules of the field choose, by name; ties as everywhere.

    The best agent is that of all tasks learned from, and ties of the plurality are broken as the cell's are.
    """
    names, ties = list(cfg.rules), Ties.named(cfg.ties)
    wanted = list(RULES) if names == ["all"] else names
    if unknown := [name for name in wanted if name not in RULES]:
        raise ValueError(f"rules: expected names out of {', '.join(RULES)}, or all, got {', '.join(unknown)}")
    # Two are shown in any case, and one needs categories.
    chosen = {
        "best_single": decide(RULES["best_single"], learned, test, ties),
        "plurality": decide(RULES["plurality"], train, test, ties),
    }
    left_out = chosen.keys() | (set() if train.categories else {"best_by_category"})
    for name in (name for name in wanted if name not in left_out):
        began = perf_counter()
        chosen[name] = decide(RULES[name], learned, test, ties)
        report(f"{name}: {perf_counter() - began:.1f} s")
    return chosen


def _fit(
    cfg: DictConfig, cell: ConsensusCell, train: Episodes, validation: Episodes, folder: Path, card: str = ""
) -> tuple[Refit, ConformalSets | None]:
    """Train a cell, and its sets if they have a coverage; both into `folder/cell`."""
    fit = fit_cell(
        cell,
        train,
        validation,
        optimizer=instantiate(cfg.optimizer),
        schedule=instantiate(cfg.training),
        folder=folder,
        resume=cfg.resume is not False,
        # What calibrates sets is nothing that the cell may learn from.
        refit=cfg.coverage is None,
    )
    for path in (*folder.glob("log.jsonl"), *folder.glob("firmness_*/log.jsonl")):
        track(FileLog(path), cfg.logger.tracker)
    cell.save_pretrained(folder / "cell", agent_names=train.agents, card=card)
    if cfg.coverage is None:
        # An earlier run's sets would be read as this cell's.
        (folder / "cell" / CONFORMAL).unlink(missing_ok=True)
        return fit, None
    sets = fit_sets(cell, train, validation, coverage=cfg.coverage, by_category=cfg.by_category)
    sets.save_pretrained(folder / "cell")
    return fit, sets


def fresh_cell(cfg: DictConfig, episodes: Episodes) -> ConsensusCell:
    """The published protocol in the size of these episodes, ready to read what they have features and categories of."""
    agents = len(episodes.agents)
    categories = sorted(set(episodes.categories)) if cfg.categories else []
    reading = None
    if episodes.features is not None or categories:
        reading = Reading(agents, episodes.feature_names, categories)
        if episodes.features is not None:
            reading.learn_habits(episodes.of_agents(episodes.features, math.nan))
    cell = consensus_cell(
        dim=episodes.dim,
        agents=agents,
        slots=cfg.slots,
        vote=cfg.voting if isinstance(cfg.voting, str) else instantiate(cfg.voting),
        gate=cfg.gate,
        calibration=cfg.calibration,
        pooling=cfg.pooling,
        reading=reading,
    )
    return cell.to(episodes.task.dtype)
