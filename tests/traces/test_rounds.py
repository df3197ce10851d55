"""Sub-teams on recorded rounds: what they cost, what their members are worth, and who they elect."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from planted_rounds import planted

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.parts.knapsack import KnapsackBroker
from nsed_torch.traces.rounds import FEWEST, Rounds, winners_correct


def cell(episodes):
    return ConsensusCell(episodes.dim, len(episodes.agents)).double()


def test_worth_of_proposers_and_judges_by_hand():
    episodes = planted(1, 3)
    wrong = torch.tensor([[[True, False, False]]])
    ratings = torch.tensor([[[[0.0, 0.3, 0.3], [0.2, 0.0, 0.2], [0.5, 0.9, 0.0]]]], dtype=torch.float64)
    rounds = Rounds.of(dataclasses.replace(episodes, correct=wrong, ratings=ratings))
    worth, known = rounds.worth()
    assert worth[0, :, 0].tolist() == [1, 0, 0]
    assert known[0, :, 0].tolist() == [True] * 3
    # The first heard wrong answers only; the second rated a right and a wrong one alike, the third in the wrong order.
    assert known[0, :, 1].tolist() == [False, True, True]
    assert worth[0, 1:, 1].tolist() == [0.5, 0]
    assert rounds.seat_cost[0].tolist() == [[100, 200]] * 3


def test_an_empty_answer_is_wrong_costs_and_is_not_read():
    episodes = planted(4, 3)
    silent = episodes.proposal_mask.clone()
    silent[:, :, 1] = False
    rounds = Rounds.of(dataclasses.replace(episodes, proposal_mask=silent), shared=0.5)
    assert rounds.there.all()
    worth, known = rounds.worth()
    assert known[:, 1, 0].all()
    assert (worth[:, 1, 0] == 0).all()
    reader = torch.tensor([[False, True], [True, False], [False, False]])  # a reads half of what it could: c's is there
    assert rounds.cost(reader).tolist() == [100 + 100] * 4
    nobody = torch.zeros(3, 2, dtype=torch.bool)
    nobody[1, 0] = True
    assert rounds.cost(nobody).tolist() == [100] * 4
    assert not rounds.right(cell(episodes), nobody).any()


def test_who_took_no_part_costs_nothing_and_cannot_be_seated():
    episodes = planted(5, 3)
    authors, voters = episodes.authors.clone(), episodes.voters.clone()
    authors[:, :, 2] = voters[:, :, 0] = -1
    absent = {"proposal_mask": episodes.proposal_mask & (authors >= 0), "voter_mask": voters >= 0}
    paid = torch.where(authors >= 0, episodes.proposal_cost, 0)
    rounds = Rounds.of(dataclasses.replace(episodes, authors=authors, voters=voters, proposal_cost=paid, **absent))
    assert rounds.there[0].tolist() == [[True, False], [True, True], [False, True]]
    # 900 in all, 200 for proposals: the two judges share the rest.
    assert rounds.seat_cost[0].tolist() == [[100, 0], [100, 350], [0, 350]]
    assert not (rounds.seated(torch.ones(3, 2)) & ~rounds.there).any()
    assert rounds.cost(torch.ones(3, 2, dtype=torch.bool)).tolist() == [900] * 5


@pytest.mark.parametrize(("shared", "cost"), [(1.0, 300), (0.0, 200), (0.5, 250)])
def test_a_judge_of_a_small_team_is_charged_for_what_it_reads(shared, cost):
    rounds = Rounds.of(planted(3, 3), shared=shared)
    team = torch.tensor([[False, True], [True, False], [False, False]])  # a reads b's answer, and not c's
    assert rounds.cost(team).tolist() == [cost] * 3
    everybody = torch.ones(3, 2, dtype=torch.bool)
    assert rounds.cost(everybody).tolist() == [900] * 3


def test_agents_that_are_left_out_neither_propose_nor_rate():
    episodes = planted(20, 4)
    team = torch.ones(4, 2, dtype=torch.bool)
    team[1] = False
    some = episodes.without([episodes.agents[1]])
    assert torch.equal(Rounds.of(some).right(cell(episodes)), Rounds.of(episodes).right(cell(episodes), team))
    assert torch.equal(winners_correct(cell(episodes), some), Rounds.of(episodes).right(cell(episodes), team))
    assert some.agents == episodes.agents
    assert not some.by_agent().answered[:, 1].any()
    with pytest.raises(ValueError, match="without: expected agents out of"):
        episodes.without(["nobody"])


def test_the_full_team_elects_as_recorded_and_a_lone_proposer_is_elected():
    episodes = planted(80, 4, knows=0.7, guesses=0.4, judge=0.8)
    rounds, consensus = Rounds.of(episodes), cell(planted(1, 4))
    assert torch.equal(rounds.right(consensus), winners_correct(consensus, episodes))
    for agent in range(4):
        alone = torch.zeros(4, 2, dtype=torch.bool)
        alone[agent, 0] = True
        assert torch.equal(rounds.right(consensus, alone), episodes.correct[:, 0, agent])


def test_a_sub_team_elects_as_if_the_others_had_never_been_there():
    episodes = planted(60, 4, knows=0.7, guesses=0.4, judge=0.7)
    team = torch.tensor([[True, False], [False, True], [True, True], [False, False]])
    proposers, voters = [0, 2], [1, 2]
    small = dataclasses.replace(
        episodes,
        embeddings=episodes.embeddings[:, :, proposers],
        ratings=episodes.ratings[:, :, voters][..., proposers],
        vote_mask=episodes.vote_mask[:, :, voters][..., proposers],
        voters=episodes.voters[:, :, voters],
        authors=episodes.authors[:, :, proposers],
        proposal_mask=episodes.proposal_mask[:, :, proposers],
        voter_mask=episodes.voter_mask[:, :, voters],
        correct=episodes.correct[:, :, proposers],
        classes=episodes.classes[:, :, proposers],
    )
    rounds = Rounds.of(episodes)
    assert torch.equal(rounds.right(cell(episodes), team), winners_correct(cell(episodes), small))


@given(st.integers(0, 2**32))
def test_it_seats_whom_the_knapsack_seats_where_no_budget_binds(seed):
    rounds = Rounds.of(planted(1, 3))
    utilities = torch.randn(1, 3, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    team = KnapsackBroker(["tokens"])(
        utilities[0], rounds.seat_cost[0, ..., None], torch.tensor([torch.inf]),
        minimum=torch.tensor(FEWEST), maximum=torch.tensor([3, 3]),
    )  # fmt: skip
    assert torch.equal(rounds.seated(utilities)[0], team)


def test_every_round_can_be_voted_on(guesses):
    episodes = guesses(6, rounds=2)
    first, second = Rounds.of(episodes), Rounds.of(episodes, 2)
    assert torch.equal(first.there[:, :, 0], episodes.authors[:, 0].ge(0))
    assert first.answered.sum() < second.answered.sum()
    # An answer is paid for in the round in which its agent joins.
    assert torch.equal(first.answer_cost.sum(1), episodes.cost[:, 0])
    assert torch.equal(second.answer_cost.sum(1), episodes.cost[:, 1])


def test_unknown_costs_stay_unknown_and_bad_numbers_are_refused():
    episodes = planted(4)
    unpriced = Rounds.of(dataclasses.replace(episodes, proposal_cost=None))
    assert unpriced.answer_cost.isnan().all()
    with pytest.raises(ValueError, match=r"^expected judging in \[0, 1\], got 2$"):
        Rounds.of(episodes, shared=2)
    with pytest.raises(ValueError, match=r"^expected a round that was held, 1 to 1, got 0: choose another round$"):
        Rounds.of(episodes, 0)
