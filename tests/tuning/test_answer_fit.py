"""A gate fitted by answers alone, through the models that give them."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from planted_readings import DIM, planted_readings, reading_of
from team_traces import trace, turn
from tiny_models import tiny_model, tiny_tokenizer

from nsed_torch import ConsensusCell, MacroRNN, fit
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.parts.gates import NoteGate
from nsed_torch.records.trace import TraceWriter
from nsed_torch.traces.load import load_traces
from nsed_torch.tuning.answer_fit import Closings
from nsed_torch.tuning.memory_fit import Notes, kept, several_rounds
from nsed_torch.tuning.trainer import CellTrainer, Schedule

ADAM = partial(torch.optim.Adam, lr=0.3)


@pytest.fixture(scope="module")
def team():
    tokenizer = tiny_tokenizer(special=("<|im_start|>", "<|im_end|>"))
    shape = {"max_position_embeddings": 4096, "initializer_range": 0.3, "eos_token_id": tokenizer.eos_token_id}
    model = tiny_model(len(tokenizer), "llama", **shape)
    return MacroRNN.from_models({"ada": (model, tokenizer), "bo": (model, tokenizer)})


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    return folder, planted_readings(folder, reading_of(4, 6, seed=1))


def cell_of():
    torch.manual_seed(0)
    return ConsensusCell(DIM, 2, gate=NoteGate()).double()


@pytest.mark.parametrize("memory", ["weighted", "beside"])
def test_a_fresh_gate_has_a_gradient_and_learns_what_makes_answers_likelier(team, read, memory):
    folder, episodes = read
    closings, cell = Closings.of(team.cell.with_(protocol=Protocol(memory=memory)), [folder]), cell_of()
    notes = Notes.of(cell, episodes, labelled=False)
    loss = closings.loss(episodes.ids, notes)
    loss.backward()
    assert max(p.grad.abs().max() for p in cell.gate.parameters()) > 0
    schedule = Schedule("answer", epochs=2, batch=3, pull=0.0)
    how = CellTrainer(cell, episodes, optimizer=ADAM, schedule=schedule, closings=closings).fit()
    assert 0 < how.loss < loss.item() + 1  # the mean of the last epoch's steps
    assert -closings.scores(cell, episodes)[0].log().mean() < loss.item() - 1e-3


def test_the_loss_is_that_of_the_notes_as_the_gate_retains_them(team, read):
    folder, episodes = read
    closings, cell = Closings.of(team.cell, [folder]), cell_of()
    notes = Notes.of(cell, episodes, labelled=False)
    parts = [closings.loss([name], notes.select(torch.tensor([i]))).item() for i, name in enumerate(episodes.ids)]
    assert closings.loss(episodes.ids, notes).item() == pytest.approx(sum(parts) / len(parts), abs=1e-6)
    whole = cell.like(gate="none")
    heard = closings.loss(episodes.ids, Notes.of(whole, episodes, labelled=False)).item()
    assert abs(heard - closings.loss(episodes.ids, notes).item()) > 1e-4


def test_gradients_are_slopes_of_the_loss_where_each_task_has_a_pass_of_its_own(team, read):
    folder, episodes = read
    # Side by side notes stand in the order of their age, which does not jump as weights change.
    closings, cell = Closings.of(team.cell.with_(protocol=Protocol(memory="beside")), [folder]), cell_of()
    notes, weight = Notes.of(cell, episodes, labelled=False), cell.gate.weight

    def loss_at(step):
        with torch.no_grad():
            weight[0] += step
            value = closings.loss(episodes.ids, notes).item()
            weight[0] -= step
        return value

    closings.loss(episodes.ids, notes).backward()
    assert weight.grad[0].item() == pytest.approx((loss_at(0.05) - loss_at(-0.05)) / 0.1, rel=0.02)


@pytest.fixture
def scripted(tmp_path):
    """Closings of a model that finds the target likelier with every fact in its memory, and what it was asked."""
    graded, asked = reading_of(8, 24, families={"needles": {"needles": 2}}, seed=3), []
    facts = {task.question: graded.remembered(task) for task in graded.tasks}

    def likely(request, text):
        told = request.messages[-1].content
        missing = next(sum(f not in told for f in own) for q, own in facts.items() if q in told)
        asked.append((told, -float(missing)))
        return 2 * math.exp(-missing) - 1  # a rating, of this likelihood

    rule = ScriptedEngine(lambda request: "done", likely)
    ensemble, small = Ensemble({"rule": rule}, [Agent("ada", "rule"), Agent("bo", "rule")]), ConsensusCell(DIM, 2, 2)
    episodes = planted_readings(tmp_path, graded)
    return Closings.of(MacroRNNCell(ensemble, HashedEncoder(DIM), small), [tmp_path], draws=16), episodes, asked


def test_a_note_is_worth_what_memories_with_it_gain_over_those_without(scripted):
    closings, episodes, asked = scripted
    notes = Notes.of(ConsensusCell(DIM, 2, 4, gate=NoteGate()).double(), episodes, labelled=False)
    worths = closings.worths(episodes.ids, notes)
    assert len(asked) == 16 * len(episodes)
    rounds, width = closings.transcripts[episodes.ids[0]].rounds, notes.news[0].mask.shape[1]
    for column in notes.there_mask[0, -1].nonzero()[:, 0].tolist():
        place = notes.place[0, column].item()
        text = rounds[place // width].proposals[place % width].text
        within, without = ([v for told, v in asked[:16] if (text in told) == there] for there in (True, False))
        gain = sum(within) / len(within) - sum(without) / len(without) if within and without else 0.0
        assert worths[0, column].item() == pytest.approx(gain, abs=1e-6)
    assert worths.abs().max() > 0.5
    closings.loss(episodes.ids, notes).backward()
    assert closings.worths(episodes.ids, notes).equal(worths)
    assert len(asked) == 16 * len(episodes)  # each memory was read once
    assert notes.cell.gate.weight.grad.abs().max() > 0


def test_among_options_a_target_is_as_likely_as_its_share(scripted):
    closings, episodes, _ = scripted
    cell = ConsensusCell(DIM, 2, 2, gate=NoteGate()).double()
    (alone,) = closings.scores(cell, episodes)
    # This engine finds every text as likely as the target: two of them halve it, and neither is the likeliest.
    rivals = replace(closings, others=dict.fromkeys(episodes.ids[:-1], ("another",)))
    right, chances = rivals.scores(cell, episodes)
    assert chances[:-1].tolist() == pytest.approx([0.5] * (len(episodes) - 1))
    assert right.tolist() == [0.0] * (len(episodes) - 1) + [1.0]  # of the last nobody gave a wrong answer
    assert chances[-1] == alone[-1]
    assert rivals.what[0].startswith("share whose target is the likeliest")


def test_options_are_told_apart_through_the_models(team, read):
    folder, episodes = read
    notes = Notes.of(cell := cell_of(), episodes, labelled=False)
    plain = Closings.of(team.cell.with_(protocol=Protocol(memory="weighted")), [folder])
    others = dict.fromkeys(episodes.ids, ("a box", "somebody else"))
    closings = replace(plain, others=others)
    ids = episodes.ids
    retained = notes.retention()[torch.arange(len(ids)), closings._last(ids, notes)]
    expected = [
        closings._each_heard(name, texts, retained[i, columns]).log_softmax(0)[0]
        for i, (name, (texts, columns)) in enumerate(zip(ids, closings._held(ids, notes), strict=True))
    ]
    assert closings.loss(ids, notes).item() == pytest.approx(-torch.stack(expected).mean().item(), abs=1e-6)
    assert closings.loss(ids, notes).item() != pytest.approx(plain.loss(ids, notes).item(), abs=1e-3)
    closings.loss(ids, notes).backward()
    assert cell.gate.weight.grad.abs().max() > 0


def test_options_are_the_wrong_answers_that_were_recorded(team, tmp_path):
    first, second = turn(["yes", "no"]), turn(["maybe", "no"])
    writer = TraceWriter(tmp_path)
    for made in (trace("one", first, second), trace("two", first, first)):
        object.__setattr__(made.transcript, "task", replace(made.transcript.task, target="yes"))
        writer.add([made])
    writer.finish(HashedEncoder(DIM).embed)
    told = {"one": ("no", "maybe"), "two": ("no",)}
    assert Closings.of(team.cell, [tmp_path], options=True).others == told
    assert Closings.of(team.cell, [tmp_path]).others == {}
    with pytest.raises(ValueError, match="training options: expected loss=answer, got loss=memory: correct one"):
        Schedule("memory", options=True)


def test_tasks_of_one_round_have_nothing_to_learn_from(tmp_path):
    turns = turn(["yes", "no"], ratings=[[None, 0.5], [0.5, None]])
    writer = TraceWriter(tmp_path)
    writer.add([trace("one", turns, backbones="xy"), trace("two", turns, turns, backbones="xy")])
    writer.finish(HashedEncoder(DIM).embed)
    held = load_traces(tmp_path)
    assert several_rounds(held).ids == ("two",)
    with pytest.raises(ValueError, match="loss answer: expected tasks with inputs, or two rounds or more, got none"):
        several_rounds(held.select([0]))


def test_where_nothing_is_displaced_there_is_nothing_to_learn(team, read):
    folder, episodes = read
    roomy = ConsensusCell(DIM, 2, 64, gate=NoteGate()).double()
    how = {"optimizer": ADAM, "closings": Closings.of(team.cell, [folder], draws=2)}
    with pytest.raises(ValueError, match="expected tasks with more notes than the cell has slots, 64, got none: take"):
        CellTrainer(roomy, episodes, schedule=Schedule("answer", draws=2), **how)
    with pytest.raises(ValueError, match="training draws: expected 0, or above with loss=answer, got 2 with loss=mem"):
        Schedule("memory", draws=2)


def test_what_notes_are_worth_teaches_a_gate_what_should_stay(scripted):
    closings, episodes, _ = scripted
    small = ConsensusCell(DIM, 2, 2, gate=NoteGate()).double()
    before = kept(small, episodes).found.mean()
    schedule = Schedule("answer", epochs=40, draws=16)
    CellTrainer(small, episodes, optimizer=ADAM, schedule=schedule, closings=closings).fit()
    assert kept(small, episodes).found.mean() > before + 0.2


@pytest.mark.parametrize("draws", [0, 2])
def test_an_interrupted_fit_ends_as_a_straight_one(team, read, tmp_path, draws):
    folder, episodes = read
    closings = Closings.of(team.cell, [folder], draws)

    def fitted(where, epochs, *, resume=False):
        cell = ConsensusCell(DIM, 2, 2, gate=NoteGate()).double()
        schedule = Schedule("answer", epochs=epochs, batch=4, checkpoint=1, draws=draws)
        how = {"optimizer": ADAM, "schedule": schedule, "folder": where, "closings": closings}
        CellTrainer(cell, episodes, **how).fit(resume=resume)
        return cell.state_dict()

    straight = fitted(tmp_path / "a", 2)
    fitted(tmp_path / "b", 1)
    several_rounds = fitted(tmp_path / "b", 2, resume=True)
    assert all(torch.equal(value, several_rounds[name]) for name, value in straight.items())


def test_fit_shows_a_table_and_needs_a_team(team, read):
    folder, _ = read
    schedule = Schedule("answer", epochs=1, batch=4)
    fitted = fit(cell_of(), folder, folds=3, loss="answer", team=team, schedule=schedule)
    assert "probability of the target" in str(fitted)
    means = {name: method.accuracy.mean for name, method in fitted.comparison.methods.items()}
    assert all(0 < mean < 1 for mean in means.values())
    assert means["fitted"] != means["no gate"]
    small = ConsensusCell(DIM, 2, 2, gate=NoteGate()).double()
    shown = fit(small, folder, folds=3, loss="answer", team=team)  # by random memories, for L-BFGS
    assert "probability of the target" in str(shown)
    assert not torch.equal(shown.cell.gate.weight, small.gate.weight)
    assert "converged" in str(shown.fits[0])
    with pytest.raises(
        ValueError, match="fit: expected a team and folders of traces for loss='answer', got none: pass"
    ):
        fit(cell_of(), folder, folds=3, loss="answer")


def test_a_team_elsewhere_and_traces_without_a_target_are_one_line(team, read, monkeypatch):
    folder, episodes = read
    name = episodes.ids[0]
    told = Closings.of(team.cell, [folder]).transcripts
    monkeypatch.setattr("nsed_torch.tuning.answer_fit.read_traces", lambda folder: [_Bare(told[name])])
    with pytest.raises(ValueError, match=f"expected tasks with a target, got none for '{name}': leave it out"):
        Closings.of(team.cell, [folder])


class _Bare:
    def __init__(self, transcript):
        self.transcript = type(transcript)(
            **{**vars(transcript), "task": type(transcript.task)("?", id=transcript.task.id)}
        )
