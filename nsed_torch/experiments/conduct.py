"""`nsed conduct`: have a workflow written for one question, run it, and see every step."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from nsed_torch.agents import Agent
from nsed_torch.conductor import Conductor, Executor, Pools
from nsed_torch.conductor.policy import check_recursion
from nsed_torch.config import conf_dir, instantiate, register
from nsed_torch.experiments.build import build_ensemble, build_rnn, call_log, fetch_weights
from nsed_torch.experiments.view import preview, visible
from nsed_torch.records import CallLog, Execution, Level, StepRecord, Task

register()

COUNCIL = "all models together: they answer, rate each other's answers and vote"
"""What a Conductor reads of the worker that is the whole ensemble."""


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="conduct")
def main(cfg: DictConfig) -> None:
    """Compose, build, conduct, write `conduct.json`, print the answer."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    task = Task(cfg.question)
    check_recursion(cfg.recursion)
    console = Console(highlight=False)
    report = partial(console.print, style="dim", markup=False, emoji=False, soft_wrap=True)
    with call_log(cfg, folder) as log:
        conductor = build_conductor(cfg, log, report)
        with torch.no_grad():
            (execution,) = conductor.answer([task], recursion=cfg.recursion)
    for line in execution_lines(execution):
        console.print(visible(line), markup=False, emoji=False, soft_wrap=True)
    execution.save(folder / "conduct.json")
    report(f"execution: {folder / 'conduct.json'}")
    # Not through the console, which would expand tabs and turn :key: into a picture.
    print(f"\n{visible(execution.answer or f'(no answer: {execution.failure})')}")  # noqa: T201 - the result


def build_conductor(cfg: DictConfig, log: CallLog, report: Callable[[str], None]) -> Conductor:
    """The Conductor of a run and its workers; the encoder and the cell only where the ensemble is a worker itself.

    Args:
        cfg: a composed config of `nsed conduct`.
        log: where finished calls are kept.
        report: hears of downloads, conversions and loading, and of every phase that ends.
    """
    agent: Agent = instantiate(cfg.conductor)
    pools: Pools = instantiate(cfg.pools)
    prompts = instantiate(cfg.prompts)
    councils = {}
    if cfg.council:
        rnn = build_rnn(cfg, log, report, also=[agent])
        ensemble, councils = rnn.cell.ensemble, {"council": rnn}
    else:
        fetch_weights(OmegaConf.masked_copy(cfg, ["ensemble"]), report=report, also=[agent])
        report("loading models")
        ensemble = build_ensemble(cfg.ensemble, log, [agent])

    def over(phase: str, done: int, total: int) -> None:
        if done == total:
            report(f"{phase}: {total} of {total} calls")

    executor = Executor(
        ensemble, prompts=prompts, deliberations=councils, seed=cfg.seed, max_steps=cfg.max_steps, report=over
    )
    return Conductor(executor, agent, pools=pools, descriptions=dict.fromkeys(councils, COUNCIL))


def execution_lines(execution: Execution) -> Iterator[str]:
    """Everything worth a line: what the Conductor wrote, what was made of it, who said what, what it cost."""
    for number, level in enumerate(execution.levels):
        yield from _plan_lines(f"workflow {number}", level)
        for k, step in enumerate(level.steps):
            yield f"workflow {number}: step {k}: {step.worker} reads {_read(step)}: {preview(step.subtask)}"
            said = preview(step.response) if step.failure is None else f"({step.failure})"
            yield f"workflow {number}: step {k}: {step.worker} says ({step.usage.tokens} tokens): {said}"
            yield from (f"workflow {number}: step {k}: note: {note}" for note in step.notes)
    usage = execution.usage
    price = f", ${usage.price:.4f}" if usage.price else ""
    yield f"{usage.calls} calls, {usage.tokens:,} tokens, {usage.seconds:.1f} s of model time{price}"


def _plan_lines(name: str, level: Level) -> Iterator[str]:
    yield f"{name}: models " + ", ".join(f"{i} {worker}" for i, worker in enumerate(level.pool))
    if level.plan is not None:
        yield f"{name}: the conductor writes ({level.plan.usage.tokens} tokens): {preview(level.plan.text)}"
        if level.plan.reasons:
            made = "cannot be read, the default stands in" if level.plan.fallback else "mended"
            yield f"{name}: {made}: {', '.join(level.plan.reasons)}"
        yield from (f"{name}: note: {note}" for note in level.plan.notes)
    yield from (f"{name}: {line}" for line in level.workflow.splitlines())
    if not level.steps:
        yield f"{name}: accepts the answer"


def _read(step: StepRecord) -> str:
    return ", ".join(f"step {k}" for k in step.visible) or "nothing"
