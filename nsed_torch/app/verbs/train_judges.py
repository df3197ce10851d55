"""`nsed train-judges`: judges learn from recorded answers, and it is measured whether that helped."""

import time
from pathlib import Path

from omegaconf import DictConfig
from rich.console import RenderableType
from torch import Tensor

from nsed_torch.app.build import build_ensemble
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.engines.adapters import save_adapter
from nsed_torch.evaluation.statistics import Estimate, plain, shown, student
from nsed_torch.evaluation.tables import terminal_table
from nsed_torch.records.files import write_json
from nsed_torch.traces.recorded import RecordedAnswers, load_recorded
from nsed_torch.traces.splits import split
from nsed_torch.tuning.judge_training import JudgeScores, JudgeTrainer, contested, give_adapters
from nsed_torch.tuning.logs import FileLog, check_tracker

Summary = dict[str, dict[str, Estimate]]


@verb("train_judges", ("adapters", "judges.jsonl", "metrics.json"), measures="metrics.json")
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Compose, train, measure on held-out tasks before and after; write `metrics.json`, `judges.jsonl`, `adapters/`."""
    if not cfg.data_dir:
        raise ValueError("expected recorded answers, got no folder: pass data_dir=DIR")
    check_tracker(cfg.logger)
    out, start = run.folder, time.perf_counter()
    rating, lora = instantiate(cfg.rating), cfg.lora
    if not hasattr(rating, "scale"):
        raise ValueError(f"expected a verdict that is read off logits, got {type(rating).__name__}: set rating=verdict")
    answers = load_recorded(cfg.data_dir)
    parts = held_out(answers, lora.validation_tasks, lora.test_tasks)
    run.report("loading models")
    ensemble = give_adapters(
        build_ensemble(cfg.ensemble), rank=lora.rank, alpha=lora.alpha, targets=list(lora.targets), seed=lora.seed
    )
    trainer = JudgeTrainer(
        ensemble, rating=rating, prompts=instantiate(cfg.prompts), verdict_weight=lora.verdict_weight, seed=lora.seed
    )
    run.report(f"judging {len(parts['test'])} held-out tasks")
    before = trainer.evaluate(parts["test"], batch=lora.batch)
    log = FileLog(out / "judges.jsonl", cfg.logger)
    log.resume(-1)  # nothing of a killed run, whose first line is of step 0
    kept = trainer.fit(
        parts["train"],
        parts["validation"],
        optimizer=instantiate(lora.optimizer),
        **{key: lora[key] for key in ("steps", "batch", "every", "patience", "max_norm")},
        log=log.write,
        report=run.report,
    )
    log.close()
    for judge in ensemble.judges:
        save_adapter(ensemble.engine(judge), judge.rating_adapter, out / "adapters" / judge.name)  # type: ignore[arg-type]
    after = trainer.evaluate(parts["test"], batch=lora.batch)
    rows = summary(before, after, [agent.name for agent in ensemble.judges])
    metrics = {
        "tasks": {name: len(part) for name, part in parts.items()},
        "data": answers.digest,
        "candidates": len(answers.agents),
        "judges": {j.name: dict(ensemble.engine(j).identity(j.rating_adapter)) for j in ensemble.judges},
        "kept_step": kept,
        "seconds": round(time.perf_counter() - start, 1),
        "test": plain(rows),
    }
    write_json(out / "metrics.json", metrics)
    run.console.print(table(rows))
    return out / "metrics.json"


def held_out(table: RecordedAnswers, validation: int | None, test: int | None) -> dict[str, RecordedAnswers]:
    """Contested tasks by the hash of their ids, at most so many to choose by and to test on."""
    table = contested(table)
    parts = split([task.id for task in table.tasks])
    if len(parts.test[:test]) < 2:
        raise ValueError(f"expected 2 or more tasks to test on, got {len(parts.test[:test])}: raise lora.test_tasks")
    return {
        "train": table.select(parts.train),
        "validation": table.select(parts.validation[:validation]),
        "test": table.select(parts.test[:test]),
    }


def summary(before: JudgeScores, after: JudgeScores, judges: list[str]) -> Summary:
    """Every accuracy before and after with its paired difference, each with a 95% interval over tasks."""
    rows: dict[str, tuple[Tensor, Tensor]] = {}
    for name in ("pairs", "signs"):
        was, now = getattr(before, name), getattr(after, name)
        rows |= {f"{name}, {judge}": (was[:, v], now[:, v]) for v, judge in enumerate(judges)}
        rows[f"{name}, all judges"] = was.mean(1), now.mean(1)
    rows["consensus"] = before.consensus, after.consensus
    return {
        name: {"before": student(was), "after": student(now), "difference": student(now - was)}
        for name, (was, now) in rows.items()
    }


def table(rows: Summary) -> RenderableType:
    """Every accuracy before and after."""
    n = next(iter(rows.values()))["before"].n
    lines = [[name, shown(r["before"]), shown(r["after"]), shown(r["difference"], "+")] for name, r in rows.items()]
    title = f"judges on {n} held-out tasks, 95% intervals"
    return terminal_table([["accuracy", "before", "after", "difference"], *lines], title=title)
