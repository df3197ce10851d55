"""`-m nsed_lab.studies.step_odds [--greedily] FILE SETTING=VALUE...`: how likely votes take the right step.

Where members hardly err, thousands of steps have to be drawn before a vote of them errs once. So behind every right
work each kind of member reads the right step, and how likely it would have written it, at temperature 1, is stored in
FILE, lab/data/PAGE/RUN.odds.jsonl.gz. Where that leaves a doubt, what else it writes is drawn and stored too, and what
it writes greedily. What a vote of samples makes of that is worked out (`vote_odds`). Settings are those of
`nsed evaluate`, with a benchmark of steps. Without settings, a FILE that is there is told about.

`--greedily` is for votes of those who decode greedily: nothing is drawn, the first two read all steps, and others, who
are asked where these differ, only where one of the two may be wrong. A run of the two can so be gone on with by more.
"""

import functools
import gzip
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hydra import compose

from nsed_lab.studies.step_outcomes import three_works, whole_works
from nsed_lab.studies.vote_odds import NONE, RIGHT, Odds, drawn_elected, least_elected, said_by
from nsed_torch.app.build import build_ensemble
from nsed_torch.app.config.hydra_node import composing
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import GenerateRequest, LikelihoodRequest, Message, call_seed
from nsed_torch.core.prompts import Prompts
from nsed_torch.evaluation.horizon import foretold_horizon
from nsed_torch.evaluation.statistics import Estimate, share, shown
from nsed_torch.parts.forms import form_named, next_step
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.files import parse_json, write_files
from nsed_torch.records.transcript import Task

ENDING = ".odds.jsonl.gz"

AHEAD = 2
"""By how much a step has to lead for nobody else to be asked."""

VOTE, VOTE_OF, GREEDY = "the vote", "vote of ", "="

DOUBT, SAMPLES = 0.05, 32
"""Who is wrong more often than the first at a step is drawn so many times there."""

ALWAYS, TASKS = 2, 16
"""Members who are asked at every step, where two have to agree; tasks that are read together."""

DRAWS = 2000
"""Of the tasks, with replacement, for an interval."""


_least_elected = functools.lru_cache(1000)(least_elected)  # of who decodes greedily a few serve for all steps


class Place(NamedTuple):
    """A step of a task's work."""

    task: Task
    number: int
    work: str  # behind which it comes
    step: str  # the right one


def read_steps(
    ensemble: Ensemble, prompts: Prompts, task: Task, chain: Sequence[str], kinds: Sequence[Agent], seed: int = 0
) -> list[list[float]]:
    """How likely each of some agents does not write the right step, behind each right work of a task, one row each."""
    return _read(ensemble, prompts, _places(task, chain), kinds, seed)


def _places(task: Task, chain: Sequence[str]) -> list[Place]:
    works = [task.start, *chain[:-1]]
    return [Place(task, i, work, step) for i, (work, step) in enumerate(zip(works, chain, strict=True))]


def _read(
    ensemble: Ensemble, prompts: Prompts, places: Sequence[Place], kinds: Sequence[Agent], seed: int
) -> list[list[float]]:
    requests = []
    for place in places:
        for agent in kinds:
            text = form_named(agent.form).written(place.step)
            chat = _asked(prompts, place.task, place.work, agent, seed)
            requests.append(LikelihoodRequest(agent.name, chat, (text,), agent.adapter))
    wrong = [1 - (one.values[0] or 0.0) ** one.lengths[0] for one in ensemble.measure(requests)]
    return [wrong[i : i + len(kinds)] for i in range(0, len(wrong), len(kinds))]


def _asked(prompts: Prompts, task: Task, work: str, agent: Agent, seed: int) -> tuple[Message, ...]:
    mark = call_seed(seed, task.id, "propose")
    return next_step(prompts, task.question, [work] if work else [], seed=mark, form=agent.form)


