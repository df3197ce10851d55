"""Losses: by hand, masked, differentiable."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.tuning.losses import consensus_loss, distance_from_start, worth_loss

REAL = torch.float64


def test_by_hand():
    support = torch.tensor([[[1.0, 0.0, 2.0]], [[3.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]]], dtype=REAL)
    correct = torch.tensor([[[True, False, True]], [[False, True, False]], [[True, True, True]]])
    mask = torch.tensor([[[True] * 3], [[True, True, False]], [[True] * 3]])
    first = -math.log((math.exp(2) + math.exp(4)) / (math.exp(2) + 1 + math.exp(4)))
    second = -math.log(math.exp(2) / (math.exp(6) + math.exp(2)))
    assert consensus_loss(support, correct, mask, 2.0).item() == pytest.approx((first + second) / 2)
    weight = torch.tensor([[1.0], [3.0], [9.0]], dtype=REAL)
    assert consensus_loss(support, correct, mask, 2.0, weight=weight).item() == pytest.approx((first + 3 * second) / 4)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 5))
def test_masking_equals_deleting(seed, proposals):
    g = torch.Generator().manual_seed(seed)
    support = torch.randn(4, 2, proposals, generator=g, dtype=REAL)
    correct = torch.rand(4, 2, proposals, generator=g) < 0.5
    padded = torch.cat([support, torch.full((4, 2, 2), math.nan, dtype=REAL)], -1).requires_grad_()
    mask = torch.arange(proposals + 2).expand(4, 2, -1) < proposals
    right = torch.cat([correct, torch.ones(4, 2, 2, dtype=torch.bool)], -1)
    loss = consensus_loss(padded, right, mask, 1.5)
    assert loss.item() == pytest.approx(consensus_loss(support, correct, torch.ones_like(correct), 1.5).item())
    assert 0 <= loss.item() < math.inf
    loss.backward()
    assert padded.grad[mask].isfinite().all()
    assert (padded.grad[~mask] == 0).all()


def test_gradients():
    support = torch.randn(3, 2, 4, dtype=REAL, generator=torch.Generator().manual_seed(0)).requires_grad_()
    correct = torch.tensor([[True, False, False, True], [False] * 4]).expand(3, 2, 4)
    mask = torch.tensor([[True, True, False, True], [True] * 4]).expand(3, 2, 4)
    beta = torch.tensor(0.7, dtype=REAL, requires_grad=True)
    weight = torch.tensor([[0.5, 1.0]] * 3, dtype=REAL)
    assert gradcheck(lambda s, b: consensus_loss(s, correct, mask, b, weight=weight), (support, beta))
    assert gradcheck(lambda s, b: consensus_loss(s, correct, mask & False, b), (support, beta))


def test_nothing_to_decide_is_no_loss():
    support = torch.zeros(2, 1, 3, requires_grad=True)
    loss = consensus_loss(support, torch.ones(2, 1, 3, dtype=torch.bool), torch.ones(2, 1, 3, dtype=torch.bool), 1.0)
    loss.backward()
    assert loss.item() == 0
    assert (support.grad == 0).all()


def test_distance_counts_trained_parameters_only():
    cell = ConsensusCell(2, 3)
    start = {name: value.clone() for name, value in cell.state_dict().items()}
    assert distance_from_start(cell, start).item() == 0
    with torch.no_grad():
        cell.backing += 2
        cell.gate.bias -= 1
        cell.trust.bias += 0.5
    assert distance_from_start(cell, start).item() == pytest.approx(4 + 1 + 3 * 0.25)
    cell.backing.requires_grad_(False)
    assert distance_from_start(cell, start).item() == pytest.approx(1 + 3 * 0.25)


def test_what_reads_is_held_by_what_it_moves_where_the_consensus_grows_without_bound():
    cell = ConsensusCell(2, 3)
    start = {name: value.clone() for name, value in cell.state_dict().items()}
    with torch.no_grad():
        cell.trust.weight += 0.5
        cell.log_beta += math.log(5)
    moved, numbers = math.log(5) ** 2, cell.trust.weight.numel()
    assert distance_from_start(cell, start, 3.0).item() == pytest.approx(moved + 3 * numbers * 0.25)
    with torch.no_grad():
        cell.log_beta += math.log(4)  # to 20, twice what any vote needs
    moved = math.log(20) ** 2
    assert distance_from_start(cell, start, 3.0).item() == pytest.approx(moved + 3 * 4 * numbers * 0.25)


def test_worth_is_what_a_memory_of_so_many_slots_is_expected_to_hold():
    retention = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.0, 0.0]], dtype=REAL)
    worth = torch.tensor([[2.0, -1.0, 0.5], [9.0, 9.0, 9.0]], dtype=REAL)
    there = torch.ones(2, 3, dtype=torch.bool)
    stays = [1 - 0.5**2, 1 - 0.75**2, 1 - 0.75**2]
    by_hand = -(2 * stays[0] - stays[1] + 0.5 * stays[2]) / 2
    assert worth_loss(retention, worth, there, 2).item() == pytest.approx(by_hand)
    assert worth_loss(retention * 1e-9, worth, there, 2).item() == pytest.approx(
        by_hand
    )  # a common scale costs nothing


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 9))
def test_what_is_not_there_is_worth_nothing_and_gradients_are_finite(seed, notes, count):
    g = torch.Generator().manual_seed(seed)
    retention, worth = torch.rand(3, notes, generator=g, dtype=REAL), torch.randn(3, notes, generator=g, dtype=REAL)
    retention[0, 1:] = 0
    there = torch.arange(notes + 2).expand(3, -1) < notes
    wide = torch.cat([retention, torch.full((3, 2), math.nan, dtype=REAL)], -1).requires_grad_()
    priced = torch.cat([worth, torch.full((3, 2), math.nan, dtype=REAL)], -1)
    loss = worth_loss(wide, priced, there, count)
    assert loss.item() == pytest.approx(worth_loss(retention, worth, there[:, :notes], count).item(), abs=1e-12)
    loss.backward()
    assert wide.grad[there].isfinite().all()
    assert (wide.grad[~there] == 0).all()


def test_worth_has_gradients():
    g = torch.Generator().manual_seed(3)
    retention = torch.rand(2, 4, generator=g, dtype=REAL, requires_grad=True)
    worth, there = torch.randn(2, 4, generator=g, dtype=REAL), torch.tensor([[True] * 4, [True, True, True, False]])
    assert gradcheck(lambda x: worth_loss(x, worth, there, 3), (retention,))
