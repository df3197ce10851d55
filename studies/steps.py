"""`python studies/steps.py errors|runs FOLDER`: how far a team of steppers gets, and what its single steps foretell.

`errors` has every member write single steps of towers of Hanoi whose works are given, and tells who errs, how often two
err together and alike, and what horizon that foretells. `runs` has each member alone, and the team with and without a
lead that is enough, do whole towers. Both write FOLDER/errors.json and FOLDER/runs.json, and go on where they stopped.
"""

import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from nsed_torch.agents import Agent, Ensemble, GenerateRequest, HashedEncoder, Prompts
from nsed_torch.agents.prompts import FINISHED
from nsed_torch.agents.requests import call_seed
from nsed_torch.benchmarks.generated import mixed_tasks
from nsed_torch.benchmarks.stepwise import StepwiseTasks, hanoi_moves, stepwise_tasks
from nsed_torch.config import conf_dir
from nsed_torch.deliberation import AgreementRating, MacroRNN, MacroRNNCell
from nsed_torch.evaluation.horizon import horizon
from nsed_torch.evaluation.statistics import clopper_pearson
from nsed_torch.experiments.build import build_ensemble, consensus_cell
from nsed_torch.nn import FixedHalting
from nsed_torch.records import CallLog, Task, Transcript

DISKS = (3, 4, 5, 6, 7, 8, 9, 10)
GREEDY = "alone, greedy"
SINGLE = 400
"""Single steps that each member writes."""


def towers(disks: Sequence[int], each: int) -> StepwiseTasks:
    """Towers of each height; the first of a height at this seed is the one that no lesson was about."""
    families = {
        f"towers_of_{n}": {"family": "tower_of_hanoi", "min_disks": n, "max_disks": n, "max_pegs": 3, "most": each}
        for n in disks
    }
    return stepwise_tasks(families, each * len(disks), seed=1)


def errors(ensemble: Ensemble, prompts: Prompts) -> dict[str, Any]:
    """Single steps, alike from all heights and all places but the first."""
    tasks = towers(DISKS, 1)
    draw = random.Random(0)  # noqa: S311 - variety, not secrecy
    wanted, works = [], []
    for i in range(SINGLE):
        task = tasks.tasks[i % len(tasks.tasks)]
        chain = tasks.chains[task.id]
        place = draw.randrange(1, len(chain))
        works.append((task, chain[place - 1]))
        wanted.append(chain[place])
    said: dict[str, list[str]] = {}
    for agent in [greedy(ensemble.agents[0]), *ensemble.agents]:
        requests = []
        for i, (task, work) in enumerate(works):
            asked = prompts.work(task.question, [work], seed=i)
            messages = prompts.propose(asked, memory=(), critiques=(), persona="", seed=i)
            seed = call_seed(agent.name, i)
            requests.append(GenerateRequest(agent.name, messages, agent.decoding, seed, agent.adapter))
        name = agent.name if agent.decoding.temperature else GREEDY
        said[name] = [generation.text for generation in ensemble.generate(requests)]
    wrong = {name: [text != right for text, right in zip(texts, wanted, strict=True)] for name, texts in said.items()}
    names = [name for name in said if name != GREEDY]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    elected = [commonest([said[name][i] for name in names]) for i in range(SINGLE)]
    lost = [text != right for text, right in zip(elected, wanted, strict=True)]
    return {
        "n": SINGLE,
        "wrong": {name: share(flags) for name, flags in wrong.items()},
        "both_wrong": {
            f"{a}, {b}": share([x and y for x, y in zip(wrong[a], wrong[b], strict=True)]) for a, b in pairs
        },
        "alike": {
            f"{a}, {b}": share([x and s == t for x, s, t in zip(wrong[a], said[a], said[b], strict=True)])
            for a, b in pairs
        },
        "vote_wrong": share(lost),
        "foretold": {name: foretold(flags) for name, flags in {**wrong, "vote": lost}.items()},
    }


def greedy(agent: Agent) -> Agent:
    """The agent that always writes what is likeliest."""
    return replace(agent, decoding=replace(agent.decoding, temperature=0.0))


def commonest(texts: Sequence[str]) -> str:
    """The first of the commonest."""
    return max(texts, key=texts.count)


