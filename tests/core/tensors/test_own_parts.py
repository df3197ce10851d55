"""A gate, a vote and a trust of one's own decide, learn by both losses, are saved, and load into objects given."""

from functools import partial

import pytest
import torch
from drawn_tensors import REAL, a_round
from planted_readings import DIM, planted_readings, reading_of
from torch import nn

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.gate import Gate
from nsed_torch.core.trust import Trust
from nsed_torch.parts.gates import NoteGate
from nsed_torch.tuning.memory_fit import kept
from nsed_torch.tuning.trainer import Schedule, fit_cell

LBFGS = partial(torch.optim.LBFGS, max_iter=5, history_size=20, line_search_fn="strong_wolfe")


class NearGate(Gate):
    """Keeps and admits what is near to the question: three numbers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, 0.0, 1.0]))
        self.asked = []

    def forward(self, state, news):
        self.asked.append(tuple(part.shape for part in news))
        near = torch.cosine_similarity(state.embeddings, news.task[:, None], dim=-1)
        came = torch.cosine_similarity(news.embeddings, news.task[:, None], dim=-1)
        slope, keep, admit = self.weight
        return torch.sigmoid(slope * near + keep), torch.sigmoid(slope * came + admit)


class PlainGate(nn.Module):
    """No subclass of anything of ours; one number for all."""

    def forward(self, state, news):
        return 0.5, 1.0


class SharpVote(nn.Module):
    """The ratings' cubes, times what it learned."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, ratings, mask):
        return torch.where(mask, self.scale * ratings.pow(3), 0)


class OneTrust(nn.Module):
    """The same for everybody."""

    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.tensor(1.0))

    def forward(self, voters, task, hidden, voter_mask):
        return self.level.expand(voters.shape)


def doubled(ratings, mask):
    """A vote without a class."""
    return 2 * ratings


PARTS = {"gate": NearGate, "vote": SharpVote, "trust": OneTrust}


def rounds(cell, count=3):
    """Outputs of some rounds, and the last memory."""
    state, outputs = None, []
    for r in range(count):
        e, ratings, mask, task = a_round(2, 3, 3, cell.dim, r)
        output, state = cell(e, ratings, mask, task, state, authors=torch.arange(3).expand(2, -1))
        outputs.append(output)
    return outputs, state


@pytest.mark.parametrize("name", PARTS)
def test_it_decides_and_is_saved_and_loaded_into_an_object_of_its_class(tmp_path, name):
    cell = ConsensusCell(4, 3, **{name: PARTS[name]()}).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.1)
    cell.save_pretrained(tmp_path, agent_names=["ant", "bee", "cat"])
    loaded = ConsensusCell.from_pretrained(tmp_path, **{name: PARTS[name]()})
    assert loaded.agent_names == ("ant", "bee", "cat")
    assert type(getattr(loaded, name)) is PARTS[name]
    for ours, theirs in zip(*(rounds(one)[0] for one in (cell, loaded)), strict=True):
        assert torch.equal(ours.consensus, theirs.consensus)
        assert torch.equal(ours.gate, theirs.gate)


@pytest.mark.parametrize("name", PARTS)
def test_a_class_of_somebodys_own_is_asked_for_and_never_imported(tmp_path, name):
    cell = ConsensusCell(4, 3, **{name: PARTS[name]()})
    cell.save_pretrained(tmp_path)
    config = (tmp_path / "config.json").read_text()
    assert PARTS[name].__name__ in config
    (tmp_path / "config.json").write_text(config.replace(PARTS[name].__module__, "os.system"))
    with pytest.raises(ValueError, match=rf"{name}: 'os.system.{PARTS[name].__name__}' is a class .*, never imported"):
        ConsensusCell.from_pretrained(tmp_path)
    ConsensusCell.from_pretrained(tmp_path, **{name: PARTS[name]()})  # what the file calls it does not matter
    with pytest.raises(ValueError, match=r"does not fit model\.safetensors"):
        ConsensusCell.from_pretrained(tmp_path, **{name: nn.Linear(2, 2)})
    with pytest.raises(ValueError, match="expected parts out of vote, gate, trust, calibration, reading, got door"):
        ConsensusCell.from_pretrained(tmp_path, door=PARTS[name]())


