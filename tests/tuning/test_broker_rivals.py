"""Fixed and random teams: hulls by hand, the best there is on training tasks, and no dearer than the budget."""

import itertools

import pytest
import torch
from planted_rounds import answered, planted

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.traces.rounds import Rounds
from nsed_torch.tuning import broker_rivals
from nsed_torch.tuning.broker_rivals import (
    best_teams,
    hull_weights,
    random_seated,
    teams_to_try,
)


def test_hull_by_hand() -> None:
    # (1, 0.2) lies under the chord from nothing to (2, 0.8); (5, 0.7) is dominated.
    cost = torch.tensor([0.0, 1.0, 2.0, 4.0, 5.0], dtype=torch.float64)
    accuracy = torch.tensor([0.0, 0.2, 0.8, 0.9, 0.7], dtype=torch.float64)
    weights = hull_weights(cost, accuracy, torch.tensor([0.0, 1.0, 3.0, 9.0], dtype=torch.float64))
    expected = [[1, 0, 0, 0, 0], [0.5, 0, 0.5, 0, 0], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 1, 0]]
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))


def pool() -> Rounds:
    """Agent a is always right and dear, b and c are always wrong and cheap, agreeing."""
    classes = torch.tensor([[0, 1, 1]] * 10)
    return answered(
        classes,
        classes == 0,
        torch.tensor([[4.0, 1.0, 1.0]] * 10).double(),
        torch.zeros(10, 3).double(),
    )


def test_best_teams_mix_with_nobody() -> None:
    teams = list(torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 1]]).bool()[..., None].expand(-1, -1, 2))
    fit, test = pool().select(range(5)), pool().select(range(5, 10))
    budgets = torch.tensor([1.0, 4.0, 6.0]).double()
    cost, right = best_teams(ConsensusCell(1, 3, slots=1).double(), fit, test, teams, budgets, plurality=True)
    assert cost.mean(1).tolist() == [1.0, 4.0, 4.0]
    assert right.mean(1).tolist() == [0.25, 1.0, 1.0]


def seated(cell, fit, test, budgets):
    return best_teams(cell, fit, test, teams_to_try(cell, fit), budgets)


def parts(agents=3, **options):
    episodes = planted(90, agents, **options)
    rounds = Rounds.of(episodes)
    return ConsensusCell(episodes.dim, agents).double(), rounds.select(range(60)), rounds.select(range(60, 90))


def test_no_fixed_team_within_the_budget_is_better_on_training_tasks():
    cell, fit, _ = parts(knows=0.8, guesses=0.3, judge=0.9)
    cost, right = seated(cell, fit, fit, torch.tensor([900.0], dtype=torch.float64))
    assert cost.mean() <= 900
    for bits in itertools.product([False, True], repeat=6):
        assert fit.right(cell, torch.tensor(bits).view(3, 2)).double().mean() <= right.mean() + 1e-12


def test_a_budget_is_met_by_a_coin_between_two_teams():
    cell, fit, test = parts(knows=0.8, guesses=0.3)
    budgets = torch.tensor([50.0, 100.0, 250.0], dtype=torch.float64)
    cost, _ = seated(cell, fit, fit, budgets)
    assert (cost.mean(1) <= budgets + 1e-9).all()
    half, one, _ = seated(cell, fit, test, budgets)[1]
    torch.testing.assert_close(2 * half, one)


def test_a_greedy_search_finds_a_planted_expert_and_its_judge(monkeypatch):
    cell, fit, _ = parts(knows=0.9, guesses=0.2, judge=0.9)
    budgets = torch.tensor([100.0, 500.0, 900.0], dtype=torch.float64)
    best = seated(cell, fit, fit, budgets)[1].mean(1)
    monkeypatch.setattr(broker_rivals, "EXHAUSTIVE", 0)
    greedy = seated(cell, fit, fit, budgets)[1].mean(1)
    assert (greedy <= best + 1e-12).all()
    assert greedy[0] == pytest.approx(best[0].item())
    assert greedy[2] > greedy[0]


def test_random_teams_keep_the_budget_and_hold_a_proposer():
    cell, fit, test = parts(knows=0.9, guesses=0.9)
    budgets = torch.tensor([10.0, 100.0, 450.0, 900.0], dtype=torch.float64)
    cost, right = random_seated(cell, fit, test, budgets, draws=4)
    assert (cost[0] == 100).all()
    assert (cost[1:] <= budgets[1:, None] + 1e-9).all()
    assert (cost[3] == 900).all()
    assert right[0].mean() > 0.5
    again = random_seated(cell, fit, test, budgets, draws=4)
    assert torch.equal(again[1], right)
    assert not torch.equal(random_seated(cell, fit, test, budgets, draws=4, seed=1)[1], right)
