"""What runs came to whose rounds were steps: stored small, and the numbers that pages have of them.

lab/data/PAGE/RUN.steps.jsonl.gz has a task a line: who said what in each round, as whether it was right and which
texts were equal, and what the vote elected. Texts are left out. The functions of `StepFigures` are for
lab/data/PAGE.claims; they are written independently of `nsed_torch.evaluation.horizon`, so that each checks the other.
"""

import gzip
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.optimize import brentq

from nsed_torch.evaluation.statistics import share, shown
from nsed_torch.records.files import parse_json
from nsed_torch.records.outcome import read_outcomes

VOTE = "the vote"

ENDING = ".steps.jsonl.gz"


def keep_steps(folder: Path, file: Path) -> None:
    """Store the steps of a run folder of `nsed evaluate tasks=steps`."""
    outcomes = {o.task: o for o in read_outcomes(folder / "outcomes.jsonl") if o.method == "deliberation"}
    lines = []
    for line in (folder / "traces.jsonl").read_bytes().splitlines():
        trace = parse_json(line, str(folder), "run nsed evaluate again")
        outcome = outcomes[trace["task"]["id"]]
        rounds = []
        for record, grades in zip(trace["rounds"], trace["grades"], strict=True):
            texts = [" ".join(proposal["text"].split()) for proposal in record["proposals"]]
            said = [
                [proposal["agent"], int(right), texts.index(text)]
                for proposal, right, text in zip(record["proposals"], grades, texts, strict=True)
            ]
            rounds.append([record["winner"], said])
        kept = {
            "task": outcome.task,
            "kind": outcome.stratum,
            "right": outcome.score == 1,
            "finished": trace["stop_reason"] == "finished",
            "tokens": outcome.usage.tokens,
            "rounds": rounds,
        }
        lines.append(json.dumps(kept) + "\n")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))


def load_steps(path: Path) -> list[dict[str, Any]]:
    """Read what `keep_steps` wrote; what cannot be read is a ValueError with its file."""
    with gzip.open(path, "rb") as file:
        return [parse_json(line, str(path), "store the run again") for line in file]


