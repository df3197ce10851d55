"""What holds for every method."""

import random

import pytest
from baselines import METHODS
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.evaluation.methods.independent import BestOf, Plurality, SelfConsistency, Single
from nsed_torch.evaluation.methods.interactive import Debate, MixtureOfAgents, SelfCorrection, SelfMoA
from nsed_torch.parts.rating_modes import CritiqueRating
from nsed_torch.records.transcript import Usage

EVERY = [Single("Oberon"), *(build() for build in METHODS)]
ALL = pytest.mark.parametrize("method", EVERY, ids=lambda method: type(method).__name__)
GROWING = pytest.mark.parametrize("method", EVERY[1:], ids=lambda method: type(method).__name__)

# Calls a task: at the method's own size, and in its smallest form.
CALLS = {
    Single: (1, 1),
    Plurality: (3, 3),
    SelfConsistency: (5, 1),
    SelfCorrection: (3, 1),
    BestOf: (6, 1),
    SelfMoA: (4, 1),
    MixtureOfAgents: (7, 4),
    Debate: (6, 3),
}
WORDS = "the answer may well be some number"


def steady(request):
    """Texts of eight words, all different."""
    return f"{WORDS} {request.seed}"


@ALL
@settings(max_examples=5)
@given(seed=st.integers(0, 99), budget=st.none() | st.integers(0, 800), order=st.permutations(range(4)))
def test_other_tasks_and_their_order_change_nothing(team, method, seed, budget, order):
    leads = {"a": "Oberon", "c": "Quillfeather"}
    budgets = None if budget is None else [budget, budget // 2, 2 * budget, budget // 3]
    together = method(team.build(seed=seed, leads=leads)[0], team.tasks, budgets)
    shuffled = [team.tasks[i] for i in order]
    again = method(team.build(seed=seed, leads=leads)[0], shuffled, budgets and [budgets[i] for i in order])
    assert [again[order.index(i)] for i in range(4)] == together
    for i, task in enumerate(team.tasks):
        assert method(team.build(seed=seed, leads=leads)[0], [task], budgets and [budgets[i]]) == [together[i]]


@ALL
@pytest.mark.parametrize("budget", [None, 900])
@pytest.mark.parametrize("rating", [VerdictRating(), CritiqueRating()], ids=["verdict", "critique"])
def test_usage_is_what_the_calls_cost(team, method, budget, rating):
    panel, engine = team.build(rating=rating)
    answers = method(panel, team.tasks, None if budget is None else [budget] * 4)
    assert Usage.sum(answer.usage for answer in answers) == engine.usage


@ALL
def test_prices_are_charged(team, method):
    panel, engine = team.build(prices=(1e6, 10e6))
    total = Usage.sum(answer.usage for answer in method(panel, team.tasks, None))
    assert total.price == pytest.approx(engine.usage.prompt_tokens + 10 * engine.usage.completion_tokens)


@ALL
def test_no_target_and_no_name_reaches_a_model_and_its_texts_are_fenced(team, method):
    panel, engine = team.build(lambda request: f"<b>mine {request.seed}</b> is 1")
    method(panel, team.tasks, None)
    for request in engine.requests:
        suffix = "" if team.writes(request) else "".join(request.candidates)
        prompt = "".join(message.content for message in request.messages) + suffix
        assert "secret" not in prompt
        assert not any(name in prompt for name in team.names)
        outside = prompt
        for text in {g.text for _, g in engine.generated}:
            outside = outside.replace(f">\n{text}\n</text-", "")
        assert "mine" not in outside


@ALL
def test_calls_at_the_own_size_and_in_the_smallest_form(team, method):
    sizes = []
    for budgets in (None, [0]):
        panel, engine = team.build(steady)
        method(panel, team.tasks[:1], budgets)
        sizes.append(engine.usage.calls)
    assert tuple(sizes) == CALLS[type(method)]


@GROWING
@settings(max_examples=12)
@given(budget=st.integers(0, 2000))
def test_what_is_more_than_the_smallest_form_keeps_its_budget(team, method, budget):
    panel, engine = team.build(steady)
    (answer,) = method(panel, team.tasks[:1], [budget])
    assert answer.usage == engine.usage
    assert answer.usage.calls == CALLS[type(method)][1] or answer.usage.tokens <= budget


@GROWING
def test_a_larger_budget_is_used(team, method):
    """Nobody stays far below what deliberation had."""
    panel, _ = team.build(steady)
    for budget in (1500, 3000):
        (answer,) = method(panel, team.tasks[:1], [budget])
        assert 0.6 * budget < answer.usage.tokens <= budget


@ALL
def test_where_nobody_answers_the_answer_is_empty(team, method):
    panel, engine = team.build(lambda request: "")
    assert [answer.text for answer in method(panel, team.tasks, None)] == [""] * 4
    assert engine.rated == []
    assert not any(text for request in engine.requests for text in team.fenced(request))


@ALL
def test_no_tasks_need_no_calls(team, method):
    panel, engine = team.build()
    assert method(panel, [], None) == method(panel, [], []) == []
    assert engine.usage.calls == 0


def test_first_answers_are_shared_with_each_other_and_with_a_deliberation(team):
    """The call log holds a call once, whoever makes it."""
    panel, engine = team.build(steady)
    for agent in team.names:
        Single(agent)(panel, team.tasks, None)
    assert engine.usage.calls == 12
    Plurality()(panel, team.tasks, None)
    assert engine.usage.calls == 12
    Debate(rounds=1)(panel, team.tasks, None)
    SelfConsistency(samples=1)(panel, team.tasks, None)
    cell = MacroRNNCell(panel.ensemble, HashedEncoder(16), ConsensusCell(16, 3))
    MacroRNN(cell, halting=FixedHalting(1))(team.tasks)
    assert len(engine.generated) == 12


@pytest.mark.parametrize("method", [Single("Zeb"), BestOf(judge="Zeb")], ids=["single", "judge"])
def test_an_unknown_agent_is_named_before_any_call(team, fails, method):
    panel, engine = team.build()
    with fails("expected an agent out of Zebulon, Quillfeather, Oberon, got 'Zeb': correct the name"):
        method(panel, team.tasks, None)
    assert engine.usage.calls == 0


def test_the_lead_answers_where_one_agent_answers(team):
    leads = {task.id: random.Random(task.id).choice(team.names) for task in team.tasks}
    for method in (SelfConsistency(), SelfCorrection(), SelfMoA()):
        panel, engine = team.build(steady, leads=leads)
        method(panel, team.tasks, None)
        asked = {(request.messages[1].content.split("?")[0][-1], request.agent) for request in engine.requests}
        assert asked == set(leads.items())
