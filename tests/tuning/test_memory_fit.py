"""A gate that is fitted to recorded readings, and what it is held against."""

import copy
import dataclasses
from functools import partial

import pytest
import torch
from planted_readings import DIM, planted_readings, reading_of

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.functional import held
from nsed_torch.core.named import part_named
from nsed_torch.core.trust import Calibration
from nsed_torch.parts.gates import LeakyGate, OpenGate
from nsed_torch.traces.episodes import joined
from nsed_torch.traces.rounds import replay
from nsed_torch.tuning.memory_fit import LEAKS, Notes, informative, kept, rivals
from nsed_torch.tuning.trainer import Schedule, fit_cell

REAL = torch.float64
LBFGS = partial(torch.optim.LBFGS, max_iter=5, history_size=20, line_search_fn="strong_wolfe")


def fresh(slots=4, gate=None):
    return ConsensusCell(DIM, 2, slots=slots, gate=gate).double()


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return planted_readings(tmp_path_factory.mktemp("short"), reading_of(24, 30, seed=1))


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    return planted_readings(tmp_path_factory.mktemp("long"), reading_of(64, 15, seed=2))


@pytest.fixture(scope="module")
def fitted(short):
    cell = fresh(gate="notes")
    rows = torch.arange(len(short))
    schedule = Schedule("memory", tolerance=1e-2)
    fit = fit_cell(cell, short.select(rows[:24]), short.select(rows[24:]), optimizer=LBFGS, schedule=schedule)
    assert fit.last.stopped == "converged"
    return cell


def test_a_fitted_gate_keeps_more_of_what_matters_on_longer_readings(fitted, short, longer):
    assert short.round_mask.shape[1] == 24
    after, before = kept(fitted, longer), kept(fresh(), longer)
    others = {"untrained": before, **rivals(fresh(), short, longer)}
    assert set(others) == {"untrained", "no_gate", "constant_leak", "most_recent", "random"}
    for name, other in others.items():
        assert after.share.mean() > other.share.mean() + 0.2, name
        assert after.found.mean() > other.found.mean() + 0.3, name


def test_the_vote_stays_as_it_was(short):
    """Also with an optimizer that moves whatever it is given."""
    cell = ConsensusCell(DIM, 2, calibration=Calibration(2)).double()
    start = copy.deepcopy(cell.state_dict())
    decays = partial(torch.optim.AdamW, lr=0.05, weight_decay=0.5)
    fit_cell(
        cell, short.select(range(3)), short.select(range(3, 5)), optimizer=decays, schedule=Schedule("memory", epochs=2)
    )
    moved = {name for name, value in cell.state_dict().items() if not torch.equal(value, start[name])}
    assert moved
    assert all(name.startswith("gate.") for name in moved)


@pytest.mark.parametrize("kind", ["learned", "notes"])
def test_notes_fade_as_they_do_in_a_memory_with_room_for_all(short, kind):
    """Factor by factor what the cell itself comes to, whatever the gate."""
    some = short.select(range(4))
    gate = part_named("gate", kind, dtype=REAL)
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.copy_(torch.linspace(-0.4, 0.6, parameter.numel()).reshape(parameter.shape))
    roomy = fresh(slots=48, gate=gate)
    output, state = replay(roomy, some)
    notes = Notes.of(fresh(gate=gate), some)
    ours = notes.retention()[:, -1].sort(dim=1, descending=True).values
    torch.testing.assert_close(ours, state.retention[:, : ours.shape[1]])
    assert notes.there_mask[:, -1].sum() == state.mask.sum() == 4 * 24 * 2
    # Which of them matter in the end, counted from the other side.
    origin = held(output.source, 2)
    ends = some.needed.flatten(1).gather(1, origin.clamp(min=0))
    assert notes.matters[:, -1].sum() == ((ends == 24) & state.mask).sum()


def test_what_was_superseded_matters_until_then(tmp_path):
    graded = reading_of(16, 6, families={"last": {"family": "hands", "which": "last", "moves": 4}})
    episodes = planted_readings(tmp_path, graded)
    notes = Notes.of(fresh(), episodes)
    for i, task in enumerate(graded.tasks):
        told = [sum(fact.matters(r) for fact in graded.facts[task.id]) for r in range(1, 17)]
        assert notes.matters[i].sum(1).tolist() == told


