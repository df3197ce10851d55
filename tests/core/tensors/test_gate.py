import math

import pytest
import torch

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.gate import ForgetGate, LeakyGate, NoteGate, OpenGate, VectorGate, gate_named
from nsed_torch.core.memory import MemoryState

STATE = MemoryState(
    embeddings=torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]),
    retention=torch.tensor([[0.6, 0.4, 0.0]]),
    support=torch.tensor([[1.0, -1.0, 0.0]]),
    age=torch.tensor([[0.0, 2.0, 0.0]]),
    mask=torch.tensor([[True, True, False]]),
)
CONSENSUS, TASK = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])


@pytest.mark.parametrize("mode", ["learned", "notes", "leaky"])
def test_starts_as_a_constant_leak(mode):
    gate = gate_named(mode, 2, leak=0.7)
    torch.testing.assert_close(gate(STATE, CONSENSUS, TASK), torch.tensor([[0.7, 0.7, 0.0]]))
    assert len(gate.state_dict()) == {"learned": 2, "notes": 3, "leaky": 1}[mode]


def test_learned_gate_reads_meaning_support_and_age():
    gate = ForgetGate()
    with torch.no_grad():
        gate.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        gate.bias.zero_()
    near = 2 / 2**0.5
    expected = torch.tensor([[1 + near + 3, near - 3 + 8]]).sigmoid()
    got = gate(STATE, CONSENSUS, TASK)
    torch.testing.assert_close(got[:, :2], expected)
    got.sum().backward()
    assert gate.weight.grad.isfinite().all()
    assert gate.bias.grad.isfinite()


def test_only_the_learned_gate_has_parameters():
    assert [len(list(gate.parameters())) for gate in (ForgetGate(), LeakyGate(), OpenGate())] == [2, 0, 0]
    assert OpenGate()(STATE, CONSENSUS, TASK).tolist() == [[1, 1, 0]]


def test_vector_gate_starts_as_the_learned_one_and_learns_each_dimension():
    vector, learned = VectorGate(2, leak=0.7), ForgetGate(leak=0.7)
    gate = vector(STATE, CONSENSUS, TASK)
    assert gate.shape == (1, 3, 2)
    faded, factor = STATE.faded(gate)
    assert torch.equal(factor, learned(STATE, CONSENSUS, TASK))
    assert torch.equal(faded.embeddings, STATE.embeddings)
    assert {n: tuple(p.shape) for n, p in vector.named_parameters()} == {
        "weight": (2, 3),
        "mixing": (2, 4),
        "bias": (2,),
    }
    with torch.no_grad():
        vector.bias[0] = 9.0
    faded, factor = STATE.faded(vector(STATE, CONSENSUS, TASK))
    kept = torch.tensor([torch.tensor(9.0).sigmoid(), 0.7])
    torch.testing.assert_close(factor[0, :2], kept.mean().expand(2))
    torch.testing.assert_close(factor[0, :2, None] * faded.embeddings[0, :2], kept * STATE.embeddings[0, :2])
    assert not faded.embeddings[0, 2].any()
    (faded.embeddings.sum() + factor.sum()).backward()
    assert all(p.grad.isfinite().all() for p in vector.parameters())


def test_the_gate_for_notes_starts_as_the_learned_one_and_reads_what_came():
    gate, learned = NoteGate(leak=0.7), ForgetGate(leak=0.7)
    assert torch.equal(gate(STATE, CONSENSUS, TASK), learned(STATE, CONSENSUS, TASK))
    with torch.no_grad():
        gate.weight[4] = 2.0
        gate.entry.copy_(torch.tensor([-1.0, 0.5, -3.0]))
    came = torch.tensor([[[2.0, 0.0], [0.0, 0.0], [1.0, -1.0]]])  # near the first slot and the task; nothing; neither
    factors = torch.tensor([2**-0.5 * 2, 0.0]) + torch.tensor(0.7).logit()
    torch.testing.assert_close(gate(STATE, CONSENSUS, TASK, came)[0, :2], factors.sigmoid())
    assert torch.equal(gate(STATE, CONSENSUS, TASK), learned(STATE, CONSENSUS, TASK))
    entering = torch.tensor([[[1.0, 1.0], [1.0, -1.0]]])
    read = gate.entry_features(entering, torch.tensor([[2.0, 8.0]]), TASK)
    torch.testing.assert_close(read, torch.tensor([[[1.0, 2.0, 1.0], [0.0, 8.0, 1.0]]]))
    torch.testing.assert_close(gate.admits(read), torch.tensor([[2 * torch.tensor(-3.0).sigmoid(), 1.0]]))


@pytest.mark.parametrize("alone", [True, False])
def test_what_enters_a_memory_is_admitted_by_the_gate_for_notes(alone):
    given = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.zeros(1, 2, 2), torch.zeros(1, 2, 2, dtype=torch.bool)
    notes, learned = (ConsensusCell(2, 2, gate=gate) for gate in (NoteGate(), ForgetGate()))
    task = torch.tensor([[1.0, 0.0]])
    first, second = (cell(*given, task, winner_alone=alone)[1] for cell in (notes, learned))
    assert torch.equal(first.retention, second.retention)
    with torch.no_grad():
        notes.gate.entry.copy_(torch.tensor([4.0, 0.0, -2.0]))
    expected = [1.0] if alone else [0.5, 2 / (1 + math.exp(2)) * 0.5]
    assert notes(*given, task, winner_alone=alone)[1].retention[0].tolist()[: len(expected)] == pytest.approx(expected)


def test_bad_arguments():
    with pytest.raises(ValueError, match="gate: expected one of learned, notes, leaky, vector, none, got 'sticky'"):
        gate_named("sticky", 2)
    for gate in (ForgetGate, LeakyGate):
        with pytest.raises(ValueError, match=r"gate leak: expected a value in \(0, 1\), got 1.0; OpenGate keeps"):
            gate(leak=1.0)
