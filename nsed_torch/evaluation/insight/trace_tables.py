"""Graded traces as two small tables of numbers, from which everything else is counted."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from nsed_torch.agents.requests import call_seed
from nsed_torch.deliberation.rating import judging_order
from nsed_torch.evaluation.collection import standing
from nsed_torch.records import Round, Task, Trace, Transcript

Table = NDArray[np.void]

_PLACE = [("question", "i8"), ("task", "i8"), ("round", "i8")]
_ROUNDS = [*_PLACE, ("standing", "?"), ("right", "i8"), ("proposals", "i8"), ("tokens", "i8")]
_RATINGS = [*_PLACE, ("ballot", "i8"), ("rating", "f8"), ("right", "?"), ("length", "f8"), ("position", "i8")]


@dataclass(frozen=True, eq=False)
class Tables:
    """What there is to count: structured arrays, whose every row says of which question, task and round it is.

    `rounds` has a row per task and round: whether the answer standing after it is right, how many of its proposals are,
    how many there are, and the tokens spent in it.

    `ratings` has a row per rating that was given of another's proposal; `ballot` numbers them by judge and round. The
    proposal is `right` or not, `length` characters long, heard at `position` from 1 (0 if the order does not hold it).
    """

    questions: list[str]  # ids in the order of first appearance; the column `question` counts them
    rounds: Table
    ratings: Table


def read_tables(traces: Iterable[Trace], question: Callable[[Task], str]) -> Tables:
    """Read traces of one ensemble once; no text is kept. Questions, by their ids, are what varies independently.

    Raises:
        ValueError: for no traces.
    """
    questions, ballots = defaultdict[str, int](count().__next__), count()
    rounds, ratings = [], []
    for number, trace in enumerate(traces):
        transcript = trace.transcript
        place = questions[question(transcript.task)], number
        turns = zip(transcript.rounds, trace.grades, standing(trace), strict=True)
        for index, (record, grades, stands) in enumerate(turns, start=1):
            rounds.append((*place, index, stands, sum(grades), len(grades), record.usage.tokens))
            for voter, row in zip(record.voters, record.ratings, strict=True):
                position, ballot = _positions(transcript, record, voter), next(ballots)
                for j, (proposal, rating) in enumerate(zip(record.proposals, row, strict=True)):
                    if rating is not None and proposal.agent != voter:
                        facts = rating, grades[j], len(proposal.text), position.get(j, 0)
                        ratings.append((*place, index, ballot, *facts))
    if not questions:
        raise ValueError("expected at least one trace, got none: run nsed collect or nsed evaluate first")
    return Tables(list(questions), np.array(rounds, dtype=_ROUNDS), np.array(ratings, dtype=_RATINGS))


def _positions(transcript: Transcript, record: Round, voter: str) -> dict[int, int]:
    """Proposal -> the position, from 1, at which the judge heard it; found again from the call's seed."""
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
