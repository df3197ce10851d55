"""`nsed specialize`: train a LoRA specialist on a family of verifiable tasks."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig
from rich.console import RenderableType

from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.settings import plain
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.engines.adapters import adapter_shape, save_adapter
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.evaluation.statistics import clopper_pearson
from nsed_torch.evaluation.tables import terminal_table
from nsed_torch.questions.generated import mixed_tasks
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.files import read_json, write_json, write_text
from nsed_torch.traces.splits import split
from nsed_torch.tuning.adapter_card import adapter_card
from nsed_torch.tuning.fine_tuning import LEARNER, FineTuning, fine_tune, start_adapter
from nsed_torch.tuning.known_lessons import lesson_of
from nsed_torch.tuning.lessons import AnswerLesson, Lesson, LessonPlan, Scores
from nsed_torch.tuning.logs import ToldLog, check_tracker

MADE = ("adapter", "checkpoints", "before.json", "log.jsonl", "metrics.json")


@verb("specialize", MADE, goes_on=lambda cfg: True, measures="metrics.json")
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Compose, load, train, test before and after, write the adapter, its card, `metrics.json` and the log."""
    folder = run.folder
    check_tracker(cfg.logger)
    settings: FineTuning = instantiate(cfg.training)
    learned = lesson(cfg, settings)
    examples = learned.examples()
    run.report("loading models")
    engine = instantiate(cfg.backbone)
    if not isinstance(engine, TransformersEngine):
        raise ValueError(f"expected a backbone in this process, got {type(engine).__name__}: choose another backbone")
    before = _before(learned, engine, run)
    lora = cfg.adapter
    start_adapter(engine, **{str(key): value for key, value in lora.items() if key != "dtype"})
    run.report(f"learning from {len(examples)} examples, {settings.steps} steps of {settings.batch}")
    log = ToldLog(folder / "log.jsonl", settings.steps, run.report, cfg.logger)
    fine_tune(engine, examples, folder / "checkpoints", settings=settings, log=log)
    steps = log.read()
    log.close()
    save_adapter(engine, LEARNER, folder / "adapter", dtype=lora.dtype)
    run.report("testing the adapter")
    after = learned.scores(engine, LEARNER)
    metrics = {
        "name": cfg.name,
        "data": learned.identity(),
        "examples": len(examples),
        "backbone": {**engine.identity(None), "repo": cfg.backbone.get("weights", {}).get("repo")},
        "adapter": {**adapter_shape(engine, LEARNER), "dtype": lora.dtype, "start": lora.start},
        "training": {key: value for key, value in cfg.training.items() if key != "_target_"},
        "seconds": round(sum(step["seconds"] for step in steps), 1),
        "loss": fmean(step["loss"] for step in steps[-20:]),
        "held_out": {
            name: {"n": len(after[name]), "before": _share(before[name]), "after": _share(after[name])}
            for name in after
            if after[name]
        },
    }
    write_json(folder / "metrics.json", metrics)
    command = ["nsed", "specialize", *map(shlex.quote, run.overrides)]
    write_text(folder / "adapter" / "README.md", adapter_card("specialist", metrics, command=command))
    run.console.print(table(metrics))
    return folder / "adapter"


def lesson(cfg: DictConfig, settings: FineTuning) -> Lesson:
    """What is to be learned: by a generator if one is named, else to answer tasks."""
    plan = LessonPlan(
        instantiate(cfg.prompts),
        _families(cfg),
        int(cfg.examples or settings.steps * settings.batch),
        cfg.held_out,
        dict(cfg.seeds),
        dict(cfg.avoid),
        lambda: answer_lesson(cfg, plan, settings.seed),
        lambda: own_tasks(cfg, plan),
        cfg.persona,
        cfg.max_new_tokens,
    )
    if plan.families and cfg.questions:
        raise ValueError("expected families=... or questions=FILE to learn from, got both: name one")
    if cfg.lesson:
        learned: Lesson = instantiate(cfg.lesson, plan=plan)
        return learned
    return plan.answers() if plan.families else lesson_of(plan, form=cfg.form, kinds=cfg.kinds)


def answer_lesson(cfg: DictConfig, plan: LessonPlan, seed: int) -> AnswerLesson:
    """To answer the tasks of families, or one's own."""
    return AnswerLesson(
        *plan.tasks(mixed_tasks),
        plan.prompts,
        persona=plan.persona,
        memory_share=cfg.memory_share,
        max_new_tokens=plan.max_new_tokens,
        seed=seed,
    )


def own_tasks(cfg: DictConfig, plan: LessonPlan) -> tuple[GradedTasks, GradedTasks]:
    """Tasks to learn from and to test on: those that `tasks` makes by size and seed, or a set divided by hash of id."""
    if not cfg.questions and cfg.tasks.get("questions") == "":
        raise ValueError(
            "expected families=... or questions=FILE to learn from, got neither: name one, or choose specialist=..."
        )
    if {"size", "seed"} <= set(cfg.tasks):
        return plan.made(lambda size, seed: instantiate(cfg.tasks, size=size, seed=seed))
    tasks: GradedTasks = instantiate(cfg.tasks)
    parts = split([task.id for task in tasks.tasks], (0.8, 0.0, 0.2))
    train, held_out = (tasks.chosen([tasks.tasks[i].id for i in part]) for part in (parts.train, parts.test))
    return train, held_out


def _families(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    named = plain(cfg.families, resolve=True) or {}  # identities go to JSON
    return {str(name): options or {} for name, options in named.items()}


def table(metrics: Mapping[str, Any]) -> RenderableType:
    """What held-out answers came to, before and after."""
    rows = [["held out", "n", "bare backbone", "with the adapter"]]
    for name, row in metrics["held_out"].items():
        shares = ["{:.3f} [{:.3f}, {:.3f}]".format(*row[when]) for when in ("before", "after")]
        rows.append([name, str(row["n"]), *shares])
    return terminal_table(rows, title=f"{metrics['name']}: held-out answers, 95% intervals")


def _before(learned: Lesson, engine: TransformersEngine, run: VerbRun) -> Scores:
    """Scores of the bare backbone, measured once however often the run is repeated."""
    path, identity = run.folder / "before.json", {"data": learned.identity(), "backbone": dict(engine.identity(None))}
    if path.is_file() and (kept := read_json(path))["of"] == identity:
        scores: Scores = kept["scores"]
        return scores
    run.report("testing the bare backbone")
    scores = learned.scores(engine, None)
    write_json(path, {"of": identity, "scores": {name: list(values) for name, values in scores.items()}})
    return scores


def _share(right: Sequence[bool]) -> list[float]:
    return [sum(right) / len(right), *clopper_pearson(sum(right), len(right))]
