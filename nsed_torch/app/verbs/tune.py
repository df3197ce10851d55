"""`nsed tune`: fit a consensus cell to recorded answers or traces, and say with intervals whether it helped."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from nsed_torch.app.build import own_parts
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.settings import plain_config
from nsed_torch.app.recordings import (
    RecordedTasks,
    answers_of,
    closings_of,
    folders_of,
    hold_traces,
    readings_of,
    traces_of,
)
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.evaluation.comparison import Comparison, scored
from nsed_torch.evaluation.set_coverage import coverage_plot, coverage_summary, coverage_tables
from nsed_torch.evaluation.statistics import plain
from nsed_torch.evaluation.tables import markdown, show
from nsed_torch.parts.conformal import ConformalSets
from nsed_torch.parts.reading import Reading
from nsed_torch.parts.round_vote import RoundVote
from nsed_torch.parts.saved_cells import CONFORMAL, ROUND_VOTE
from nsed_torch.parts.ties import Ties
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.extras import install
from nsed_torch.records.files import read_json, write_json
from nsed_torch.records.pace import time_left
from nsed_torch.traces.collecting import CALLS
from nsed_torch.traces.episodes import Episodes, joined
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.recorded import load_recorded
from nsed_torch.traces.rounds import winners_correct
from nsed_torch.traces.splits import Split, divisions, kept_together, split
from nsed_torch.tuning.answer_sets import fit_sets, set_rows
from nsed_torch.tuning.fitting import WHAT
from nsed_torch.tuning.logs import check_tracker
from nsed_torch.tuning.memory_fit import kept, rivals, several_rounds
from nsed_torch.tuning.round_fit import all_rounds_right, fit_round_vote
from nsed_torch.tuning.rules import RULES, accuracy, decide, known_rules
from nsed_torch.tuning.trainer import ANSWER, MEMORY, Refit, fit_cell

if TYPE_CHECKING:
    from nsed_torch.tuning.answer_fit import Closings

FREE = ("resume", "divisions", "refit")
"""Settings by which a run may be gone on with otherwise than it began."""

_NAMES = ("seed_*", "cell", "metrics.json", "coverage.png", "log.jsonl", "checkpoint.pt", "firmness_*", f"{CALLS}*")
MADE = [f"{place}{name}" for place in ("", "*/") for name in _NAMES]
"""What a comparison leaves, or one for each of several folders."""

FOUND = "of the notes that matter, the share that it holds"


@verb("tune", MADE, goes_on=lambda cfg: bool(cfg.resume), free=FREE, measures="metrics.json")
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Compose, load, train a cell a seed, compare on the tasks held out, write `metrics.json` and the cells."""
    ties_of(cfg)  # refused before anything is read, like the next
    check_tracker(cfg.logger)
    folders = folders_of(cfg)
    waves = None if cfg.waves == 1 else cfg.waves
    traces = hold_traces(folders, agents=cfg.agents, max_parameters_b=cfg.max_parameters_b, waves=waves)
    if keeps_notes(cfg):
        _check_notes(cfg, folders, traces)
        if cfg.training.loss == ANSWER:
            held = joined([load_traces(path) for path in folders])
            if left := len(held) - len(episodes := several_rounds(held)):
                run.report(f"{left} of {len(held)} tasks have one round, in which nobody reads a memory: left out")
            _divided(cfg, episodes)  # too few tasks are refused before models are loaded
            with CallLog(run.folder / CALLS) as log:
                closings = closings_of(cfg.team, folders, run.report, instantiate(cfg.training), log)
                return tune(cfg, RecordedTasks(episodes, closings=closings), run, {})
        return tune(cfg, readings_of(folders), run, {})
    if traces:
        recording = traces_of(cfg, folders, cfg.reading)
        return tune(cfg, recording._replace(episodes=recording.episodes.without(cfg.protocol.without)), run, {})
    if cfg.protocol.without:
        raise ValueError("expected no protocol.without for recorded answers, got some: choose the team by agents")
    # Recorded answers of other pools to other tasks: a comparison each.
    names = [Path(path).expanduser().resolve().name for path in folders]
    if len(set(names)) < len(names):
        raise ValueError(f"expected folders of different names, got {', '.join(names)}: pass them one by one")
    for path, name in zip(folders, names, strict=True):
        one = run._replace(folder=run.folder / name) if len(folders) > 1 else run
        recording = answers_of(cfg, path, rounds=cfg.waves, reading=cfg.reading)
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
    began, (episodes, answers, closings), folder = perf_counter(), recording, run.folder
    splits = _divided(cfg, episodes)
    run.report(
        f"{folder.name}: {len(episodes)} tasks, {len(episodes.agents)} agents, {episodes.round_mask.shape[1]} rounds"
    )
    results = []
    for seed, parts in enumerate(splits):
        where = folder / f"seed_{seed}"
        results.append(tune_seed(cfg, episodes, seed, parts, where, run.report, others, closings))
        if rest := time_left(perf_counter() - began, seed + 1, len(splits)):
            run.report(f"{seed + 1} of {len(splits)} divisions{rest}")
    ties = None if keeps_notes(cfg) else ties_of(cfg)
    what = (WHAT[cfg.training.loss], FOUND) if closings is None else closings.what
    comparison = _compared([result["scores"] for result in results], what[0], ties)
    shown, extra = [comparison], dict[str, Any]()
    if "found" in results[0]:
        shown.append(_compared([result["found"] for result in results], what[1]))
        extra["found"] = shown[1].to_json()
    card = [_tuned_on(cfg, episodes, names, run.overrides), "## Measured on held-out tasks\n", *map(markdown, shown)]
    refit(cfg, episodes, folder, "\n".join(card), run.report, closings)
    if answers is not None and answers.parameters.isfinite().all():
        extra["parameter_tokens"] = sum(part.cost.sum(1).mean().item() for part in (answers, *answers.later))
    if cfg.coverage is not None:
        sets = coverage_summary({k: v for result in results for k, v in result["sets"].items()}, cfg.coverage)
        extra["sets"] = plain(sets)
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
        run.console.print(*coverage_tables(sets))
        if find_spec("matplotlib"):  # an extra
            coverage_plot(sets, folder / "coverage.png")
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
    loss = f"training.loss={cfg.training.loss}"
    if not traces:
        raise ValueError(f"{folders[0]}: expected traces of tasks=reading for {loss}, got answers")
    gate = cfg.consensus.gate
    if isinstance(gate, str) and gate not in ("notes", "learned"):
        raise ValueError(f"expected a gate that learns with {loss}, got {gate}: set consensus.gate=notes")
    unused = ["rules", "protocol.without", "reading", "categories", "against", "coverage", "all_rounds"]
    unused += ["consensus.calibration", "training.every_round"]
    named = [name for name in unused if OmegaConf.select(cfg, name)]
    if named:
        raise ValueError(f"expected no {named[0]} with {loss}, which fits the gate alone: remove it")


