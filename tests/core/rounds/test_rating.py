"""Verdicts and critiques: what is asked, what comes back, what it may cost."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.engine import Decoding, Ratings, RatingScale
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.ratings import JudgeQuestion, VerdictRating
from nsed_torch.parts.rating_modes import CritiqueRating, LikelihoodRating
from nsed_torch.records.transcript import Task

TASK = Task("Which is larger, 17 or 71?")
MODES = [
    VerdictRating(),
    VerdictRating(listed=False),
    CritiqueRating(),
    CritiqueRating(listed=False),
    LikelihoodRating(),
]


def is_critique(request):
    return "Candidate_" in request.messages[-1].content


def questions(scripted, candidates, agents=2):
    ensemble = scripted.build(agents)[0].cell.ensemble
    return [JudgeQuestion(agent, TASK.question, tuple(candidates), 7 + i) for i, agent in enumerate(ensemble.agents)]


@pytest.mark.parametrize("listed", [True, False])
def test_a_verdict_is_one_request_a_judge_with_its_scale(scripted, listed):
    scale = RatingScale(("Yes", "No"), (1.0, -1.0))
    rnn, engine = scripted.build(2, judge=lambda request, candidate: 0.5)
    asked = questions(scripted, ["first", "second", "third"])
    replies = VerdictRating(listed=listed, scale=scale).rate(rnn.cell.ensemble, Prompts(), asked)
    assert [reply.ratings for reply in replies] == [(0.5,) * 3] * 2
    assert not any(reply.critiques for reply in replies)
    assert [(r.agent, r.seed, len(r.candidates), r.scale) for r in engine.rated] == [
        (question.judge.name, question.seed, 3, scale) for question in asked
    ]
    for request in engine.rated:
        shared = scripted.fenced(request.messages[-1].content)
        own = [scripted.fenced(candidate) for candidate in request.candidates]
        assert (shared, own) == (
            (["first", "second", "third"], [[]] * 3) if listed else ([], [["first"], ["second"], ["third"]])
        )
        assert [scripted.judged(request, c) for c in request.candidates] == ["first", "second", "third"]


def test_a_judges_notes_carry_its_name(scripted):
    class Noting(scripted.Recorder):
        def rate(self, requests):
            return [Ratings((None,) * len(r.candidates), notes=("had a cold",)) for r in requests]

    rnn, _ = scripted.build(3, write=lambda r: str(r.seed), engine=Noting(lambda r: str(r.seed), None), rounds=1)
    (record,) = rnn([TASK]).transcripts[0].rounds
    assert record.notes == [f"{name}: had a cold" for name in scripted.NAMES[:3]]
    assert record.ratings == [[None] * 3] * 3
    assert record.support == [0, 0, 0]


@pytest.mark.parametrize("listed", [True, False])
def test_critiques_reach_their_author_next_round_and_nobody_else(scripted, listed):
    """Each critique names judge and proposal; one judge never writes a valid score."""

    def write(request):
        if not is_critique(request):
            return f"answer {request.seed}"
        about = scripted.judged(request)
        score = "ninety" if request.agent == scripted.NAMES[0] else "90"
        return f"{request.agent} on [{about}]\nScore: {score}"

    rnn, engine = scripted.build(4, write=write, rating=CritiqueRating(listed=listed), rounds=3)
    (transcript,) = rnn([TASK]).transcripts
    received = {}  # author -> texts about its answer of the round before
    proposing = iter([r for r in engine.generated if not is_critique(r)])
    for record in transcript.rounds:
        for request in itertools.islice(proposing, 4):
            prompt = request.messages[-1].content
            own = received.get(request.agent, [])
            assert [text for text in scripted.fenced(prompt) if " on [answer" in text] == own
        assert len(record.critiques) == 12
        received = {}
        for critique in record.critiques:
            author, voter = record.proposers[critique.proposal], record.voters[critique.voter]
            assert author != voter
            assert critique.text.startswith(f"{voter} on [{record.proposals[critique.proposal].text}]")
            received.setdefault(author, []).append(critique.text)
        assert record.ratings[0] == [None] * 4
        assert all(row == [None if j == i else 0.9 for j in range(4)] for i, row in enumerate(record.ratings) if i)
        assert record.notes == [f"3 of 3 critiques by {scripted.NAMES[0]} ended in no valid score"]


def test_each_critique_has_its_own_seed_and_the_modes_decoding(scripted):
    decoding = Decoding(max_new_tokens=9, temperature=0.1)
    rnn, engine = scripted.build(2, write=lambda r: f"{r.seed}\nScore: 5")
    replies = CritiqueRating(decoding=decoding).rate(
        rnn.cell.ensemble, Prompts(), questions(scripted, ["same", "same"])
    )
    assert len({request.seed for request in engine.generated}) == 3  # 7, 8 and 8, 9
    assert {request.decoding for request in engine.generated} == {decoding}
    assert [reply.ratings for reply in replies] == [(0.05, 0.05)] * 2
    assert [reply.usage.calls for reply in replies] == [2, 2]


@settings(max_examples=25)
@given(st.sampled_from(MODES), st.lists(st.integers(1, 30), max_size=4), st.integers(0, 2**32))
def test_no_question_costs_more_than_the_most(scripted, mode, lengths, seed):
    """The most is for answers at their allowance; shorter ones cost less, and a critique writes up to its own."""
    rnn, engine = scripted.build(2, write=lambda r: "word " * 200)
    judge = rnn.cell.ensemble.agents[0]
    longest = JudgeQuestion(judge, TASK.question, tuple(f"word{i} " * 30 for i in range(len(lengths))), seed)
    actual = longest._replace(candidates=tuple("other " * n for n in lengths))
    most = mode.most_usage(rnn.cell.prompts, engine, longest)
    (reply,) = mode.rate(rnn.cell.ensemble, rnn.cell.prompts, [actual])
    assert reply.usage.prompt_tokens <= most.prompt_tokens
    assert reply.usage.completion_tokens <= most.completion_tokens
    assert most.completion_tokens == (96 if isinstance(mode, CritiqueRating) else 0) * len(lengths)
    (full,) = mode.rate(rnn.cell.ensemble, rnn.cell.prompts, [longest])
    assert (full.usage.billed, full.usage.tokens) == (most.billed, most.tokens)


@pytest.mark.parametrize("mode", MODES)
def test_what_a_judges_candidates_share_is_taken_to_be_read_once_where_the_engine_does(scripted, mode):
    rnn, engine = scripted.build(2)
    judge = rnn.cell.ensemble.agents[0]

    def most(count):
        return mode.most_usage(rnn.cell.prompts, engine, JudgeQuestion(judge, TASK.question, ("word",) * count, 7))

    alone, several = most(1), most(3)
    assert several.tokens == several.billed
    engine.shares_prefixes = True
    assert most(1) == alone
    assert most(3).billed == several.billed
    assert most(3).tokens < several.tokens