class StepFigures:
    """The functions of claims about steps; runs by name, each number as the text that a page has for it."""

    def __init__(self, runs: Mapping[str, list[dict[str, Any]]]) -> None:
        self.runs = runs

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By name."""
        names = (
            *("errors", "step_count", "foretold", "foretold_steps", "together", "unbroken"),
            *("whole", "lost_at", "step_tokens", "token_share", "asked", "works_alone", "ever_unbroken"),
        )
        return {name: getattr(self, name) for name in names}

    def errors(self, run: str, who: str = VOTE, kind: str | None = None) -> str:
        """Share of steps behind right work that somebody gets wrong, with its interval.

        `who` is the vote, an agent, several with blanks between them, whose plurality it is, ties to the first, or
        several with bars between them, each for itself.
        """
        slips = self._slips(run, who, kind)
        return shown(share(sum(slips), len(slips)))

    def step_count(self, run: str, kind: str | None = None) -> str:
        """Steps behind right work."""
        return f"{len(self._slips(run, VOTE, kind)):,}"

    def foretold(self, run: str, who: str = VOTE, kind: str | None = None) -> str:
        """Steps after which half of all works are right at this share of errors."""
        return f"{self.foretold_steps(run, who, kind):.0f}"

    def foretold_steps(self, run: str, who: str = VOTE, kind: str | None = None) -> float:
        """As `foretold`, not yet rounded; inf where nobody erred."""
        slips = self._slips(run, who, kind)
        return math.log(0.5) / math.log(1 - sum(slips) / len(slips)) if any(slips) else math.inf

    def works_alone(self, run: str, *samplers: str, kind: str | None = None) -> float:
        """Steps after which at least two of all samples are unbroken in half of the works, were errors independent.

        So far the answer that most whole works come to is right, if no two wrong ones come to the same. `samplers` are
        the samples of one adapter each, with bars between them.
        """
        known = [(names.count("|") + 1, self._slips(run, names, kind)) for names in samplers]
        return whole_works([(count, 1 - sum(slips) / len(slips)) for count, slips in known])

    def ever_unbroken(self, run: str, kind: str | None = None) -> str:
        """Tasks in which some sample was right in every round behind right work."""
        found = []
        for task in (tasks := self._tasks(run, kind)):
            rounds = [said for _, said in _behind_right_work(task)]
            found.append(any(all(right for said in rounds for a, right, _ in said if a == n) for n in _names(task)))
        return f"{sum(found)} of {len(tasks)}"

    def together(self, run: str, one: str, other: str, *, alike: bool = False, kind: str | None = None) -> str:
        """Share of steps that two get wrong at once; `alike`: with the same text."""
        found = []
        for _, said in self._rounds(run, kind):
            mine = {agent: (right, text) for agent, right, text in said}
            if one in mine and other in mine:
                (first, a), (second, b) = mine[one], mine[other]
                found.append(not first and not second and (a == b or not alike))
        return f"{sum(found) / len(found):.3f}"

    def unbroken(self, run: str, who: str, kind: str | None = None) -> str:
        """Works that somebody does alone without an error, of those of which that is known."""
        right, known = 0, 0
        for task in self._tasks(run, kind):
            rounds = list(_behind_right_work(task))
            slips = [not ok for _, said in rounds for agent, ok, _ in said if agent == who]
            held = task["finished"] and _right(*rounds[-1])
            most = max(sum(agent == name for _, said in rounds for agent, _, _ in said) for name in _names(task))
            if len(slips) == most and (any(slips) or held):
                known += 1
                right += not any(slips)
        return f"{right} of {known}"

    def whole(self, run: str, kind: str | None = None) -> str:
        """Tasks that the team gets right."""
        tasks = self._tasks(run, kind)
        return f"{sum(task['right'] for task in tasks)} of {len(tasks)}"

    def lost_at(self, run: str) -> str:
        """The steps at which a wrong one was elected behind right work, each once."""
        rounds = (list(_behind_right_work(task)) for task in self.runs[run])
        return ", ".join(map(str, sorted({len(those) for those in rounds if not _right(*those[-1])})))

    def step_tokens(self, run: str) -> str:
        """Tokens computed a task."""
        return f"{self._tokens(run):,.0f}"

    def asked(self, run: str) -> str:
        """Members asked a step."""
        steps = [said for task in self.runs[run] for _, said in task["rounds"]]
        return f"{sum(map(len, steps)) / len(steps):.2f}"

    def token_share(self, run: str, other: str) -> str:
        """A run's tokens a task over another's."""
        return f"{self._tokens(run) / self._tokens(other):.2f}"

    def _tokens(self, run: str) -> float:
        return sum(task["tokens"] for task in self.runs[run]) / len(self.runs[run])

    def _tasks(self, run: str, kind: str | None) -> list[dict[str, Any]]:
        return [task for task in self.runs[run] if kind in {None, task["kind"]}]

    def _rounds(self, run: str, kind: str | None) -> Iterator[tuple[int | None, list[Any]]]:
        return itertools.chain.from_iterable(map(_behind_right_work, self._tasks(run, kind)))

    def _slips(self, run: str, who: str, kind: str | None) -> list[bool]:
        rounds = self._rounds(run, kind)
        if who == VOTE:
            return [not _right(*one) for one in rounds]
        if "|" in who:
            return [not right for _, said in rounds for agent, right, _ in said if agent in who.split("|")]
        parts = ([one for one in said if one[0] in who.split()] for _, said in rounds)
        return [not _elected(part)[1] for part in parts if part]


def whole_works(rates: Sequence[tuple[int, float]]) -> float:
    """Steps after which at least two of all samples are unbroken in half of the works, were errors independent.

    Args:
        rates: how many samples there are of each kind, and how often a step of theirs is right.
    """

    def enough(steps: float) -> float:
        chances = [(count, rate**steps) for count, rate in rates]
        broken = [(1 - p) ** count for count, p in chances]
        one = [
            count * p * (1 - p) ** (count - 1) * math.prod(broken[:i] + broken[i + 1 :])
            for i, (count, p) in enumerate(chances)
        ]
        return 1 - math.prod(broken) - sum(one)

    if sum(count for count, rate in rates if rate == 1) > 1:
        return math.inf
    low, high = 1e-3, 1.0
    while enough(high) > 0.5:
        low, high = high, 2 * high
    return float(brentq(lambda steps: enough(steps) - 0.5, low, high))


def three_works(right: Sequence[float]) -> float:
    """Steps after which the plurality of three whole works is right in half of them, of unlike wrong ones the first."""

    def enough(steps: float) -> float:
        first, second, third = (rate**steps for rate in right)
        return first + (1 - first) * second * third

    if right[0] == 1:
        return math.inf
    high = 1.0
    while enough(high) > 0.5:
        high *= 2
    return float(brentq(lambda steps: enough(steps) - 0.5, 0, high))


def _behind_right_work(task: Mapping[str, Any]) -> Iterator[tuple[int | None, list[Any]]]:
    """Rounds up to the first that elected a wrong step."""
    for winner, said in task["rounds"]:
        yield winner, said
        if not _right(winner, said):
            return


def _elected(said: list[Any]) -> Any:
    """What most say, the first of such as are said equally often."""
    said_by = Counter(text for _, _, text in said)
    return max(said, key=lambda one: said_by[one[2]])


def _right(winner: int | None, said: list[Any]) -> bool:
    return winner is not None and bool(said[winner][1])


def _names(task: Mapping[str, Any]) -> set[str]:
    return {agent for _, said in task["rounds"] for agent, _, _ in said}