def draw_steps(
    ensemble: Ensemble,
    prompts: Prompts,
    task: Task,
    chain: Sequence[str],
    kinds: Sequence[Agent],
    wrong: Sequence[Sequence[float]],
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """What is written where there is doubt, by place of the step.

    `drawn` is how often each kind wrote each text, places as in `vote_odds`, nothing for who has no doubt;
    `greedy` is the place of what each writes greedily. Who is right with more than 0.5 is right greedily.
    """
    doubted = [i for i, row in enumerate(wrong) if max(row) >= DOUBT]
    places = [_places(task, chain)[i] for i in doubted]
    said = _written(ensemble, prompts, places, kinds, [wrong[i] for i in doubted], seed, samples=SAMPLES)
    return {str(i): what for i, what in zip(doubted, said, strict=True)}


def _written(
    ensemble: Ensemble,
    prompts: Prompts,
    places: Sequence[Place],
    kinds: Sequence[Agent],
    wrong: Sequence[Sequence[float]],
    seed: int = 0,
    *,
    samples: int = 0,
) -> list[dict[str, Any]]:
    """What is written at some steps, as `draw_steps` tells it, with so many samples of who is in doubt."""
    writers, requests = [], []
    for i, (place, row) in enumerate(zip(places, wrong, strict=True)):
        for k, error in enumerate(row):
            if error < (DOUBT if samples else 0.5):
                continue
            agent, chat = kinds[k], _asked(prompts, place.task, place.work, kinds[k], seed)
            drawn = replace(agent.decoding, temperature=1, top_p=1)
            for n in range(samples if error >= DOUBT else 0):
                mark = call_seed(seed, place.task.id, place.number, agent.name, n)
                requests.append(GenerateRequest(agent.name, chat, drawn, mark, agent.adapter))
                writers.append((i, k, False))
            if error >= 0.5:
                requests.append(GenerateRequest(agent.name, chat, replace(drawn, temperature=0), 0, agent.adapter))
                writers.append((i, k, True))
    texts = [{" ".join(place.step.split()): RIGHT, "": NONE} for place in places]
    counts: list[list[Counter[int]]] = [[Counter() for _ in kinds] for _ in places]
    greedy = [[RIGHT] * len(kinds) for _ in places]
    for (i, k, greedily), written in zip(writers, ensemble.generate(requests), strict=True):
        text = " ".join((form_named(kinds[k].form).plain(written.text) or "").split())
        seen = texts[i].setdefault(text, len(texts[i]))
        counts[i][k][seen] += not greedily
        greedy[i][k] = seen if greedily else greedy[i][k]
    drawn_texts = [[[count[t] for t in range(max(+count, default=-1) + 1)] for count in row] for row in counts]
    return [{"drawn": row, "greedy": best} for row, best in zip(drawn_texts, greedy, strict=True)]


def keep_greedy(file: Path, settings: Sequence[str]) -> None:
    """Read all steps by the first two agents, all others where one of these may be wrong, and store a task a line.

    Tasks that the file has of the first of these agents are gone on with where these may be wrong.
    """
    graded, ensemble, prompts, first = _prepared(settings)
    names = [agent.name for agent in first]
    lines = load_odds(file) if file.is_file() else []
    known = {line["task"]: line for line in lines if line["agents"] == names[: len(line["agents"])]}
    stored: list[dict[str, Any]] = []
    for start in range(0, len(graded.tasks), TASKS):
        batch = graded.tasks[start : start + TASKS]
        fresh = [place for task in batch if task.id not in known for place in _places(task, graded.chains[task.id])]
        rows = _read(ensemble, prompts, fresh, first[:ALWAYS], 0)
        wrong: dict[str, list[list[float | None]]] = {task.id: [] for task in batch}
        for place, row in zip(fresh, rows, strict=True):
            wrong[place.task.id].append(_row(row))
        wrong |= {task.id: known[task.id]["wrong"] for task in batch if task.id in known}
        more = [task for task in batch if known.get(task.id, {}).get("agents") != names]
        told = _greedily(ensemble, prompts, [(task, graded.chains[task.id], wrong[task.id]) for task in more], first)
        known |= {task.id: {"task": task.id, "agents": names, **one} for task, one in zip(more, told, strict=True)}
        stored += [known[task.id] for task in batch]
        _store(file, stored)
        print(f"{len(stored)} of {len(graded.tasks)} tasks read", file=sys.stderr, flush=True)


def _greedily(
    ensemble: Ensemble,
    prompts: Prompts,
    tasks: Sequence[tuple[Task, Sequence[str], list[list[float | None]]]],
    agents: Sequence[Agent],
) -> list[dict[str, Any]]:
    """The errors and what is said of some tasks whose steps their first agents have read."""
    told: list[dict[str, Any]] = []
    doubted: list[tuple[dict[str, Any], Place]] = []
    for task, chain, wrong in tasks:
        rows = [[*row, *[None] * (len(agents) - len(row))] for row in wrong]
        told.append({"wrong": rows, "said": {}})
        places = zip(_places(task, chain), wrong, strict=True)
        doubted += [(told[-1], place) for place, row in places if any((error or 0) >= 0.5 for error in row)]
    unread = [(one, place, k) for one, place in doubted for k, e in enumerate(one["wrong"][place.number]) if e is None]
    for k in dict.fromkeys(k for _, _, k in unread):
        some = [(one, place) for one, place, j in unread if j == k]
        found = _read(ensemble, prompts, [place for _, place in some], [agents[k]], 0)
        for (one, place), row in zip(some, found, strict=True):
            one["wrong"][place.number][k] = _row(row)[0]
    errors = [[error or 0.0 for error in one["wrong"][place.number]] for one, place in doubted]
    said = _written(ensemble, prompts, [place for _, place in doubted], agents, errors)
    for (one, place), what in zip(doubted, said, strict=True):
        one["said"][str(place.number)] = what
    return told


def _row(errors: Sequence[float]) -> list[float | None]:
    return [float(f"{error:.3g}") for error in errors]


def _prepared(settings: Sequence[str]) -> tuple[GradedTasks, Ensemble, Prompts, list[Agent]]:
    """Tasks, and the first agent of each kind among those who would be asked."""
    with composing():
        cfg = compose("evaluate", overrides=list(settings))
    graded = instantiate(cfg.tasks)
    if not graded.chains:
        raise TypeError(f"expected tasks in steps, got {type(graded).__name__}: set tasks=steps")
    ensemble, prompts = build_ensemble(cfg.ensemble), instantiate(cfg.prompts)
    kinds = {(a.backbone, a.adapter, a.form): a for a in reversed(ensemble.agents)}
    return graded, ensemble, prompts, [agent for agent in ensemble.agents if agent in kinds.values()]


def _store(file: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_files({file: gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode(), 9, mtime=0)})


def keep_odds(file: Path, settings: Sequence[str]) -> None:
    """Read all steps of the tasks of these settings, draw the doubtful ones, and store a task a line.

    Tasks that the file has of the same agents stay as they are.
    """
    graded, ensemble, prompts, first = _prepared(settings)
    names = [agent.name for agent in first]
    known = {line["task"]: line for line in load_odds(file) if line["agents"] == names} if file.is_file() else {}
    lines: list[dict[str, Any]] = []
    for number, task in enumerate(graded.tasks, 1):
        if task.id not in known:
            chain = graded.chains[task.id]
            rows = read_steps(ensemble, prompts, task, chain, first)
            said = draw_steps(ensemble, prompts, task, chain, first, rows)
            known[task.id] = {"task": task.id, "agents": names, "wrong": [_row(row) for row in rows], "said": said}
        lines.append(known[task.id])
        _store(file, lines)  # task by task, so that what ends it takes nothing along
        print(f"{number} of {len(graded.tasks)} tasks read", file=sys.stderr, flush=True)


class OddsFigures:
    """The functions of claims about such runs, by name.

    `who` is the vote, a kind of member, greedily with = before it, or several with blanks between them and "vote of "
    before them; a vote is of so many samples of each, in turn; who is named twice has two. How it is held is said as
    of `_votes`.
    """

    def __init__(self, runs: Mapping[str, list[dict[str, Any]]]) -> None:
        self.runs = runs
        self._errors, self._votes = functools.cache(self._errors), functools.cache(self._votes)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By name."""
        return {name: functools.cache(getattr(self, name)) for name in dir(self) if name.startswith("odds")}

    def odds(self, run: str, who: str = VOTE, samples: int = 3, **held: Any) -> str:
        """How often a step is wrong, with an interval over tasks."""
        return shown(_redrawn(float, [self._errors(run, who, samples, **held)]), digits=5)

    def odds_horizon(self, run: str, who: str = VOTE, samples: int = 3, **held: Any) -> str:
        """Steps after which half of all works are right, were all steps alike."""
        return f"{foretold_horizon(_mean(self._errors(run, who, samples, **held))):,.0f}"

    def odds_times(self, run: str, who: str, samples: int = 3, vote: str = VOTE, **held: Any) -> str:
        """How many times as far a vote reaches as somebody, with an interval over tasks."""
        both = [self._errors(run, vote, samples, **held), self._errors(run, who, samples)]

        def times(vote: float, one: float) -> float:
            return foretold_horizon(vote) / foretold_horizon(one)

        return shown(_redrawn(times, both), digits=1)

    def odds_times_works(self, run: str, works: int, samples: int = 3, vote: str = VOTE, **held: Any) -> str:
        """How many times as far a vote reaches as the plurality of so many whole works of each who may vote."""
        each = [self._errors(run, name, 1) for name in self._names(run, vote)]

        def times(vote: float, *errors: float) -> float:
            return foretold_horizon(vote) / whole_works([(works, 1 - error) for error in errors])

        return shown(_redrawn(times, [self._errors(run, vote, samples, **held), *each]), digits=1)

    def odds_times_three(self, run: str, works: str, samples: int = 1, vote: str = VOTE, **held: Any) -> str:
        """How many times as far a vote reaches as the plurality of three whole works, of those named with blanks.

        As if their errors were independent and wrong works unlike, so that the first one's counts where all differ.
        """
        each = [self._errors(run, name, 1) for name in works.split()]

        def times(vote: float, *errors: float) -> float:
            return foretold_horizon(vote) / three_works([1 - error for error in errors])

        return shown(_redrawn(times, [self._errors(run, vote, samples, **held), *each]), digits=1)

    def odds_wrong(self, run: str, who: str, **held: Any) -> str:
        """Steps that somebody who decodes greedily gets wrong, or a vote of such."""
        return f"{sum(float(errors.sum()) for errors in self._errors(run, who, 1, **held)):.0f}"

    def odds_share(self, run: str, who: str, **held: Any) -> str:
        """Their share, with an interval as if steps were independent."""
        errors = np.concatenate(self._errors(run, who, 1, **held))
        return shown(share(round(float(errors.sum())), len(errors)), digits=5)

    def odds_split(self, run: str, who: str, *patterns: str) -> str:
        """Steps at which those who decode greedily write texts of one of these patterns, as Rab or aRa.

        R is right, a, b and so on the wrong texts in the order in which they come up.
        """
        names, found = self._names(run, who), 0
        for task in self.runs[run]:
            for said in task["said"].values():
                texts = [said["greedy"][task["agents"].index(name.removeprefix(GREEDY))] for name in names]
                wrong = list(dict.fromkeys(text for text in texts if text != RIGHT))
                letters = ["R" if text == RIGHT else chr(ord("a") + wrong.index(text)) for text in texts]
                found += "".join(letters) in patterns
        return f"{found:,}"

    def odds_steps(self, run: str) -> str:
        """Steps read."""
        return f"{sum(len(task['wrong']) for task in self.runs[run]):,}"

    def odds_doubtful(self, run: str, who: str) -> str:
        """Steps whose right text has a probability of no more than 0.5: greedily, at most so many are wrong."""
        return f"{sum(int((errors >= 0.5).sum()) for errors in self._errors(run, who, 1))}"

    def odds_drawn(self, run: str) -> str:
        """Steps at which somebody was in doubt, so that what is written there was drawn."""
        return f"{sum(len(task['said']) for task in self.runs[run]):,}"

    def odds_checked(self, run: str) -> str:
        """Where samples were drawn, how often they were to be wrong, as read, and how often they were."""
        pairs = [
            (task["wrong"][int(step)][place], 1 - row[RIGHT] / sum(row))
            for task in self.runs[run]
            for step, said in task["said"].items()
            for place, row in enumerate(said["drawn"])
            if row
        ]
        read, found = np.mean(pairs, axis=0)
        return f"{read:.3f} and {found:.3f}"

    def odds_asked(self, run: str, who: str = VOTE, samples: int = 3, **held: Any) -> str:
        """How many members are asked at a step, on average."""
        asked = [vote.asked for votes in self._votes(run, who, samples, **held) for vote in votes]
        return f"{sum(asked) / len(asked):.2f}"

    def odds_run(self, run: str, who: str = VOTE, samples: int = 3, **held: Any) -> str:
        """How likely all steps of all tasks are right, one after the other."""
        return f"{math.prod(float((1 - errors).prod()) for errors in self._errors(run, who, samples, **held)):.4f}"

    def odds_works(self, run: str, samples: int = 3, who: str = VOTE) -> str:
        """Steps after which at least two of all samples of a vote are unbroken in half of the works."""
        rates = [(samples, 1 - _mean(self._errors(run, name, 1))) for name in self._names(run, who)]
        return f"{whole_works(rates):,.0f}"

    def _names(self, run: str, who: str) -> list[str]:
        """Who may vote."""
        return list(self.runs[run][0]["agents"]) if who == VOTE else who.removeprefix(VOTE_OF).split()

    def _errors(self, run: str, who: str, samples: int, **held: Any) -> list[np.ndarray]:
        """Of each task, how likely each step is wrong."""
        if who != VOTE and not who.startswith(VOTE_OF):
            place = self._names(run, VOTE).index(who.removeprefix(GREEDY))
            if any(row[place] is None for task in self.runs[run] for row in task["wrong"]):
                raise ValueError(f"{who} was asked at some steps of {run} only, and can only be one of a vote")
            return [np.array([row[0] for row in _wrong(task, [who])]) for task in self.runs[run]]
        votes = self._votes(run, who, samples, **held)
        return [np.array([max(1 - vote.right, 0.0) for vote in task]) for task in votes]

    def _votes(
        self, run: str, who: str, samples: int, ahead: float = AHEAD, weighed_by: str | None = None
    ) -> list[list[Odds]]:
        """Of each task, what the vote comes to at each step.

        Nobody else is asked once a step is so many votes `ahead`. `weighed_by` is a run whose errors weigh the votes,
        by their log-odds (Nitzan and Paroush 1982); the lead is then three votes of the best.
        """
        names = self._names(run, who)
        weights = [1.0] * len(names)
        if weighed_by:
            errors = [self._errors(weighed_by, name, 1) for name in names]
            slips = [_mean(one) or 1 / (2 + sum(map(len, one))) for one in errors]  # nobody is sure to be right
            weights = [max(math.log((1 - slip) / slip), 0.0) for slip in slips]
            ahead = 3 * max(weights)
        return [_task_votes(task, names, samples, ahead, weights) for task in self.runs[run]]


def _task_votes(
    task: Mapping[str, Any], names: Sequence[str], samples: int, ahead: float, weights: list[float]
) -> list[Odds]:
    votes = []
    for i, errors in enumerate(_wrong(task, names)):
        if str(i) in task.get("said", {}):
            vote = drawn_elected(_said(task, i, names) * samples, ahead, weights * samples)
        else:
            lost = "said" not in task  # as was written down for what was read before anything was drawn
            right = [1 - error for error in errors]
            vote = _least_elected((*right * samples,), ahead, (*weights * samples,), ties_lost=lost)
        votes.append(vote)
    return votes


def _wrong(task: Mapping[str, Any], names: Sequence[str]) -> list[list[float]]:
    """How likely each of some does not write the right step, of each step; `=` before a name is it greedily.

    Where nothing was drawn, a greedy step that may be wrong counts as wrong.
    """
    places = [task["agents"].index(name.removeprefix(GREEDY)) for name in names]
    rows = []
    for i, wrong in enumerate(task["wrong"]):
        # Who was not read, and is not asked before two agree, counts as wrong.
        wrong = [1.0 if error is None else error for error in wrong]  # noqa: PLW2901
        said = task.get("said", {}).get(str(i), {}).get("greedy", [RIGHT if e < 0.5 else NONE for e in wrong])
        greedy = [name.startswith(GREEDY) for name in names]
        rows.append([float(said[k] != RIGHT) if g else wrong[k] for k, g in zip(places, greedy, strict=True)])
    return rows


def _said(task: Mapping[str, Any], step: int, names: Sequence[str]) -> list[np.ndarray]:
    """How likely each of some writes each text, at a step where there was doubt."""
    said = task["said"][str(step)]
    odds = said_by(task["wrong"][step], said["drawn"], 1 + max(said["greedy"]))
    greedily = np.eye(len(odds[0]))
    places = [task["agents"].index(name.removeprefix(GREEDY)) for name in names]
    greedy = [name.startswith(GREEDY) for name in names]
    return [greedily[said["greedy"][k]] if g else odds[k] for k, g in zip(places, greedy, strict=True)]


def load_odds(path: Path) -> list[dict[str, Any]]:
    """Read what `keep_odds` wrote; what cannot be read is a ValueError with its file."""
    with gzip.open(path, "rb") as file:
        return [parse_json(line, str(path), "read the steps again") for line in file]


def _redrawn(of: Callable[..., float], errors: Sequence[Sequence[np.ndarray]]) -> Estimate:
    """What comes of several mean errors, with the middle 95% of what comes of tasks drawn with replacement."""
    tasks, steps = len(errors[0]), np.array([len(task) for task in errors[0]])
    sums = np.array([[task.sum() for task in one] for one in errors])
    drawn = np.random.default_rng(0).integers(tasks, size=(DRAWS, tasks))  # the same tasks every time
    again = [of(*map(float, means)) for means in (sums[:, drawn].sum(2) / steps[drawn].sum(1)).T]
    low, high = np.quantile(again, (0.025, 0.975))
    return Estimate(tasks, of(*map(_mean, errors)), float(low), float(high), "bootstrap")


def _mean(errors: Sequence[np.ndarray]) -> float:
    return float(np.concatenate(errors).mean())


def main(file: Path, settings: Sequence[str], *, greedily: bool = False) -> None:
    """Read and store, if there are settings; then tell what votes of three samples of each make, or of greedy ones."""
    if settings:
        (keep_greedy if greedily else keep_odds)(file, settings)
    name = file.name.removesuffix(ENDING)
    told = OddsFigures({name: load_odds(file)})
    agents = told.runs[name][0]["agents"]
    print(f"{told.odds_steps(name)} steps; how often wrong, and the horizon that this foretells")
    if greedily:
        vote = VOTE_OF + " ".join(GREEDY + agent for agent in agents)
        for who in (vote, *(GREEDY + agent for agent in agents[:ALWAYS])):
            print(f"{who}: {told.odds_share(name, who)}, {told.odds_horizon(name, who, 1)} steps")
        return
    for who in (VOTE, *agents):
        print(f"{who}: {told.odds(name, who)}, {told.odds_horizon(name, who)} steps; all: {told.odds_run(name, who)}")
        if who != VOTE:
            print(f"  greedily at most {told.odds_doubtful(name, who)}; the vote: {told.odds_times(name, who)} times")
    print(f"whole works of all samples: {told.odds_works(name)}")


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--greedily"]
    if not given or not given[0].endswith(ENDING):
        sys.exit(f"usage: python -m nsed_lab.studies.step_odds [--greedily] FILE{ENDING} SETTING=VALUE...")
    main(Path(given[0]), given[1:], greedily="--greedily" in sys.argv)
