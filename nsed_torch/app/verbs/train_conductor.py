"""`nsed train-conductor`: a Conductor learns by reinforcement what workflows answer questions."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import RenderableType

from nsed_torch.app.build import build_agents, call_log, graded_tasks, load_models, memory_ahead
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.settings import plain_config
from nsed_torch.app.processes import this_shard
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.grpo import GRPO
from nsed_torch.conductor.policy import Conductor
from nsed_torch.conductor.reinforcement import questions, train, training_cost, with_signal
from nsed_torch.conductor.reward import Rewards
from nsed_torch.conductor.warm_start import workflow_lessons
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import Engine
from nsed_torch.engines.adapters import adapter_shape, save_adapter
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.evaluation.plots import plot_learning
from nsed_torch.evaluation.tables import terminal_table
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.files import read_json, write_json, write_text
from nsed_torch.records.transcript import Task
from nsed_torch.tuning.adapter_card import adapter_card
from nsed_torch.tuning.fine_tuning import (
    LEARNER,
    Example,
    checkpoints_in,
    fine_tune,
    last_checkpoint,
    restore,
    start_adapter,
)
from nsed_torch.tuning.logs import FileLog, ToldLog, check_tracker

# Numbers of the log whose means are shown in the end.
SHOWN = ("reward", "right", "parsed", "no_signal", "steps", "near_duplicates", "policy_tokens", "worker_tokens")


MADE = (
    *("adapter", "checkpoints", "warm*", "log.jsonl", "rollouts.jsonl"),
    *("sieved.json", "metrics.json", "learning.png"),
)


@verb("train_conductor", MADE, goes_on=lambda cfg: True)
def main(cfg: DictConfig, run: VerbRun) -> Path | None:
    """Compose, load, begin, train, write the adapter; or say what it would cost.

    The same command goes on from the last checkpoint, and workflows that were executed before are not executed again.
    Of several processes the first one writes.
    """
    folder = run.folder
    check_tracker(cfg.logger)
    settings: GRPO = instantiate(cfg.grpo)
    graded = graded_tasks(cfg, run.report).limited(cfg.limit)
    if cfg.dry_run:
        agent: Agent = instantiate(cfg.conductor)
        run.console.print(cost_table(cfg, graded, settings))
        ours = OmegaConf.masked_copy(cfg, ["ensemble", "conductor"])
        run.console.print(f"{memory_ahead(ours, [agent])}, in every process", markup=False, soft_wrap=True)
        return None
    first = this_shard(cfg.ensemble).rank == 0
    report: Callable[[str], None] = run.report if first else lambda text: None
    steps, texts = (
        ToldLog(folder / "log.jsonl", settings.steps, report, cfg.logger),
        FileLog(folder / "rollouts.jsonl"),
    )
    with call_log(cfg, folder) as log:
        conductor, engine = _conductor(cfg, log, report)
        if cfg.warm.lessons:
            report(f"warm start: {cfg.warm.lessons} lessons")
            _warm_start(cfg, conductor, engine, graded, folder)
        step, last = last_checkpoint(folder / "checkpoints")
        for file in (steps, texts) if first else ():
            file.resume(step)
        if last is not None and step >= settings.steps:
            restore(engine, Path(last))
        elif settings.steps:
            price, asked = settings.step_price, replace(graded, call_log=log)
            rewards = Rewards(conductor.executor, asked, step_price=price, alone=conductor.alone)
            tasks = _sieved(conductor, graded, rewards, settings, folder, report) if settings.sieve else graded.tasks
            report(f"step {step} of {settings.steps}, {settings.questions} questions x {settings.rollouts} texts each")
            with checkpoints_in(folder / "checkpoints"):
                train(
                    conductor,
                    tasks,
                    rewards,
                    folder / "checkpoints",
                    settings=settings,
                    resume=last,
                    **({"log": steps.write, "rollout_log": texts.write} if first else {}),
                )
    if not first:
        return None
    steps.close()
    save_adapter(engine, LEARNER, folder / "adapter", dtype=cfg.adapter.dtype)
    about = {
        "backbone": _backbone(cfg, conductor.agent, engine),
        "adapter": {**adapter_shape(engine, LEARNER), "start": cfg.adapter.start},
        "hops": bool(graded.hops),
    }
    metrics = _told(cfg, run, conductor.executor, graded, steps.read(), about)
    write_text(folder / "adapter" / "README.md", adapter_card("conductor", metrics, command=metrics["command"]))
    return folder / "adapter"


def _backbone(cfg: DictConfig, agent: Agent, engine: Engine) -> dict[str, Any]:
    """The engine's identity, and its repository where it has one, for the card."""
    node = cfg.ensemble.engines[agent.backbone]
    return {**engine.identity(None), "repo": (node.get("weights") or {}).get("repo")}


