"""Questions of many clients at once through `nsed serve`, against the same questions in this process."""

import gc
import http.client
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from bench.experts import deliberate_afresh
from bench.startup import TEAM, environment
from bench.timing import Measurement, compare, seconds
from nsed_torch.app.build import build_rnn, consensus_cell
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.extras import install
from nsed_torch.records.transcript import Task

QUESTIONS, CLIENTS, ALONE = 500, 64, 20
"""Questions in all, clients that ask at once, and questions that one client asks, one after the other."""

MODEL = "nsed/team"

DAY, EARLY = 10_000, 1_000
"""Questions that a server without models answers, and after how many its memory is first read."""


def serve_lines(repeats: int, team: Sequence[str] = TEAM, report: Callable[[str], None] = print) -> list[Measurement]:
    """The experts' preset behind its server: 64 clients, and one client alone, against batches of 64 here.

    Then what a server without models holds in memory after ten thousand questions (`serve_memory_line`).

    The facts have the requests that failed, how many answers are those of the team in this process, and what the
    server adds to a lone question, as a share of its rounds (median).

    Args:
        repeats: timed rounds.
        team: overrides of `nsed deliberate`.
        report: hears in one line why there is no line.
    """
    for package in ("fastapi", "reasoning_gym"):
        if importlib.util.find_spec(package) is None:
            report(f"serve: left out: {package} is not installed: {install('serve,gym')}")
            return []
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose("deliberate", overrides=list(team))
    tasks_of: Any = OmegaConf.load(conf_dir() / "tasks/experts.yaml")
    graded = instantiate({**tasks_of, "size": QUESTIONS})
    tasks = [Task(task.question, task.id) for task in graded.tasks]
    rnn = build_rnn(cfg, CallLog(None))
    here: list[str] = []
    there: list[tuple[int, str]] = []

    def direct() -> None:
        batches = [tasks[i : i + CLIENTS] for i in range(0, len(tasks), CLIENTS)]
        engines = rnn.cell.ensemble.engines
        here[:] = [said.answer for batch in batches for said in deliberate_afresh(rnn, engines, batch)]

    def served(ask: Callable[[Task], tuple[int, str]]) -> None:
        with ThreadPoolExecutor(CLIENTS) as clients:
            there[:] = clients.map(ask, tasks)

    direct()
    with serving(rnn) as ask:
        (line,) = compare(
            f"serve, {CLIENTS} clients x {len(tasks)} questions",
            ours=("by the server", partial(served, ask)),
            others=[(f"here, {CLIENTS} at a time", direct)],
            repeats=repeats,
        )
        latencies, in_models = alone_seconds(ask, tasks[:ALONE])
    facts = {
        "failed": sum(status != 200 for status, _ in there),
        "same_answers": sum(a == b for (_, a), b in zip(there, here, strict=True)) / len(tasks),
        "overhead_alone": median(a / b for a, b in zip(latencies, in_models, strict=True)) - 1,
    }
    return [replace(line, facts=facts), serve_memory_line()]


def serve_memory_line() -> Measurement:
    """Resident MiB of a server without models, a process of its own, after `DAY` questions against after `EARLY`."""
    command = [sys.executable, "-P", "-m", "bench.serve", str(EARLY), str(DAY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())  # noqa: S603
    found = json.loads(done.stdout.splitlines()[-1])
    names = f"after {DAY:,}", f"after {EARLY:,}"
    facts = {"failed": found["failed"]}
    return Measurement("serve, memory", *names, (found["late"],), (found["early"],), "MiB", facts)


def work(early: int, late: int) -> dict[str, float]:
    """What this process holds once a server in it has answered so many questions, and how many requests failed."""
    ensemble = Ensemble(
        {"scripted": ScriptedEngine(lambda request: f"#{request.seed}", lambda request, candidate: 0.5)},
        [Agent(name, "scripted") for name in ("ann", "ben", "cleo")],
    )
    cell = MacroRNNCell(ensemble, HashedEncoder(64), consensus_cell(dim=64, agents=3))
    tasks = [Task(f"What is number {i}?", f"q{i}") for i in range(late)]
    found: dict[str, float] = {"failed": 0}
    with serving(MacroRNN(cell, halting=FixedHalting(2))) as ask, ThreadPoolExecutor(CLIENTS) as clients:
        for name, part in (("early", tasks[:early]), ("late", tasks[early:])):
            found["failed"] += sum(status != 200 for status, _ in clients.map(ask, part))
            found[name] = resident()
    return found


def resident() -> float:
    """What this process holds in memory, in MiB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def alone_seconds(ask: Callable[[Task], tuple[int, str]], tasks: Sequence[Task]) -> tuple[list[float], list[float]]:
    """Seconds that each question takes as its client sees it, and those of its rounds in the same request.

    Deliberations here and there differ by more than what a server adds, so that the two are timed in one.
    """
    for task in tasks:
        ask(task)  # the engine keeps what prompts begin with
    latencies, in_models, began = list[float](), list[float](), 0.0

    # Of any cell, for the server holds rounds by one of its own.
    def begin(module: nn.Module, *_: object) -> None:
        nonlocal began
        began = time.perf_counter() if isinstance(module, MacroRNNCell) else began

    def end(module: nn.Module, *_: object) -> None:
        in_models[-1] += time.perf_counter() - began if isinstance(module, MacroRNNCell) else 0

    # Rounds, for a client hears of the end before the deliberation returns.
    with register_module_forward_pre_hook(begin), register_module_forward_hook(end):
        for task in tasks:
            in_models.append(0.0)
            latencies.append(seconds(partial(ask, task)))
    return latencies, in_models


@contextmanager
def serving(rnn: MacroRNN) -> Iterator[Callable[[Task], tuple[int, str]]]:
    """A server in this process while open; what is given asks it and returns status and answer."""
    from nsed_torch.app.serve.app import Limits  # noqa: PLC0415 - an extra
    from nsed_torch.app.serve.batches import Batches  # noqa: PLC0415
    from nsed_torch.app.verbs.serve import bound, server_of  # noqa: PLC0415

    server = server_of(Batches({MODEL: rnn}, max_queue=QUESTIONS), Limits(), "")
    with bound("127.0.0.1", 0) as place:
        thread = threading.Thread(target=server.run, args=([place],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield partial(answer_of, place.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()


def answer_of(port: int, task: Task) -> tuple[int, str]:
    """The status and the content that the server at this port gives a question."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": task.question}], "task_id": task.id}
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        told = json.load(reply)
    return reply.status, told["choices"][0]["message"]["content"] if reply.status == 200 else str(told)


if __name__ == "__main__":
    print(json.dumps(work(*map(int, sys.argv[1:]))))
