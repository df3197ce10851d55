"""`nsed conduct train`: a Conductor learns by reinforcement what workflows answer questions."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from nsed_torch.agents import Agent, Ensemble, ScriptedEngine, TransformersEngine, add_adapter, copy_adapter
from nsed_torch.agents.adapters import adapter_shape, save_adapter
from nsed_torch.benchmarks import GradedTasks, LoggedGrader
from nsed_torch.conductor import Conductor, Executor
from nsed_torch.conductor.cost import Speeds, training_cost
from nsed_torch.conductor.lessons import workflow_lessons
from nsed_torch.conductor.reward import Rewards
from nsed_torch.conductor.settings import GRPO
from nsed_torch.conductor.training import questions, train
from nsed_torch.config import conf_dir, instantiate, plain_config, register
from nsed_torch.evaluation.plots import plot_learning
from nsed_torch.experiments.build import build_agents, build_ensemble, call_log, fetch_weights
from nsed_torch.experiments.evaluate import own_device, this_shard
from nsed_torch.records import CallLog, write_json, write_text
from nsed_torch.training.adapter_card import conductor_card
from nsed_torch.training.examples import Example
from nsed_torch.training.fine_tuning import fine_tune, last_checkpoint, restore
from nsed_torch.training.logs import FileLog

register()

ADAPTER = "learner"
"""What the adapter is called while it learns; a saved one has no name."""

SHOWN = ("reward", "right", "parsed", "no_signal", "steps", "near_duplicates", "policy_tokens", "worker_tokens")
"""What a log's numbers are averaged of in the end."""


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="conduct_train")
def main(cfg: DictConfig) -> None:
    """Compose, load, begin, train, write the adapter; or say what it would cost."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    console = Console(highlight=False)
    settings: GRPO = instantiate(cfg.grpo)
    graded: GradedTasks = instantiate(cfg.tasks).limited(cfg.limit)
    if cfg.dry_run:
        console.print(cost_table(cfg, graded, settings))
        return
    shard = this_shard()
    if shard.size > 1:
        own_device(cfg.ensemble)
    loud = partial(console.print, style="dim", markup=False, emoji=False, soft_wrap=True)
    report: Callable[[str], None] = loud if shard.rank == 0 else lambda text: None
    command = ["nsed", "conduct", "train", *map(shlex.quote, HydraConfig.get().overrides.task)]
    with call_log(cfg, folder) as log:
        metrics = conduct_train(
            cfg, graded, folder, settings=settings, log=log, command=command, report=report, writes=shard.rank == 0
        )
    if shard.rank == 0:
        if settings.steps:
            console.print(table(metrics))
        print(folder / "adapter")  # noqa: T201 - the result


def conduct_train(
    cfg: DictConfig,
    graded: GradedTasks,
    folder: Path,
    *,
    settings: GRPO,
    log: CallLog,
    command: Sequence[str],
    report: Callable[[str], None] = lambda text: None,
    writes: bool = True,
) -> dict[str, Any]:
    """Train one Conductor.

    Writes `adapter/`, `log.jsonl` (a line a step), `rollouts.jsonl` (every text of a step a line), `metrics.json`,
    `learning.png` and `checkpoints/`; with a warm start `warm/` and `warm.jsonl`. The same call goes on from the last
    checkpoint, and workflows that were executed before are not executed again.

    Args:
        cfg: a composed config of `nsed conduct_train`.
        graded: what is learned on.
        folder: where to write.
        settings: of the reinforcement.
        log: where finished calls and verdicts are kept.
        command: that made it.
        report: hears of progress.
        writes: whether this process does; one of several.

    Returns:
        What `metrics.json` holds.

    Raises:
        ValueError: for a policy that is no model in this process, and as the parts.
    """
    conductor = _conductor(cfg, log, report)
    engine = conductor.planner.engine(conductor.agent)
    if not isinstance(engine, TransformersEngine):
        raise ValueError(f"expected a policy in this process, got {type(engine).__name__}: choose another backbone")
    files = [FileLog(folder / name) for name in ("log.jsonl", "rollouts.jsonl")] if writes else []
    if cfg.warm.lessons:
        report(f"warm start: {cfg.warm.lessons} lessons")
        _warm_start(cfg, conductor, engine, graded, folder)
    step, last = last_checkpoint(folder / "checkpoints")
    for file in files:
        file.resume(step)
    if last is not None and step >= settings.steps:
        restore(engine, Path(last))
    elif settings.steps:
        report(f"step {step} of {settings.steps}, {settings.questions} questions x {settings.rollouts} texts each")
        train(
            conductor,
            graded.tasks,
            Rewards(conductor.executor, replace(graded, grader=LoggedGrader(graded.grader, log))),
            folder / "checkpoints",
            settings=settings,
            resume=last,
            logs=files[:1],
            rollout_logs=files[1:],
        )
    if not writes:
        return {}
    save_adapter(engine, ADAPTER, folder / "adapter", dtype=cfg.adapter.dtype)
    lines = [json.loads(line) for line in files[0].path.read_text(encoding="utf-8").splitlines()]
    if lines:
        draw(lines, folder / "learning.png", report)
    metrics = {
        "command": list(command),
        "settings": plain_config(cfg),
        "tasks": dict(graded.identity),
        "backbone": dict(engine.identity(None)),
        "adapter": {**adapter_shape(engine, ADAPTER), "start": cfg.adapter.start},
        "workers": [asdict(record) for record in conductor.executor.ensemble.records()],
        **_ends(lines),
    }
    write_json(folder / "metrics.json", metrics)
    write_text(folder / "adapter" / "README.md", conductor_card(metrics, command=command))
    return metrics


def draw(lines: Sequence[Mapping[str, Any]], path: Path, report: Callable[[str], None]) -> None:
    """The learning curves, where matplotlib is installed."""
    try:
        plot_learning(lines, path)
    except ValueError as error:
        report(f"no plot: {error}")


def table(metrics: Mapping[str, Any]) -> Table:
    """What the first and the last tenth of the steps came to."""
    shown = Table(title="means of a step, on what was learned from", title_justify="left")
    for column in ("", "first tenth", "last tenth"):
        shown.add_column(column)
    for name in SHOWN:
        values = [metrics[when][name] for when in ("first", "last")]
        shown.add_row(name, *("-" if value is None else f"{value:.3g}" for value in values))
    return shown


def cost_table(cfg: DictConfig, graded: GradedTasks, settings: GRPO) -> Table:
    """What a run would take, without loading any weights."""
    agent: Agent = instantiate(cfg.conductor)
    agents = build_agents(cfg.ensemble)
    stand_in = ScriptedEngine(lambda request: "", lambda request, text: None)
    ensemble = Ensemble(dict.fromkeys([agent.backbone, *(a.backbone for a in agents)], stand_in), agents)
    executor = Executor(ensemble, prompts=instantiate(cfg.prompts), seed=cfg.seed, max_steps=cfg.max_steps)
    conductor = Conductor(executor, agent, pools=instantiate(cfg.pools))
    asked = questions(conductor, graded.tasks, settings)
    workers = [a for a in ensemble.proposers if a.name not in conductor.pools.without]
    expect = cfg.expect
    costs = training_cost(
        asked, workers, settings, text_tokens=expect.text_tokens, steps=expect.steps, speeds=Speeds(**expect.speeds)
    )
    shown = Table(title=f"{settings.steps} steps, estimated", title_justify="left")
    for column in ("", "tokens", "hours", "US$"):
        shown.add_column(column, justify="right")
    for name, cost in costs.items():
        shown.add_row(name, f"{cost.tokens:,.0f}", f"{cost.hours:.2f}", f"{cost.price:.2f}")
    return shown


def _conductor(cfg: DictConfig, log: CallLog, report: Callable[[str], None]) -> Conductor:
    """The Conductor of a training, with an adapter that can learn."""
    agent: Agent = replace(instantiate(cfg.conductor), adapter=ADAPTER)
    pools, prompts, lora = instantiate(cfg.pools), instantiate(cfg.prompts), cfg.adapter
    fetch_weights(OmegaConf.masked_copy(cfg, ["ensemble"]), report=report, also=[agent])
    report("loading models")
    ensemble = build_ensemble(cfg.ensemble, log, [agent])
    engine = ensemble.engines[agent.backbone]
    if isinstance(engine, TransformersEngine):
        if lora.start is None:
            add_adapter(engine, ADAPTER, rank=lora.rank, alpha=lora.alpha, targets=list(lora.targets), seed=lora.seed)
        else:
            copy_adapter(engine, ADAPTER, lora.start)
        engine.model.set_adapter(ADAPTER)
    executor = Executor(ensemble, prompts=prompts, seed=cfg.seed, max_steps=cfg.max_steps)
    return Conductor(executor, agent, engine=engine, pools=pools)


def _warm_start(
    cfg: DictConfig, conductor: Conductor, engine: TransformersEngine, graded: GradedTasks, folder: Path
) -> None:
    """Teach the language by valid workflows at random, as an adapter learns from any replies."""
    warm = cfg.warm
    hints: Any = warm.hints and OmegaConf.to_container(warm.hints, resolve=True)
    lessons = workflow_lessons(
        conductor,
        graded.tasks[: warm.lessons],
        strata=graded.strata,
        hints=hints,
        hinted=warm.hinted,
        seed=cfg.seed,
    )
    examples = [Example(*lesson) for lesson in lessons]
    fine_tune(
        engine,
        examples,
        folder / "warm",
        settings=instantiate(warm.training),
        logs=[FileLog(folder / "warm.jsonl")],
    )


def _ends(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means of the first and the last tenth of a log's lines, and the time of all."""
    tenth = max(1, len(lines) // 10)
    parts = {"first": lines[:tenth], "last": lines[-tenth:]}
    means = {when: {name: _mean([line[name] for line in part]) for name in SHOWN} for when, part in parts.items()}
    return {**means, "steps": len(lines), "seconds": round(sum(line["seconds"] for line in lines), 1)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
