"""`python -m studies.step_odds FILE SETTING=VALUE...`: how likely samples, and a vote of them, take the right step.

Where members hardly err, thousands of steps have to be drawn before a vote of them errs once. Nothing is drawn here:
behind every right work each kind of member reads the right step, and how likely it would have written it, at
temperature 1, is stored in FILE, docs/data/PAGE/RUN.odds.jsonl.gz. What a vote of samples makes of that is worked out,
at the least (`least_elected`). Settings are those of `nsed evaluate`, with a benchmark of steps. Without settings, a
FILE that is there is told about.
"""

import gzip
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_dir

from nsed_torch.agents import Agent, Ensemble, Prompts
from nsed_torch.agents.forms import form_named
from nsed_torch.agents.requests import LikelihoodRequest, call_seed
from nsed_torch.benchmarks.stepwise import StepwiseTasks
from nsed_torch.config import conf_dir, instantiate
from nsed_torch.evaluation.horizon import foretold_horizon
from nsed_torch.experiments.build import build_ensemble
from nsed_torch.records import Task
from nsed_torch.records.files import parse_json
from studies.step_outcomes import whole_works

ENDING = ".odds.jsonl.gz"

AHEAD = 2
"""By how much a step has to lead for nobody else to be asked."""

VOTE, VOTE_OF = "the vote", "vote of "

DIGITS, SLACK = 9, 1e-6
"""Of leads, which sums in another order do not meet exactly."""

DRAWS = 2000
"""Of the tasks, with replacement, for an interval."""


def least_elected(right: Sequence[float], ahead: float = AHEAD, weights: Sequence[float] | None = None) -> float:
    """How likely the right step is elected, at the least, by members who write it with these probabilities, in turn.

    As if all wrong steps were one and won where both have as many votes. A right step likelier than 0.5 has only
    likeliest tokens, so that drawing at a temperature below 1 makes it likelier still.

    Args:
        right: how likely each writes the right step.
        ahead: by how many votes a step has to lead for nobody else to be asked.
        weights: votes of each; one each without.
    """
    undecided, won = {0.0: 1.0}, 0.0  # by the right step's lead
    for asked, (p, weight) in enumerate(zip(right, weights or [1.0] * len(right), strict=True), 1):
        after: dict[float, float] = {}
        for lead, likely in undecided.items():
            for said, part in ((weight, p), (-weight, 1 - p)):
                there = round(lead + said, DIGITS)
                after[there] = after.get(there, 0.0) + likely * part
        decided = {lead for lead in after if abs(lead) >= ahead - SLACK or asked == len(right)}
        won += sum(after[lead] for lead in decided if lead > SLACK)
        undecided = {lead: likely for lead, likely in after.items() if lead not in decided}
    return won


def read_steps(
    ensemble: Ensemble, prompts: Prompts, task: Task, chain: Sequence[str], kinds: Sequence[Agent], seed: int = 0
) -> list[list[float]]:
    """How likely each of some agents does not write the right step, behind each right work of a task, one row each."""
    mark = call_seed(seed, task.id, "propose")
    requests = []
    for work, step in zip([task.start, *chain[:-1]], chain, strict=True):
        for agent in kinds:
            shown = prompts.work(task.question, [work] if work else [], seed=mark, form=agent.form)
            chat = prompts.propose(shown, memory=(), critiques=(), persona="", seed=mark)
            text = form_named(agent.form).written(step)
            requests.append(LikelihoodRequest(agent.name, chat, (text,), agent.adapter))
    wrong = [1 - (one.values[0] or 0.0) ** one.lengths[0] for one in ensemble.measure(requests)]
    return [wrong[i : i + len(kinds)] for i in range(0, len(wrong), len(kinds))]


