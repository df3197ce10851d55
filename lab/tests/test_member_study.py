"""A recorded round becomes a square table, teams vote on it as a deliberation does, and what comes of it is told.

Sub-teams are complete or drawn, and what was chosen on one half of the tasks is measured on the other.
"""

import json
import math
import re
from itertools import combinations
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from polls import drawn, poll, polls
from team_traces import team, trace, turn

from nsed_lab.faulty_members import KINDS, most_faulty
from nsed_lab.member_study import (
    COMMONEST,
    TUNED,
    MemberStudy,
    additions,
    commonest,
    elected,
    plot_faulty,
    polled,
    rules,
    sheets,
    sub_teams,
    team_sizes,
)
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.named import NAMED
from nsed_torch.evaluation.statistics import plain
from nsed_torch.records.trace import TraceWriter
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.splits import split


def episodes(folder, traces):
    writer = TraceWriter(folder)
    writer.add(traces)
    writer.finish(HashedEncoder(8).embed)
    return load_traces(folder)


def fresh(vote="quadratic", dim=4, agents=8):
    return ConsensusCell(dim, agents, vote=vote).double()


@pytest.mark.parametrize("number", [1, 2])
def test_the_full_team_elects_what_the_recorded_rounds_elect(tmp_path, number):
    recorded = episodes(tmp_path, team(40, 2, 4))
    found = polled(recorded, number)
    assert found.ids == tuple(recorded.ids[i] for i in recorded.round_mask[:, number - 1].nonzero()[:, 0])
    rows = torch.tensor([recorded.ids.index(name) for name in found.ids])
    round_ = {name: getattr(recorded, name)[rows][:, [number - 1]] for name in ("embeddings", "ratings", "vote_mask")}
    names = ("proposal_mask", "voter_mask", "classes")
    masks = {name: getattr(recorded, name)[rows][:, [number - 1]] for name in names}
    output, _ = fresh(dim=8).unroll(**round_, task=recorded.task[rows], **masks)
    right = recorded.correct[rows, number - 1].gather(1, output.winner)[:, 0]
    assert elected(fresh(dim=8), found, range(4)).tolist() == right.double().tolist()


def test_agents_find_their_place_whoever_took_part(tmp_path):
    one = trace("one", turn(["yes", "no", "no"], ratings=[[None, 0.5, 0.25], [1.0, None, -0.5]]), backbones="xxx")
    late = trace("late", turn(["no", "yes", None], ratings=[[None, 0.75, None]] * 3), backbones="xxx")
    record = one.transcript.rounds[0]
    # b and c alone, in another order: what stood in row a now is c's.
    object.__setattr__(record, "proposers", ["c", "a", "b"])
    object.__setattr__(record, "voters", ["c", "a"])
    found = polled(episodes(tmp_path, [one, late]))
    assert found.correct.tolist() == [[False, False, True], [False, True, False]]
    assert found.there[..., 1].tolist() == [[True, False, True], [True, True, True]]
    assert found.answered.tolist() == [[True, True, True], [True, True, False]]
    assert found.ratings[0, 2].tolist() == [0.5, 0.25, 0.0]
    assert found.vote_mask[0].tolist() == [[False, True, True], [False] * 3, [True, True, False]]
    assert found.ratings[0, 0].tolist() == [0.0, -0.5, 1.0]


def test_by_hand():
    # a and c say yes, b says no. The judges of a: b -1, c 1; of b: a 1, c 1; of c: a 1, b -1.
    ratings = [[None, 1.0, 1.0], [-1.0, None, -1.0], [1.0, 1.0, None]]
    two = poll([["yes", "no", "yes"]] * 2, [ratings, [[None] * 3] * 3])
    # Quadratic: support a = -r + r, b = 2 r, c = r - r with r = sqrt(1/2). Without ratings yes and no tie.
    assert elected(fresh(), two, (0, 1, 2)).tolist() == pytest.approx([0, 1 / 2])
    # a and b alone: a gets -1, b gets 1.
    assert elected(fresh(), two, (0, 1)).tolist() == [0, 0.5]
    assert elected(fresh(), two, (1, 2)).tolist() == [0, 0.5]
    assert elected(fresh(), two, (0, 2)).tolist() == [1, 1]
    assert elected(fresh(), two, (1,)).tolist() == [0, 0]
    assert commonest(two, (0, 1, 2)).tolist() == [1, 1]
    assert commonest(two, (0, 1)).tolist() == [0.5, 0.5]


def test_votes_may_elect_different_proposals():
    ratings = [[None, 0.2, 0.8], [0.1, None, -0.9], [-0.5, 0.5, None]]
    two = poll([["no", "yes", "no"]] * 2, [ratings] * 2)
    # Quadratic b: sqrt .2 + sqrt .5 = 1.15; a: sqrt .1 - sqrt .5 < 0; c: sqrt .8 - sqrt .9 < 0.
    assert elected(fresh(), two, (0, 1, 2)).tolist() == [1, 1]
    # Plurality: a votes for c, b for a, c for b: one vote for each proposal, and so one for yes and one for no.
    assert elected(fresh("plurality"), two, (0, 1, 2)).tolist() == pytest.approx([1 / 2] * 2)


def test_two_wordings_of_one_answer_share_what_judges_say_of_them():
    ratings = [[None, -0.5, 0.5], [0.8, None, 0.2], [1.0, -1.0, None]]
    two = poll([["yes", "yes", "no"], ["yes", "no", "maybe"]], [ratings] * 2)
    # Quadratic with r = sqrt .5: a is r + sqrt .8 = 1.60, b -2 r, c r + sqrt .2 = 1.15; a and b together 0.09.
    assert elected(fresh(), two, (0, 1, 2)).tolist() == [0, 1]


