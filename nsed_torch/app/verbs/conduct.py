"""`nsed conduct`: have a workflow written for one question, run it, and see every step."""

from collections.abc import Callable

import torch
from omegaconf import DictConfig, OmegaConf

from nsed_torch.app.build import build_rnn, call_log, load_models
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.app.view import WorkflowView, visible, workflow_view
from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.policy import Conductor, check_recursion
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.workers import COUNCIL
from nsed_torch.core.agent import Agent
from nsed_torch.evaluation.pages import EXECUTION
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task


@verb("conduct", ("conduct.json", "report.html"))
def main(cfg: DictConfig, run: VerbRun) -> str:
    """Compose, build, conduct, write `conduct.json`, print the answer."""
    task = Task(cfg.question)
    with call_log(cfg, run.folder) as log, workflow_view(run.console) as watch, torch.no_grad():
        conductor = build_conductor(cfg, log, run.report, watch)
        (execution,) = conductor.answer([task], recursion=cfg.recursion)
    execution.save(run.folder / EXECUTION)
    run.report(f"execution: {run.folder / EXECUTION}")
    return f"\n{visible(execution.answer or f'(no answer: {execution.failure})')}"


def build_conductor(cfg: DictConfig, log: CallLog, report: Callable[[str], None], watch: WorkflowView) -> Conductor:
    """The Conductor of a run and its workers; the encoder and the cell only where the ensemble is a worker itself."""
    agent: Agent = instantiate(cfg.conductor)
    check_recursion(cfg.recursion, agent)  # before any weights are touched
    pools: Pools = instantiate(cfg.pools)
    prompts = instantiate(cfg.prompts)
    councils = {}
    if cfg.council:
        rnn = build_rnn(cfg, log, report, also=[agent])
        ensemble, councils = rnn.cell.ensemble, {"council": rnn}
    else:
        ensemble, _ = load_models(OmegaConf.masked_copy(cfg, ["ensemble", "conductor"]), log, report, [agent])
    executor = Executor(
        ensemble,
        prompts=prompts,
        deliberations=councils,
        seed=cfg.seed,
        max_steps=cfg.max_steps,
        report=watch.on_phase,
        observer=watch,
    )
    told = dict.fromkeys(councils, COUNCIL)
    return Conductor(executor, agent, pools=pools, descriptions=told, itself=cfg.itself)
