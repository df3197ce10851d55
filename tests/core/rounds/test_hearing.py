"""Replies find their way back to the proposals they are about, and to those who wrote them."""

from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.core.ratings import Hearing, JudgeReply
from nsed_torch.records.transcript import Critique, Usage

REPLIES = [
    ([2, 1], JudgeReply((0.5, None), ("on cat", ""), Usage(1, 10, 2), ("ant: had a cold",))),
    ([0, 1, 2], JudgeReply((-1.0, 1 / 3, 0.0), ("on ant", "on bee", "on cat"), Usage(3, 5, 1))),
]
NAMES = ["ant", "bee", "cat"]


def test_each_reply_is_put_where_its_proposal_stands():
    hearing = Hearing.of(REPLIES, 3)
    assert hearing.ratings == [[None, None, 0.5], [-1.0, 0.333333333, 0.0]]
    assert hearing.critiques == [Critique(0, 2, "on cat")] + [Critique(1, j, f"on {NAMES[j]}") for j in range(3)]
    assert hearing.usage == Usage(4, 15, 3)
    assert hearing.notes == ["ant: had a cold"]


def test_an_author_hears_what_others_wrote_and_not_itself():
    assert Hearing.of(REPLIES, 3).received(["ant", "bee"], NAMES, {}) == {
        "cat": ("on cat", "on cat"),
        "ant": ("on ant",),
    }


def test_nobody_asked_is_nobody_heard():
    assert Hearing.of([], 2) == Hearing([], [], Usage(), [])
    assert Hearing.of([([], JudgeReply((), (), Usage()))], 2).ratings == [[None, None]]


@given(st.lists(st.lists(st.none() | st.floats(-1, 1), min_size=4, max_size=4), max_size=5), st.integers(0, 2**63 - 1))
def test_ratings_dealt_anew_are_the_same_ones_in_other_places_of_their_row(rows, seed):
    dealt = Hearing(rows, [], Usage(), []).dealt_anew([seed + i for i in range(len(rows))]).ratings
    for before, after in zip(rows, dealt, strict=True):
        assert [value is None for value in after] == [value is None for value in before]
        assert sorted(v for v in after if v is not None) == sorted(v for v in before if v is not None)


def test_dealing_anew_gives_every_place_its_turn():
    row = [[0.1, None, 0.2, 0.3]]
    seen = {tuple(Hearing(row, [], Usage(), []).dealt_anew([seed]).ratings[0]) for seed in range(60)}
    assert len(seen) == 6
