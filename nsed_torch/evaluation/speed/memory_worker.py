"""The process whose memory is measured: `python -m nsed_torch.evaluation.speed.memory_worker '{"agents": 4, ...}'`."""

import json
import sys
from pathlib import Path

import torch

from nsed_torch.agents import (
    Agent,
    Decoding,
    Ensemble,
    GenerateRequest,
    HashedEncoder,
    Prompts,
    RateRequest,
    RatingScale,
    TransformersEngine,
    Weights,
    load_backbone,
)
from nsed_torch.deliberation import MacroRNN, MacroRNNCell, Observer
from nsed_torch.evaluation.speed.requests import PERSONAS, give_adapters, questions, unstoppable
from nsed_torch.nn import ConsensusCell, FixedHalting
from nsed_torch.records import Round, Task

ROUNDS = (1, 2, 4, 8)
"""After how many rounds the peak is read."""

TASK = Task(questions(1)[0])
CANDIDATES = ("Add the tens, then the ones, then carry. Answer: 46", "It is about fifty. Answer: 50")
AGENTS = 3
"""Who deliberates where rounds are counted."""

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def main(arguments: str) -> str:
    """Do the work of one process.

    Args:
        arguments: JSON of `backbone`, and `agents` or `rounds`.

    Returns:
        JSON of `loaded`, the peak of loading, and `peaks` since then where the system can tell, one after all agents'
        work or one a round; in MiB.
    """
    asked = json.loads(arguments)
    backbone = dict(asked["backbone"])
    engine = load_backbone(Weights(**backbone.pop("weights")), **backbone)
    loaded = peak()
    forget_peak()
    with unstoppable(engine):
        peaks = of_agents(engine, asked["agents"]) if "agents" in asked else of_rounds(engine, asked["rounds"])
    return json.dumps({"loaded": loaded, "peaks": peaks})


def of_agents(engine: TransformersEngine, agents: int) -> list[float]:
    """The peak after agents with an adapter each have answered a task and rated two answers to it.

    Args:
        engine: with a backbone and no adapters.
        agents: how many.
    """
    prompts, scale = Prompts(), RatingScale()
    asked, judged = [], []
    for i, adapter in enumerate(give_adapters(engine, agents)):
        persona = PERSONAS[i % len(PERSONAS)]
        messages = prompts.propose(TASK.question, memory=CANDIDATES, critiques=(), persona=persona, seed=i)
        asked.append(GenerateRequest(adapter, messages, Decoding(max_new_tokens=16), seed=i, adapter=adapter))
        messages, candidates = prompts.judge(
            "rate", TASK.question, candidates=CANDIDATES, listed=True, persona=persona, seed=i, labels=scale.labels
        )
        judged.append(RateRequest(adapter, messages, candidates, scale, adapter=adapter))
    engine.generate(asked)
    engine.rate(judged)
    return [peak()]


def of_rounds(engine: TransformersEngine, rounds: int) -> list[float]:
    """The peaks so far after each round of a whole deliberation of 3 agents on a task.

    Args:
        engine: what all agents share.
        rounds: how many.
    """
    decoding = Decoding(max_new_tokens=48)
    agents = [Agent(f"agent{i}", "backbone", persona, decoding) for i, persona in enumerate(PERSONAS[:AGENTS])]
    encoder = HashedEncoder()
    cell = MacroRNNCell(Ensemble({"backbone": engine}, agents), encoder, ConsensusCell(encoder.dim, len(agents)))
    watch = _Peaks()
    with torch.no_grad():
        MacroRNN(cell, halting=FixedHalting(rounds))([TASK], observer=watch)
    return [watch.peaks[index] for index in range(1, rounds + 1)]


def peak() -> float:
    """The most memory this process has held so far, in MiB; on CUDA the device's."""
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 2**20
    if STATUS.exists():
        # Not getrusage: on Linux a process inherits that peak from the one that started it.
        return resident_peak(STATUS.read_text())
    import resource  # noqa: PLC0415 - not on every system

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


class _Peaks(Observer):
    """Notes the peak after each round."""

    def __init__(self) -> None:
        self.peaks: dict[int, float] = {}

    def on_round(self, task: Task, record: Round) -> None:
        self.peaks[record.index] = peak()


if __name__ == "__main__":
    print(main(sys.argv[1]))  # noqa: T201 - the result