def share(flags: Sequence[bool]) -> list[float]:
    """With its 95% interval."""
    return [sum(flags) / len(flags), *clopper_pearson(sum(flags), len(flags))]


def foretold(flags: Sequence[bool]) -> float:
    """Steps at which half of all chains still hold, if every step fails alike; inf where none failed."""
    rate = sum(flags) / len(flags)
    return math.log(0.5) / math.log1p(-rate) if 0 < rate < 1 else (math.inf if rate == 0 else 0.0)


def runs(ensemble: Ensemble, prompts: Prompts, disks: Sequence[int], each: int) -> dict[str, Any]:
    """Whole towers, by every member alone, by all, and by as many as it takes to be two ahead."""
    tasks = towers(disks, each)
    ways = {GREEDY: ([greedy(agent) for agent in ensemble.agents], 1)}
    ways |= {
        f"{agent.name} alone": ([agent, *(a for a in ensemble.agents if a != agent)], 1) for agent in ensemble.agents
    }
    ways |= {"team": (list(ensemble.agents), None), "team, two ahead": (list(ensemble.agents), 2)}
    found: dict[str, Any] = {}
    for name, (agents, ahead) in ways.items():
        cell = MacroRNNCell(
            Ensemble(ensemble.engines, agents, call_log=ensemble.call_log),
            HashedEncoder(8),
            consensus_cell(dim=8, agents=len(agents), slots=1),
            prompts=prompts,
            rating=AgreementRating(),
            unit="step",
            ahead=ahead,
        )
        rnn = MacroRNN(cell, halting=FixedHalting(2 ** max(disks) + 8))
        with torch.no_grad():
            transcripts = rnn(tasks.tasks).transcripts
        rows = [row(tasks, task, transcript) for task, transcript in zip(tasks.tasks, transcripts, strict=True)]
        half = horizon([r["steps"] for r in rows], [r["right"] for r in rows])
        found[name] = {"horizon": half.steps, "interval": list(half.interval), "towers": rows}
        print(name, half, [(r["steps"], r["held"]) for r in rows], flush=True)
    return found


def row(tasks: StepwiseTasks, task: Task, transcript: Transcript) -> dict[str, Any]:
    """How a tower went: steps it takes, steps held until the first wrong one, and whether its moves solve it."""
    chain = tasks.chains[task.id]
    elected = [r.proposals[r.winner].text if r.winner is not None else "" for r in transcript.rounds]
    held = next((i for i, (a, b) in enumerate(zip(elected, chain, strict=False)) if a != b), len(elected))
    return {
        "task": task.id,
        "steps": len(chain),
        "held": held,
        "right": solved(task, elected),
        "stop": transcript.stop_reason,
        "rounds": len(transcript.rounds),
        "calls": sum(len(r.proposals) for r in transcript.rounds),
        "contested": sum(len(r.elected) < len(r.proposals) for r in transcript.rounds),
        "tokens": transcript.usage.tokens,
        "seconds": transcript.usage.seconds,
    }


def solved(task: Task, elected: Sequence[str]) -> bool:
    """Whether the moves between the elected works get full marks from the family's own scorer."""
    label, seed, _ = task.id.rsplit("-", 2)
    count = int(label.rsplit("_", 1)[1])
    family = {label: {"family": "tower_of_hanoi", "min_disks": count, "max_disks": count, "max_pegs": 3}}
    items = mixed_tasks(family, 6, int(seed)).grader.items  # type: ignore[attr-defined]
    item = items[task.id]
    works = [text for text in elected if not text.startswith(FINISHED.strip())]
    try:
        return bool(item.dataset.score_answer(hanoi_moves(works), item.entry) == 1)
    except ValueError:
        return False


def main(what: str, folder: Path, *disks: str) -> None:
    """Load the shipped team and write what was asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose("evaluate", ["ensemble=steps"])
    with CallLog(folder / "calls.sqlite") as log:
        ensemble = build_ensemble(config.ensemble, log)
        prompts = Prompts(style="direct")
        heights = [int(n) for n in disks] or list(DISKS)
        result = errors(ensemble, prompts) if what == "errors" else runs(ensemble, prompts, heights, 1)
    (folder / f"{what}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result if what == "errors" else {k: v["horizon"] for k, v in result.items()}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
