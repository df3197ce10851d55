import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.core.encoder import Encoder, HashedEncoder
from nsed_torch.core.engine import Likelihood, LikelihoodRequest, Message, RateRequest, Ratings
from nsed_torch.engines.scripted import ScriptedEngine


@pytest.fixture
def engine():
    return ScriptedEngine(lambda r: f"{r.agent} says {r.seed}", lambda r, c: None if c == "?" else len(c) / 10)


def test_it_writes_what_the_function_says_and_counts_words(engine, ask):
    first, second = engine.generate([ask("one two", seed=4, system="be brief"), ask("x", agent="b")])
    assert (first.text, first.prompt_tokens, first.completion_tokens, first.finish_reason) == ("a says 4", 4, 3, "stop")
    assert (second.text, second.prompt_tokens) == ("b says 0", 1)


def test_words_beyond_the_allowance_are_cut(engine, ask):
    (got,) = engine.generate([ask(max_new_tokens=2)])
    assert (got.text, got.completion_tokens, got.finish_reason) == ("a says", 2, "length")


def test_it_keeps_the_line_breaks_of_what_the_function_says(ask):
    (got,) = ScriptedEngine(lambda r: "why\n\nScore: 5", lambda r, c: 0.0).generate([ask()])
    assert got.text == "why\n\nScore: 5"


def test_it_rates_each_candidate_and_may_give_none(engine):
    request = RateRequest("a", (Message("user", "rate this"),), ("abc", "?", ""))
    assert engine.rate([request]) == [Ratings((0.3, None, 0.0), prompt_tokens=6)]
    assert engine.generate([]) == engine.rate([]) == []


def test_a_likelihood_is_the_rating_between_0_and_1(engine):
    request = LikelihoodRequest("a", (Message("user", "answer this"),), ("abc", "?", "", "and so on"))
    assert engine.measure([request]) == [Likelihood((0.65, None, 0.5, 0.95), prompt_tokens=13)]
    assert engine.measure([]) == []


def test_its_identity_holds_name_and_adapter(engine):
    assert engine.identity("poet") == {"name": "scripted", "adapter": "poet"}


texts = st.text("ab é\n", max_size=20)


@given(st.lists(texts, max_size=5))
def test_hashed_vectors_are_unit_or_zero_and_know_no_neighbours(batch):
    encoder = HashedEncoder(16)
    vectors = encoder.embed(batch)
    assert vectors.shape == (len(batch), 16)
    for text, vector in zip(batch, vectors, strict=True):
        assert torch.equal(vector, encoder.embed([text])[0])
        assert float(vector.norm()) == pytest.approx(1.0) or not vector.any()


def test_hashed_vectors_tell_words_apart_but_not_their_order():
    encoder = HashedEncoder()
    assert isinstance(encoder, Encoder)
    same, other = encoder.embed(["Red, blue!", "blue red"]), encoder.embed(["red green"])
    assert torch.equal(same[0], same[1])
    assert not torch.equal(same[0], other[0])
    assert not encoder.embed(["", "..."]).any()
    assert encoder.identity() == {"name": "hashed", "dim": 64}
