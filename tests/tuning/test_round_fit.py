"""A vote over all rounds, fitted: it learns that right answers are talked away, and goes back to them."""

import dataclasses

import pytest
import torch

from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.records.transcript import Task
from nsed_torch.traces.episodes import recorded_episodes
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.recorded import RecordedAnswers
from nsed_torch.tuning.round_fit import all_rounds_right, by_rounds, fit_round_vote


def part(rows, tasks):
    """One round of recorded answers, by task and agent; A is right, None is silent."""
    return RecordedAnswers(
        tasks=tasks,
        agents=("ant", "bee", "cat"),
        answers=tuple(map(tuple, rows)),
        outputs=tuple(tuple(f"It is {answer}." if answer else "" for answer in row) for row in rows),
        correct=torch.tensor([[answer == "A" for answer in row] for row in rows]),
        answered=torch.tensor([[answer is not None for answer in row] for row in rows]),
        parameters=torch.ones(3, dtype=torch.float64),
        digest="",
    )


def dealt(share, count=150):
    """What leads round 1 is right in that share; two of three say otherwise in round 2, or there is none."""
    rows = []
    for one in torch.rand(count, generator=torch.Generator().manual_seed(0)).tolist():
        right, wrong = ("A", "B") if one < share else ("B", "A")
        rows.append(([right, right, wrong], [right, wrong, wrong]) if len(rows) % 10 else ([right] * 3, [None] * 3))
    tasks = tuple(Task("A or B?", f"t{i}", "A") for i in range(count))
    held = torch.tensor([1 if last == [None] * 3 else 2 for _, last in rows])
    first, last = (part([row[r] for row in rows], tasks) for r in (0, 1))
    recorded = dataclasses.replace(first, later=(last,), held=held)
    return recorded_episodes(recorded, HashedEncoder(8), equality=Equality(math_verify=False))


@pytest.fixture(scope="module")
def talked_away():
    return dealt(0.8)


def test_it_goes_back_to_what_was_said_first(talked_away):
    fit = fit_round_vote(talked_away)
    data = by_rounds(talked_away)
    right = all_rounds_right(fit.vote, talked_away)
    assert right.double().mean() > data.led().double().mean() + 0.5
    assert torch.equal(right, data.led(0))
    assert fit.vote.votes[0] > fit.vote.votes[1]
    assert fit.vote.caution == 0


def test_caution_is_the_least_that_keeps_right_answers():
    mended = dealt(0.2)  # rounds help, but for one task in five
    free, careful = (fit_round_vote(mended, most_turned=most).vote for most in (None, 0.0))
    data = by_rounds(mended)
    began = data.led(0) & mended.round_mask[:, 1]
    turned = [(began & ~all_rounds_right(vote, mended)).sum().item() for vote in (free, careful)]
    assert turned[0] == began.sum() > 0
    assert turned[1] == 0
    assert careful.caution > free.caution == 0


def test_enough_stops_where_later_rounds_change_nothing(talked_away):
    vote = fit_round_vote(talked_away, stops=True).vote
    data = by_rounds(talked_away)
    reached = vote.decide(data.said, data.held).reached
    assert vote.enough < 1
    assert (reached <= data.held.sum(1)).all()
    assert reached.sum() < data.held.sum()


def test_without_deliberations_of_several_rounds_there_is_nothing_to_fit(talked_away):
    alone = talked_away.select((~talked_away.round_mask[:, 1]).nonzero()[:, 0])
    with pytest.raises(
        ValueError, match="rounds: expected deliberations of several rounds with right and wrong answers"
    ):
        fit_round_vote(alone)
