"""A recorded round becomes a square table, and teams vote on it as a deliberation does."""

import math
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from polls import drawn, poll, polls
from team_traces import team, trace, turn

from nsed_torch.agents import HashedEncoder
from nsed_torch.data import load_traces
from nsed_torch.evaluation.baselines import plurality_correct
from nsed_torch.evaluation.members.sub_teams import COMMONEST, TUNED, commonest, elected, polled, rules
from nsed_torch.nn import VOTES, ConsensusCell
from nsed_torch.records import TraceWriter


def episodes(folder, traces):
    writer = TraceWriter(folder)
    writer.add(traces)
    writer.finish(HashedEncoder(8).embed)
    return load_traces(folder)


def fresh(vote="quadratic", dim=4, agents=8):
    return ConsensusCell(dim, agents, vote=VOTES[vote]()).double()


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
@given(polls(), st.sampled_from(sorted(VOTES)), st.data())
def test_the_order_of_agents_changes_nothing(found, vote, data):
    n = len(found.agents)
    members = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    order = data.draw(st.permutations(members))
    for rule in rules(4, n, [vote]).values():
        one, other = rule(found, members), rule(found, order)
        assert torch.allclose(one, other)
        assert ((one >= 0) & (one <= 1)).all()


def test_commonest_answers_are_the_baseline_where_nothing_ties(tmp_path):
    recorded = episodes(tmp_path, team(60, 1, 3))
    found = polled(recorded)
    mine, baseline = commonest(found, range(3)), plurality_correct(recorded)
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
