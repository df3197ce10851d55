"""Training: it learns whom to trust, stops in time, and goes on after an interruption as if there had been none."""

import json
from functools import partial

import pytest
import torch

from nsed_torch.nn import ConsensusCell, ForgetGate
from nsed_torch.training.logs import FileLog
from nsed_torch.training.trainer import CellTrainer, Schedule, unroll, winners_correct

ADAM = partial(torch.optim.Adam, lr=0.05)


def trainer(guesses, cell, rounds=1, **kwargs):
    kwargs.setdefault("optimizer", ADAM)
    return CellTrainer(cell, guesses(60, rounds), guesses(20, rounds, seed=1), **kwargs)


def test_finds_the_one_who_knows(guesses):
    cell, test = ConsensusCell(8, 4), guesses(80, seed=2)
    before = winners_correct(cell, test).float().mean()
    fit = trainer(guesses, cell, schedule=Schedule(epochs=40)).fit()
    after = winners_correct(cell, test).float().mean()
    assert after > before + 0.3
    assert cell.reliability.bias.argmax() == 2
    assert 0 < fit.best_epoch <= fit.epochs <= 40
    assert trainer(guesses, cell)._validate() == pytest.approx(fit.validation_loss)


def test_the_best_epoch_is_kept_and_patience_ends_training(guesses):
    cell = ConsensusCell(8, 4)
    fresh = {name: value.clone() for name, value in cell.state_dict().items()}
    # Uphill from the start: nothing gets better than no training.
    uphill = partial(torch.optim.SGD, lr=0.1, maximize=True)
    fit = trainer(guesses, cell, optimizer=uphill, schedule=Schedule(patience=3)).fit()
    assert (fit.best_epoch, fit.epochs) == (0, 3)
    for name, value in cell.state_dict().items():
        assert torch.equal(value, fresh[name])


def test_pull_keeps_near_the_protocol(guesses):
    far, near = (ConsensusCell(8, 4) for _ in range(2))
    for cell, pull in ((far, 0.0), (near, 1.0)):
        trainer(guesses, cell, schedule=Schedule(epochs=25, pull=pull)).fit()
    assert 0 < near.reliability.bias.norm() < 0.5 * far.reliability.bias.norm()


def test_frozen_parameters_stay(guesses):
    cell = ConsensusCell(8, 4)
    trainer(guesses, cell, rounds=2, schedule=Schedule(epochs=10, frozen=["reliability.weight", "kappa"])).fit()
    assert (cell.reliability.weight == 0).all()
    assert cell.kappa == 0
    assert (cell.reliability.bias != 0).any()
    with pytest.raises(ValueError, match="parameters to train, got all of them frozen"):
        trainer(guesses, cell, schedule=Schedule(frozen=[""]))


@pytest.mark.parametrize("stop", [2, 5])
def test_a_resumed_run_equals_a_straight_one(guesses, tmp_path, stop):
    class Interrupted(Exception):
        """Stands for a kill."""

    class Bomb:
        def write(self, step, record):
            if step == stop:
                raise Interrupted

        def resume(self, step):
            pass

        def close(self):
            pass

    def run(folder, resume=False, bomb=False):
        torch.manual_seed(0)
        cell = ConsensusCell(8, 4, gate=ForgetGate("vector", dim=8))
        logs = [FileLog(folder / "log.jsonl"), *([Bomb()] if bomb else [])]
        made = trainer(
            guesses,
            cell,
            rounds=2,
            scheduler=partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=6),
            schedule=Schedule(epochs=6, batch_size=32, checkpoint=3, probe=2, every_round=True),
            logs=logs,
            checkpoint=folder / "checkpoint.pt",
        )
        return cell, made.fit(resume=resume)

    straight, fit = run(tmp_path / "straight")
    with pytest.raises(Interrupted):
        run(tmp_path / "broken", bomb=True)
    resumed, again = run(tmp_path / "broken", resume=True)
    assert again == fit
    for mine, other in zip(resumed.state_dict().values(), straight.state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    assert (tmp_path / "broken/log.jsonl").read_text() == (tmp_path / "straight/log.jsonl").read_text()


def test_the_log_tells_rates_losses_and_how_far_gradients_reach(guesses, tmp_path):
    cell = ConsensusCell(8, 4)
    with torch.no_grad():
        cell.kappa += 0.5  # from here the state speaks into the vote
    schedule = Schedule(epochs=3, probe=2)
    trainer(guesses, cell, rounds=4, schedule=schedule, logs=[FileLog(tmp_path / "log.jsonl")]).fit()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [("gradient" in line) for line in lines] == [True, False, True]
    # The first two rounds have one voter and two: a ballot of one entry is a sign, which has no slope.
    assert lines[0]["gradient"]["rounds"][:2] == [0, 0]
    assert all(norm > 0 for norm in lines[0]["gradient"]["rounds"][2:])
    assert lines[0]["gradient"]["parts"]["gate"] > 0
    assert lines[0]["rate"] == 0.05
    assert lines[2]["loss"] < lines[0]["loss"]


def test_a_foreign_or_broken_checkpoint_is_refused(guesses, tmp_path):
    path = tmp_path / "checkpoint.pt"
    trainer(guesses, ConsensusCell(8, 4), schedule=Schedule(epochs=2, checkpoint=1), checkpoint=path).fit()
    other = trainer(guesses, ConsensusCell(8, 4, slots=2), checkpoint=path)
    with pytest.raises(ValueError, match="checkpoint of this cell and these tasks, got another run's; remove it"):
        other.fit(resume=True)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint\.pt: expected a checkpoint, got no such file; remove it"):
        other.fit(resume=True)


@pytest.mark.parametrize(("name", "value"), [("epochs", 0), ("patience", 1.5), ("batch_size", 0), ("pull", -1.0)])
def test_bad_schedules(name, value):
    with pytest.raises(ValueError, match=f"training {name}: expected .* at least .*, got {value}"):
        Schedule(**{name: value})


def test_winners_where_nobody_answered_are_wrong(guesses):
    episodes = guesses(5)
    episodes.proposal_mask[0] = False
    episodes.vote_mask[0] = False
    right = winners_correct(ConsensusCell(8, 4), episodes)
    assert not right[0]
    assert unroll(ConsensusCell(8, 4), episodes).winner[0, 0] == -1
