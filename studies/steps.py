"""`python studies/steps.py errors|runs|odds FOLDER [disks ...] [setting=value ...]`: how far a team of steppers gets.

`errors` has every member write single steps of towers of Hanoi whose works are given, and tells who errs, how often two
err together and alike, and what horizon that foretells. `runs` has each member alone, and the team with and without a
lead that is enough, do a whole tower of each height. `odds` has each member alone and the team do one tower twenty
times; agents named in `protocol.without` write all of it in one text. All write FOLDER/<what>.json, and go on where
they stopped. Settings are those of `nsed evaluate ensemble=steps`.
"""

import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
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
from nsed_torch.evaluation.horizon import elected_steps, ended_in_time, horizon, steps_held
from nsed_torch.evaluation.methods import Single
from nsed_torch.evaluation.methods.panel import Panel
from nsed_torch.evaluation.statistics import clopper_pearson
from nsed_torch.experiments.build import build_ensemble, consensus_cell
from nsed_torch.nn import FixedHalting
from nsed_torch.records import CallLog, Task, Usage

DISKS = (3, 4, 5, 6, 7, 8, 9, 10)
GREEDY = "alone, greedy"
SINGLE = 400
"""Single steps that each member writes."""
TIMES = 20
"""How often the tower of `odds` is done by everybody."""


def towers(disks: Sequence[int], each: int) -> StepwiseTasks:
    """Towers of each height; the first of a height at this seed is the one that no lesson was about."""
    families = {
        f"towers_of_{n}": {"family": "tower_of_hanoi", "min_disks": n, "max_disks": n, "max_pegs": 3, "most": each}
        for n in disks
    }
    return stepwise_tasks(families, each * len(disks), seed=1)


def errors(ensemble: Ensemble, prompts: Prompts, disks: Sequence[int], without: Sequence[str] = ()) -> dict[str, Any]:
    """Single steps, alike from all heights and all places."""
    tasks = towers(disks or DISKS, 1)
    draw = random.Random(0)  # noqa: S311 - variety, not secrecy
    wanted, works = [], []
    for i in range(SINGLE):
        task = tasks.tasks[i % len(tasks.tasks)]
        chain = tasks.chains[task.id]
        place = draw.randrange(len(chain))
        works.append((task, (task.start, *chain)[place]))
        wanted.append(chain[place])
    said: dict[str, list[str]] = {}
    for name, agent in alone(ensemble, without).items():
        requests = []
        for i, (task, work) in enumerate(works):
            asked = prompts.work(task.question, [work], seed=i, backwards=agent.backwards)
            messages = prompts.propose(asked, memory=(), critiques=(), persona=agent.persona, seed=i)
            seed = call_seed(agent.name, i)
            requests.append(GenerateRequest(agent.name, messages, agent.decoding, seed, agent.adapter))
        said[name] = [generation.text for generation in ensemble.generate(requests)]
    wrong = {name: [text != right for text, right in zip(texts, wanted, strict=True)] for name, texts in said.items()}
    names = [name for name in said if not name.endswith(GREEDY)]
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


def runs(ensemble: Ensemble, prompts: Prompts, disks: Sequence[int], without: Sequence[str] = ()) -> dict[str, Any]:
    """A tower of each height, by every member alone, by all, and by as many as it takes to be two ahead."""
    tasks = towers(disks or DISKS, 1)
    found: dict[str, Any] = {}
    for name, how in {**ways(ensemble, without), "team, two ahead": {"ahead": 2, "without": without}}.items():
        rows = done(ensemble, prompts, tasks, **how)
        half = horizon([r["steps"] for r in rows], [r["right"] for r in rows])
        in_time = share([r["in_time"] for r in rows])
        found[name] = {"horizon": half.steps, "interval": list(half.interval), "in_time": in_time, "towers": rows}
        held = ", ".join(f"{r['held']} of {r['steps']}" for r in rows)
        print(f"{name}: horizon {half.steps:.0f} steps; held {held}; {ended(rows)}", flush=True)
    return found


def odds(ensemble: Ensemble, prompts: Prompts, disks: Sequence[int], without: Sequence[str] = ()) -> dict[str, Any]:
    """One tower twenty times, by every member alone and by all; and in one text by those who are no steppers."""
    tasks = towers(disks or (7,), 1).limited(1).repeated(TIMES)
    panel = Panel(ensemble, prompts, AgreementRating(), tasks.grader)
    found: dict[str, Any] = {}
    for name, how in {**ways(ensemble, without), **dict.fromkeys(without)}.items():
        if how is None:
            answers = Single(name)(panel, tasks.tasks)
            rows = [row(tasks, t, a.text.splitlines(), a.usage) for t, a in zip(tasks.tasks, answers, strict=True)]
        else:
            rows = done(ensemble, prompts, tasks, **how)
        right = [r["right"] for r in rows]
        first = [r["held"] + 1 for r in rows if not r["right"]]
        means = {name: fmean(r[name] for r in rows) for name in ("seconds", "tokens")}
        found[name] = {"right": share(right), "first_wrong": fmean(first) if first else None, **means, "runs": rows}
        told = "" if not first else f", first wrong step {fmean(first):.0f} on average of the others"
        cost = f"{means['seconds']:.0f} s and {means['tokens']:,.0f} tokens a run"
        print(f"{name}: right {sum(right)} of {len(right)}{told}; {ended(rows)}{cost}", flush=True)
    return found


