"""The round-by-round broker: what it may see, what it may spend, what it learns."""

import functools

import pytest
import torch
from planted_rounds import answered

from nsed_lab.asking import (
    AskingFit,
    fit_asking,
    fit_on_partial_teams,
    heard_by_all,
    heard_of,
    random_asked,
    replay,
    shortlist,
)
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.traces.rounds import Rounds, all_teams

ACCURACY = {"easy": (0.99, 0.98, 0.97, 0.96), "hard": (0.5, 0.48, 0.45, 0.4)}


def made(tasks: int = 200, seed: int = 0) -> Rounds:
    """Half easy tasks, half hard: four agents, independent given the kind; wrong answers are one of five."""
    draw = torch.Generator().manual_seed(seed)
    chance = torch.tensor([ACCURACY["easy"], ACCURACY["hard"]])[torch.arange(tasks) % 2]
    correct = torch.rand(tasks, 4, generator=draw) < chance
    wrong = torch.randint(1, 6, (tasks, 4), generator=draw)
    classes = torch.where(correct, 0, wrong)
    missing = torch.rand(tasks, 4, generator=draw) < 0.05
    length = torch.randn(tasks, 4, generator=draw).double()
    cost = torch.tensor([2.0, 2.0, 1.0, 1.0]).double() * (0.3 * length).exp()
    return answered(torch.where(missing, -1, classes), correct & ~missing, cost, length)


@functools.cache
def fitted() -> tuple[Rounds, ConsensusCell, AskingFit]:
    pool = made()
    tasks = torch.arange(len(pool))
    cell = fit_on_partial_teams(pool, tasks[:150], tasks[150:], steps=30)
    return pool, cell, AskingFit(cell, pool)


def test_untrained_it_asks_everybody() -> None:
    pool = made(20)
    outcome = replay(LearnedBroker(pool.agents, rounds=4), ConsensusCell(1, 4, slots=1).double(), pool)
    assert outcome.asked.all()
    assert torch.equal(outcome.cost, pool.answer_cost.sum(1))


def test_what_was_not_asked_for_has_no_influence() -> None:
    _, cell, fit = fitted()
    broker = fit.within(3.0)
    pool = made(200, seed=1)
    outcome = replay(broker, cell, pool)
    assert 0 < outcome.asked.double().mean() < 1
    unseen = ~outcome.asked
    other = answered(
        torch.where(unseen, 0, pool.classes),
        torch.where(unseen, ~pool.correct, pool.correct),
        torch.where(unseen, 1e6, pool.answer_cost),
        torch.where(unseen, 50.0, pool.length),
    )
    for old, new in zip(outcome, replay(broker, cell, other), strict=True):
        assert torch.equal(old, new)
    # An answer that was asked for does count.
    flipped = answered(torch.where(outcome.asked, 9, pool.classes), *(pool.correct, pool.answer_cost, pool.length))
    assert not torch.equal(replay(broker, cell, flipped).asked, outcome.asked)


def test_easy_tasks_end_cheaper_than_contested_ones() -> None:
    _, cell, fit = fitted()
    pool = made(400, seed=2)
    cost = replay(fit.within(4.0), cell, pool).cost
    easy, hard = cost[0::2], cost[1::2]
    assert easy.mean() < 0.7 * hard.mean()


@pytest.mark.parametrize("budget", [1.5, 3.0, 4.5])
def test_the_mean_budget_is_kept_on_fitted_tasks(budget: float) -> None:
    pool, cell, fit = fitted()
    spent = float(replay(fit.within(budget), cell, pool).cost.mean())
    # Costs of a few tasks jump as the price falls, so some of a budget may be left.
    assert 0.6 * budget < spent <= budget


def test_the_cheapest_is_what_no_budget_pays_for() -> None:
    pool, cell, fit = fitted()
    outcome = replay(fit.within(0.1), cell, pool)
    assert (outcome.asked.sum(1) == 1).all()


@pytest.mark.parametrize("price", [0.0, 0.02, 0.1])
def test_rounds_spend_what_the_regressions_foresaw(price: float) -> None:
    pool, cell, fit = fitted()
    broker, mean = fit.at(price)
    assert float(replay(broker, cell, pool).cost.mean()) == pytest.approx(mean, rel=1e-9)


def test_it_beats_a_fixed_team_of_its_price() -> None:
    _, cell, fit = fitted()
    pool = made(1500, seed=3)
    outcome = replay(fit.within(4.0), cell, pool)
    cost, accuracy = float(outcome.cost.mean()), float(outcome.right.double().mean())
    _, right = heard_by_all(pool, cell, all_teams(4))
    spent = pool.answer_cost.mean(0) @ all_teams(4).double().T
    affordable = right.double().mean(0)[spent <= cost]
    assert accuracy > float(affordable.max())


def test_validation_prefers_the_larger_of_ridges_that_are_alike_and_drops_one_that_is_blind() -> None:
    cell, pool = fitted()[1], made(300)
    train, validation = torch.arange(100), torch.arange(100, 300)
    alike = fit_asking(cell, pool, train, validation, ridges=[2.0, 2.1])
    assert alike.ridge == 2.1
    # So large a ridge leaves nothing but telemetry: the broker no longer sees what was answered.
    assert fit_asking(cell, pool, train, validation, ridges=[1e9, 2.0]).ridge == 2.0
    assert len(alike.rounds) == 300


def test_a_verdict_is_the_cells_on_the_team_alone() -> None:
    pool = made(50)
    cell = fit_on_partial_teams(pool, torch.arange(30), torch.arange(30, 50), steps=10)
    teams = all_teams(4)
    everything, right = heard_by_all(pool, cell, teams)
    for number in (1, 6, 15):
        one, its_right = heard_of(pool, cell, teams[number].expand(50, -1))
        assert torch.equal(right[:, number], its_right)
        assert torch.equal(everything.agree[:, number], one.agree)
        torch.testing.assert_close(everything.lead[:, number], one.lead)
    assert not everything.agree[:, 0].any()
    assert not right[:, 0].any()


def test_tuning_helps_the_better_agent() -> None:
    pool = made(400)
    skewed = answered(pool.classes, pool.classes == pool.classes[:, :1], pool.answer_cost, pool.length)
    cell = fit_on_partial_teams(skewed, torch.arange(300), torch.arange(300, 400), steps=60)
    fresh = ConsensusCell(1, 4, slots=1).double()
    assert skewed.right(cell).double().mean() > skewed.right(fresh).double().mean()


def priced() -> Rounds:
    """Agent a is always right and dear, b and c are always wrong and cheap, agreeing."""
    classes = torch.tensor([[0, 1, 1]] * 10)
    return answered(
        classes,
        classes == 0,
        torch.tensor([[4.0, 1.0, 1.0]] * 10).double(),
        torch.zeros(10, 3).double(),
    )


def test_random_teams_by_hand() -> None:
    cost, right = random_asked(priced(), torch.tensor([2.0, 6.0]).double(), draws=400)
    # One agent costs 2 in the mean and is right a third of the time; all three cost 6 and are outvoted.
    torch.testing.assert_close(cost.mean(1), torch.tensor([2.0, 6.0]).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(right.mean(1), torch.tensor([1 / 3, 0.0]).double(), atol=0.03, rtol=0)


def test_shortlist_takes_turns_between_budgets() -> None:
    # The cheap budget pays for the second and third only; the large one takes the best first.
    names = shortlist(priced(), torch.arange(10), torch.tensor([6.0, 1.0]).double(), 2).agents
    assert names == ("a", "b")
    assert shortlist(priced(), torch.arange(10), torch.tensor([1.0]).double(), 2).agents == ("b", "c")
