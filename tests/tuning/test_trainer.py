"""Training: it learns whom to trust, stops in time, and goes on after an interruption as if there had been none."""

import copy
import dataclasses
import json
import math
import os
from dataclasses import replace
from functools import partial

import pytest
import torch
from planted_rounds import planted

from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.trust import Calibration
from nsed_torch.parts.gates import NoteGate
from nsed_torch.parts.reading import Reading
from nsed_torch.traces.episodes import joined
from nsed_torch.traces.rounds import elect, prepare, unroll, winners_correct
from nsed_torch.tuning.logs import FileLog
from nsed_torch.tuning.losses import consensus_loss, distance_from_start
from nsed_torch.tuning.trainer import CellTrainer, Fit, Refit, Schedule, fit_cell

ADAM = partial(torch.optim.Adam, lr=0.05)
LBFGS = partial(torch.optim.LBFGS, max_iter=5, history_size=20, tolerance_grad=1e-7, line_search_fn="strong_wolfe")


def trainer(guesses, cell, rounds=1, **kwargs):
    kwargs.setdefault("optimizer", ADAM)
    return CellTrainer(cell, guesses(60, rounds), guesses(20, rounds, seed=1), **kwargs)


def test_finds_the_one_who_knows(guesses):
    cell, test = ConsensusCell(8, 4), guesses(80, seed=2)
    before = winners_correct(cell, test).float().mean()
    fit = trainer(guesses, cell, schedule=Schedule(epochs=40)).fit()
    after = winners_correct(cell, test).float().mean()
    assert after > before + 0.3
    assert cell.trust.bias.argmax() == 2
    assert 0 < fit.best_epoch <= fit.epochs <= 40
    assert trainer(guesses, cell)._validate() == pytest.approx(fit.loss)


def test_the_best_epoch_is_kept_and_patience_ends_training(guesses):
    cell = ConsensusCell(8, 4)
    fresh = {name: value.clone() for name, value in cell.state_dict().items()}
    # Uphill from the start: nothing gets better than no training.
    uphill = partial(torch.optim.SGD, lr=0.1, maximize=True)
    fit = trainer(guesses, cell, optimizer=uphill, schedule=Schedule(patience=3)).fit()
    assert (fit.best_epoch, fit.epochs, fit.stopped) == (0, 3, "patience")
    for name, value in cell.state_dict().items():
        assert torch.equal(value, fresh[name])


def test_pull_keeps_near_the_protocol(guesses):
    far, near = (ConsensusCell(8, 4) for _ in range(2))
    for cell, pull in ((far, 0.0), (near, 1.0)):
        trainer(guesses, cell, schedule=Schedule(epochs=25, pull=pull)).fit()
    assert 0 < near.trust.bias.norm() < 0.5 * far.trust.bias.norm()


def test_frozen_parameters_stay(guesses):
    cell = ConsensusCell(8, 4)
    trainer(guesses, cell, rounds=2, schedule=Schedule(epochs=10, frozen=["trust.weight", "backing"])).fit()
    assert (cell.trust.weight == 0).all()
    assert cell.backing == 0
    assert (cell.trust.bias != 0).any()
    with pytest.raises(ValueError, match="parameters to train with the loss consensus, got all of them frozen"):
        trainer(guesses, cell, schedule=Schedule(frozen=[""]))


class Interrupted(Exception):
    """Stands for a kill."""


@pytest.fixture
def bomb(monkeypatch):
    """`bomb(n)` interrupts the n-th line that is logged."""

    def plant(lines):
        left, write = iter(range(1, lines)), FileLog.write

        def explode(log, step, record):
            if next(left, None) is None:
                monkeypatch.setattr(FileLog, "write", write)
                raise Interrupted
            write(log, step, record)

        monkeypatch.setattr(FileLog, "write", explode)

    return plant


@pytest.mark.parametrize("stop", [2, 5])
def test_a_resumed_run_equals_a_straight_one(guesses, tmp_path, bomb, stop):
    def run(folder, resume=False):
        torch.manual_seed(0)
        cell = ConsensusCell(8, 4, gate=NoteGate())
        schedule = Schedule(epochs=6, checkpoint=3, probe=2, every_round=True)
        return cell, trainer(guesses, cell, rounds=2, schedule=schedule, folder=folder).fit(resume=resume)

    straight, fit = run(tmp_path / "straight")
    bomb(stop)
    with pytest.raises(Interrupted):
        run(tmp_path / "broken")
    assert (tmp_path / "broken/checkpoint.pt").exists() is (stop > 3)
    resumed, again = run(tmp_path / "broken", resume=True)
    assert again == fit
    same(resumed, straight, tmp_path)