def test_a_vote_may_be_a_function_and_a_gate_any_module():
    cell = ConsensusCell(4, 3, vote=doubled, gate=PlainGate()).double()
    outputs, state = rounds(cell)
    _, ratings, mask, _ = a_round(2, 3, 3, 4, 2)
    torch.testing.assert_close(outputs[-1].ballots, torch.where(mask, 2 * ratings, 0))
    assert set(outputs[-1].gate.unique().tolist()) <= {0.0, 0.5}
    assert (state.retention <= 1).all()


def test_a_gate_is_told_what_enters():
    cell = ConsensusCell(4, 3, gate=NearGate()).double()
    rounds(cell, 1)
    assert cell.gate.asked == [((2, 3, 4), (2, 3), (2, 3), (2, 3), (2, 4), (2, 4))]


def test_like_changes_parts_and_nothing_else():
    cell = ConsensusCell(4, 3, vote="borda").double()
    with torch.no_grad():
        cell.trust.bias.add_(0.3)
    other = cell.like(gate=NearGate(), trust=Trust(3, 4))
    assert {p.dtype for p in other.parameters()} == {REAL}
    assert type(other.gate) is NearGate
    assert type(other.vote) is type(cell.vote)
    assert not other.trust.bias.any()
    assert cell.trust.bias.all()
    assert type(cell.like(gate="notes").gate) is NoteGate
    with pytest.raises(ValueError, match=r"expected parts out of vote, .*, got door"):
        cell.like(door=NearGate())


@pytest.mark.parametrize("name", PARTS)
def test_it_learns_what_the_consensus_should_be(guesses, name):
    episodes = guesses(rounds=3)
    cell = ConsensusCell(episodes.dim, len(episodes.agents), **{name: PARTS[name]()})
    before = {key: value.clone() for key, value in getattr(cell, name).state_dict().items()}
    schedule = Schedule(epochs=1, pull=0.0)
    fit_cell(cell, episodes.select(range(40)), episodes.select(range(40, 60)), optimizer=LBFGS, schedule=schedule)
    after = getattr(cell, name).state_dict()
    assert any(not torch.equal(after[key], value) for key, value in before.items())


def test_a_gate_learns_what_the_memory_should_keep(tmp_path):
    episodes = planted_readings(tmp_path, reading_of(12, 30, seed=1))
    cell = ConsensusCell(DIM, 2, gate=NearGate()).double()
    before = kept(cell, episodes).share.mean()
    parts = episodes.select(range(20)), episodes.select(range(20, 30))
    fit_cell(cell, *parts, optimizer=LBFGS, schedule=Schedule("memory", epochs=4))
    assert kept(cell, episodes).share.mean() > before + 0.05


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (
            {"gate": lambda state, news: torch.ones(2, 9)},
            r"gate function: expected keep \(2, 4\) and admit \(2, 3\), got",
        ),
        (
            {"gate": lambda state, news: (torch.ones(7), 1.0)},
            r"gate function: expected keep \(2, 4\) .*\(7,\), 'float'",
        ),
        ({"gate": lambda state, news: None}, r"gate function: expected keep .*NoneType"),
        (
            {"vote": lambda ratings, mask: ratings.sum()},
            r"vote <lambda>: expected ballots of shape \(2, 3, 3\), got \(\)",
        ),
        ({"trust": lambda *_: 1.0}, r"trust function: expected a number for each voter, \(2, 3\), got float"),
        ({"gate": 3}, "gate: expected one of learned, notes, leaky, none or one of your own, got 3"),
        ({"vote": "loudest"}, "vote: expected one of quadratic, .* or one of your own, got 'loudest'"),
        ({"gate": "sticky"}, "gate: expected one of learned, notes, leaky, none or one of your own"),
        ({"trust": "blind"}, "cell: expected a trust as a module, got 'blind'"),
    ],
)
def test_what_a_part_gets_wrong_is_one_line(parts, line):
    with pytest.raises(ValueError, match=line) as caught:
        rounds(ConsensusCell(4, 3, **parts).double(), 1)
    assert "\n" not in str(caught.value)
