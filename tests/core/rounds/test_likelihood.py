"""Ratings that are likelihoods: what is asked, what they come to, and a deliberation on them."""

import itertools
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import Likelihood
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.ratings import JudgeQuestion
from nsed_torch.parts.rating_modes import LikelihoodRating
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task

TASKS = [Task("Which is larger, 17 or 71?", "a"), Task("Which is smaller?", "b")]


def question(scripted, *candidates, seed=7, names=None):
    judge = scripted.build(2)[0].cell.ensemble.agents[1]
    return JudgeQuestion(judge, TASKS[0].question, candidates, seed, names)


def rate(scripted, asked, engine=None, **rating):
    rnn, engine = scripted.build(2, judge=lambda request, text: -0.5 if text == "first" else 0.5, engine=engine)
    return LikelihoodRating(**rating).rate(rnn.cell.ensemble, Prompts(), asked), engine


@settings(max_examples=25)
@given(st.floats(0, 1), st.floats(1e-3, 1e3))
@example(0.0, 1e-300)
@example(1.0, 1e-300)
def test_a_rating_is_the_likelihood_at_a_temperature_in_minus_1_to_1(scripted, value, temperature):
    class Fixed(scripted.Recorder):
        def measure(self, requests):
            return [Likelihood((value,)) for _ in requests]

    (reply,), _ = rate(scripted, [question(scripted, "x")], Fixed(None, None), temperature=temperature)
    expected = 2 * math.exp(math.log(value) / temperature) - 1 if value else -1
    assert reply.ratings == pytest.approx((expected,))
    assert -1 <= reply.ratings[0] <= 1


def test_equal_texts_are_asked_for_once_and_all_have_their_rating(scripted):
    asked = question(scripted, "second", "first", "second", "third", "first")
    (reply,), engine = rate(scripted, [asked])
    assert reply.ratings == pytest.approx((0.5, -0.5, 0.5, 0.5, -0.5))
    assert not reply.critiques
    (request,) = engine.measured
    assert request.texts == ("first", "second", "third")
    assert (reply.usage.calls, reply.usage.completion_tokens) == (1, 0)
    assert not engine.rated
    assert rate(scripted, [question(scripted)])[0][0].ratings == ()


def test_order_seed_and_names_are_not_asked(scripted):
    questions = [question(scripted, *texts, seed=seed) for seed, texts in enumerate(itertools.permutations("xyz"))]
    questions.append(question(scripted, *"xyz", names=("Ann", "Bob", "Cid")))
    replies, engine = rate(scripted, questions)
    assert len(engine.measured) == 1
    assert len(replies) == 7


def test_the_chat_is_that_of_the_judges_own_first_proposal(scripted):
    rnn, engine = scripted.build(3, rating=LikelihoodRating(), rounds=3)
    rnn(TASKS)
    first = {request.messages: request for request in engine.generated[:6]}
    assert len(first) == 6
    assert {request.messages for request in engine.measured} == set(first)
    for request in engine.measured:
        own = first[request.messages]
        assert (request.agent, request.adapter, request.template) == (own.agent, own.adapter, own.template)


def test_a_judges_notes_and_missing_likelihoods_are_told(scripted):
    class Noting(scripted.Recorder):
        def measure(self, requests):
            return [Likelihood((None,) * len(r.texts), 3, ("had a cold",)) for r in requests]

    rnn, _ = scripted.build(3, engine=Noting(lambda r: str(r.seed), None), rating=LikelihoodRating(), rounds=1)
    (record,) = rnn(TASKS[:1]).transcripts[0].rounds
    assert record.notes == [f"{name}: had a cold" for name in scripted.NAMES[:3]]
    assert record.ratings == [[None] * 3] * 3


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.sampled_from([0.5, 1.0, 3.0]), st.integers(1, 5))
def test_a_deliberation_votes_on_what_was_measured_whatever_the_batch(scripted, seed, temperature, max_batch):
    rating = LikelihoodRating(temperature)
    rnn, engine = scripted.build(4, rating=rating, seed=seed, max_batch=max_batch)
    transcripts = rnn(TASKS).transcripts
    assert list(scripted.build(4, rating=rating, seed=seed)[0](TASKS[::-1]).transcripts)[::-1] == list(transcripts)
    assert not engine.rated
    for transcript in transcripts:
        assert transcript.settings["rating"] == {"mode": "LikelihoodRating", "temperature": temperature}
        for record in transcript.rounds:
            for name, row in zip(record.voters, record.ratings, strict=True):
                for proposal, got in zip(record.proposals, row, strict=True):
                    said = next((r for r in engine.measured if r.agent == name and proposal.text in r.texts), None)
                    given_ = scripted.judge(said, proposal.text) if said and proposal.agent != name else None
                    if given_ is None:
                        assert got is None
                    else:
                        assert got == pytest.approx(2 * ((1 + given_) / 2) ** (1 / temperature) - 1, abs=1e-8)


def test_a_run_that_was_cut_off_asks_only_what_is_missing(scripted):
    log = CallLog(None)

    class Failing(scripted.Recorder):
        def measure(self, requests):
            if len(self.measured) >= 4:
                raise RuntimeError("out of memory")
            return super().measure(requests)

    options = {"rating": LikelihoodRating(), "max_batch": 2, "call_log": log}
    broken = Failing(scripted.write, scripted.judge, max_batch=2)
    with pytest.raises(RuntimeError, match="out of memory"):
        scripted.build(4, engine=broken, **options)[0](TASKS)
    rnn, engine = scripted.build(4, **options)
    transcripts = rnn(TASKS).transcripts
    fresh, straight = scripted.build(4, rating=LikelihoodRating())
    assert fresh(TASKS).transcripts == transcripts
    assert len(engine.measured) == len(straight.measured) - 4
    assert len(engine.generated) == len(straight.generated) - 8


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_is_none_is_refused(temperature):
    line = f"^rating.temperature: expected a number above 0, got {temperature}: 1 is the default$"
    with pytest.raises(ValueError, match=line):
        LikelihoodRating(temperature)


def test_the_most_counts_the_chat_with_every_candidate(scripted):
    rnn, engine = scripted.build(2)
    asked = question(scripted, "one two", "one two", "three")
    chat = rnn.cell.prompts.propose(asked.text, memory=(), critiques=(), persona=asked.judge.persona, seed=0)
    words = sum(engine.count_tokens(message.content) for message in chat)
    most = LikelihoodRating().most_usage(rnn.cell.prompts, engine, asked)
    assert (most.prompt_tokens, most.completion_tokens) == (3 * words + 5, 0)
    priced = Agent("a", "scripted", prompt_price=2e6), Agent("b", "scripted")
    ensemble = Ensemble({"scripted": engine}, priced)
    (reply,) = LikelihoodRating().rate(ensemble, Prompts(), [JudgeQuestion(priced[0], "Why?", ("x",), 0)])
    assert reply.usage.price == 2 * reply.usage.prompt_tokens > 0