def _told(
    cfg: DictConfig,
    run: VerbRun,
    executor: Executor,
    graded: GradedTasks,
    lines: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write `metrics.json`, which holds what is known about the learner, and the plot; show the table."""
    metrics = {
        "command": ["nsed", "train-conductor", *map(shlex.quote, run.overrides)],
        "settings": plain_config(cfg),
        "tasks": dict(graded.identity),
        **about,
        "workers": [asdict(record) for record in executor.ensemble.records()],
        **_ends(lines),
    }
    write_json(run.folder / "metrics.json", metrics)
    if lines:
        try:
            plot_learning(lines, run.folder / "learning.png")
        except ValueError as error:  # without matplotlib
            run.report(f"no plot: {error}")
        run.console.print(table(metrics))
    return metrics


def table(metrics: Mapping[str, Any]) -> RenderableType:
    """What the first and the last tenth of the steps came to."""
    rows = [["", "first tenth", "last tenth"]]
    for name in SHOWN:
        values = [metrics[when][name] for when in ("first", "last")]
        rows.append([name, *("-" if value is None else f"{value:.3g}" for value in values)])
    return terminal_table(rows, title="means of a step, on what was learned from")


def cost_table(cfg: DictConfig, graded: GradedTasks, settings: GRPO) -> RenderableType:
    """What a run would take, without loading any weights."""
    agent: Agent = instantiate(cfg.conductor, encoder=None)  # how a pool is laid out costs next to nothing
    agents = build_agents(cfg.ensemble)
    stand_in = ScriptedEngine(lambda request: "", lambda request, text: None)
    ensemble = Ensemble(dict.fromkeys([agent.backbone, *(a.backbone for a in agents)], stand_in), agents)
    executor = Executor(ensemble, prompts=instantiate(cfg.prompts), seed=cfg.seed, max_steps=cfg.max_steps)
    conductor = Conductor(executor, agent, pools=instantiate(cfg.pools))
    asked = questions(conductor, graded.tasks, settings)
    workers = [a for a in ensemble.proposers if a.name not in conductor.pools.without]
    expect = cfg.expect
    costs = training_cost(
        asked, workers, settings, text_tokens=expect.text_tokens, steps=expect.steps, speeds=expect.speeds
    )
    rows = [
        [name, *(f"{x:,.0f}" for x in (c.calls, c.tokens)), f"{c.hours:.2f}", f"{c.price:.2f}"]
        for name, c in costs.items()
    ]
    return terminal_table([["", "calls", "tokens", "hours", "US$"], *rows], title=f"{settings.steps} steps, estimated")


def _conductor(cfg: DictConfig, log: CallLog, report: Callable[[str], None]) -> tuple[Conductor, TransformersEngine]:
    """The Conductor of a training, with an adapter that can learn, and its engine."""
    agent: Agent = replace(instantiate(cfg.conductor), adapter=LEARNER)
    executor = _executor(cfg, log, report, agent)
    engine = executor.ensemble.engines[agent.backbone]
    if not isinstance(engine, TransformersEngine):
        raise ValueError(f"expected a policy in this process, got {type(engine).__name__}: choose another backbone")
    start_adapter(engine, **{str(key): value for key, value in cfg.adapter.items() if key != "dtype"})
    return Conductor(executor, agent, pools=instantiate(cfg.pools)), engine


def _executor(cfg: DictConfig, log: CallLog, report: Callable[[str], None], agent: Agent) -> Executor:
    """The workers of a training; the agent's backbone is among the engines."""
    prompts = instantiate(cfg.prompts)
    ensemble, _ = load_models(OmegaConf.masked_copy(cfg, ["ensemble", "conductor"]), log, report, [agent])
    return Executor(ensemble, prompts=prompts, seed=cfg.seed, max_steps=cfg.max_steps)


def _warm_start(
    cfg: DictConfig, conductor: Conductor, engine: TransformersEngine, graded: GradedTasks, folder: Path
) -> None:
    """Teach the language by valid workflows, as an adapter learns from any replies."""
    warm = cfg.warm
    if warm.workflows:
        lessons = instantiate(warm.workflows, conductor=conductor, graded=graded, count=warm.lessons, seed=cfg.seed)
    else:
        lessons = workflow_lessons(conductor, graded.tasks[: warm.lessons], graded.hops, seed=cfg.seed)
    examples = [Example(*lesson) for lesson in lessons]
    settings, log = instantiate(warm.training), FileLog(folder / "warm.jsonl")
    fine_tune(engine, examples, folder / "warm", settings=settings, log=log)


def _sieved(
    conductor: Conductor,
    graded: GradedTasks,
    rewards: Rewards,
    settings: GRPO,
    folder: Path,
    report: Callable[[str], None],
) -> tuple[Task, ...]:
    """The tasks that a training learns from; which they are is kept, for a training that goes on would find others."""
    path = folder / "sieved.json"
    if not path.is_file():
        found = with_signal(conductor, graded.tasks, rewards, settings, report)
        write_json(path, [task.id for task in found])
    return graded.chosen(read_json(path)).tasks


def _ends(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means of the first and the last tenth of a log's lines, and the time of all."""
    tenth = max(1, len(lines) // 10)
    parts = {"first": lines[:tenth], "last": lines[-tenth:]}
    means: dict[str, dict[str, float | None]] = {}
    for when, part in parts.items():
        known = {name: [line[name] for line in part if line[name] is not None] for name in SHOWN}
        means[when] = {name: fmean(values) if values else None for name, values in known.items()}
    return {**means, "steps": len(lines), "seconds": round(sum(line["seconds"] for line in lines), 1)}
