"""Recorded answers as tensors for the consensus cell."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from polls import plurality

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.records.transcript import Task
from nsed_torch.traces.episodes import joined, recorded_episodes
from nsed_torch.traces.equality import Equality, agreement
from nsed_torch.traces.recorded import RecordedAnswers
from nsed_torch.traces.rounds import unroll

EXACT = Equality(math_verify=False)


def recorded(rows, golds=None, parameters=None):
    """Answers as letters, "." for none."""
    answers = tuple(tuple(None if a == "." else a for a in row) for row in rows)
    agents = len(rows[0])
    golds = golds or "a" * len(rows)
    return RecordedAnswers(
        tasks=tuple(Task(f"question {i}?", f"q{i}", gold) for i, gold in enumerate(golds)),
        agents=tuple(f"agent{j}" for j in range(agents)),
        answers=answers,
        outputs=tuple(tuple(f"{a or '':<{8 * (agents - j)}}" for j, a in enumerate(row)) for row in answers),
        correct=torch.tensor([[a == g for a in row] for row, g in zip(answers, golds, strict=True)]),
        answered=torch.tensor([[a is not None for a in row] for row in answers]),
        parameters=torch.tensor(parameters or [math.nan] * agents, dtype=torch.float64),
        digest="",
    )


LETTERS = st.text("abc.", min_size=4, max_size=4)


@settings(max_examples=30)
@given(st.lists(LETTERS, min_size=1, max_size=5), st.integers(1, 4))
def test_the_last_round_is_everybody_whatever_came_before(rows, rounds):
    episodes = recorded_episodes(recorded(rows), HashedEncoder(8), equality=EXACT, rounds=rounds)
    classes = EXACT.classes([[None if a == "." else a for a in row] for row in rows])
    ratings, mask = agreement(classes)
    assert torch.equal(episodes.classes[:, -1], classes)
    assert torch.equal(episodes.vote_mask[:, -1], mask)
    assert torch.equal(episodes.ratings[:, -1][mask], ratings[mask])
    assert torch.equal(episodes.proposal_mask[:, -1], classes >= 0)
    joined = episodes.proposal_mask.sum(-1)
    assert (joined.diff(dim=1) >= 0).all()
    assert not (episodes.vote_mask & ~episodes.proposal_mask[:, :, None]).any()
    assert not (episodes.vote_mask & ~episodes.voter_mask[..., None]).any()
    assert episodes.oracle().tolist() == ["a" in row for row in rows]
    found = episodes.by_agent()
    assert torch.equal(found.answered, classes >= 0)
    assert torch.equal(found.classes, classes)
    assert found.right.tolist() == [[a == "a" for a in row] for row in rows]
    # Small letters are no labels of options, unless there is no answer at all.
    assert (found.labels == -1).all()


@settings(max_examples=30)
@given(st.lists(st.text("ABE.", min_size=4, max_size=4), min_size=1, max_size=5), st.integers(1, 3))
def test_letters_of_options_are_labels_that_tasks_share(rows, rounds):
    episodes = recorded_episodes(recorded(rows), HashedEncoder(8), equality=EXACT, rounds=rounds)
    labels = torch.tensor([["ABCDE.".index(a) for a in row] for row in rows])
    labels[labels == 5] = -1
    assert torch.equal(episodes.labels[:, -1], labels)
    assert torch.equal(episodes.labels >= 0, episodes.proposal_mask)
    assert torch.equal(episodes.by_agent().labels, labels)
    order = torch.tensor([3.0, 1.0, 4.0, 2.0])
    assert torch.equal(episodes.sorted_by(order).by_agent().labels, labels)
    assert torch.equal(episodes.sorted_by(order).labels[:, -1], labels[:, [2, 0, 3, 1]])
    assert torch.equal(episodes.select([0]).labels, episodes.labels[:1])


def test_one_answer_that_is_no_letter_and_there_are_no_labels():
    for rows in (["ABC.", "ABCx"], ["ABC1"], ["aBCD"]):
        episodes = recorded_episodes(recorded(rows), HashedEncoder(8), equality=EXACT)
        assert episodes.labels is None
        assert (episodes.by_agent().labels == -1).all()
        assert episodes.sorted_by(torch.ones(4)).labels is None


def test_categories_go_with_their_tasks_where_all_have_one():
    def named(ids, categories, rows):
        found = recorded(rows)
        tasks = [Task("?", name, "a", category) for name, category in zip(ids, categories, strict=True)]
        return recorded_episodes(dataclasses.replace(found, tasks=tuple(tasks)), HashedEncoder(8), equality=EXACT)

    law, half = named("pq", ("law", "art"), ["ABAB"] * 2), named("rs", ("law", None), ["AB.A"] * 2)
    assert law.categories == ("law", "art")
    assert half.categories == ()
    assert law.select([1, 0, 1]).categories == ("art", "law", "art")
    assert half.select([1]).categories == ()
    other = named("tu", ("art", "art"), ["aBAB"] * 2)
    both = joined([law, other])
    assert both.categories == ("law", "art", "art", "art")
    assert both.labels is None
    assert joined([law, half]).categories == ()
    assert joined([law, half]).labels[:, 0].tolist() == [[0, 1, 0, 1]] * 2 + [[0, 1, -1, 0]] * 2


def test_who_costs_least_joins_first():
    by_length = recorded_episodes(recorded(["abca"]), HashedEncoder(8), rounds=2)
    assert by_length.proposal_mask[0].tolist() == [[False, False, True, True], [True] * 4]
    by_cost = recorded_episodes(recorded(["abca"], parameters=[1.0, 2.0, 3.0, 10.0]), HashedEncoder(8), rounds=3)
    # parameters x tokens: 1 x 8, 2 x 6, 3 x 4, 10 x 2
    assert by_cost.proposal_mask[0].tolist() == [[True, True, False, False], [True, True, True, False], [True] * 4]
    assert by_cost.cost[0].tolist() == [8 + 12, 12, 20]
    with pytest.raises(ValueError, match="rounds from 1 to the number of agents, 4, got 5"):
        recorded_episodes(recorded(["abca"]), HashedEncoder(8), rounds=5)


def test_equal_answers_have_equal_vectors():
    episodes = recorded_episodes(recorded([["1/2", "0.5", "2", "0.50"]], golds=["1/2"]), HashedEncoder(32))
    vectors = episodes.embeddings[0, 0]
    assert torch.equal(vectors[0], vectors[1])
    assert torch.equal(vectors[0], vectors[3])
    assert not torch.equal(vectors[0], vectors[2])


@settings(max_examples=30)
@given(st.lists(LETTERS, min_size=1, max_size=5), st.permutations(range(4)))
def test_sorting_permutes_and_changes_nothing_else(rows, places):
    episodes = recorded_episodes(recorded(rows), HashedEncoder(8), equality=EXACT, rounds=2)
    score = -torch.tensor(places, dtype=torch.float64)
    ordered = episodes.sorted_by(score)
    order = torch.tensor(places).argsort()
    assert ordered.authors[0, 0].tolist() == order.tolist()
    for name in ("correct", "classes", "proposal_mask", "embeddings"):
        assert torch.equal(getattr(ordered, name), getattr(episodes, name)[:, :, order])
    assert torch.equal(ordered.ratings, episodes.ratings[:, :, order][..., order])
    assert torch.equal(ordered.vote_mask, episodes.vote_mask[:, :, order][..., order])
    for mine, other in zip(ordered.by_agent(), episodes.by_agent(), strict=True):
        assert torch.equal(mine, other)
    cell = ConsensusCell(8, 4)
    torch.testing.assert_close(unroll(cell, ordered).support, unroll(cell, episodes).support[..., order])


@settings(max_examples=30)
@given(st.lists(LETTERS, min_size=1, max_size=5))
def test_a_fresh_cell_elects_the_plurality(rows):
    episodes = recorded_episodes(recorded(rows), HashedEncoder(8), equality=EXACT)
    winner = unroll(ConsensusCell(8, 4), episodes).winner[:, 0]
    classes = episodes.classes[:, 0]
    expected = plurality(classes)
    assert torch.equal(winner < 0, expected < 0)
    answered = expected >= 0
    index = torch.arange(len(rows))
    assert torch.equal(classes[index, winner][answered], classes[index, expected][answered])


def test_selection_takes_rows_in_order():
    episodes = recorded_episodes(recorded(["aabc", "bbbb", "a..."]), HashedEncoder(8))
    some = episodes.select([2, 0])
    assert some.ids == ("q2", "q0")
    assert torch.equal(some.classes, episodes.classes[[2, 0]])
    assert len(some) == 2
    assert some.dim == 8