def _others(cfg: DictConfig, folder: str, recording: RecordedTasks) -> dict[str, dict[str, float]]:
    """Agent -> task -> whether it was right, for recorded agents that the team is held against."""
    answers = load_recorded(folder, agents=list(cfg.against))
    row = {task.id: i for i, task in enumerate(answers.tasks)}
    return {
        name: {task: float(answers.correct[row[task], column]) for task in recording.episodes.ids}
        for column, name in enumerate(answers.agents)
    }


def tune_seed(
    cfg: DictConfig,
    episodes: Episodes,
    seed: int,
    parts: Split,
    folder: Path,
    report: Callable[[str], None],
    others: Mapping[str, Mapping[str, float]],
    closings: "Closings | None" = None,
) -> dict[str, Any]:
    """Train on one division of the tasks and compare on its test part.

    With `ties=accuracy` proposals stand in the order of their authors' accuracy on the training tasks: that is how the
    plurality, the untrained and the tuned consensus all break ties. By lot all of them count shares.

    Returns:
        What `result.json` holds: scores by method and task, perhaps a second one, the fit, the cell's small parameters.
    """
    settings = {key: value for key, value in plain_config(cfg).items() if key not in FREE}
    if cfg.resume is not False and (folder / "result.json").is_file():
        result: dict[str, Any] = read_json(folder / "result.json")
        report(f"seed {seed}: done before")
        return result
    train, validation, test = _in_order(cfg, episodes, parts)
    learned = joined([train, validation])
    cell = fresh_cell(cfg, train)
    measured: dict[str, Sequence[Tensor]]
    if closings is not None:
        measured = {"no_gate": _own(cfg, cell.like(gate="none"), test, closings)}
    elif keeps_notes(cfg):
        measured = {**rivals(cell, learned, test, seed)}
    else:
        rules = {"oracle": test.oracle(), **_by_rules(cfg, train, learned, test, report)}
        measured = {name: (right,) for name, right in rules.items()}
    if cfg.all_rounds:
        vote = fit_round_vote(learned, most_turned=cfg.most_turned).vote
        measured["all_rounds"] = (all_rounds_right(vote, test).double(),)
    measured["consensus_untrained"] = _own(cfg, cell, test, closings)
    fit, sets = _fit(cfg, cell, train, validation, folder, closings=closings)
    measured["consensus_tuned"] = _own(cfg, cell, test, closings)
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


def _together(cfg: DictConfig, episodes: Episodes) -> tuple[str, ...]:
    """What is divided by its hash: tasks by their ids, or all of a category together."""
    return kept_together(cfg.folds.by, episodes.ids, episodes.categories, "folds.by")


def _divided(cfg: DictConfig, episodes: Episodes) -> list[Split]:
    return divisions(_together(cfg, episodes), cfg.fractions, cfg.divisions)