def same(resumed, straight, folder):
    """Equal parameters, and equal logs of the folders `straight` and `broken`."""
    for mine, other in zip(resumed.state_dict().values(), straight.state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    logs = list((folder / "straight").rglob("log.jsonl"))
    assert logs
    for path in logs:
        assert path.read_text() == (folder / "broken" / path.relative_to(folder / "straight")).read_text()


def test_the_log_tells_rates_losses_and_which_parts_gradients_reach(guesses, tmp_path):
    cell = ConsensusCell(8, 4)
    with torch.no_grad():
        cell.trust.weight += 0.5  # from here the state speaks into the vote
    schedule = Schedule(epochs=3, probe=2)
    trainer(guesses, cell, rounds=4, schedule=schedule, folder=tmp_path).fit()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [("gradient" in line) for line in lines] == [True, False, True]
    assert set(lines[0]["gradient"]) == {part.split(".")[0] for part, _ in cell.named_parameters()}
    assert all(norm > 0 for part, norm in lines[0]["gradient"].items() if part != "backing")
    assert lines[0]["rate"] == 0.05
    assert lines[2]["loss"] < lines[0]["loss"]


def test_a_foreign_or_broken_checkpoint_is_refused(guesses, tmp_path):
    path = tmp_path / "checkpoint.pt"
    trainer(guesses, ConsensusCell(8, 4), schedule=Schedule(epochs=2, checkpoint=1), folder=tmp_path).fit()
    other = trainer(guesses, ConsensusCell(8, 4, slots=2), folder=tmp_path)
    with pytest.raises(ValueError, match="checkpoint of this cell and these tasks, got another run's; remove it"):
        other.fit(resume=True)
    marker = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    torch.save({"run": Bomb()}, tmp_path / "bomb.pt")
    for content in (b"no checkpoint", (tmp_path / "bomb.pt").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"checkpoint\.pt: expected a checkpoint, got no such file; remove it"):
            other.fit(resume=True)
        assert not marker.exists()


BAD = [("epochs", 0), ("patience", 1.5), ("probe", 0), ("checkpoint", 0), ("tolerance", -1.0), ("firmness", 3.0)]
BAD += [("firmness", value) for value in ([], [-1.0], [1e-3, math.inf], [math.nan])]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_schedules(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected .*, got "):
        instantiate({"_target_": "nsed_torch.tuning.trainer.Schedule", name: value})


def test_winners_where_nobody_answered_are_wrong(guesses):
    episodes = guesses(5)
    episodes.proposal_mask[0] = False
    episodes.vote_mask[0] = False
    right = winners_correct(ConsensusCell(8, 4), episodes)
    assert not right[0]
    assert unroll(ConsensusCell(8, 4), episodes).winner[0, 0] == -1


@pytest.mark.parametrize("rounds", [1, 2])
def test_convergence_is_reported_and_is_a_minimum(guesses, rounds):
    cell = ConsensusCell(8, 4).double()
    episodes = in_double(guesses(60, rounds))
    made = CellTrainer(cell, episodes, optimizer=LBFGS, schedule=Schedule(epochs=200, tolerance=1e-10, pull=1e-2))
    fit = made.fit()
    assert fit.stopped == "converged"
    assert fit.best_epoch == fit.epochs < 200
    assert str(fit).startswith(f"{fit.epochs} epochs, converged, best {fit.epochs}, loss 0.")
    assert fit.loss == pytest.approx(made._validate())
    fresh = ConsensusCell(8, 4).double().state_dict()
    found = unroll(cell, episodes)
    last = [field[:, -1] for field in (found.answer_support, episodes.correct, found.answer_mask)]
    loss = consensus_loss(*last, cell.beta)
    assert loss.item() == pytest.approx(fit.loss)
    for slope in torch.autograd.grad(loss + 1e-2 * distance_from_start(cell, fresh), list(cell.parameters())):
        assert slope.abs().max() < 1e-3


def test_the_cap_is_reported(guesses):
    fit = trainer(guesses, ConsensusCell(8, 4), schedule=Schedule(epochs=3)).fit()
    assert (fit.epochs, fit.stopped) == (3, "epochs")
    assert str(fit).startswith("not converged after 3 epochs, raise training.epochs, best ")
    other = trainer(guesses, ConsensusCell(8, 4), schedule=Schedule(epochs=2))
    assert other.fit()[0::3] == (2, "epochs")
    # No epoch at all leaves the cell as it is.
    cell = ConsensusCell(8, 4)
    assert trainer(guesses, cell, schedule=Schedule(epochs=0)).fit().epochs == 0
    assert not cell.trust.bias.any()


def test_a_quasi_newton_optimizer_finds_what_adam_finds(guesses):
    found = {}
    for name, optimizer, epochs in (("lbfgs", LBFGS, 60), ("adam", ADAM, 400)):
        cell = ConsensusCell(8, 4).double()
        schedule = Schedule(epochs=epochs, tolerance=1e-9, frozen=["trust.weight"])
        made = CellTrainer(cell, in_double(guesses(60)), optimizer=optimizer, schedule=replace(schedule, pull=1e-2))
        found[name] = made.fit().loss, cell.trust.bias.tolist()
    assert found["lbfgs"][0] == pytest.approx(found["adam"][0], abs=1e-3)
    assert found["lbfgs"][1] == pytest.approx(found["adam"][1], abs=0.03)


def test_what_is_prepared_once_decides_as_what_is_prepared_every_time(guesses):
    episodes, cell = guesses(30), ConsensusCell(8, 4)
    with torch.no_grad():
        cell.trust.bias.copy_(torch.tensor([0.5, -0.2, 0.1, 0.0]))
    for mine, other in zip(elect(cell, episodes), elect(cell, episodes, prepared=prepare(cell, episodes)), strict=True):
        assert torch.equal(mine, other)
    # A calibration that learns is never taken for one that stays.
    cell = ConsensusCell(8, 4, calibration=Calibration(4))
    CellTrainer(cell, episodes, optimizer=ADAM, schedule=Schedule(epochs=3)).fit()
    assert (cell.calibration.scale != 1).any()


def test_whoever_is_always_wrong_is_trusted_below_zero():
    """Two judges that tell right from wrong more often than not, and one that always says the opposite."""
    train, test = (liars(seed=seed) for seed in (0, 1))
    cell = ConsensusCell(4, 3).double()
    before = winners_correct(cell, test).double().mean()
    schedule = Schedule(frozen=["trust.weight"])
    fit = CellTrainer(cell, train, optimizer=LBFGS, schedule=schedule).fit()
    assert fit.stopped == "converged"
    trust = elect(cell, test).trust[0]
    assert trust[2] < 0 < trust[:2].min()
    after = winners_correct(cell, test).double().mean()
    assert after > before + 0.2
    # Better than if nobody heard the liar at all.
    with torch.no_grad():
        cell.trust.bias[2] = -1
    assert after > winners_correct(cell, test).double().mean()


def test_validation_tasks_choose_the_firmness_and_the_last_fit_learns_from_them_too(guesses, tmp_path):
    train, validation = guesses(60), renamed(guesses(20, seed=1))
    schedule = Schedule(epochs=6, pull=1e-2, firmness=[1.0, 1e4, 100.0])
    cell = ConsensusCell(8, 4)
    found = fit_cell(cell, train, validation, optimizer=LBFGS, schedule=schedule, folder=tmp_path)
    names = {path.parent.name for path in tmp_path.rglob("log.jsonl")}
    assert names == {"firmness_10000", "firmness_100", "firmness_1", tmp_path.name}
    fits = {}
    for firmness in schedule.firmness:
        copied = ConsensusCell(8, 4)
        trainer = CellTrainer(
            copied, train, validation, optimizer=LBFGS, schedule=replace(schedule, firmness=[firmness])
        )
        fits[firmness] = trainer.fit()
    assert found.firmness == min(fits, key=lambda firmness: fits[firmness].loss)
    assert found.chosen == fits[found.firmness]
    # By hand: both together.
    both, again = joined([train, validation]), ConsensusCell(8, 4)
    last = CellTrainer(again, both, optimizer=LBFGS, schedule=replace(schedule, firmness=[found.firmness])).fit()
    assert found.last == last
    for mine, other in zip(cell.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    assert cell.trust.bias.argmax() == 2
    lines = (tmp_path / f"firmness_{found.firmness:g}/log.jsonl").read_text().splitlines()
    assert len(lines) == found.chosen.epochs
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == found.last.epochs


def test_features_that_tell_nothing_are_held_until_they_do_no_harm():
    g = torch.Generator().manual_seed(3)
    names = [f"f{i}" for i in range(30)]
    parts = []
    for seed in (1, 2):
        part = planted(60, 3, seed=seed, knows=0.5, guesses=0.5, judge=0.75)
        noise = torch.randn(60, 1, 3, len(names), generator=g, dtype=torch.float64)
        ids = tuple(f"{seed} {name}" for name in part.ids)
        parts.append(replace(part, ids=ids, features=noise, feature_names=tuple(names)))
    cell = ConsensusCell(4, 3, reading=Reading(3, names)).double()
    schedule = Schedule(epochs=20, frozen=["trust.weight"], firmness=[1.0])
    began = CellTrainer(copy.deepcopy(cell), *parts, optimizer=LBFGS, schedule=schedule).began
    found = fit_cell(copy.deepcopy(cell), *parts, optimizer=LBFGS, schedule=schedule)
    once = CellTrainer(cell, *parts, optimizer=LBFGS, schedule=schedule).fit()
    assert found.firmness > 1
    assert found.chosen.loss - began < (once.loss - began) / 3


def test_where_nothing_reads_there_is_nothing_to_choose(guesses):
    train, validation = guesses(60), renamed(guesses(20, seed=1))
    schedule = Schedule(epochs=5, frozen=["trust.weight"], firmness=[1.0, 10.0])
    cell, again = ConsensusCell(8, 4), ConsensusCell(8, 4)
    found = fit_cell(cell, train, validation, optimizer=LBFGS, schedule=schedule)
    assert (found.firmness, found.chosen) == (None, None)
    last = CellTrainer(again, joined([train, validation]), optimizer=LBFGS, schedule=schedule).fit()
    assert found.last == last
    assert str(found) == str(last)


def test_what_reads_is_held_more_firmly(guesses):
    far, near = ConsensusCell(8, 4), ConsensusCell(8, 4)
    for cell, firmness in ((far, 1.0), (near, 100.0)):
        trainer(guesses, cell, optimizer=LBFGS, schedule=Schedule(epochs=10, pull=1e-2, firmness=[firmness])).fit()
    assert near.trust.weight.norm() < far.trust.weight.norm() / 5
    assert near.trust.bias.norm() > far.trust.bias.norm() / 5


def test_of_equals_the_firmest_is_taken_and_no_better_validation_means_no_training(guesses):
    train, validation = guesses(30), renamed(guesses(20, seed=1))
    uphill = partial(torch.optim.SGD, lr=0.1, maximize=True)
    cell = ConsensusCell(8, 4)
    schedule = Schedule(patience=2, firmness=[0.0, 0.5, 0.1])
    found = fit_cell(cell, train, validation, optimizer=uphill, schedule=schedule)
    assert found.firmness == 0.5
    assert (found.chosen.best_epoch, found.chosen.stopped) == (0, "patience")
    assert (found.last.epochs, found.last.stopped) == (0, "validation")
    assert not cell.trust.bias.any()


def test_how_a_cell_came_to_be_is_one_line():
    chosen = Fit(12, 2, 0.25, "patience")
    assert str(Refit(3.0, chosen, Fit(2, 2, 0.5, "validation"))) == (
        "firmness 3 chosen (validation 12 epochs, patience, best 2, loss 0.2500); "
        "in the end 2 epochs, validation, best 2, loss 0.5000"
    )
    assert "in the end not converged after 9 epochs" in str(Refit(0.1, chosen, Fit(9, 9, 0.5, "epochs")))


@pytest.mark.parametrize("stop", [3, 12])
def test_a_resumed_choice_equals_a_straight_one(guesses, tmp_path, bomb, stop):
    """Interrupted in one of several fits, with curvature kept between epochs."""
    train, validation = guesses(40), renamed(guesses(20, seed=1))

    def run(folder, resume=False):
        cell = ConsensusCell(8, 4)
        schedule = Schedule(epochs=8, firmness=[10.0, 1.0], checkpoint=2, tolerance=0.0)
        optimizer = partial(LBFGS, max_iter=1)
        how = {"optimizer": optimizer, "schedule": schedule, "folder": folder, "resume": resume}
        return cell, fit_cell(cell, train, validation, **how)

    straight, fit = run(tmp_path / "straight")
    checkpoints = {path.parent.name for path in (tmp_path / "straight").rglob("checkpoint.pt")}
    assert checkpoints == {"straight", "firmness_10", "firmness_1"}
    bomb(stop)
    with pytest.raises(Interrupted):
        run(tmp_path / "broken")
    resumed, again = run(tmp_path / "broken", resume=True)
    assert again == fit
    same(resumed, straight, tmp_path)


def in_double(episodes):
    """The same rounds in float64."""
    names = ("task", "embeddings", "ratings", "cost")
    return dataclasses.replace(episodes, **{name: getattr(episodes, name).double() for name in names})


def renamed(episodes):
    """The same rounds of other tasks."""
    return dataclasses.replace(episodes, ids=tuple(f"other {name}" for name in episodes.ids))


def liars(seed, tasks=200):
    """Planted rounds in which two agents judge rightly two times in three, and the third never."""
    found = planted(tasks, 3, seed=seed, knows=1.0, guesses=0.3)
    g = torch.Generator().manual_seed(seed + 100)
    tells = torch.rand(tasks, 1, 3, 1, generator=g) < torch.tensor([0.67, 0.67, 0.0])[:, None]
    return dataclasses.replace(found, ratings=torch.where(found.correct[:, :, None] == tells, 0.5, -0.5).double())
