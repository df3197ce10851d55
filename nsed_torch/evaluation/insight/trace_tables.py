"""Graded traces as small tables of numbers, from which everything else is counted."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsed_torch.agents import call_seed
from nsed_torch.deliberation import judging_order
from nsed_torch.records import Round, Task, Trace, Transcript

Table = NDArray[np.void]
Row = tuple[Any, ...]
Turn = tuple[Round, list[bool], Sequence[int]]
Same = Callable[[Task, Sequence[str | None]], Sequence[int]]
"""Numbers for a task's answers: equal ones for equal answers, -1 for none; a grader's `classes`."""

_PLACE = [("question", "i8"), ("task", "i8"), ("round", "i8")]
_COLUMNS = {
    "rounds": [("standing", "?"), ("winner", "?"), ("any", "?"), ("tokens", "i8")],
    "proposals": [("agent", "i8"), ("right", "?")],
    "moves": [("agent", "i8"), ("before", "?"), ("after", "?"), ("led_right", "?"), ("follows", "i1")],
    "ratings": [
        ("ballot", "i8"), ("proposal", "i8"), ("voter", "i8"), ("rating", "f8"), ("right", "?"), ("length", "f8"),
        ("position", "i8"), ("own", "?"), ("agrees", "i1"), ("kin", "i1"),
    ],
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tables:
    """What there is to count: structured arrays, whose every row says of which question, task and round it is.

    `rounds` has a row per task and round: whether the answer standing after it, its winner, any of its proposals is
    right, and the tokens spent in it. `proposals` has a row per proposal: by whom, and whether it is right.

    `moves` has a row per pair of an agent's proposals in two rounds running, of which `round` is the first: whether the
    one (`before`) and the other (`after`) is right, whether the first round's winner is (`led_right`), and whether the
    agent, whose answer differed from that winner's, now gives it (`follows`; -1 if it did not differ, or either had
    none).

    `ratings` has a row per rating that was given; `ballot` and `proposal` number what they name. The proposal is
    `right` or not, `length` characters long, heard at `position` from 1 (0 if the order does not hold it), the voter's
    `own` or not, with the same answer as the voter's own (`agrees`; -1 if either has none), by an agent of the voter's
    backbone or not (`kin`; -1 if unknown).
    """

    questions: list[str]  # ids in the order of first appearance; the column `question` counts them
    agents: list[str]  # names, likewise; counted by `agent` and `voter`
    rounds: Table
    proposals: Table
    moves: Table
    ratings: Table

    def by(self, column: str, table: Table) -> Iterator[tuple[str, Table]]:
        """The rows of each agent that the column names."""
        for i, name in enumerate(self.agents):
            if len(rows := table[table[column] == i]):
                yield name, rows


def same_text(task: Task, answers: Sequence[str | None]) -> list[int]:
    """Answers are equal if their texts are, letter by letter."""
    numbers: dict[str, int] = {}
    return [-1 if answer is None else numbers.setdefault(answer, len(numbers)) for answer in answers]


def read_tables(traces: Iterable[Trace], same: Same, question: Callable[[Task], str]) -> Tables:
    """Read traces of one ensemble once; no text is kept. Questions, by their ids, are what varies independently.

    Raises:
        ValueError: for no traces.
    """
    questions, reader = defaultdict[str, int](count().__next__), _Reader()
    for number, trace in enumerate(traces):
        task = trace.transcript.task
        numbers = iter(same(task, [answer for row in trace.answers for answer in row]))
        classes = [[int(next(numbers)) for _ in row] for row in trace.answers]
        reader.add((questions[question(task)], number), trace, classes)
    if not questions:
        raise ValueError("expected at least one trace, got none: run nsed collect or nsed evaluate first")
    tables = {name: np.array(reader.rows[name], dtype=[*_PLACE, *columns]) for name, columns in _COLUMNS.items()}
    return Tables(list(questions), list(reader.agents), **tables)


class _Reader:
    """Rows of all tables, trace by trace."""

    def __init__(self) -> None:
        self.agents = defaultdict[str, int](count().__next__)
        self.rows: dict[str, list[Row]] = {name: [] for name in _COLUMNS}
        self._ballots, self._proposals = count(), count()

    def add(self, place: tuple[int, int], trace: Trace, classes: Sequence[Sequence[int]]) -> None:
        """Take in a trace, given its question and task and the classes of its answers."""
        for agent in trace.transcript.agents:
            self.agents[agent.name]  # numbered in the ensemble's order
        turns = list(zip(trace.transcript.rounds, trace.grades, classes, strict=True))
        self._extend("rounds", place, _rounds(turns))
        for index, (turn, later) in enumerate(pairwise(turns), start=1):
            self._extend("moves", (*place, index), self._moves(turn, later))
        for index, (record, grades, kinds) in enumerate(turns, start=1):
            here = (*place, index)
            authors = zip(record.proposers, grades, strict=True)
            self._extend("proposals", here, ((self.agents[name], right) for name, right in authors))
            self._extend("ratings", here, self._ratings(trace.transcript, record, grades, kinds))

    def _extend(self, name: str, place: Row, rows: Iterable[Row]) -> None:
        self.rows[name] += [(*place, *row) for row in rows]

    def _moves(self, turn: Turn, later: Turn) -> Iterator[Row]:
        (record, grades, kinds), (next_record, next_grades, next_kinds) = turn, later
        leader = -1 if record.winner is None else kinds[record.winner]
        led_right = record.winner is not None and grades[record.winner]
        for j, name in enumerate(record.proposers):
            if name in next_record.proposers:
                k = next_record.proposers.index(name)
                differed = kinds[j] != leader and min(kinds[j], leader) >= 0
                follows = int(next_kinds[k] == leader) if differed else -1
                yield self.agents[name], grades[j], next_grades[k], led_right, follows

    def _ratings(
        self, transcript: Transcript, record: Round, grades: Sequence[bool], kinds: Sequence[int]
    ) -> Iterator[Row]:
        numbers = [next(self._proposals) for _ in grades]
        backbones = {agent.name: agent.backbone for agent in transcript.agents}
        for voter, row in zip(record.voters, record.ratings, strict=True):
            position = _positions(transcript, record, voter)
            ballot = next(self._ballots)
            mine = kinds[record.proposers.index(voter)] if voter in record.proposers else -1
            for j, (author, rating) in enumerate(zip(record.proposers, row, strict=True)):
                if rating is not None:
                    agrees = int(mine == kinds[j]) if min(mine, kinds[j]) >= 0 else -1
                    kin = int(backbones[voter] == backbones[author]) if {voter, author} <= backbones.keys() else -1
                    length = len(record.proposals[j].text)
                    facts = (grades[j], length, position.get(j, 0), author == voter, agrees, kin)
                    yield ballot, numbers[j], self.agents[voter], rating, *facts


def _rounds(turns: Sequence[Turn]) -> Iterator[Row]:
    standing = False
    for index, (record, grades, _) in enumerate(turns, start=1):
        won = record.winner is not None and grades[record.winner]
        standing = standing if record.winner is None else won
        yield index, standing, won, any(grades), record.usage.tokens


def _positions(transcript: Transcript, record: Round, voter: str) -> dict[int, int]:
    """Proposal -> the position, from 1, at which the judge heard it."""
    order = judging_order(
        call_seed(transcript.seed, transcript.task.id, record.index, voter, "rate"),
        voter,
        record.proposers,
        # Who stands, with a proposal that stands, heard it in an earlier round.
        [bool(p.text) and not {voter, p.agent} <= set(record.standing) for p in record.proposals],
        shuffled=transcript.settings.get("shuffled", True),
        own=not transcript.settings.get("diagonal_mask", True),
    )
    return {j: place for place, j in enumerate(order, start=1)}
