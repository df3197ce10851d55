"""`nsed tune`: fit a consensus cell to recorded answers or traces, and say with intervals whether it helped."""

import importlib.util
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from omegaconf import DictConfig

from nsed_torch.data import Episodes, load_recorded
from nsed_torch.data.splits import divisions
from nsed_torch.evaluation.comparison import Comparison, scored
from nsed_torch.evaluation.set_coverage import coverage_plot, coverage_summary, coverage_tables
from nsed_torch.evaluation.tables import markdown, show
from nsed_torch.experiments.recordings import (
    RecordedTasks,
    answers_of,
    folders_of,
    hold_traces,
    readings_of,
    traces_of,
)
from nsed_torch.experiments.tune_cell import FREE, keeps_notes, refit, tune_seed
from nsed_torch.experiments.verb import VerbRun, verb
from nsed_torch.functional.ties import Ties
from nsed_torch.records import write_json
from nsed_torch.records.pace import time_left
from nsed_torch.training.logs import check_tracker

_NAMES = ("seed_*", "cell", "metrics.json", "coverage.png", "log.jsonl", "checkpoint.pt", "firmness_*")
MADE = [f"{place}{name}" for place in ("", "*/") for name in _NAMES]
"""What a comparison leaves, or one for each of several folders."""

SHARE = "share of the last memory on notes that matter"
FOUND = "of the notes that matter, the share that it holds"


@verb("tune", MADE, goes_on=lambda cfg: bool(cfg.resume), free=FREE, measures="metrics.json")
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Compose, load, train a cell a seed, compare on the tasks held out, write `metrics.json` and the cells."""
    Ties.named(cfg.ties)  # refused before anything is read, like the next
    check_tracker(cfg.logger.tracker)
    folders = folders_of(cfg)
    waves = None if cfg.rounds == 1 else cfg.rounds
    traces = hold_traces(folders, agents=cfg.agents, max_parameters_b=cfg.max_parameters_b, rounds=waves)
    if keeps_notes(cfg):
        _check_notes(cfg, folders, traces)
        return tune(cfg, readings_of(folders), run, {})
    if traces:
        recording = traces_of(cfg, folders, cfg.reading)
        return tune(cfg, recording._replace(episodes=recording.episodes.without(cfg.without)), run, {})
    if cfg.without:
        raise ValueError("expected no without for recorded answers, got some: choose the team by agents")
    # Recorded answers of other pools to other tasks: a comparison each.
    names = [Path(path).expanduser().resolve().name for path in folders]
    if len(set(names)) < len(names):
        raise ValueError(f"expected folders of different names, got {', '.join(names)}: pass them one by one")
    for path, name in zip(folders, names, strict=True):
        one = run._replace(folder=run.folder / name) if len(folders) > 1 else run
        recording = answers_of(cfg, path, rounds=cfg.rounds, reading=cfg.reading)
        done = tune(cfg, recording, one, _others(cfg, path, recording) if cfg.against else {}, [name])
    return done if len(folders) == 1 else run.folder


def tune(
    cfg: DictConfig,
    recording: RecordedTasks,
    run: VerbRun,
    others: dict[str, dict[str, float]],
    names: Sequence[str] = (),
) -> Path:
    """A cell for each division, then the cell for use, `metrics.json` and the tables.

    Others are scores by name and task, of what else is shown beside it; names are those of the recordings, by default
    of all folders.
    """
    began, (episodes, answers), folder = perf_counter(), recording, run.folder
    splits = divisions(episodes.ids, cfg.fractions, cfg.seeds)
    run.report(
        f"{folder.name}: {len(episodes)} tasks, {len(episodes.agents)} agents, {episodes.round_mask.shape[1]} rounds"
    )
    results = []
    for seed, parts in enumerate(splits):
        results.append(tune_seed(cfg, episodes, seed, parts, folder / f"seed_{seed}", run.report, others))
        if rest := time_left(perf_counter() - began, seed + 1, len(splits)):
            run.report(f"{seed + 1} of {len(splits)} divisions{rest}")
    ties = None if keeps_notes(cfg) else Ties.named(cfg.ties)
    comparison = _compared([result["scores"] for result in results], SHARE if keeps_notes(cfg) else "accuracy", ties)
    shown, extra = [comparison], dict[str, Any]()
    if keeps_notes(cfg):
        shown.append(_compared([result["found"] for result in results], FOUND))
        extra["found"] = shown[1].to_json()
    card = [_tuned_on(cfg, episodes, names, run.overrides), "## Measured on held-out tasks\n", *map(markdown, shown)]
    refit(cfg, episodes, folder, "\n".join(card), run.report)
    if answers is not None and answers.parameters.isfinite().all():
        extra["parameter_tokens"] = answers.cost.sum(1).mean().item()
    if cfg.coverage is not None:
        extra["sets"] = coverage_summary({k: v for result in results for k, v in result["sets"].items()}, cfg.coverage)
    facts = {
        "seeds": [{k: v for k, v in result.items() if k not in {"scores", "found", "sets"}} for result in results],
        "what": comparison.what,
        "overrides": run.overrides,
        "agents": list(episodes.agents),
        "tasks": len(episodes),
        "seconds": round(perf_counter() - began, 1),
    }
    write_json(folder / "metrics.json", {**comparison.to_json(), **facts, **extra})
    for table in shown:
        show(run.console, table)
    if cfg.coverage is not None:
        run.console.print(*coverage_tables(extra["sets"]))
        if importlib.util.find_spec("matplotlib"):  # an extra
            coverage_plot(extra["sets"], folder / "coverage.png")
    return folder / "metrics.json"


def _tuned_on(cfg: DictConfig, episodes: Episodes, names: Sequence[str], overrides: Sequence[str]) -> str:
    """What the card of a cell says of its data: folders' names alone, for a card may be shown to anybody."""
    data = names or [Path(path).expanduser().resolve().name for path in folders_of(cfg)]
    places = {"data_dir", "output_dir", "resume"}
    settings = [value for value in overrides if value.lstrip("+").partition("=")[0] not in places]
    # Indented blocks: no name can break out of them.
    lines = [f"recordings: {', '.join(data)}", shlex.join(["nsed", "tune", *settings])]
    held = f"{len(episodes)} tasks, {len(episodes.agents)} agents, at most {episodes.round_mask.shape[1]} rounds."
    block = "\n".join(f"    {' '.join(line.split())}" for line in lines)
    return f"## Tuned on\n\n{held} The cell knows no others: measure it on yours before you rely on it.\n\n{block}\n"


