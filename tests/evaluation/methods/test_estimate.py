"""What methods may cost, known beforehand."""

import itertools

import pytest
from baselines import METHODS

from nsed_torch.app.verbs.evaluate import expected_costs
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.evaluation.methods.costs_ahead import expected_deliberation, expected_usage
from nsed_torch.evaluation.methods.independent import Router, Single
from nsed_torch.parts.rating_modes import CritiqueRating, LikelihoodRating
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.transcript import Usage

MODES = {"verdict": VerdictRating(), "critique": CritiqueRating(), "likelihood": LikelihoodRating()}
RATINGS = pytest.mark.parametrize("rating", MODES.values(), ids=MODES)


def full(request):
    """As many words as the engine lets through, each text another."""
    return f"{request.seed} " + "word " * (request.decoding.max_new_tokens + 5)


@pytest.mark.parametrize("method", [Single("Oberon"), *(build() for build in METHODS)], ids=lambda m: type(m).__name__)
@RATINGS
def test_it_lies_a_little_above_the_cost_of_the_longest_answers_and_asks_nobody(team, method, rating):
    panel, engine = team.build(full, prices=(1e6, 2e6), rating=rating)
    expected = expected_usage(method, panel, team.tasks)
    assert engine.usage.calls == 0
    real = Usage.sum(answer.usage for answer in method(panel, team.tasks, None))
    assert expected.calls == real.calls
    assert expected.completion_tokens == real.completion_tokens
    # Two messages a call and a label a candidate may come with chat markup, which scripted engines do not have.
    assert real.prompt_tokens < expected.prompt_tokens <= real.prompt_tokens + 16 * 7 * real.calls
    assert expected.price == pytest.approx(expected.prompt_tokens + 2 * expected.completion_tokens)


@pytest.mark.parametrize("method", [build() for build in METHODS], ids=lambda m: type(m).__name__)
def test_real_answers_cost_less(team, method):
    panel, _ = team.build()
    real = Usage.sum(answer.usage for answer in method(panel, team.tasks, None))
    expected = expected_usage(method, panel, team.tasks)
    assert expected.calls >= real.calls
    assert expected.prompt_tokens > real.prompt_tokens
    assert expected.completion_tokens > real.completion_tokens


@RATINGS
def test_a_deliberation_is_estimated_with_everybody_in_every_round(team, rating):
    def network():
        panel, engine = team.build(full, lambda request, candidate: 0.5, rating=rating)
        encoder = HashedEncoder(16)
        cell = MacroRNNCell(panel.ensemble, encoder, ConsensusCell(16, 3), prompts=panel.prompts, rating=rating)
        return MacroRNN(cell, halting=FixedHalting(2)), engine

    rnn, engine = network()
    before = {name: value.clone() for name, value in rnn.state_dict().items()}
    expected = expected_deliberation(rnn, team.tasks)
    assert engine.usage.calls == 0
    assert all(bool((value == before[name]).all()) for name, value in rnn.state_dict().items())
    real = Usage.sum(transcript.usage for transcript in rnn(team.tasks).transcripts)
    assert expected.calls == real.calls == engine.usage.calls
    assert expected.completion_tokens == real.completion_tokens
    assert real.prompt_tokens < expected.prompt_tokens


def test_more_tasks_and_larger_methods_cost_more(team):
    panel, _ = team.build()
    for build in METHODS:
        costs = [expected_usage(build(), panel, team.tasks[:n]).tokens for n in range(4)]
        assert costs[0] == 0
        assert all(less < more for less, more in itertools.pairwise(costs))


def test_a_router_costs_at_most_the_dearest_call(team):
    panel, _ = team.build(lambda request: "so " * (9 if request.agent == "Oberon" else 1), encoder=HashedEncoder(8))
    cell = MacroRNNCell(panel.ensemble, panel.encoder, ConsensusCell(8, agents=3).double())
    graded = GradedTasks(tuple(team.tasks), panel.grader, {})
    costs = expected_costs(MacroRNN(cell), graded, {"router": Router("file")}, ["router", "single"], equal_tokens=False)
    assert costs["router"].calls == len(team.tasks)
    assert costs["router"].tokens * 3 >= costs["single"].tokens
