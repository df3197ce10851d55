"""Sub-teams are complete or drawn, and what was chosen on one half of the tasks is measured on the other."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from polls import drawn, poll, polls, scores

from nsed_torch.data import split
from nsed_torch.evaluation.members.sub_teams import COMMONEST, additions, rules, sub_teams, team_sizes


@given(st.integers(1, 9), st.integers(1, 70), st.integers(0, 3))
def test_teams_of_a_size_are_all_of_them_or_as_many_as_asked_for(agents, most, seed):
    teams = sub_teams(agents, most=most, seed=seed)
    assert len(set(teams)) == len(teams)
    assert teams == sub_teams(agents, most=most, seed=seed)
    for size in range(1, agents + 1):
        own = [team for team in teams if len(team) == size]
        assert len(own) == min(most, math.comb(agents, size))
        assert set(own) <= set(combinations(range(agents), size))


def test_another_seed_draws_other_teams():
    assert sub_teams(12, seed=0) != sub_teams(12, seed=1)


def found(poll, votes=("quadratic",)):
    teams = sub_teams(len(poll.agents))
    return team_sizes(poll, teams, scores(poll, rules(4, len(poll.agents), votes), teams))


def test_sizes_by_hand():
    # Nobody rates: a team's accuracy is its share of right answers, one of two wherever a is not alone.
    right = poll([["yes", "no", "no"]] * 8, [[[None] * 3] * 3] * 8)
    rows = found(right)
    assert [(row.vote, row.size, row.teams) for row in rows] == [
        (vote, size, count) for vote in ("quadratic", COMMONEST) for size, count in ((1, 3), (2, 3), (3, 1))
    ]
    quadratic = rows[:3]
    assert [row.accuracy.mean for row in quadratic] == pytest.approx([1 / 3, 1 / 3, 1 / 2])
    assert [row.held_out.mean for row in quadratic] == pytest.approx([1 / 3, 1 / 3, 1 / 2])
    assert [row.best.accuracy.mean for row in quadratic] == pytest.approx([1, 0.5, 0.5])
    assert [row.worst.accuracy.mean for row in quadratic] == pytest.approx([0, 0, 0.5])
    assert [row.best.agents for row in quadratic] == [("a",), ("a", "b"), ("a", "b", "c")]
    assert [row.worst.agents for row in quadratic] == [("b",), ("b", "c"), ("a", "b", "c")]
    # Two of three commonest answers say no.
    assert rows[5].accuracy.mean == 0


def test_no_task_that_chose_a_team_measures_it():
    tasks = drawn(60)
    parts = split(tasks.ids, (0.5, 0.0, 0.5))
    answers = [["yes" if (b in parts.train.tolist()) == (i == 0) else "no" for i in range(3)] for b in range(60)]
    lone = poll(answers, [[[None] * 3] * 3] * 60)
    # Agent a is right on exactly the half that chooses: the best there is the worst here.
    assert lone.ids == tasks.ids
    first = found(lone)[0]
    assert (first.best.agents, first.best.accuracy.mean) == (("a",), 0)
    assert (first.worst.agents, first.worst.accuracy.mean) == (("b",), 1)
    assert first.best.accuracy.n == len(parts.test)


@settings(max_examples=8)
@given(polls(), st.permutations(range(4)))
def test_means_over_all_teams_know_no_order_of_agents(found_poll, order):
    n = len(found_poll.agents)
    order = [i for i in order if i < n]
    turned = {name: getattr(found_poll, name)[:, order] for name in ("there", "answered", "correct", "classes")}
    ballots = {name: getattr(found_poll, name)[:, order][:, :, order] for name in ("ratings", "vote_mask")}
    other = type(found_poll)(**{**vars(found_poll), **turned, **ballots})
    teams = sub_teams(n)
    sizes = torch.tensor([len(team) for team in teams])
    tables = [scores(one, rules(4, n, ["quadratic"]), teams) for one in (found_poll, other)]
    for name in tables[0]:
        for size in range(1, n + 1):
            means = [table[name][sizes == size].mean(0) for table in tables]
            assert torch.allclose(*means)


def test_weaker_agents_join_in_the_order_of_their_accuracy():
    tasks = drawn(80, skill=0.55)
    rows = additions(tasks, rules(4, 4, ["quadratic"]), core=1)
    parts = split(tasks.ids, (0.5, 0.0, 0.5))
    known = tasks.correct[parts.train].double().mean(0)
    order = known.argsort(descending=True, stable=True).tolist()
    assert known.unique().numel() == 4
    mine = rows[:4]
    assert [row.added for row in mine] == ["", *(tasks.agents[i] for i in order[1:])]
    assert [row.size for row in mine] == [1, 2, 3, 4]
    test = tasks.correct[parts.test].double().mean(0)
    assert [row.alone.mean for row in mine] == pytest.approx([test[i].item() for i in order])
    assert mine[0].accuracy.mean == pytest.approx(test[order[0]].item())
    for row in rows:
        core = next(one for one in rows if (one.vote, one.size) == (row.vote, 1))
        assert row.difference.mean == pytest.approx(row.accuracy.mean - core.accuracy.mean)
        assert row.accuracy.n == len(parts.test)


def test_what_a_user_can_fix_is_one_line():
    tasks = drawn(10)
    with pytest.raises(ValueError, match=r"^core: expected 1 to 4 agents, got 5$"):
        additions(tasks, rules(4, 4, ["quadratic"]), core=5)
    with pytest.raises(ValueError, match=r"^most_teams: expected at least 1, got 0$"):
        sub_teams(3, most=0)
