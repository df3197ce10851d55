"""Graded traces as small tables of numbers, from which everything else is counted."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsed_torch.agents import call_seed
from nsed_torch.deliberation.rating import judging_order
from nsed_torch.evaluation.collection import standing
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
        ("ballot", "i8"), ("voter", "i8"), ("proposal", "i8"), ("rating", "f8"), ("right", "?"), ("length", "f8"),
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
    questions, agents = defaultdict[str, int](count().__next__), defaultdict[str, int](count().__next__)
    ballots, proposals = count(), count()
    rows: dict[str, list[Row]] = {name: [] for name in _COLUMNS}
    for number, trace in enumerate(traces):
        transcript = trace.transcript
        place = questions[question(transcript.task)], number
        for agent in transcript.agents:
            agents[agent.name]  # numbered in the ensemble's order
        numbers = iter(same(transcript.task, [answer for row in trace.answers for answer in row]))
        classes = [[int(next(numbers)) for _ in row] for row in trace.answers]
        turns = list(zip(transcript.rounds, trace.grades, classes, strict=True))
        for index, ((record, grades, kinds), right) in enumerate(zip(turns, standing(trace), strict=True), start=1):
            here = (*place, index)
            won = record.winner is not None and grades[record.winner]
            rows["rounds"].append((*here, right, won, any(grades), record.usage.tokens))
            authors = zip(record.proposers, grades, strict=True)
            rows["proposals"] += [(*here, agents[name], graded) for name, graded in authors]
            named = [next(proposals) for _ in grades]
            for voter, given in zip(record.voters, record.ratings, strict=True):
                ballot = next(ballots), agents[voter]
                judged = _judged(transcript, record, grades, kinds, voter, given)
                rows["ratings"] += [(*here, *ballot, named[j], *facts) for j, facts in judged]
        for index, (turn, later) in enumerate(pairwise(turns), start=1):
            rows["moves"] += [(*place, index, agents[name], *facts) for name, facts in _moves(turn, later)]
    if not questions:
        raise ValueError("expected at least one trace, got none: run nsed collect or nsed evaluate first")
    tables = {name: np.array(rows[name], dtype=[*_PLACE, *columns]) for name, columns in _COLUMNS.items()}
    return Tables(list(questions), list(agents), **tables)


def _moves(turn: Turn, later: Turn) -> Iterator[tuple[str, Row]]:
    """Agents of both rounds, and what became of their answers."""
    (record, grades, kinds), (next_record, next_grades, next_kinds) = turn, later
    leader = -1 if record.winner is None else kinds[record.winner]
    led_right = record.winner is not None and grades[record.winner]
    for j, name in enumerate(record.proposers):
        if name in next_record.proposers:
            k = next_record.proposers.index(name)
            differed = kinds[j] != leader and min(kinds[j], leader) >= 0
            follows = int(next_kinds[k] == leader) if differed else -1
            yield name, (grades[j], next_grades[k], led_right, follows)


def _judged(
    transcript: Transcript,
    record: Round,
    grades: Sequence[bool],
    kinds: Sequence[int],
    voter: str,
    ratings: Sequence[float | None],
) -> Iterator[tuple[int, Row]]:
    """The proposals that a judge rated, and what is to know about each rating."""
    backbones = {agent.name: agent.backbone for agent in transcript.agents}
    position = _positions(transcript, record, voter)
    mine = kinds[record.proposers.index(voter)] if voter in record.proposers else -1
    for j, (author, rating) in enumerate(zip(record.proposers, ratings, strict=True)):
        if rating is not None:
            agrees = int(mine == kinds[j]) if min(mine, kinds[j]) >= 0 else -1
            kin = int(backbones[voter] == backbones[author]) if {voter, author} <= backbones.keys() else -1
            length = len(record.proposals[j].text)
            yield j, (rating, grades[j], length, position.get(j, 0), author == voter, agrees, kin)


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
