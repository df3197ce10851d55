"""A vote over all rounds: what it reads by hand, that it goes back, stops, and is saved."""

import pytest
import torch

from nsed_torch.core.answer_classes import SameTexts
from nsed_torch.parts.features import feature_names
from nsed_torch.parts.round_vote import RoundVote, RoundVoteHalting, leader
from nsed_torch.records.transcript import Proposal, Round, Task

SAID = torch.tensor([[[0, 0, 1, -1], [0, 1, 1, 2], [0, 1, -1, 1]]])
HELD = torch.ones(1, 3, dtype=torch.bool)


def weighted(vote=None, **weights):
    vote = (vote or RoundVote()).double()
    names = ("first", "last", "between", "kept", "came", "leads")
    with torch.no_grad():
        vote.votes.copy_(torch.tensor([weights.get(name, 0.0) for name in names]))
    return vote


def test_what_is_read_by_hand():
    table, there = RoundVote().double().read(SAID, HELD)
    assert there.tolist() == [[True, True, True]]
    first, last, between, kept, came, leads = table[0].T.tolist()
    assert first == [0.5, 0.25, 0]
    assert last == pytest.approx([1 / 3, 2 / 3, 0])
    assert between == [0.25, 0.5, 0.25]
    assert kept == [0.25, 0.25, 0]  # the first and the third agent, who is silent at the end
    assert came == [0, 0.5, 0]  # the second, and the fourth from an answer of its own
    assert leads == [0, 1, 0]


def test_rounds_that_were_not_held_and_agents_who_were_not_there_count_for_nothing():
    vote = weighted(first=1.0, last=0.7, kept=0.3)
    longer = torch.cat([SAID, torch.zeros_like(SAID)], 1)
    held = torch.tensor([[True] * 3 + [False] * 3])
    assert torch.equal(vote.read(longer, held)[0], vote.read(SAID, HELD)[0])
    assert vote.decide(longer, held).reached.item() == 3
    assert vote.decide(torch.full((1, 2, 3), -1), torch.ones(1, 2, dtype=torch.bool)).answer.item() == -1


def test_a_fresh_vote_elects_the_last_plurality_and_a_fitted_one_may_go_back():
    assert RoundVote().decide(SAID, HELD).answer.item() == 1
    assert weighted(first=1.0).decide(SAID, HELD).answer.item() == 0
    careful = RoundVote()
    careful.caution.fill_(1.5)
    assert careful.decide(SAID, HELD).answer.item() == 0


def test_one_round_is_left_to_the_plurality():
    one = torch.tensor([[[1, 0, 0]], [[1, 0, -1]], [[-1, -1, -1]]])
    vote = weighted(first=-5.0, leads=-5.0)
    assert vote.decide(one, torch.ones(3, 1, dtype=torch.bool)).answer.tolist() == [0, 1, -1]
    assert leader(one[:, 0], 2).tolist() == [[True, False], [False, True], [False, False]]


def test_it_stops_once_it_is_sure():
    vote = weighted(leads=3.0)
    vote.enough.fill_(0.9)
    settled = torch.tensor([[[0, 1, 1], [1, 1, 1], [0, 0, 0]]])
    assert vote.decide(settled, HELD)[::2] == (torch.tensor([1]), torch.tensor([2]))
    vote.enough.fill_(2.0)
    assert vote.decide(settled, HELD)[::2] == (torch.tensor([0]), torch.tensor([3]))


def test_what_texts_say_moves_the_vote():
    vote = weighted(RoundVote(["hedge"]), leads=0.1)
    with torch.no_grad():
        vote.texts.fill_(-1.0)
    features = torch.zeros(1, 3, 4, 1)
    features[0, :, 1] = 2.0  # the second agent hedges, and the third is silent in the end
    features[0, 1:, 3] = torch.nan
    assert vote.decide(SAID, HELD, features).answer.item() == 2
    assert vote.decide(SAID, HELD).answer.item() == 1


def test_saved_and_loaded(tmp_path):
    vote = weighted(RoundVote(feature_names(["support"])), first=0.5)
    vote.caution.fill_(0.3)
    vote.save_pretrained(tmp_path)
    again = RoundVote.from_pretrained(tmp_path)
    assert str(again) == str(vote)
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), vote.state_dict().values(), strict=True))
    (tmp_path / "rounds.safetensors").write_bytes(b"?")
    with pytest.raises(ValueError, match=r"rounds.safetensors: not a vote over rounds .*: fit it again"):
        RoundVote.from_pretrained(tmp_path)


def held_round(index, texts):
    count = len(texts)
    names = [f"a{i}" for i in range(count)]
    rows = [[0.0] * count] * count
    return Round(
        index, names, names, [Proposal(n, t, "stop") for n, t in zip(names, texts, strict=True)],
        rows, [[False] * count] * count, rows, [1.0] * count, [0.0] * count, [0.0] * count, None, False, 0.0, 0.0,
        [0.0] * count, [],
    )  # fmt: skip


def test_a_halting_rule_goes_back_to_an_earlier_answer():
    rounds = [held_round(1, ["B", "B", "A"]), held_round(2, ["A", "", "A"])]
    back, task = RoundVoteHalting(weighted(first=1.0)), Task("A or B?")
    assert back.stands(task, rounds, SameTexts()) == (0, 1, False)
    assert RoundVoteHalting(RoundVote()).stands(task, rounds, SameTexts()) == (1, 2, False)
    assert back.stands(task, rounds, None) is None
    assert back.stands(task, [held_round(1, ["", ""])], SameTexts()) is None
    reads = RoundVoteHalting(weighted(RoundVote(feature_names(["text"])), first=1.0))
    assert reads.stands(task, rounds, SameTexts()) == (0, 1, False)
