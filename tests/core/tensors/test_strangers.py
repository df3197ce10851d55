"""A cell with strangers decides as before while they are silent, and weighs them as a fresh cell does."""

import pytest
import torch

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.trust import Calibration
from nsed_torch.parts.saved_cells import with_strangers


def cell(*, calibrated=True):
    torch.manual_seed(0)
    made = ConsensusCell(4, 3, calibration=Calibration(3) if calibrated else None).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    made.agent_names = ("ann", "bob", "cy")
    return made


def vote(cell, voters):
    """Ratings and embeddings are the same whoever votes."""
    g = torch.Generator().manual_seed(1)
    n = voters.shape[1]
    ratings = torch.rand(2, 5, 3, generator=g, dtype=torch.float64)[:, :n]
    embeddings, task = (torch.randn(2, *size, generator=g, dtype=torch.float64) for size in ((3, 4), (4,)))
    return cell(embeddings, ratings, torch.ones_like(ratings, dtype=torch.bool), task, voters=voters)[0]


@pytest.mark.parametrize("calibrated", [False, True])
def test_agents_that_are_known_decide_what_they_decided(calibrated):
    known = cell(calibrated=calibrated)
    larger = with_strangers(known, 2)
    seats = torch.tensor([[0, 1, 2]] * 2)
    for before, after in zip(vote(known, seats), vote(larger, seats), strict=True):
        assert torch.equal(before, after)
    assert (larger.agents, larger.agent_names) == (5, None)
    assert (known.agents, known.agent_names) == (3, ("ann", "bob", "cy"))


def test_a_stranger_weighs_what_an_agent_of_bias_0_weighs_and_is_taken_at_its_word():
    larger = with_strangers(cell(), 2)
    assert larger.trust.bias[3:].tolist() == [0.0, 0.0]
    assert not larger.trust.weight[3:].any()
    assert larger.calibration.scale[3:].tolist() == [1.0, 1.0]
    assert larger.calibration.shift[3:].tolist() == [0.0, 0.0]
    output = vote(larger, torch.tensor([[3, 4]] * 2))
    assert torch.allclose(output.trust, torch.ones(2, 2, dtype=torch.float64))


@pytest.mark.parametrize("count", [0, 3])
def test_gradients_reach_the_copy_and_not_the_cell(count):
    known = cell()
    larger = with_strangers(known, count)
    vote(larger, torch.arange(3 + count)[None, -2:].expand(2, -1)).support.sum().backward()
    assert larger.trust.bias.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in known.parameters())