def test_the_loss_has_a_gradient_for_notes_that_a_bounded_memory_lost(short):
    cell = fresh(slots=1)
    notes = Notes.of(cell, short)
    notes.loss().backward()
    assert cell.gate.weight.grad[1] < 0  # more of what the question speaks of, though one slot held the newest alone


def test_masked_rounds_change_nothing(short, tmp_path):
    mixed = planted_readings(tmp_path, reading_of(9, 3, seed=4), seed=1)
    both = joined([short.select(range(3)), mixed])
    for cell in (fresh(), fresh(gate=OpenGate())):
        alone = torch.cat([kept(cell, short.select(range(3))).share, kept(cell, mixed).share])
        torch.testing.assert_close(kept(cell, both).share, alone)
    ours = Notes.of(fresh(), both).retention()[3:, 8]
    torch.testing.assert_close(ours[:, :18], Notes.of(fresh(), mixed).retention()[:, 8])


def test_measured_by_hand(tmp_path):
    """Two needles, one agent a note: with room for two notes a memory that never fades holds the first two."""
    graded = reading_of(4, 6, families={"needles": {"needles": 2}})
    episodes = planted_readings(tmp_path, graded, agents=1, noise=1.0)
    useful = (episodes.needed[:, :, 0] == 4).double()
    first = kept(ConsensusCell(DIM, 1, slots=2, gate=OpenGate()).double(), episodes)
    assert torch.equal(first.share, useful[:, :2].mean(1))
    assert torch.equal(first.found, useful[:, :2].mean(1))
    cell = ConsensusCell(DIM, 1, slots=2).double()
    beside = rivals(cell, episodes, episodes)
    assert torch.equal(beside["most_recent"].share, useful[:, 2:].mean(1))
    assert torch.equal(beside["no_gate"].share, first.share)
    assert 0 <= beside["random"].found.mean() <= 1
    leaks = [kept(ConsensusCell(DIM, 1, slots=2, gate=LeakyGate(leak)).double(), episodes) for leak in LEAKS]
    assert beside["constant_leak"].share.mean() == pytest.approx(max(k.share.mean().item() for k in leaks))


def test_readings_in_which_nobody_noted_what_matters_are_told_apart(tmp_path):
    graded = reading_of(6, 4, families={"needles": {"needles": 1}})
    episodes = planted_readings(tmp_path, graded)
    assert informative(episodes).tolist() == [True] * 4
    blank = dataclasses.replace(episodes, needed=torch.zeros_like(episodes.needed))
    assert informative(blank).tolist() == [False] * 4


def test_faults(short):
    with pytest.raises(ValueError, match="knows which notes matter, such as tasks=reading, got others"):
        Notes.of(fresh(), dataclasses.replace(short, needed=None))
    with pytest.raises(ValueError, match="training loss: expected one of consensus, memory, answer, got 'text'"):
        Schedule("text")


def test_what_enters_is_told_apart_where_all_of_it_is_somewhat_near_the_question(tmp_path):
    """All notes come in one round: only the entry can learn, and at its start more of it is no more."""
    graded = reading_of(1, 40, families={"needles": {"needles": 1}})
    episodes = planted_readings(tmp_path, graded, agents=4, noise=1.0)
    cell = ConsensusCell(DIM, 4, slots=1, gate="notes").double()
    notes = Notes.of(cell, episodes)
    near = torch.cosine_similarity(notes.embeddings, episodes.task[:, None], dim=-1)
    assert (near[notes.there_mask[:, 0]] > 0).double().mean() > 0.9
    parts = episodes.select(range(28)), episodes.select(range(28, 40))
    fit_cell(cell, *parts, optimizer=LBFGS, schedule=Schedule("memory", epochs=20))
    fresh_cell = ConsensusCell(DIM, 4, slots=1).double()
    assert kept(fresh_cell, parts[1]).found.mean() < 0.9
    assert kept(cell, parts[1]).found.mean() == 1
