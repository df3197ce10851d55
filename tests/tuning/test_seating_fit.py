"""Whom a question is worth asking: planted structure is found, chances are calibrated, budgets hold."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_rounds import planted

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.parts.learned_broker import Heard
from nsed_torch.traces.rounds import Rounds
from nsed_torch.tuning.broker_fit import SeatingFit
from nsed_torch.tuning.log_odds import OUT, fit_log_odds, left_out

RIDGES = (1.0,)
ENCODER = {"name": "planted"}


def fresh_cell(agents):
    return ConsensusCell(agents + 1, agents).double()


def learned(tasks=150, agents=3, *, seed=0, ridges=RIDGES, prices=(0.0,), **options):
    """What was learned on some tasks, the cell, and other tasks of the same kind."""
    cell = fresh_cell(agents)
    fit, test = (Rounds.of(planted(tasks, agents, seed=s, **options)) for s in (seed, seed + 100))
    return SeatingFit(cell, fit, ENCODER, ridges=ridges, prices=prices), cell, test


def seated(found, budget, test):
    with torch.no_grad():
        nothing = Heard.nothing(len(test), len(found.agents))
        return test.seated(found.within(budget)(0, nothing, test.task))


def test_a_budget_for_one_proposer_buys_the_right_one():
    """Agent a is right on questions of kind a and nowhere else: a third of the proposals, a ninth of the tokens."""
    found, cell, test = learned()
    policy, team = found.policy(100.0), seated(found, 100.0, test)
    assert (team.sum(1) == torch.tensor([1, 0])).all()
    assert test.right(cell, team).double().mean() > 0.97
    assert float(test.cost(team).mean()) / found.whole == pytest.approx(1 / 9)
    assert policy.accuracy > 0.97
    assert policy.cost == pytest.approx(100)


def test_judges_are_bought_where_they_know_and_a_budget_pays():
    """Nobody is told apart by the question, so only judges can tell who is right."""
    found, cell, test = learned(240, knows=0.5, guesses=0.5, judge=0.9)
    cheap, dear = (seated(found, budget, test) for budget in (100.0, 900.0))
    assert not cheap[..., 1].any()
    assert dear[..., 1].any()
    assert test.right(cell, dear).double().mean() > test.right(cell, cheap).double().mean() + 0.15


def test_chances_are_calibrated_and_the_ridge_follows_what_there_is_to_learn():
    noise = planted(300, 3, knows=0.7, guesses=0.7, noise=2.0)
    rounds = Rounds.of(noise)
    rates = rounds.worth()[0][..., 0].mean(0)
    chances = fit_log_odds(rounds, [1e6, 1e6])(noise.task.mean(0)[None])[0, :, 0].sigmoid()
    torch.testing.assert_close(chances, rates, atol=0.01, rtol=0)
    assert left_out(rounds, [0.1, 100.0])[1][0] == 100.0
    clear = Rounds.of(planted(400, 3, knows=0.95, guesses=0.05))
    logits, ridges = left_out(clear, [0.3, 1e4])
    assert ridges[0] == 0.3
    for low, high in ((0.0, 0.2), (0.8, 1.0)):
        chance = logits[..., 0].sigmoid()
        inside = (chance >= low) & (chance <= high)
        assert inside.any()
        assert clear.worth()[0][..., 0][inside].mean() == pytest.approx(chance[inside].mean().item(), abs=0.05)


def test_log_odds_are_the_minimum_of_what_they_minimise():
    torch.manual_seed(0)
    rounds = Rounds.of(planted(50, 3, knows=0.8, guesses=0.3, judge=0.8))
    (worth, known), task, ridges = rounds.worth(), rounds.task, [0.5, 2.0]
    parameters = [p.clone().requires_grad_() for p in fit_log_odds(rounds, ridges)]
    bias, weight = parameters
    logits = bias + torch.einsum("bd,ard->bar", task, weight)
    misfit = torch.nn.functional.softplus(logits) - worth * logits
    centred = bias + weight @ task.mean(0)
    penalty = (torch.tensor(ridges) * weight.square().sum(-1)).sum() / 2 + centred.square().sum() / 20
    for slope in torch.autograd.grad(torch.where(known, misfit, 0).sum() + penalty, parameters):
        assert slope.abs().max() < 1e-3


def test_the_router_is_a_logistic_regression_an_agent_and_asks_one():
    linear = pytest.importorskip("sklearn.linear_model")
    rounds = Rounds.of(planted(150, 3, knows=0.8, guesses=0.3))
    fit, test = SeatingFit(fresh_cell(3), rounds, ENCODER, ridges=[3.0], prices=(0.0,)), planted(80, 3, seed=7)
    rows, right, asked = rounds.task.numpy(), rounds.correct.numpy(), test.task.double()
    peers = [linear.LogisticRegression(C=1 / 3, tol=1e-8).fit(rows, right[:, a]) for a in range(3)]
    theirs = torch.stack([torch.tensor(peer.decision_function(asked.numpy())) for peer in peers], 1)
    router, nothing = fit.router(), Heard.nothing(80, 3)
    with torch.no_grad():
        mine = router(0, nothing, asked)[..., 0]
        chosen = router.next_one(0, nothing, asked)
    # Theirs has no pull on the intercept.
    torch.testing.assert_close(mine, theirs, atol=0.02, rtol=0)
    assert (chosen.sum(1) == 1).all()
    assert (chosen.int().argmax(1) == theirs.argmax(1)).double().mean() > 0.95


def test_what_was_never_seen_is_never_wanted():
    rounds = Rounds.of(planted(40, 3))
    rounds.vote_mask[:, 1] = False
    bias, weight = fit_log_odds(rounds, [1.0, 1.0])
    assert bias[1, 1] == -10 * OUT
    assert (weight[1, 1] == 0).all()
    assert bias.flatten().abs().sort().values[-2] < OUT


def test_a_price_leaves_out_whoever_is_dear():
    """All are equally good; the last costs ten times as much."""
    episodes = planted(100, 3, knows=0.8, guesses=0.8, noise=0.5)
    episodes.proposal_cost[..., 2] = 1000.0
    episodes.cost[:] = 1800.0
    rounds = Rounds.of(episodes)
    found = SeatingFit(ConsensusCell(4, 3).double(), rounds, ENCODER, ridges=[1e4], prices=[50.0])
    spent = [seated(found, policy.cost, rounds) for policy in found.policies]
    assert all(team[..., :2, 0].all() for team in spent if team[:, 2, 0].any())
    assert any(not team[:, 2, 0].any() for team in spent)


def test_a_policy_is_what_its_utility_seats():
    """Cost and accuracy of a policy come from left-out log-odds; with its own utility they are much the same."""
    found, cell, test = learned(240, knows=0.9, guesses=0.2, judge=0.8)
    for budget in (200.0, 500.0, 900.0):
        policy, team = found.policy(budget), seated(found, budget, test)
        assert policy.cost <= budget
        assert float(test.cost(team).mean()) == pytest.approx(policy.cost, rel=0.2)
        assert float(test.right(cell, team).double().mean()) == pytest.approx(policy.accuracy, abs=0.1)


def test_the_tried_accuracy_is_the_votes_own():
    found, cell, _ = learned(60, prices=(0.0, 5.0), knows=0.8, guesses=0.3, judge=0.8)
    fit = Rounds.of(planted(60, 3, knows=0.8, guesses=0.3, judge=0.8))
    logits, _ = left_out(fit, RIDGES)
    assert len(found.policies) == 2 * 81
    for policy in found.policies[::20]:
        team = fit.seated(logits - policy.price * found.share - torch.tensor(policy.thresholds))
        assert policy.accuracy == pytest.approx(fit.right(cell, team).double().mean().item(), abs=1e-12)
        assert policy.cost == pytest.approx(fit.cost(team).mean().item())


@settings(max_examples=5)
@given(st.integers(0, 99), st.floats(0.3, 1), st.floats(0, 0.6), st.floats(0.5, 1), st.floats(50, 900))
def test_no_mean_budget_is_exceeded_and_more_money_buys_no_less(seed, knows, guesses, judge, budget):
    found, _, _ = learned(20, seed=seed, ridges=(1.0,), knows=knows, guesses=guesses, judge=judge)
    policy, more = found.policy(budget), found.policy(1.5 * budget)
    least = min(policy.cost for policy in found.policies)
    assert policy.cost <= max(budget, least)
    assert more.accuracy >= policy.accuracy or policy.cost > budget
    assert all(other.accuracy <= policy.accuracy for other in found.policies if other.cost <= min(budget, policy.cost))


def test_equal_tasks_give_equal_utilities_whatever_their_order():
    one, two = (learned(60, knows=0.8, guesses=0.3, judge=0.8)[0] for _ in range(2))
    assert one.policies == two.policies
    a, b = (fit.within(300.0).state_dict() for fit in (one, two))
    assert all(torch.equal(a[name], b[name]) for name in a)
    rounds = Rounds.of(planted(60, 3, knows=0.8, guesses=0.3, judge=0.8))
    order = torch.arange(60).flip(0)
    straight, turned = left_out(rounds, [1.0])[0], left_out(rounds.select(order), [1.0])[0]
    torch.testing.assert_close(straight[order], turned, atol=1e-3, rtol=0)


def test_too_few_tasks_are_refused():
    with pytest.raises(ValueError, match=r"^broker: expected at least 5 tasks to choose on, got 4: collect more$"):
        learned(4)


def test_an_untold_agent_is_a_coin():
    rounds = Rounds.of(planted(30, 2))
    bias, _ = fit_log_odds(rounds.select([0]), [1.0, 1.0])
    told = bias[rounds.worth()[1][0]]
    assert (told.abs() < math.log(30)).all()