def ways(ensemble: Ensemble, without: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Every stepper alone, then all together: arguments of `done`."""
    return {name: {"who": agent} for name, agent in alone(ensemble, without).items()} | {"team": {"without": without}}


def alone(ensemble: Ensemble, without: Sequence[str]) -> dict[str, Agent]:
    """One stepper of every kind, which always writes what is likeliest, and every stepper as it samples."""
    steppers = [agent for agent in ensemble.agents if agent.name not in without]
    kinds: dict[tuple[Any, ...], Agent] = {}
    for agent in steppers:
        kinds.setdefault((agent.backbone, agent.adapter, agent.persona, agent.backwards), agent)
    likeliest = {GREEDY if len(kinds) == 1 else f"{agent.name}, {GREEDY}": agent for agent in kinds.values()}
    greedy = {name: replace(a, decoding=replace(a.decoding, temperature=0.0)) for name, a in likeliest.items()}
    return greedy | {agent.name: agent for agent in steppers}


def done(
    ensemble: Ensemble,
    prompts: Prompts,
    tasks: StepwiseTasks,
    *,
    who: Agent | None = None,
    ahead: int | None = None,
    without: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """How the towers went, by one alone or by all but those left out."""
    agents = [who if who and agent.name == who.name else agent for agent in ensemble.agents]
    cell = MacroRNNCell(
        Ensemble(ensemble.engines, agents, call_log=ensemble.call_log),
        HashedEncoder(8),
        consensus_cell(dim=8, agents=len(agents), slots=1),
        prompts=prompts,
        rating=AgreementRating(),
        unit="step",
        ahead=ahead,
    )
    chains = [tasks.chains[tasks.group(task)] for task in tasks.tasks]
    others = [agent.name for agent in agents if agent != who] if who else without
    rnn = MacroRNN(cell, halting=FixedHalting(max(map(len, chains)) + 7), without=others)
    with torch.no_grad():
        transcripts = rnn(tasks.tasks).transcripts
    return [
        row(tasks, t.task, elected_steps(t), t.usage)
        | {"stop": t.stop_reason, "rounds": len(t.rounds), "contested": sum(r.contested for r in t.rounds)}
        | {"in_time": in_time}
        for t, in_time in zip(transcripts, ended_in_time(transcripts, chains), strict=True)
    ]


def row(tasks: StepwiseTasks, task: Task, steps: Sequence[str], usage: Usage) -> dict[str, Any]:
    """How a tower went: steps it takes, steps held until the first wrong one, and whether its moves solve it."""
    chain = tasks.chains[tasks.group(task)]
    costs = {"calls": usage.calls, "tokens": usage.tokens, "seconds": usage.seconds}
    right = solved(tasks.group(task), [task.start, *steps])
    return {"task": task.id, "steps": len(chain), "held": steps_held(steps, chain), "right": right, **costs}


def ended(rows: Sequence[dict[str, Any]]) -> str:
    """In how many of some runs the vote to finish came when it should; "" of texts, which do not vote."""
    if "in_time" not in rows[0]:
        return ""
    return f"voted to finish within 2 steps of the end in {sum(r['in_time'] for r in rows)} of {len(rows)}; "


def solved(name: str, steps: Sequence[str]) -> bool:
    """Whether the moves between the works of a tower get full marks from the family's own scorer."""
    label, seed, _ = name.rsplit("-", 2)
    count = int(label.rsplit("_", 1)[1])
    family = {label: {"family": "tower_of_hanoi", "min_disks": count, "max_disks": count, "max_pegs": 3}}
    items = mixed_tasks(family, 6, int(seed)).grader.items  # type: ignore[attr-defined]
    item = items[name]
    works = [text for text in steps if not text.startswith(FINISHED.strip())]
    try:
        return bool(item.dataset.score_answer(hanoi_moves(works), item.entry) == 1)
    except ValueError:
        return False


STUDIES: dict[str, Callable[..., dict[str, Any]]] = {"errors": errors, "runs": runs, "odds": odds}


def main(what: str, folder: Path, *words: str) -> None:
    """Load the team and write what was asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    disks, settings = [int(w) for w in words if "=" not in w], [w for w in words if "=" in w]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose("evaluate", ["ensemble=steps", *settings])
    with CallLog(folder / "calls.sqlite") as log:
        ensemble = build_ensemble(config.ensemble, log)
        result = STUDIES[what](ensemble, Prompts(style="direct"), disks, list(config.protocol.without))
    (folder / f"{what}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if what == "errors":
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