@settings(max_examples=24)
@given(polls(), st.sampled_from(sorted(NAMED["vote"])), st.data())
def test_the_order_of_agents_changes_nothing(found, vote, data):
    n = len(found.agents)
    members = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    order = data.draw(st.permutations(members))
    for rule in rules(4, n, [vote]).values():
        one, other = rule(found, members), rule(found, order)
        assert torch.allclose(one, other)
        assert ((one >= 0) & (one <= 1)).all()


def test_commonest_answers_are_the_baseline_where_nothing_ties(tmp_path):
    found = polled(episodes(tmp_path, team(60, 1, 3)))
    mine, baseline = commonest(found, range(3)), found.plurality_right(torch.ones_like(found.correct))
    clear = found.classes.sort(1).values.diff(dim=1).eq(0).any(1)
    assert clear.any()
    assert mine[clear].tolist() == baseline[clear].double().tolist()


def test_a_tuned_cell_votes_in_its_own_way():
    found = drawn()
    cell = fresh(agents=4)
    with torch.no_grad():
        cell.trust.bias[3] = 1e6
    table = rules(4, 4, ["quadratic"], cell)
    assert list(table) == ["quadratic", COMMONEST, TUNED]
    # d alone is heard: the answer wins whose proposals have the largest mean of its ballots. Its own gets nothing.
    expected = []
    for rates, classes, correct in zip(found.ratings[:, 3], found.classes, found.correct, strict=True):
        ballots = [math.copysign(math.sqrt(abs(rate)), rate) for rate in rates[:3].tolist()] + [0.0]
        answers = {}
        for ballot, number, right in zip(ballots, classes.tolist(), correct.tolist(), strict=True):
            answers.setdefault((number, right), []).append(ballot)
        expected.append(float(max(answers, key=lambda key: fmean(answers[key]))[1]))
    assert table[TUNED](found, range(4)).tolist() == expected
    assert table["quadratic"](found, range(4)).tolist() != table[TUNED](found, range(4)).tolist()


def test_what_cannot_be_voted_on_is_one_line(tmp_path):
    recorded = episodes(tmp_path, team(3, 1, 2))
    with pytest.raises(ValueError, match=r"^expected a round that was held, 1 to 1, got 4: choose another round$"):
        polled(recorded, 4)
    with pytest.raises(ValueError, match=r"^expected answers to at least 2 tasks in round 1, got 1: collect more$"):
        polled(recorded.select([0]))
    with pytest.raises(ValueError, match=r"^votes: expected names out of quadratic, .*, got cubic$"):
        rules(8, 2, ["quadratic", "cubic"])
    with pytest.raises(ValueError, match=r"got none$"):
        rules(8, 2, [])


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


def sized(poll, teams=None):
    return team_sizes(poll, teams or sub_teams(len(poll.agents)), rules(4, len(poll.agents), ["quadratic"]))


def test_sizes_by_hand():
    # Nobody rates: a team's accuracy is its share of right answers, one of two wherever a is not alone.
    right = poll([["yes", "no", "no"]] * 8, [[[None] * 3] * 3] * 8)
    rows = sized(right)
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
    first = sized(lone)[0]
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
    for rule in rules(4, n, ["quadratic"]).values():
        for size in range(1, n + 1):
            teams = list(combinations(range(n), size))
            means = [torch.stack([rule(one, team) for team in teams]).mean(0) for one in (found_poll, other)]
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


def test_a_core_or_a_number_of_teams_that_cannot_be_is_one_line():
    tasks = drawn(10)
    with pytest.raises(ValueError, match=r"^core: expected 1 to 4 agents, got 5$"):
        additions(tasks, rules(4, 4, ["quadratic"]), core=5)
    with pytest.raises(ValueError, match=r"^most_teams: expected at least 1, got 0$"):
        sub_teams(3, most=0)


def whole(tasks, **options):
    n = len(tasks.agents)
    return MemberStudy.of(tasks, rules(4, n + most_faulty(n), ["quadratic"]), draws=1, **options)


@pytest.fixture(scope="module")
def study():
    return whole(drawn(30, agents=3))


def test_it_is_json_and_the_same_each_time(study):
    data = plain(study)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert set(data) == {"tasks", "agents", "sizes", "additions", "faulty", "ties"}
    assert data == plain(whole(drawn(30, agents=3)))


def test_sheets_hold_what_the_study_does_and_say_what_is_simulated(study):
    tables = {sheet.name: sheet for sheet in sheets(study)}
    assert set(tables) == {"sizes", "additions", "faulty"}
    for sheet in tables.values():
        assert len({len(row) for row in sheet.rows}) == 1
        lines = [line for line in sheet.markdown().splitlines() if line.startswith("|")]
        assert len(lines) == len(sheet.rows) + 1
        assert sheet.terminal().row_count == len(sheet.rows) - 1
    assert len(tables["faulty"].rows) == 1 + len(KINDS) * (most_faulty(3) + 1)
    assert "Simulated members" in tables["faulty"].markdown()
    best = next(row for row in study.sizes if row.size == 2)
    assert any(", ".join(best.best.agents) in cell for row in tables["sizes"].rows for cell in row)


def test_names_are_data(study):
    odd = drawn(12, agents=3)
    odd = type(odd)(**{**vars(odd), "agents": ("a|b", "[bold]x[/bold]", "c\nd")})
    for sheet in sheets(whole(odd)):
        body = [line for line in sheet.markdown().splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in body}) == 1


def test_what_faulty_members_do_is_drawn(study, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    plot_faulty(study, tmp_path / "faulty.png")
    assert (tmp_path / "faulty.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
