"""Samples and their judge."""

import pytest

from nsed_torch.core.ratings import VerdictRating
from nsed_torch.evaluation.methods.independent import BestOf
from nsed_torch.parts.rating_modes import CritiqueRating, LikelihoodRating

RATINGS = {"is 1": -0.5, "is 2": 0.25, "is 3": 0.25, "is 4": None}


def judging(team):
    return lambda request, candidate: RATINGS[team.judged(request, candidate)]


@pytest.mark.parametrize(
    ("texts", "text", "note"),
    [
        (["is 1", "is 2", "is 4"], "is 2", "samples: 3; rated 0.25 by Quillfeather"),
        (["is 3", "is 2", "is 1"], "is 3", "samples: 3; rated 0.25 by Quillfeather"),  # a tie goes to the first
        (["is 4", "is 1", ""], "is 1", "samples: 3; rated -0.50 by Quillfeather"),  # a poor rating beats none
        (["", "is 1", "is 1"], "is 1", "samples: 3; unjudged"),
        (["", "", ""], "", "samples: 3; unjudged"),
    ],
)
@pytest.mark.parametrize("rating", [VerdictRating(listed=True), VerdictRating(listed=False), LikelihoodRating()])
def test_the_highest_rating_wins(team, texts, text, note, rating):
    panel, _ = team.build(team.says(Z=texts), judging(team), rating=rating)
    (answer,) = BestOf(samples=3)(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == (text, note)


def test_without_any_rating_the_first_sample_wins(team):
    panel, _ = team.build(team.says(Z=["is 8", "is 9"]), lambda request, candidate: None)
    (answer,) = BestOf(samples=2)(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("is 8", "samples: 2; no rating by Quillfeather")


def test_equal_texts_are_judged_once_and_in_an_order_of_the_judges_own(team):
    texts = ["is 1", "is 2", "is 1", "", "is 3"]
    orders = set()
    for seed in range(12):
        panel, engine = team.build(team.says(Z=texts), judging(team), seed=seed)
        (answer,) = BestOf()(panel, team.tasks[:1], None)
        assert answer.text == "is 2"
        ((request, _),) = engine.rated
        orders.add(tuple(team.judged(request, candidate) for candidate in request.candidates))
    assert all(sorted(order) == ["is 1", "is 2", "is 3"] for order in orders)
    assert len(orders) > 2


@pytest.mark.parametrize(
    ("lead", "named", "judge"),
    [
        ("Zebulon", None, "Quillfeather"),
        ("Oberon", None, "Zebulon"),
        ("Zebulon", "Oberon", "Oberon"),
        ("Oberon", "Oberon", "Zebulon"),
    ],
)
def test_nobody_judges_itself(team, lead, named, judge):
    panel, engine = team.build(leads={"a": lead})
    BestOf(judge=named)(panel, team.tasks[:1], None)
    assert {request.agent for request, _ in engine.generated} == {lead}
    assert [request.agent for request, _ in engine.rated] == [judge]


def test_written_critiques_are_paid_and_their_failures_noted(team):
    def write(request):
        if "Criticise" not in request.messages[-1].content:
            return f"is {request.seed % 97}"
        return "Score: 40" if "Candidate_B" in request.messages[-1].content.split("Criticise")[-1] else "no score"

    panel, engine = team.build(write, rating=CritiqueRating())
    (answer,) = BestOf(samples=2)(panel, team.tasks[:1], None)
    assert answer.usage == engine.usage
    assert answer.usage.calls == 4
    assert answer.note == (
        "samples: 2; rated 0.40 by Quillfeather; 1 of 2 critiques by Quillfeather ended in no valid score"
    )


def test_a_budget_for_two_samples_but_not_for_their_judge_buys_one(team):
    def write(request):
        return f"some words and {request.seed}"

    panel, _ = team.build(write)
    two = BestOf(samples=2)(panel, team.tasks[:1], None)[0].usage.tokens
    one = BestOf(samples=1)(panel, team.tasks[:1], None)[0].usage.tokens
    assert BestOf()(panel, team.tasks[:1], [2 * one])[0].usage.tokens == one
    # Sixteen tokens a message and candidate are kept back for a chat template.
    assert BestOf()(panel, team.tasks[:1], [two + 64])[0].usage.tokens == two