def _compared(scores: Sequence[Mapping[str, Mapping[str, float]]], what: str, ties: Ties | None = None) -> Comparison:
    return Comparison.of(scored(scores), reference="consensus_tuned", by_student=True, what=what, ties=ties)


def _check_notes(cfg: DictConfig, folders: Sequence[str], traces: bool) -> None:
    """Refuse what a gate cannot be fitted to, and settings that would count for nothing."""
    if not traces:
        raise ValueError(f"{folders[0]}: expected traces of benchmark=reading for training.loss=memory, got answers")
    if cfg.gate not in ("notes", "learned"):
        raise ValueError(f"expected gate=notes or learned with training.loss=memory, got {cfg.gate}: set gate=notes")
    unused = ("rules", "without", "reading", "categories", "against", "coverage", "calibration")
    named = [*(name for name in unused if cfg[name]), *(["training.every_round"] if cfg.training.every_round else [])]
    if named:
        raise ValueError(f"expected no {named[0]} with training.loss=memory, which fits the gate alone: remove it")


def _others(cfg: DictConfig, folder: str, recording: RecordedTasks) -> dict[str, dict[str, float]]:
    """Agent -> task -> whether it was right, for recorded agents that the team is held against."""
    answers = load_recorded(folder, agents=list(cfg.against))
    row = {task.id: i for i, task in enumerate(answers.tasks)}
    return {
        name: {task: float(answers.correct[row[task], column]) for task in recording.episodes.ids}
        for column, name in enumerate(answers.agents)
    }
