"""A cell fitted from Python: what it is worth on tasks it has not seen, against the same without a gate."""

import dataclasses
import json
from functools import partial

import pytest
import torch
from planted_readings import DIM, planted_readings, reading_of

from nsed_torch import ConsensusCell, fit
from nsed_torch.parts.gates import NoteGate
from nsed_torch.tuning.trainer import Schedule, fit_cell

FEW = Schedule(epochs=3, frozen=("trust.weight",))


def test_every_task_is_tested_once_and_the_cell_learns_from_all(guesses):
    episodes = guesses(tasks=60, rounds=2)
    cell = ConsensusCell(episodes.dim, len(episodes.agents))
    before = {name: value.clone() for name, value in cell.state_dict().items()}
    heard = []
    fitted = fit(cell, episodes, folds=3, schedule=FEW, report=heard.append)
    methods = fitted.comparison.methods
    assert {name: method.tasks for name, method in methods.items()} == dict.fromkeys(methods, 60)
    assert set(methods) == {"fitted", "no gate", "not fitted"}
    assert methods["fitted"].accuracy.mean > methods["not fitted"].accuracy.mean + 0.1
    assert "no gate" in str(fitted)
    assert (len(fitted.fits), len(heard)) == (3, 3)
    assert fitted.cell.agent_names == episodes.agents
    assert fitted.cell.trust.bias.argmax() == 2
    assert all(torch.equal(value, before[name]) for name, value in cell.state_dict().items())


def test_folds_by_category_keep_a_category_together(guesses, monkeypatch):
    episodes = dataclasses.replace(guesses(tasks=30), categories=tuple("abcde"[i % 5] for i in range(30)))
    seen = []

    def noted(cell, train, validation, **words):
        seen.append((set(train.categories), set(validation.categories)))
        return fit_cell(cell, train, validation, **words)

    monkeypatch.setattr("nsed_torch.tuning.fitting.fit_cell", noted)
    cell = ConsensusCell(episodes.dim, len(episodes.agents))
    fitted = fit(cell, episodes, folds=3, folds_by="category", schedule=FEW)
    assert fitted.comparison.methods["fitted"].tasks == 30
    assert all(not learned & chose for learned, chose in seen)
    assert {len(learned | chose) for learned, chose in seen[:-1]} == {3, 4}  # what is tested is in neither
    assert seen[-1][0] | seen[-1][1] == set("abcde")
    for words, line in (
        ({"folds_by": "category"}, "fit: expected from 3 to 5 folds, one category each or more, got 6"),
        ({"folds_by": "author"}, "folds_by: expected question or category, got 'author'"),
    ):
        with pytest.raises(ValueError, match=line):
            fit(cell, episodes, folds=6, **words)
    with pytest.raises(ValueError, match="folds_by: expected categories of all tasks to divide by, got none"):
        fit(cell, guesses(tasks=12), folds_by="category")


def test_recorded_answers_of_one_round_are_fitted_to(tmp_path):
    (tmp_path / "answers").mkdir()
    asked = [{"id": f"{n}", "question": f"Is it {n}?", "target": "A"} for n in range(30)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    for agent, wrong in (("ant", 2), ("bee", 3), ("cat", 5)):
        said = [{"id": f"{n}", "output": "", "answer": "B" if n % wrong == 0 else "A"} for n in range(30)]
        lines = [json.dumps(one | {"correct": one["answer"] == "A"}) + "\n" for one in said]
        (tmp_path / "answers" / f"{agent}.jsonl").write_text("".join(lines))
    fitted = fit(ConsensusCell(16, 3), tmp_path, folds=3, schedule=FEW)
    assert fitted.comparison.methods["fitted"].tasks == 30


def test_a_gate_learns_from_the_consensus_alone(guesses, monkeypatch):
    """Through what trust reads of the state, without a word about the schedule; one epoch shows it."""
    monkeypatch.setattr("nsed_torch.tuning.fitting.Schedule", partial(Schedule, epochs=1))
    episodes = guesses(tasks=12, rounds=3)
    cell = ConsensusCell(episodes.dim, len(episodes.agents))
    fitted = fit(cell, episodes, folds=3)
    assert not torch.equal(fitted.cell.gate.weight, cell.gate.weight.double())


def test_a_gate_is_fitted_to_what_a_memory_should_keep(tmp_path):
    episodes = planted_readings(tmp_path, reading_of(16, 15, seed=1))
    fitted = fit(ConsensusCell(DIM, 2, gate=NoteGate()), episodes, folds=3, schedule=Schedule("memory", epochs=3))
    means = {name: method.accuracy.mean for name, method in fitted.comparison.methods.items()}
    assert means["fitted"] > max(means["no gate"], means["not fitted"]) + 0.1


def test_what_cannot_be_fitted_is_one_line(guesses, tmp_path):
    episodes = guesses(tasks=12)
    cell = ConsensusCell(episodes.dim, len(episodes.agents))
    for given, words, line in (
        (cell, {"folds": 2}, "fit: expected from 3 to 12 folds"),
        (cell, {"folds": 13}, "fit: expected from 3 to 12 folds, one task each or more, got 13"),
        (ConsensusCell(5, 4), {}, "fit: expected a cell of dim=8, as the traces have, got 5"),
        (ConsensusCell(8, 9), {}, "fit: expected a cell of agents=4, as the traces have, got 9"),
    ):
        with pytest.raises(ValueError, match=line):
            fit(given, episodes, **words)
    with pytest.raises(ValueError, match=r"fit: expected a consensus cell, such as team\.cell\.like\(\), got str"):
        fit("runs/mine", episodes)
    with pytest.raises(ValueError, match="fit: expected traces that collect wrote, or their folders, got 3"):
        fit(cell, 3)
    with pytest.raises(ValueError, match=r"traces\.jsonl"):
        fit(cell, tmp_path)
