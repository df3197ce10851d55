"""Simulated members: never right, never decisive where there are none, and each kind as it is described."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from polls import drawn, poll, polls

from nsed_lab.faulty_members import KINDS, most_faulty, with_faulty
from nsed_lab.member_study import elected, faulty_members, rules
from nsed_torch.core.cell import ConsensusCell

N = None
# a and b are right, c is wrong; a never rated anything wrong but in the second task.
ONE = [[N, 0.8, -0.4], [0.6, N, N], [0.2, 1.0, N]]
TWO = [[N, -0.5, 0.25], [0.5, N, 0.5], [N, N, N]]
BY_HAND = poll([["yes", "yes", "no"], ["yes", "no", "yes"]], [ONE, TWO])
ALL_RIGHT = poll([["yes", "yes", "no"], ["yes", "yes", "yes"]], [ONE, TWO])


@pytest.mark.parametrize(("agents", "most"), [(2, 3), (3, 4), (4, 6), (5, 7), (8, 12)])
def test_most_faulty_is_the_largest_count_within_60_percent(agents, most):
    assert most_faulty(agents) == most
    assert 10 * most <= 6 * (agents + most)
    assert 10 * (most + 1) > 6 * (agents + most + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_real_judges_rate_a_copy_as_they_rated_the_answer(kind):
    crowd = with_faulty(BY_HAND, kind, 2)
    heard, mask = crowd.ratings[:, :3, 3:], crowd.vote_mask[:, :3, 3:]
    if kind == "silent":
        assert not mask.any()
        return
    # The only wrong answer of the first task is c's, of the second b's. b never rated c's, but rates wrong ones never;
    # so it says nothing. c never rated a wrong answer at all.
    assert mask.tolist() == [[[True] * 2, [False] * 2, [False] * 2], [[True] * 2, [False] * 2, [False] * 2]]
    assert heard[0, 0].tolist() == pytest.approx([-0.4] * 2)
    assert heard[1, 0].tolist() == pytest.approx([-0.5] * 2)
    assert crowd.classes[:, 3:].tolist() == [[1, 1], [1, 1]]


def test_where_a_judge_never_rated_that_answer_its_mean_over_wrong_ones_stands_in():
    crowd = with_faulty(ALL_RIGHT, "random", 3)
    # Nobody is wrong in the second task: copies are of the first task's answers, and answers of their own.
    assert (crowd.classes[1, 3:] > ALL_RIGHT.classes.max()).all()
    assert crowd.ratings[1, 0, 3:].tolist() == pytest.approx([-0.4] * 3)
    # b rated nothing wrong anywhere, and c nothing at all in this task.
    assert crowd.vote_mask[1, :3, 3:].tolist() == [[True] * 3, [False] * 3, [False] * 3]


def test_the_contrarian_turns_the_mean_of_real_judges_round():
    crowd = with_faulty(BY_HAND, "contrarian", 1)
    assert crowd.ratings[0, 3, :3].tolist() == pytest.approx([-(0.6 + 0.2) / 2, -(0.8 + 1.0) / 2, 0.4])
    assert crowd.vote_mask[:, 3].tolist() == [[True, True, True, False]] * 2
    assert crowd.ratings[1, 3, :3].tolist() == pytest.approx([-0.5, 0.5, -(0.25 + 0.5) / 2])


def test_colluders_praise_their_answer_wherever_it_stands():
    crowd = with_faulty(BY_HAND, "colluding", 2)
    assert crowd.ratings[0, 3:].tolist() == [[-1, -1, 1, 1, 1]] * 2
    assert crowd.ratings[1, 3:].tolist() == [[-1, 1, -1, 1, 1]] * 2
    assert crowd.vote_mask[0, 3:].tolist() == [[True, True, True, False, True], [True, True, True, True, False]]
    foreign = with_faulty(ALL_RIGHT, "colluding", 3)
    assert foreign.ratings[1, 3:, :3].tolist() == [[-1] * 3] * 3
    assert (foreign.classes[1, 3:] == foreign.classes[1, 3]).all()


def test_random_members_rate_everything_but_themselves_anywhere_in_the_scale():
    tasks = drawn(200)
    crowd = with_faulty(tasks, "random", 2)
    own = crowd.ratings[:, 4:]
    assert torch.equal(crowd.vote_mask[:, 4:], ~torch.eye(6, dtype=torch.bool)[4:].expand(200, -1, -1))
    assert own.min() < -0.95
    assert own.max() > 0.95
    assert own.mean().abs() < 0.05


@given(polls(), st.sampled_from(sorted(KINDS)), st.integers(0, 4), st.integers(0, 5))
def test_nobody_copies_a_right_answer_and_the_real_part_stays_as_recorded(found, kind, count, seed):
    crowd, n = with_faulty(found, kind, count, seed=seed), len(found.agents)
    assert not crowd.correct[:, n:].any()
    copied, real = crowd.classes[:, n:, None], crowd.classes[:, None, :n]
    assert not ((copied == real) & found.correct[:, None] & (copied >= 0)).any()
    for name in ("there", "answered", "correct", "classes"):
        assert torch.equal(getattr(crowd, name)[:, :n], getattr(found, name))
    for name in ("ratings", "vote_mask"):
        assert torch.equal(getattr(crowd, name)[:, :n, :n], getattr(found, name))
    counted = crowd.ratings[crowd.vote_mask]
    assert ((counted >= -1) & (counted <= 1)).all()
    assert not crowd.vote_mask.diagonal(dim1=1, dim2=2).any()
    assert not (crowd.vote_mask & ~crowd.answered[:, None]).any()
    again = with_faulty(found, kind, count, seed=seed)
    assert all(
        torch.equal(getattr(again, name), value) for name, value in vars(crowd).items() if torch.is_tensor(value)
    )


@settings(max_examples=20)
@given(polls(), st.sampled_from(["quadratic", "linear", "plurality"]), st.integers(1, 4))
def test_silent_members_change_no_outcome(found, vote, count):
    n = len(found.agents)
    crowd = with_faulty(found, "silent", count)
    for rule in rules(4, n + count, [vote]).values():
        assert rule(crowd, range(n + count)).tolist() == rule(found, range(n)).tolist()


@settings(max_examples=15)
@given(polls(), st.sampled_from(sorted(KINDS)))
def test_none_added_is_the_recorded_team(found, kind):
    n = len(found.agents)
    for rule in rules(4, n + 2, ["quadratic"]).values():
        assert rule(with_faulty(found, kind, 2), range(n)).tolist() == rule(found, range(n)).tolist()


def test_all_kinds_counts_and_rules_have_a_row_with_intervals():
    tasks = drawn(30, agents=3, tells=0.5)
    table = rules(4, 3 + most_faulty(3), ["quadratic", "linear"])
    rows = faulty_members(tasks, table, draws=2)
    assert [(r.kind, r.vote, r.members) for r in rows] == [
        (kind, vote, count) for kind in KINDS for vote in table for count in range(5)
    ]
    for row in rows:
        start = next(r for r in rows if (r.kind, r.vote, r.members) == (row.kind, row.vote, 0))
        assert row.share == row.members / (3 + row.members)
        assert 0 <= row.accuracy.low <= row.accuracy.mean <= row.accuracy.high <= 1
        assert row.difference.mean == pytest.approx(row.accuracy.mean - start.accuracy.mean)
        if row.kind == "silent":
            assert row.accuracy == start.accuracy
    assert rows == faulty_members(tasks, table, draws=2)
    assert rows != faulty_members(tasks, table, draws=2, seed=9)
    # Four colluders beside three agents decide everything.
    assert next(r for r in rows if (r.kind, r.vote, r.members) == ("colluding", "quadratic", 4)).accuracy.mean < 0.1
    full = elected(ConsensusCell(4, 3).double(), tasks, range(3)).mean().item()
    assert rows[0].accuracy.mean == pytest.approx(full)


def test_what_a_user_can_fix_is_one_line():
    with pytest.raises(ValueError, match=r"^draws: expected at least 1, got 0$"):
        faulty_members(BY_HAND, {}, draws=0)
