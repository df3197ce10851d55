"""Votes on final answers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.evaluation.methods.independent import Plurality, SelfConsistency

EIGHT = "eight words all told, and the answer is"


def test_the_first_text_of_the_commonest_answer_is_handed_in(team):
    panel, _ = team.build(team.says(Z=["so 3"], Q=["it is 4.0"], O=["thus 4"]))
    (answer,) = Plurality()(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("it is 4.0", "votes: 2 of 3")


@pytest.mark.parametrize(
    ("texts", "text", "note"),
    [
        (("is 5", "is 4", "is 3"), "is 5", "votes: 1 of 3"),  # a tie goes to the first agent
        (("", "is 4", "is 3"), "is 4", "votes: 1 of 3"),
        (("who knows", "dunno", "is 3"), "is 3", "votes: 1 of 3"),  # no final answer, no vote
        (("", "who knows", "dunno"), "who knows", "votes: 0 of 3"),
        (("", "", ""), "", "votes: 0 of 3"),
    ],
)
def test_ties_and_missing_answers(team, texts, text, note):
    panel, _ = team.build(team.says(Z=texts[:1], Q=texts[1:2], O=texts[2:]))
    (answer,) = Plurality()(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == (text, note)


def test_it_grows_by_samples_of_all_agents(team):
    panel, engine = team.build(team.says(Z=["is 1", "is 2"], Q=["is 1", "is 2"], O=["is 3", "is 2"]))
    (answer,) = Plurality(samples=2)(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("is 2", "votes: 3 of 6")
    assert len({request.seed for request in engine.requests}) == 6


def test_the_lead_samples_until_its_answers_are_counted(team):
    panel, engine = team.build(team.says(Q=["is 7", "is 8", "say 8", "", "is 7", "is 8"]), leads={"a": "Quillfeather"})
    (answer,) = SelfConsistency(samples=6)(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("is 8", "votes: 3 of 6")
    assert {request.messages for request in engine.requests} == {engine.requests[0].messages}
    assert len({request.seed for request in engine.requests}) == 6


def test_samples_are_drawn_at_a_temperature_of_their_own(team):
    panel, engine = team.build(team.says(Q=["is 7", "is 8", "is 8"]), leads={"a": "Quillfeather"})
    SelfConsistency(samples=3, temperature=0.9)(panel, team.tasks[:1], None)
    assert [request.decoding.temperature for request in engine.requests] == [0.9] * 3


@settings(max_examples=15)
@given(budget=st.integers(0, 4000))
def test_samples_under_a_budget_are_as_many_as_fit_and_at_most_64(team, budget):
    panel, engine = team.build(lambda request: f"{EIGHT} 1")
    (answer,) = SelfConsistency()(panel, team.tasks[:1], [budget])
    each = engine.usage.tokens // engine.usage.calls
    assert each * engine.usage.calls == engine.usage.tokens
    assert answer.usage.calls == max(1, min(64, budget // each))


def test_sixty_four_samples_are_the_most_under_a_budget_and_not_without(team):
    panel, _ = team.build(lambda request: "is 1")
    assert SelfConsistency()(panel, team.tasks[:1], [10**9])[0].usage.calls == 64
    assert SelfConsistency(samples=70)(panel, team.tasks[:1], None)[0].usage.calls == 70


@pytest.mark.parametrize("budgets", [None, [10**6]])
def test_a_lead_at_temperature_0_is_asked_once(team, budgets):
    panel, _ = team.build(lambda request: "is 1", temperatures=(0, 1, 1))
    (answer,) = SelfConsistency()(panel, team.tasks[:1], budgets)
    assert answer.usage.calls == 1
    assert answer.note == "votes: 1 of 1; temperature 0: another sample would be equal"


def test_agents_at_temperature_0_keep_their_vote_without_being_asked_again(team):
    texts = {"Z": ["is 1"], "Q": ["is 2", "is 3", "is 3"], "O": ["is 1"]}
    panel, engine = team.build(team.says(**texts), temperatures=(0, 1, 0))
    (answer,) = Plurality(samples=3)(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("is 1", "votes: 6 of 9")
    assert [request.agent[0] for request in engine.requests] == ["Z", "Q", "O", "Q", "Q"]
    assert answer.usage == engine.usage


def test_budgets_are_one_a_task(team):
    panel, _ = team.build()
    with pytest.raises(ValueError, match="zip"):
        SelfConsistency()(panel, team.tasks, [100])
