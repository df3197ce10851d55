"""Who rates what where not everybody rates everything: the draw, and what rounds make of it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.core.sparse import drawn
from nsed_torch.core.team import full_team
from nsed_torch.records.transcript import Task

seeds = st.integers(0, 2**63 - 1)
some = st.none() | st.integers(1, 9)


@st.composite
def tables(draw):
    """Who may rate what: each judge is kept from at most one proposal, its own, and nobody from another's own."""
    voters, proposals = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    authors = draw(st.lists(st.integers(0, 9), min_size=proposals, max_size=proposals, unique=True))
    return [[author != voter for author in authors] for voter in range(voters)]


@given(tables(), seeds, some, some)
def test_all_rate_and_are_rated_as_often_as_asked_and_evenly(may, seed, judges, candidates):
    none = [[False] * len(row) for row in may]
    rows = drawn(may, none, seed, judges, candidates)
    assert rows == drawn(may, none, seed, judges, candidates)
    assert all(may[i][j] for i, row in enumerate(rows) for j in row)
    rates = [len(row) for row in rows]
    rated = [sum(j in row for row in rows) for j in range(len(may[0]))]
    assert max(rates) <= (candidates or 9)
    assert max(rated) <= (judges or 9)
    by_judges = (judges or len(may)) * len(rated) <= (candidates or len(rated)) * len(rates)
    if by_judges:
        assert rated == [min(judges or 9, sum(column)) for column in zip(*may, strict=True)]
    else:
        assert rates == [min(candidates or 9, sum(row)) for row in may]
    even = rates if by_judges else rated
    if min(judges or 9, candidates or 9) < min(len(may), len(may[0])) - 1:
        assert max(even) - min(even) <= 1


@given(st.integers(2, 9), seeds, st.data())
def test_a_whole_team_rates_exactly_k_each_and_everything_from_n_less_1_on(agents, seed, data):
    may = [[i != j for j in range(agents)] for i in range(agents)]
    none = [[False] * agents] * agents
    few = data.draw(st.integers(1, agents + 1))
    expected = min(few, agents - 1)
    for limits in ({"judges": few}, {"candidates": few}, {"judges": few, "candidates": few}):
        rows = drawn(may, none, seed, **limits)
        assert {len(row) for row in rows} == set(Counter(j for row in rows for j in row).values()) == {expected}


@given(st.integers(2, 7), seeds, st.integers(1, 6), st.data())
def test_what_is_known_counts_and_is_not_drawn_again(agents, seed, judges, data):
    known = [[i != j and data.draw(st.booleans()) for j in range(agents)] for i in range(agents)]
    rows = drawn([[i != j for j in range(agents)] for i in range(agents)], known, seed, judges)
    assert not any(known[i][j] or i == j for i, row in enumerate(rows) for j in row)
    for j in range(agents):
        before = sum(row[j] for row in known)
        assert sum(j in row for row in rows) + before == max(before, min(judges, agents - 1))


def test_every_pair_is_as_likely_as_another():
    may, none = [[i != j for j in range(4)] for i in range(4)], [[False] * 4] * 4
    draws = Counter((i, j) for seed in range(600) for i, row in enumerate(drawn(may, none, seed, 1)) for j in row)
    assert len(draws) == 12
    assert all(abs(count - 200) < 60 for count in draws.values())  # five standard deviations


def held(scripted, agents=5, **options):
    """The requests to judges of one round on two tasks, and its records."""
    rnn, engine = scripted.build(agents, write=lambda r: f"{r.agent} says {r.seed % 9}", judge=grade, **options)
    tasks = [Task("?", "one"), Task("!", "two")]
    records, _ = rnn.cell(tasks, [full_team(rnn.cell.ensemble)] * 2, rnn.cell.start(tasks), index=1)
    return engine.rated, records


def grade(request, candidate):
    return len(candidate) % 7 / 10


@pytest.mark.parametrize("limits", [{"judges": 4}, {"candidates": 4}, {"judges": 9, "candidates": 5}])
def test_of_all_or_more_it_is_the_dense_round_request_for_request(scripted, limits):
    assert held(scripted, **limits) == held(scripted)


@pytest.mark.parametrize("limits", [{"judges": 2}, {"candidates": 2}])
def test_each_is_rated_by_k_and_what_nobody_rated_is_masked(scripted, limits):
    rated, records = held(scripted, **limits)
    assert [len(request.candidates) for request in rated] == [2] * 10
    for record in records:
        assert [sum(row) for row in record.vote_mask] == [2] * 5
        assert [sum(column) for column in zip(*record.vote_mask, strict=True)] == [2] * 5
        assert not any(record.vote_mask[i][i] for i in range(5))
    assert records[0].vote_mask != records[1].vote_mask
    assert records == held(scripted, **limits)[1]
    assert records[0].vote_mask != held(scripted, **limits, seed=8)[1][0].vote_mask


def test_who_draws_nothing_is_not_asked(scripted):
    rated, records = held(scripted, agents=3, judges=1, candidates=1, diagonal_mask=False)
    assert [len(request.candidates) for request in rated] == [1] * 6
    assert [[sum(row) for row in record.vote_mask] for record in records] == [[1] * 3] * 2


class ByNumber:
    """Answers are equal where their last words are."""

    def classes(self, task, texts):
        last = [text.split()[-1] for text in texts]
        return [last.index(word) for word in last]

    def finals(self, task, texts):
        return [text.split()[-1] for text in texts]


def equal(scripted, **options):
    said = dict(zip(scripted.NAMES, ["1", "1", "2", "1", "3"], strict=True))
    rnn, engine = scripted.build(5, write=lambda r: f"{r.agent} says {said[r.agent]}", judge=grade, **options)
    rnn.cell.answers = ByNumber()
    tasks = [Task("?", "one")]
    (record,), _ = rnn.cell(tasks, [full_team(rnn.cell.ensemble)], rnn.cell.start(tasks), index=1)
    return engine.rated, record


def test_equal_answers_are_rated_once_for_all_that_say_the_same(scripted):
    rated, record = equal(scripted, equal_once=True)
    assert [len(request.candidates) for request in rated] == [3, 3, 2, 3, 2]
    assert sum(map(sum, record.vote_mask)) == 20
    for i, row in enumerate(record.ratings):
        assert row[i] is None
        assert len({row[j] for j in (0, 1, 3) if j != i}) == 1
    assert len(equal(scripted)[0][0].candidates) == 4


def test_with_k_judges_each_answer_has_k(scripted):
    rated, record = equal(scripted, equal_once=True, judges=2)
    assert sum(len(request.candidates) for request in rated) == 6
    assert [sum(column) for column in zip(*record.vote_mask, strict=True)][2::2] == [2, 2]