def keep_odds(file: Path, settings: Sequence[str]) -> None:
    """Read all steps of the tasks of these settings, and store a task a line."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose("evaluate", overrides=list(settings))
    graded = instantiate(cfg.benchmark)
    if not isinstance(graded, StepwiseTasks):
        raise TypeError(f"expected tasks in steps, got {type(graded).__name__}: set benchmark=steps")
    ensemble, prompts = build_ensemble(cfg.ensemble), instantiate(cfg.prompts)
    kinds = {(a.backbone, a.adapter, a.form): a for a in reversed(ensemble.agents)}
    first = [agent for agent in ensemble.agents if agent in kinds.values()]
    lines = []
    for number, task in enumerate(graded.tasks, 1):
        rows = read_steps(ensemble, prompts, task, graded.chains[task.id], first)
        wrong = [[float(f"{error:.3g}") for error in row] for row in rows]
        lines.append(json.dumps({"task": task.id, "agents": [a.name for a in first], "wrong": wrong}) + "\n")
        print(f"{number} of {len(graded.tasks)} tasks read", file=sys.stderr, flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))


class OddsFigures:
    """The functions of claims about such runs, by name.

    `who` is the vote, a kind of member, or several with blanks between them and "vote of " before them; a vote is of so
    many samples of each, in turn; who is named twice has two. `weighed_by` is a run whose errors weigh the votes, by
    their log-odds (Nitzan and Paroush 1982), until one step leads by three votes of the best.
    """

    def __init__(self, runs: Mapping[str, list[dict[str, Any]]]) -> None:
        self.runs = runs

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By name."""
        names = ("odds", "odds_horizon", "odds_times", "odds_steps", "odds_doubtful", "odds_run", "odds_works")
        return {name: getattr(self, name) for name in names}

    def odds(self, run: str, who: str = VOTE, samples: int = 3, weighed_by: str | None = None) -> str:
        """How often a step is wrong, with an interval over tasks."""
        return shown(self._errors(run, who, samples, weighed_by), 5)

    def odds_horizon(self, run: str, who: str = VOTE, samples: int = 3, weighed_by: str | None = None) -> str:
        """Steps after which half of all works are right, were all steps alike."""
        return f"{foretold_horizon(_mean(self._errors(run, who, samples, weighed_by))):,.0f}"

    def odds_times(self, run: str, who: str, samples: int = 3, vote: str = VOTE, weighed_by: str | None = None) -> str:
        """How many times as far a vote reaches as somebody, with an interval over tasks."""
        theirs, ours = self._errors(run, who, samples), self._errors(run, vote, samples, weighed_by)
        pairs = list(zip(ours, theirs, strict=True))

        def times(some: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
            vote, one = (foretold_horizon(_mean(errors)) for errors in zip(*some, strict=True))
            return vote / one

        low, high = interval([times([pairs[i] for i in some]) for some in drawn(len(pairs))])
        return f"{times(pairs):.1f} [{low:.1f}, {high:.1f}]"

    def odds_steps(self, run: str) -> str:
        """Steps read."""
        return f"{sum(len(task['wrong']) for task in self.runs[run]):,}"

    def odds_doubtful(self, run: str, who: str) -> str:
        """Steps whose right text has a probability of no more than 0.5: greedily, at most so many are wrong."""
        return f"{sum(int((errors >= 0.5).sum()) for errors in self._errors(run, who, 1))}"

    def odds_run(self, run: str, who: str = VOTE, samples: int = 3, weighed_by: str | None = None) -> str:
        """How likely all steps of all tasks are right, one after the other."""
        return f"{math.prod(float((1 - errors).prod()) for errors in self._errors(run, who, samples, weighed_by)):.4f}"

    def odds_works(self, run: str, samples: int = 3, who: str = VOTE) -> str:
        """Steps after which at least two of all samples of a vote are unbroken in half of the works."""
        names = self.runs[run][0]["agents"] if who == VOTE else who.removeprefix(VOTE_OF).split()
        rates = [(samples, 1 - _mean(self._errors(run, name, 1))) for name in names]
        return f"{whole_works(rates):,.0f}"

    def _errors(self, run: str, who: str, samples: int, weighed_by: str | None = None) -> list[np.ndarray]:
        """Of each task, how likely each step is wrong."""
        tasks = self.runs[run]
        known = tasks[0]["agents"]
        names = known if who == VOTE else who.removeprefix(VOTE_OF).split()
        rows = [np.asarray(task["wrong"])[:, [known.index(name) for name in names]] for task in tasks]
        if who != VOTE and not who.startswith(VOTE_OF):
            return [row[:, 0] for row in rows]
        ahead, weights = float(AHEAD), [1.0] * len(names)
        if weighed_by:
            slips = [_mean(self._errors(weighed_by, name, 1)) for name in names]
            weights = [math.log((1 - slip) / slip) for slip in slips]
            ahead = 3 * max(weights)
        weights *= samples
        votes = ([1 - least_elected([*(1 - errors)] * samples, ahead, weights) for errors in row] for row in rows)
        return [np.maximum(list(errors), 0.0) for errors in votes]


def load_odds(path: Path) -> list[dict[str, Any]]:
    """Read what `keep_odds` wrote; what cannot be read is a ValueError with its file."""
    with gzip.open(path, "rb") as file:
        return [parse_json(line, str(path), "read the steps again") for line in file]


def shown(errors: Sequence[np.ndarray], digits: int) -> str:
    """The mean over all steps, with a 95% interval by drawing tasks with replacement."""
    low, high = interval([_mean([errors[i] for i in some]) for some in drawn(len(errors))])
    return f"{_mean(errors):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def drawn(tasks: int) -> np.ndarray:
    """Places of tasks, drawn with replacement, a row for each time; the same ones every time."""
    return np.random.default_rng(0).integers(tasks, size=(DRAWS, tasks))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The middle 95%."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def _mean(errors: Sequence[np.ndarray]) -> float:
    return float(np.concatenate(errors).mean())


def main(file: Path, settings: Sequence[str]) -> None:
    """Read and store, if there are settings; then tell what a vote of three samples of each makes of it."""
    if settings:
        keep_odds(file, settings)
    name = file.name.removesuffix(ENDING)
    told = OddsFigures({name: load_odds(file)})
    print(f"{told.odds_steps(name)} steps; how often wrong, and the horizon that this foretells")
    for who in (VOTE, *told.runs[name][0]["agents"]):
        print(f"{who}: {told.odds(name, who)}, {told.odds_horizon(name, who)} steps; all: {told.odds_run(name, who)}")
        if who != VOTE:
            print(f"  greedily at most {told.odds_doubtful(name, who)}; the vote: {told.odds_times(name, who)} times")
    print(f"whole works of all samples: {told.odds_works(name)}")


if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].endswith(ENDING):
        sys.exit(f"usage: python -m studies.step_odds FILE{ENDING} SETTING=VALUE...")
    main(Path(sys.argv[1]), sys.argv[2:])