def ties_of(cfg: DictConfig) -> Ties:
    """How ties are broken; unless something else is said, by the accuracy that the training tasks show."""
    return Ties.named(cfg.ties or Ties.ACCURACY)


def keeps_notes(cfg: DictConfig) -> bool:
    """Whether what a memory keeps is learned, rather than what a vote decides."""
    return cfg.training.loss in (MEMORY, ANSWER)


def _own(cfg: DictConfig, cell: ConsensusCell, test: Episodes, closings: "Closings | None" = None) -> Sequence[Tensor]:
    if closings is not None:
        return closings.scores(cell, test)
    if keeps_notes(cfg):
        return kept(cell, test)
    # With accuracy proposals stand in its order.
    ties = Ties.LOT if ties_of(cfg) is Ties.LOT else Ties.FIRST
    return (winners_correct(cell, test, ties),)


def refit(
    cfg: DictConfig,
    episodes: Episodes,
    folder: Path,
    card: str,
    report: Callable[[str], None],
    closings: "Closings | None" = None,
) -> None:
    """The cell for use, `folder/cell`: it learns from the test tasks too, now that each has been tested.

    With `refit=false` it is the first division's, whose test tasks it has not seen. The card is what the divisions
    measured, in Markdown.
    """
    if not cfg.refit:
        first = ConsensusCell.from_pretrained(folder / "seed_0" / "cell", **own_parts(cfg.consensus))
        first.save_pretrained(folder / "cell", card=card)
        if cfg.all_rounds:
            RoundVote.from_pretrained(folder / "seed_0" / "cell").save_pretrained(folder / "cell")
        return
    validation = cfg.fractions[1]
    train, chosen, _ = _in_order(cfg, episodes, split(_together(cfg, episodes), (1 - validation, validation, 0.0)))
    cell = fresh_cell(cfg, train)
    fit, _ = _fit(cfg, cell, train, chosen, folder, card=card, closings=closings)
    report(f"cell: {len(train)} + {len(chosen)} tasks, {fit}")


def _in_order(cfg: DictConfig, episodes: Episodes, parts: Split) -> tuple[Episodes, Episodes, Episodes]:
    """Train, validation and test; proposals by their authors' accuracy in training where that decides ties."""
    if ties_of(cfg) is Ties.ACCURACY:
        episodes = episodes.sorted_by(accuracy(episodes.select(parts.train)))
    train, validation, test = (episodes.select(rows) for rows in parts)
    return train, validation, test


def _by_rules(
    cfg: DictConfig, train: Episodes, learned: Episodes, test: Episodes, report: Callable[[str], None]
) -> dict[str, Float[Tensor, "batch"]]:
    """The chance that the answers are right that the rules of the field choose, by name; ties as everywhere.

    The best agent is that of all tasks learned from, and ties of the plurality are broken as the cell's are.
    """
    names, ties, rules = list(cfg.rules), ties_of(cfg), known_rules() if cfg.rules else RULES
    wanted = list(rules) if names == ["all"] else names
    if unknown := [name for name in wanted if name not in rules]:
        more = "" if find_spec("nsed_lab") else f"; more come with {install('lab')}"
        raise ValueError(f"rules: expected names out of {', '.join(rules)}, or all, got {', '.join(unknown)}{more}")
    # Two are shown in any case, one where there are gaps to fill, and two need what is not always known.
    chosen = {
        "best_single": decide(RULES["best_single"], learned, test, ties),
        "plurality": decide(RULES["plurality"], train, test, ties),
    }
    if not learned.by_agent().answered.all():
        chosen["fallback"] = decide(RULES["fallback"], learned, test, ties)
    lacking = {"best_by_category": not train.categories, "boosted_reading": train.features is None}
    left_out = chosen.keys() | {name for name, lacks in lacking.items() if lacks}
    for name in (name for name in wanted if name not in left_out):
        began = perf_counter()
        chosen[name] = decide(rules[name], learned, test, ties)
        report(f"{name}: {perf_counter() - began:.1f} s")
    return chosen


def _fit(
    cfg: DictConfig,
    cell: ConsensusCell,
    train: Episodes,
    validation: Episodes,
    folder: Path,
    card: str = "",
    closings: "Closings | None" = None,
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
        tracker=cfg.logger,
        closings=closings,
    )
    cell.save_pretrained(folder / "cell", agent_names=train.agents, card=card)
    (folder / "cell" / ROUND_VOTE).unlink(missing_ok=True)  # an earlier run's
    if cfg.all_rounds:
        vote = fit_round_vote(joined([train, validation]), most_turned=cfg.most_turned, stops=True).vote
        vote.save_pretrained(folder / "cell")
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
    cell: ConsensusCell = instantiate(cfg.consensus, dim=episodes.dim, agents=agents, reading=reading)
    return cell.to(episodes.task.dtype)
