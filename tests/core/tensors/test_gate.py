import math

import pytest
import torch

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.gate import ForgetGate, Gate, News
from nsed_torch.core.memory import MemoryState
from nsed_torch.core.named import part_named
from nsed_torch.parts.gates import LeakyGate, NoteGate, OpenGate

STATE = MemoryState(
    embeddings=torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]),
    retention=torch.tensor([[0.6, 0.4, 0.0]]),
    support=torch.tensor([[1.0, -1.0, 0.0]]),
    age=torch.tensor([[0.0, 2.0, 0.0]]),
    mask=torch.tensor([[True, True, False]]),
)
TASK = torch.tensor([[1.0, 1.0]])
NEWS = News(
    embeddings=torch.zeros(1, 2, 2),
    support=torch.zeros(1, 2),
    probability=torch.zeros(1, 2),
    mask=torch.zeros(1, 2, dtype=torch.bool),
    consensus=torch.tensor([[1.0, 0.0]]),
    task=TASK,
)


@pytest.mark.parametrize("mode", ["learned", "notes", "leaky"])
def test_starts_as_a_constant_leak(mode):
    gate = part_named("gate", mode, **({} if mode == "none" else {"leak": 0.7}))
    keep, admit = gate(STATE, NEWS)
    torch.testing.assert_close(keep, torch.tensor([[0.7, 0.7, 0.0]]))
    assert admit.tolist() == [[1, 1]]
    assert len(gate.state_dict()) == {"learned": 2, "notes": 3, "leaky": 1}[mode]


def test_learned_gate_reads_meaning_support_and_age():
    gate = ForgetGate()
    with torch.no_grad():
        gate.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        gate.bias.zero_()
    near = 2 / 2**0.5
    expected = torch.tensor([[1 + near + 3, near - 3 + 8]]).sigmoid()
    got = gate(STATE, NEWS).keep
    torch.testing.assert_close(got[:, :2], expected)
    got.sum().backward()
    assert gate.weight.grad.isfinite().all()
    assert gate.bias.grad.isfinite()


def test_only_the_learned_gate_has_parameters():
    assert [len(list(gate.parameters())) for gate in (ForgetGate(), LeakyGate(), OpenGate())] == [2, 0, 0]
    assert OpenGate()(STATE, NEWS).keep.tolist() == [[1, 1, 0]]


def test_the_gate_for_notes_starts_as_the_learned_one_and_reads_what_came():
    gate, learned = NoteGate(leak=0.7), ForgetGate(leak=0.7)
    assert torch.equal(gate(STATE, NEWS).keep, learned(STATE, NEWS).keep)
    with torch.no_grad():
        gate.weight[4] = 2.0
        gate.entry.copy_(torch.tensor([-1.0, 0.5, -3.0]))
    came = torch.tensor([[[2.0, 0.0], [0.0, 0.0], [1.0, -1.0]]])  # near the first slot and the task; nothing; neither
    factors = torch.tensor([2**-0.5 * 2, 0.0]) + torch.tensor(0.7).logit()
    brought = NEWS._replace(embeddings=came, support=torch.zeros(1, 3))
    torch.testing.assert_close(gate(STATE, brought).keep[0, :2], factors.sigmoid())
    entering = torch.tensor([[[1.0, 1.0], [1.0, -1.0]]])
    admit = gate(STATE, NEWS._replace(embeddings=entering, support=torch.tensor([[2.0, 8.0]]))).admit
    torch.testing.assert_close(admit, torch.tensor([[2 * torch.tensor(-3.0).sigmoid(), 1.0]]))


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
    with pytest.raises(ValueError, match="gate: expected one of learned, notes, leaky, none or one of your own"):
        part_named("gate", "sticky")
    for gate in (ForgetGate, LeakyGate):
        with pytest.raises(ValueError, match=r"gate leak: expected a value in \(0, 1\), got 1.0; OpenGate keeps"):
            gate(leak=1.0)
    with pytest.raises(
        NotImplementedError, match=r"Gate: expected forward\(state, news\) -> \(keep, admit\): write it"
    ):
        Gate()(STATE, NEWS)


def test_a_gate_goes_to_a_folder_and_a_hub_without_its_cell(tmp_path, monkeypatch):
    """By the hub library's own mixin; what would be uploaded is what was saved, with a card."""
    import huggingface_hub.hub_mixin as hub

    sent = {}

    class Api:
        def __init__(self, token=None):
            pass

        def create_repo(self, repo_id, **_):
            return type("Repo", (), {"repo_id": repo_id})

        def upload_folder(self, *, folder_path, **_):
            sent.update({path.name: path.read_bytes() for path in folder_path.iterdir()})

    monkeypatch.setattr(hub, "HfApi", Api)
    gate = NoteGate(leak=0.7)
    gate.push_to_hub("somebody/gate")
    assert {"model.safetensors", "README.md"} <= sent.keys()
    assert b"nsed_torch" in sent["README.md"]
    gate.save_pretrained(tmp_path)
    again = NoteGate.from_pretrained(tmp_path)
    assert torch.equal(again.bias, gate.bias)
    ConsensusCell(2, 2, gate=gate).push_to_hub("somebody/cell")
    assert {"model.safetensors", "README.md", "config.json"} <= sent.keys()
