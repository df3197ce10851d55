import math

import pytest
import torch
from drawn_tensors import REAL
from drawn_tensors import trained as drawn_cell
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.gate import ForgetGate
from nsed_torch.core.named import part_named
from nsed_torch.core.trust import Calibration

GATES = ("learned", "leaky", "notes", "none")


def a_recording(batch, rounds, agents, dim, seed):
    g = torch.Generator().manual_seed(seed)
    ratings = torch.rand(batch, rounds, agents, agents, generator=g, dtype=REAL) * 2 - 1
    mask = (torch.rand(ratings.shape, generator=g) < 0.9) & ~torch.eye(agents, dtype=torch.bool)
    embeddings = torch.randn(batch, rounds, agents, dim, generator=g, dtype=REAL)
    return embeddings, ratings, mask, torch.randn(batch, dim, generator=g, dtype=REAL)


def trained(dim, agents, gate="learned", seed=0, **parts):
    return drawn_cell(dim, agents, seed, slots=3, gate=gate, **parts)


@pytest.mark.parametrize("gate", GATES)
def test_unroll_is_one_round_after_the_other(gate):
    cell = trained(4, 3, gate, calibration=Calibration(3))
    e, ratings, mask, task = a_recording(2, 3, 3, 4, 0)
    voters = torch.stack([torch.tensor([2, 0, 1]), torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])]).expand(2, 3, 3)
    there = torch.tensor([[True, True, False], [True, True, True]])[:, None].expand(2, 3, 3)
    masks = {"voters": voters, "proposal_mask": there, "voter_mask": there}
    outputs, last = cell.unroll(e, ratings, mask, task, **masks)
    state = None
    for r in range(3):
        one = {name: value[:, r] for name, value in masks.items()}
        out, state = cell(e[:, r], ratings[:, r], mask[:, r], task, state, **one)
        for name, value in out._asdict().items():
            assert torch.equal(getattr(outputs, name)[:, r], value), name
    for got, expected in zip(last, state, strict=True):
        assert torch.equal(got, expected)
    split, middle = cell.unroll(e[:, :2], ratings[:, :2], mask[:, :2], task, **{k: v[:, :2] for k, v in masks.items()})
    rest, end = cell.unroll(
        e[:, 2:], ratings[:, 2:], mask[:, 2:], task, middle, **{k: v[:, 2:] for k, v in masks.items()}
    )
    assert torch.equal(torch.cat([split.consensus, rest.consensus], 1), outputs.consensus)
    assert torch.equal(end.hidden(), last.hidden())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(GATES), st.lists(st.booleans(), min_size=4, max_size=4))
def test_masking_rounds_equals_deleting_them(seed, gate, held):
    cell = trained(3, 3, gate, seed)
    e, ratings, mask, task = a_recording(1, 4, 3, 3, seed)
    held = torch.tensor([held])
    e = torch.where(held[:, :, None, None], e, math.nan)
    ratings = torch.where(held[:, :, None, None], ratings, math.nan)
    outputs, state = cell.unroll(e, ratings, mask, task, round_mask=held)
    assert (outputs.winner[~held] == -1).all()
    for name in ("ballots", "support", "consensus", "conviction", "trust"):
        assert not getattr(outputs, name)[~held].any()
    if not held.any():
        assert not state.mask.any()
        return
    kept = held[0]
    short, end = cell.unroll(e[:, kept], ratings[:, kept], mask[:, kept], task)
    for name, value in short._asdict().items():
        torch.testing.assert_close(getattr(outputs, name)[:, kept], value, atol=1e-13, rtol=0)
    for got, expected in zip(state, end, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-13, rtol=0)


def test_a_masked_round_carries_every_slot_over():
    cell = trained(3, 3)
    with torch.no_grad():  # a gate that would turn the order of the slots round
        cell.gate.weight.copy_(torch.tensor([0.0, 0.0, -20.0, 0.0]))
    e, ratings, mask, task = a_recording(2, 2, 3, 3, 1)
    outputs, state = cell.unroll(e, ratings, mask, task, round_mask=torch.tensor([[True, False], [True, True]]))
    assert outputs.source[0, 1].tolist() == [0, 1, 2]
    assert outputs.gate[0, 1].tolist() == [1, 1, 1]
    assert torch.equal(state.hidden()[0], cell.unroll(e[:, :1], ratings[:, :1], mask[:, :1], task)[1].hidden()[0])
    assert state.age[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("gate", ["learned", "notes"])
def test_gradients_reach_every_earlier_round(gate):
    cell = trained(3, 4, gate)
    e, ratings, mask, task = a_recording(3, 4, 4, 3, 2)
    e.requires_grad_()
    ratings.requires_grad_()
    outputs, _ = cell.unroll(e, ratings, mask, task)
    outputs.consensus[:, -1, 0].log().sum().backward()
    assert all(ratings.grad[:, r].norm() > 0 for r in range(4))
    assert all(e.grad[:, r].norm() > 0 for r in range(3))  # those of the last round enter the memory behind its vote
    reached = {name: p.grad.norm() for name, p in cell.named_parameters() if p.grad is not None}
    assert {name.split(".")[0] for name, norm in reached.items() if norm > 0} == {"gate", "log_beta", "trust"}
    fresh = ConsensusCell(3, 4, slots=3).double()
    ratings.grad = None
    outputs, _ = fresh.unroll(e, ratings, mask, task)
    outputs.consensus[:, -1, 0].sum().backward()
    assert not ratings.grad[:, :3].any()  # the state speaks into the vote only once the weight of trust leaves zero
    assert fresh.trust.weight.grad.any()


@pytest.mark.parametrize("gate", GATES)
def test_fresh_gates_with_a_leak_agree_exactly(gate):
    e, ratings, mask, task = a_recording(2, 4, 3, 8, 3)
    own = gate if gate == "none" else part_named("gate", gate, dtype=REAL)
    cells = [ConsensusCell(8, 3, gate=each).double() for each in (ForgetGate(dtype=REAL), own)]
    (a, first), (b, second) = (cell.unroll(e, ratings, mask, task) for cell in cells)
    assert torch.equal(a.consensus, b.consensus)
    assert torch.equal(first.retention, second.retention) == (gate != "none")
    if gate != "none":
        assert torch.equal(first.embeddings, second.embeddings)


def test_calibration_starts_without_effect_and_learns():
    cell = ConsensusCell(3, 3, calibration=Calibration(3)).double()
    e, ratings, mask, task = a_recording(2, 2, 3, 3, 4)
    out, _ = cell.unroll(e, ratings, mask, task)
    plain, _ = ConsensusCell(3, 3).double().unroll(e, ratings, mask, task)
    torch.testing.assert_close(out.support, plain.support, atol=1e-14, rtol=0)
    out.consensus[:, -1, 0].sum().backward()
    assert cell.calibration.scale.grad.any()
    assert cell.calibration.shift.grad.any()


def test_bad_arguments():
    cell = ConsensusCell(3, 3).double()
    e, ratings, mask, task = a_recording(1, 1, 3, 3, 0)
    with pytest.raises(ValueError, match=r"at least one round, got shape \(1, 0, 3, 3\)"):
        cell.unroll(e[:, :0], ratings[:, :0], mask[:, :0], task)
