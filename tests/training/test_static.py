"""Fixed and random teams: hulls by hand."""

import torch
from nsed_torch.training.partial import Pool
from nsed_torch.training.static import best_teams, hull_weights, random_teams, shortlist

from nsed_torch.nn import ConsensusCell


def test_hull_by_hand() -> None:
    # (1, 0.2) lies under the chord from nothing to (2, 0.8); (5, 0.7) is dominated.
    cost = torch.tensor([0.0, 1.0, 2.0, 4.0, 5.0], dtype=torch.float64)
    accuracy = torch.tensor([0.0, 0.2, 0.8, 0.9, 0.7], dtype=torch.float64)
    weights = hull_weights(cost, accuracy, torch.tensor([0.0, 1.0, 3.0, 9.0], dtype=torch.float64))
    expected = [[1, 0, 0, 0, 0], [0.5, 0, 0.5, 0, 0], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 1, 0]]
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))


def pool() -> Pool:
    """One agent always right and dear, two always wrong and cheap, agreeing."""
    classes = torch.tensor([[0, 1, 1]] * 10)
    return Pool(
        ("good", "bad", "worse"),
        classes,
        classes == 0,
        torch.tensor([[4.0, 1.0, 1.0]] * 10).double(),
        torch.zeros(10, 3).double(),
    )


def test_best_teams_mix_with_nobody() -> None:
    teams = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 1]]).bool()
    rows = torch.arange(10)
    budgets = torch.tensor([1.0, 4.0, 6.0]).double()
    cost, right = best_teams(ConsensusCell(1, 3, slots=1), pool(), teams, rows[:5], rows[5:], budgets)
    assert cost.mean(1).tolist() == [1.0, 4.0, 4.0]
    assert right.mean(1).tolist() == [0.25, 1.0, 1.0]


def test_random_teams_by_hand() -> None:
    cost, right = random_teams(pool(), torch.arange(10), torch.tensor([2.0, 6.0]).double(), draws=400)
    # One agent costs 2 in the mean and is right a third of the time; all three cost 6 and are outvoted.
    torch.testing.assert_close(cost.mean(1), torch.tensor([2.0, 6.0]).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(right.mean(1), torch.tensor([1 / 3, 0.0]).double(), atol=0.03, rtol=0)


def test_shortlist_takes_turns_between_budgets() -> None:
    # The cheap budget pays for the second and third only; the large one takes the best first.
    names = shortlist(pool(), torch.arange(10), torch.tensor([6.0, 1.0]).double(), 2).agents
    assert names == ("good", "bad")
    assert shortlist(pool(), torch.arange(10), torch.tensor([1.0]).double(), 2).agents == ("bad", "worse")
