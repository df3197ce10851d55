"""How much memory more agents and more rounds take; each point is measured in a fresh process, `work`."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from bench.requests import PERSONAS, give_adapters, questions, unstoppable
from bench.startup import environment
from bench.timing import Measurement
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding, GenerateRequest, RateRequest, RatingScale
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell, Observer
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.engines.weights import Weights
from nsed_torch.records.transcript import Round, Task

AGENTS = (1, 2, 4, 8)
"""Agents on one backbone, each with an adapter of its own."""

ROUNDS = (1, 2, 4, 8)
"""After how many rounds of one deliberation the peak is read."""

TEAM = 3
"""Agents who deliberate where rounds are counted."""

QUANTIZATIONS = ("none", "int8", "nf4")

TASK = Task(questions(1)[0])
CANDIDATES = ("Add the tens, then the ones, then carry. Answer: 46", "It is about fifty. Answer: 50")

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def memory_lines(backbone: Mapping[str, Any], report: Callable[[str], None] = print) -> list[Measurement]:
    """Peak memory in MiB of 2, 4 and 8 agents against one, and after 2, 4 and 8 rounds against one round.

    The peak is the process's largest resident memory, libraries included; on CUDA it is what PyTorch took at most
    of the device's. Ours is the larger number of agents or rounds; the fact `times_as_much` is how many times the
    memory of one it takes, and `loaded` the peak of loading, which is not counted where the system can tell.

    Args:
        backbone: keyword arguments of `load_backbone` as JSON has them; `weights` holds those of `Weights`. The
            quantization is set here.
        report: hears of quantizations that this machine cannot do; their lines are left out.
    """
    lines = []
    for quantization in QUANTIZATIONS:
        settings = {**backbone, "quantization": quantization}
        try:
            by_agents = {n: run({"backbone": settings, "agents": n}) for n in AGENTS}
            by_rounds = run({"backbone": settings, "rounds": ROUNDS[-1]})
        except ChildProcessError as error:
            report(f"memory, {quantization}: left out: {error}")
            continue
        peaks = {n: found["peaks"][-1] for n, found in by_agents.items()}
        lines += compared(f"agents on one backbone, {quantization}", peaks, by_agents[AGENTS[0]]["loaded"])
        peaks = {n: by_rounds["peaks"][n - 1] for n in ROUNDS}
        lines += compared(f"rounds, {quantization}", peaks, by_rounds["loaded"])
    return lines


def compared(what: str, peaks: Mapping[int, float], loaded: float) -> list[Measurement]:
    """A line for each peak against that of the least."""
    least, *more = peaks
    return [
        Measurement(
            f"memory, {what}",
            str(n),
            str(least),
            (peaks[n],),
            (peaks[least],),
            unit="MiB",
            facts={"of": n, "times_as_much": peaks[n] / peaks[least], "loaded": loaded},
        )
        for n in more
    ]


def run(arguments: Mapping[str, Any], module: str = "bench.memory") -> dict[str, Any]:
    """What a module's `work` finds in a process of its own.

    Raises:
        ChildProcessError: if the process failed; says why.
    """
    command = [sys.executable, "-P", "-m", module, json.dumps(arguments)]
    done = subprocess.run(  # noqa: S603 - our own words
        command, capture_output=True, text=True, check=False, env=environment()
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"])[-1]
        raise ChildProcessError(last)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def work(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What one process does: load the `backbone`, then let `agents` speak or deliberate for `rounds`.

    Returns:
        `loaded`, the peak of loading, and `peaks` since then where the system can tell: one after all agents' work,
        or one per round; in MiB.
    """
    backbone = dict(arguments["backbone"])
    engine = load_backbone(Weights(**backbone.pop("weights")), **backbone)
    loaded = peak()
    forget_peak()
    with unstoppable(engine):
        if "agents" in arguments:
            return {"loaded": loaded, "peaks": [of_agents(engine, arguments["agents"])]}
        return {"loaded": loaded, "peaks": of_rounds(engine, arguments["rounds"])}


def of_agents(engine: TransformersEngine, agents: int) -> float:
    """The peak after agents with an adapter each have answered a task and rated two answers to it."""
    prompts, scale = Prompts(), RatingScale()
    to_answer, to_rate = [], []
    for i, adapter in enumerate(give_adapters(engine, agents)):
        persona = PERSONAS[i % len(PERSONAS)]
        messages = prompts.propose(TASK.question, memory=CANDIDATES, critiques=(), persona=persona, seed=i)
        to_answer.append(GenerateRequest(adapter, messages, Decoding(max_new_tokens=16), seed=i, adapter=adapter))
        messages, candidates = prompts.judge(
            "rate", TASK.question, candidates=CANDIDATES, listed=True, persona=persona, seed=i, labels=scale.labels
        )
        to_rate.append(RateRequest(adapter, messages, candidates, scale, adapter=adapter))
    engine.generate(to_answer)
    engine.rate(to_rate)
    return peak()


def of_rounds(engine: TransformersEngine, rounds: int) -> list[float]:
    """The peaks so far after each round of a whole deliberation of 3 agents on a task."""
    decoding = Decoding(max_new_tokens=48)
    agents = [Agent(f"agent{i}", "backbone", persona, decoding) for i, persona in enumerate(PERSONAS[:TEAM])]
    encoder = HashedEncoder()
    cell = MacroRNNCell(Ensemble({"backbone": engine}, agents), encoder, ConsensusCell(encoder.dim, len(agents)))
    peaks: list[float] = []

    class Watch(Observer):
        def on_round(self, task: Task, record: Round) -> None:
            peaks.append(peak())

    with torch.no_grad():
        MacroRNN(cell, halting=FixedHalting(rounds))([TASK], observer=Watch())
    return peaks


def peak() -> float:
    """The most memory this process has held so far, in MiB; on CUDA the device's."""
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 2**20
    if STATUS.exists():
        # Not getrusage: on Linux a process inherits that peak from the one that started it.
        return resident_peak(STATUS.read_text())
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def forget_peak() -> None:
    """Let the peak be that from now on, where the system can: loading reads weights twice and would hide the rest."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    elif CLEAR.exists():
        CLEAR.write_text("5")  # what it is for: see proc(5)


def resident_peak(status: str) -> float:
    """VmHWM of a process's status as Linux shows it, in MiB."""
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**10


if __name__ == "__main__":
    print(json.dumps(work(json.loads(sys.argv[1]))))
