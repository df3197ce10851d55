"""Fixed and random teams: the best there is on training tasks, and no dearer than the budget."""

import itertools

import pytest
import torch
from nsed_torch.training.rivals import fixed_teams, random_teams
from nsed_torch.training.seats import RecordedSeats
from planted_rounds import planted

from nsed_torch.nn import ConsensusCell
from nsed_torch.training import rivals


def parts(agents=3, **options):
    episodes = planted(90, agents, **options)
    seats = RecordedSeats.of(episodes)
    return ConsensusCell(episodes.dim, agents).double(), seats.select(range(60)), seats.select(range(60, 90))


def test_no_fixed_team_within_the_budget_is_better_on_training_tasks():
    cell, fit, _ = parts(knows=0.8, guesses=0.3, judge=0.9)
    cost, right = fixed_teams(cell, fit, fit, torch.tensor([900.0], dtype=torch.float64))
    assert cost.mean() <= 900
    for bits in itertools.product([False, True], repeat=6):
        assert fit.right(cell, torch.tensor(bits).view(3, 2)).double().mean() <= right.mean() + 1e-12


def test_a_budget_is_met_by_a_coin_between_two_teams():
    cell, fit, test = parts(knows=0.8, guesses=0.3)
    budgets = torch.tensor([50.0, 100.0, 250.0], dtype=torch.float64)
    cost, _ = fixed_teams(cell, fit, fit, budgets)
    assert (cost.mean(1) <= budgets + 1e-9).all()
    half, one, _ = fixed_teams(cell, fit, test, budgets)[1]
    torch.testing.assert_close(2 * half, one)


def test_a_greedy_search_finds_a_planted_expert_and_its_judge(monkeypatch):
    cell, fit, _ = parts(knows=0.9, guesses=0.2, judge=0.9)
    budgets = torch.tensor([100.0, 500.0, 900.0], dtype=torch.float64)
    best = fixed_teams(cell, fit, fit, budgets)[1].mean(1)
    monkeypatch.setattr(rivals, "EXHAUSTIVE", 0)
    greedy = fixed_teams(cell, fit, fit, budgets)[1].mean(1)
    assert (greedy <= best + 1e-12).all()
    assert greedy[0] == pytest.approx(best[0].item())
    assert greedy[2] > greedy[0]


def test_random_teams_keep_the_budget_and_hold_a_proposer():
    cell, fit, test = parts(knows=0.9, guesses=0.9)
    budgets = torch.tensor([10.0, 100.0, 450.0, 900.0], dtype=torch.float64)
    cost, right = random_teams(cell, fit, test, budgets, draws=4)
    assert (cost[0] == 100).all()
    assert (cost[1:] <= budgets[1:, None] + 1e-9).all()
    assert (cost[3] == 900).all()
    assert right[0].mean() > 0.5
    again = random_teams(cell, fit, test, budgets, draws=4)
    assert torch.equal(again[1], right)
    assert not torch.equal(random_teams(cell, fit, test, budgets, draws=4, seed=1)[1], right)
