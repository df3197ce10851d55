"""`nsed specialize`: train a LoRA specialist on a family of verifiable tasks, or a judge on graded answers."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import RenderableType

from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.adapters import adapter_shape, save_adapter
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.evaluation.statistics import clopper_pearson
from nsed_torch.evaluation.tables import terminal_table
from nsed_torch.questions.candidates import read_candidates
from nsed_torch.questions.composite import KINDS, composite_tasks
from nsed_torch.questions.generated import mixed_tasks
from nsed_torch.questions.graded import GradedTasks, file_tasks
from nsed_torch.questions.reading_tasks import reading_tasks
from nsed_torch.questions.stepwise import stepwise_tasks
from nsed_torch.records.files import read_json, write_json, write_text
from nsed_torch.traces.splits import place, split
from nsed_torch.tuning.adapter_card import adapter_card
from nsed_torch.tuning.fine_tuning import LEARNER, FineTuning, fine_tune, start_adapter
from nsed_torch.tuning.generated_lessons import ReadLesson, StepLesson, WholeLesson
from nsed_torch.tuning.lessons import AnswerLesson, HopLesson, Lesson, Scores, VerdictLesson, others
from nsed_torch.tuning.logs import ToldLog, check_tracker, track

MADE = ("adapter", "checkpoints", "before.json", "log.jsonl", "metrics.json")


@verb("specialize", MADE, goes_on=lambda cfg: True, measures="metrics.json")
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Compose, load, train, test before and after, write the adapter, its card, `metrics.json` and the log."""
    folder = run.folder
    check_tracker(cfg.logger.tracker)
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
    log = ToldLog(folder / "log.jsonl", settings.steps, run.report)
    fine_tune(engine, examples, folder / "checkpoints", settings=settings, log=log)
    steps = log.read()
    track(log, cfg.logger.tracker)
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
    """What is to be learned: from candidates if there are any, else from tasks."""
    prompts = instantiate(cfg.prompts)
    if cfg.unit not in {"answer", *GENERATED}:
        raise ValueError(f"expected unit=answer or one of {', '.join(GENERATED)}, got unit={cfg.unit}: correct it")
    if (cfg.pressure != "none" or cfg.step_share) and (cfg.candidates or cfg.unit in GENERATED):
        got = f"pressure={cfg.pressure} and step_share={cfg.step_share}"
        raise ValueError(f"expected answers to learn with {got}, got a judge or unit={cfg.unit}: unit=answer")
    if (cfg.form != "plain" or cfg.part.of != 1 or cfg.by_length) and (cfg.candidates or cfg.unit != "step"):
        got = f"a judge or unit={cfg.unit}"
        asked = f"form={cfg.form}, part.of={cfg.part.of} and by_length={cfg.by_length}"
        raise ValueError(f"expected steps to learn with {asked}, got {got}: unit=step")
    if cfg.candidates:
        rating = instantiate(cfg.rating)
        if not hasattr(rating, "scale"):
            raise ValueError(f"expected a verdict that a judge can learn, got {type(rating).__name__}: rating=verdict")
        candidates = read_candidates(cfg.candidates)
        # By task, so that no question is in both parts.
        train, held_out = ([c for c in candidates if (place(c.task.id) < 0.8) is kept] for kept in (True, False))
        data = {"candidates": len(candidates), "right": sum(c.right for c in candidates)}
        return VerdictLesson(train, held_out, prompts, rating, data, persona=cfg.persona, seed=settings.seed)
    if cfg.unit in GENERATED:
        return generated_lesson(cfg, settings, prompts)
    answers = AnswerLesson(
        *answer_tasks(cfg, settings),
        prompts,
        persona=cfg.persona,
        memory_share=cfg.memory_share,
        max_new_tokens=cfg.max_new_tokens,
        seed=settings.seed,
        pressure=cfg.pressure,
        suggestion_share=cfg.suggestion_share,
        please=cfg.please,
    )
    return hop_lesson(cfg, answers) if cfg.step_share else answers


def hop_lesson(cfg: DictConfig, answers: AnswerLesson) -> HopLesson:
    """Hops of the kinds that the families are, of composite questions, beside the families' own tasks."""
    families = {(options or {}).get("family", name) for name, options in (cfg.families or {}).items()}
    kinds = [kind for kind, (family, _) in KINDS.items() if family in families]
    sizes, seeds = cfg.composites, cfg.seeds
    train = composite_tasks(sizes.train, seeds.train, singles=0)
    held_out = composite_tasks(sizes.held_out, seeds.held_out, singles=0, unlike={seeds.train: sizes.train})
    return HopLesson(answers, train, held_out, kinds, cfg.step_share)


GENERATED: dict[str, tuple[Any, Any]] = {
    "step": (StepLesson, stepwise_tasks),
    "whole": (WholeLesson, stepwise_tasks),
    "read": (ReadLesson, reading_tasks),
}
"""Lessons of tasks of which more is known than their answers, and what makes such tasks."""


def generated_lesson(cfg: DictConfig, settings: FineTuning, prompts: Prompts) -> Lesson:
    """Steps, or moments of reading, of generated tasks."""
    if not cfg.families or cfg.questions:
        raise ValueError(
            f"expected families=... for unit={cfg.unit}, got none or questions=FILE: unit=answer learns those"
        )
    kind, make = GENERATED[cfg.unit]
    options = {"persona": cfg.persona, "max_new_tokens": cfg.max_new_tokens, "seed": cfg.seeds.train}
    if cfg.unit == "step":
        options |= {"form": cfg.form, "of": cfg.part.of, "take": cfg.part.take, "by_length": cfg.by_length}
    if cfg.unit == "read":
        options |= {"near_share": cfg.near_share, "answers_share": cfg.answers_share}
    learned: Lesson = kind(*generated_tasks(cfg, settings, make), prompts, _count(cfg, settings), **options)
    return learned


def answer_tasks(cfg: DictConfig, settings: FineTuning) -> tuple[GradedTasks, GradedTasks]:
    """Tasks to learn from and to test on: generated ones, or those of a file, divided by the hash of their id."""
    if bool(cfg.families) == bool(cfg.questions):
        raise ValueError(
            "expected families=... or questions=FILE to learn from, "
            f"got {'both' if cfg.questions else 'neither'}: name one, or choose specialist=..."
        )
    if cfg.families:
        return generated_tasks(cfg, settings, mixed_tasks)
    tasks = file_tasks(cfg.questions)
    parts = split([task.id for task in tasks.tasks], (0.8, 0.0, 0.2))
    train, held_out = (tasks.chosen([tasks.tasks[i].id for i in part]) for part in (parts.train, parts.test))
    return train, held_out


def generated_tasks(cfg: DictConfig, settings: FineTuning, make: Callable[..., Any]) -> tuple[Any, Any]:
    """Tasks of the families to learn from, without those of the seeds to avoid, and to test on."""
    plain: Any = OmegaConf.to_container(cfg.families, resolve=True)  # identities go to JSON
    families = {str(name): options or {} for name, options in plain.items()}
    train = make(families, _count(cfg, settings), cfg.seeds.train)
    secret = [task for seed, size in cfg.avoid.items() if size for task in make(families, size, seed).tasks]
    return replace(train, tasks=others(train.tasks, secret)), make(families, cfg.held_out, cfg.seeds.held_out)


def _count(cfg: DictConfig, settings: FineTuning) -> int:
    return int(cfg.examples or settings.steps * settings.batch)


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
