"""Fit a consensus cell to recorded rounds."""

import copy
import io
import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.records.files import write_files
from nsed_torch.traces.episodes import Episodes, joined
from nsed_torch.traces.rounds import elect, prepare, unroll
from nsed_torch.tuning.logs import FILE, FileLog
from nsed_torch.tuning.losses import consensus_loss, distance_from_start, reads
from nsed_torch.tuning.memory_fit import Notes

if TYPE_CHECKING:
    from nsed_torch.tuning.answer_fit import Closings

MakeOptimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]

MEMORY, ANSWER = "memory", "answer"
# Cosines of short texts lie close together: the larger pull would not let weights grow that tell them apart.
LOSSES = {"consensus": 1e-3, MEMORY: 1e-5, ANSWER: 1e-5}
"""What training can minimise, and how strongly its parameters are pulled towards the published protocol."""


@dataclass(frozen=True)
class Schedule:
    """How long and how a cell is trained."""

    # What is minimised. "consensus": surprise at the right answer. "memory": what a gate fails to keep. "answer": how
    # unlikely the target is to models that hear the notes as far as the gate retains them.
    loss: str = "consensus"
    batch: int | None = None  # tasks of a step; None is all of them
    # Of the loss "answer", memories that models read of each task, which tell what its notes are worth; 0: gradients
    # through the models; None: 24 where notes are shown alike, as no gradient passes them, else 0.
    draws: int | None = None
    options: bool = False  # of it, how likely the target is among the answers that agents gave, and not by itself
    epochs: int = 100  # at most; a fit that ends here has not converged and says so
    patience: int | None = None  # epochs without a better validation loss; None trains on and keeps the last epoch
    tolerance: float = 1e-5  # change of the objective from epoch to epoch below which training has converged
    pull: float | None = None  # weight of the squared distance from the published protocol; None is the loss's own
    firmness: Sequence[float] = (1.0,)  # how many times as strongly what reads is pulled; validation tasks choose one
    every_round: bool = False  # whether every round's consensus counts, or each task's last
    frozen: Sequence[str] = ()  # names of parameters, or their beginnings, that stay as they are
    probe: int = 10  # epochs between two looks at how the gradient spreads over parts
    checkpoint: int = 10  # epochs between two checkpoints

    def __post_init__(self) -> None:
        if not self.firmness:
            raise ValueError("training firmness: expected one or more values, got none: pass firmness=[1.0]")
        if self.loss not in LOSSES:
            raise ValueError(f"training loss: expected one of {', '.join(LOSSES)}, got {self.loss!r}")
        if self.draws is not None and (self.draws < 0 or (self.draws and self.loss != ANSWER)):
            wanted = f"expected 0, or above with loss={ANSWER}"
            raise ValueError(f"training draws: {wanted}, got {self.draws} with loss={self.loss}: correct one")
        if self.options and self.loss != ANSWER:
            raise ValueError(f"training options: expected loss={ANSWER}, got loss={self.loss}: correct one")
        if self.pull is None:
            object.__setattr__(self, "pull", LOSSES[self.loss])

    def trains(self, name: str) -> bool:
        """Whether the parameter of this name is trained.

        But with the loss `consensus` the gate's alone are: the same vote weighs notes and answers, which it must not
        lose.
        """
        return not name.startswith(tuple(self.frozen)) and (self.loss == "consensus" or name.startswith("gate."))


class Fit(NamedTuple):
    """How training went."""

    epochs: int  # that were run
    best_epoch: int  # whose parameters were kept; 0 are those before training
    loss: float  # on the validation tasks then; without any, on the training tasks
    stopped: str  # "converged", "patience", "epochs" (the cap), or "validation" (as many as were best on other tasks)

    def __str__(self) -> str:
        """One line for the terminal."""
        why = {"epochs": f"not converged after {self.epochs} epochs, raise training.epochs"}.get(
            self.stopped, f"{self.epochs} epochs, {self.stopped}"
        )
        return f"{why}, best {self.best_epoch}, loss {self.loss:.4f}"


_PROGRESS = ("_start", "_best", "_epoch", "_best_epoch", "_best_loss", "_objective", "_converged")


class CellTrainer:
    """Trains a cell on some recorded rounds and keeps the parameters that are best on others.

    Every epoch is one step on all training tasks; of a quasi-Newton optimizer (`torch.optim.LBFGS`) it is as many
    iterations as that makes in a step, and such a fit can converge. With patience the parameters of the epoch of lowest
    validation loss are kept, those before training included; without, the last.

    The cell is trained in place, with the first firmness of the schedule. In the folder stand a line per epoch
    (`log.jsonl`) and `checkpoint.pt`, with which a run that is interrupted goes on where it was and ends as an
    uninterrupted one would, bit for bit on the same machine.
    """

    def __init__(
        self,
        cell: ConsensusCell,
        train: Episodes,
        validation: Episodes | None = None,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule | None = None,
        folder: Path | None = None,
        tracker: str = FILE,
        closings: "Closings | None" = None,
    ) -> None:
        self.cell, self.train, self.validation = cell, train, validation
        self.schedule, self.closings = schedule or Schedule(), closings
        if closings is None and self.schedule.loss == ANSWER:
            raise ValueError("training loss answer: expected the team whose models answer, got none: pass team=")
        for name, parameter in cell.named_parameters():
            parameter.requires_grad_(self.schedule.trains(name))
        trained = [p for p in cell.parameters() if p.requires_grad]
        if not trained:
            frozen = f"all of them frozen by {list(self.schedule.frozen)}"
            raise ValueError(f"expected parameters to train with the loss {self.schedule.loss}, got {frozen}")
        self.optimizer = optimizer(trained)
        self.log = FileLog(folder / "log.jsonl", tracker) if folder else None
        self.checkpoint = folder / "checkpoint.pt" if folder else None
        self._start = copy.deepcopy(cell.state_dict())
        # Without parameters of their own, calibration and vote start from the same in every epoch.
        fixed = cell.calibration is None and not any(True for _ in cell.vote.parameters())
        self._prepared = prepare(cell, train) if fixed and train.round_mask.shape[1] == 1 else None
        known = self.schedule.loss == MEMORY
        parts = [part for part in (train, validation) if part is not None and self.schedule.loss != "consensus"]
        self._notes = {id(part): Notes.of(cell, part, labelled=known) for part in parts}
        if closings is not None and closings.draws and not closings.worths(train.ids, self._notes[id(train)]).any():
            wanted = f"expected tasks with more notes than the cell has slots, {cell.slots}"
            raise ValueError(f"training draws: {wanted}, got none: take fewer slots, or draws=0")
        # Where there are none, the epochs to wait for better ones on validation tasks: the last epoch is kept.
        self._patience = None if validation is None else self.schedule.patience
        self._epoch, self._best_epoch = 0, 0
        self._objective, self._converged = math.inf, False
        self._seen = math.inf  # the mean loss of the last epoch's steps
        self._best, self._best_loss = copy.deepcopy(cell.state_dict()), self._validate()
        self.began = self._best_loss  # the loss before training
        if self._notes and callable(begin := getattr(cell.gate, "begin_fit", None)):
            begin()

    def fit(self, *, resume: bool = False) -> Fit:
        """Train to the end, from the checkpoint file on if that is there and wanted."""
        if resume and self.checkpoint is not None and self.checkpoint.is_file():
            self._load(self.checkpoint)
        if self.log is not None:
            self.log.resume(self._epoch)
        while not self._stopped():
            self._epoch += 1
            record = self._train_epoch()
            loss = self._validate()
            # Small steps of another optimizer may be those of a small rate.
            still = abs(self._objective - record["objective"]) < self.schedule.tolerance
            self._converged = still and isinstance(self.optimizer, torch.optim.LBFGS)
            self._objective = record["objective"]
            if loss < self._best_loss or self._patience is None:
                self._best_epoch, self._best_loss = self._epoch, loss
                self._best = copy.deepcopy(self.cell.state_dict())
            if self.log is not None:
                self.log.write(self._epoch, record | {"validation_loss": loss})
            # The end as well: the same command again has nothing to train.
            if self.checkpoint is not None and (self._epoch % self.schedule.checkpoint == 0 or self._stopped()):
                self._save(self.checkpoint)
        if self.log is not None:
            self.log.close()
        self.cell.load_state_dict(self._best)
        return Fit(self._epoch, self._best_epoch, self._best_loss, self._stopped())

    def _stopped(self) -> str:
        """Why training is over; "" while it is not."""
        if self._converged:
            return "converged"
        if self._patience is not None and self._epoch - self._best_epoch >= self._patience:
            return "patience"
        return "epochs" if self._epoch >= self.schedule.epochs else ""

    def _train_epoch(self) -> dict[str, Any]:
        record: dict[str, Any] = {"rate": self.optimizer.param_groups[0]["lr"]}
        looks = self.schedule.probe == 1 or self._epoch % self.schedule.probe == 1
        losses: list[float] = []

        def closure(rows: Tensor | None) -> float:
            self.optimizer.zero_grad()
            loss = self._loss(self.train, rows)
            pulled = distance_from_start(self.cell, self._start, self.schedule.firmness[0])
            whole = loss + (self.schedule.pull or 0.0) * pulled
            whole.backward()
            if looks and not losses:
                record["gradient"] = gradient_norms(self.cell)
            losses.append(loss.item())
            return whole.item()

        # Before the step; a quasi-Newton optimizer evaluates more often in it.
        objectives = [float(self.optimizer.step(partial(closure, rows))) for rows in self._batches()]
        self._seen = sum(losses) / len(losses) if self.schedule.batch else losses[0]
        return record | {"loss": self._seen, "objective": sum(objectives) / len(objectives)}

    def _batches(self) -> list[Tensor | None]:
        """The tasks of each step of an epoch, in an order that the epoch draws."""
        if not self.schedule.batch:
            return [None]
        drawn = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(self._epoch))
        return list(drawn.split(self.schedule.batch))

    def _loss(self, episodes: Episodes, rows: Tensor | None = None) -> Float[Tensor, ""]:
        if id(episodes) in self._notes:
            notes, ids = self._notes[id(episodes)], episodes.ids
            if rows is not None:
                notes, ids = notes.select(rows), tuple(ids[i] for i in rows.tolist())
            return notes.loss() if self.closings is None else self.closings.loss(ids, notes)
        if rows is not None:
            episodes = episodes.select(rows)
        if episodes.round_mask.shape[1] == 1:
            election = elect(self.cell, episodes, self._prepared if episodes is self.train else None)
            return consensus_loss(election.answer_support, episodes.correct[:, 0], election.answer_mask, self.cell.beta)
        output = unroll(self.cell, episodes)
        weight = episodes.round_mask.clone()
        if not self.schedule.every_round:
            weight &= torch.arange(weight.shape[1], device=weight.device) == episodes.last[:, None]
        support, shown, weight = output.answer_support, output.answer_mask, weight.to(output.support)
        return consensus_loss(support, episodes.correct, shown, self.cell.beta, weight=weight)

    @torch.no_grad()
    def _validate(self) -> float:
        data = self.train if self.validation is None else self.validation
        if self.validation is None and self.schedule.batch:
            return self._seen  # of the steps: to read every task once more would cost as much as an epoch
        size = self.schedule.batch or len(data)
        parts = torch.arange(len(data)).split(size) if self.schedule.batch else [None]
        losses = [self._loss(data, rows).item() * (len(data) if rows is None else len(rows)) for rows in parts]
        return sum(losses) / len(data)

    def _save(self, path: Path) -> None:
        parts = {"cell": self.cell.state_dict(), "optimizer": self.optimizer.state_dict(), "run": self._run()}
        buffer = io.BytesIO()
        torch.save({**parts, **{name: getattr(self, name) for name in _PROGRESS}}, buffer)
        write_files({path: buffer.getvalue()})

    def _load(self, path: Path) -> None:
        try:
            state = torch.load(path, weights_only=True)
            known, progress = state["run"], {name: state[name] for name in _PROGRESS}
        except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: expected a checkpoint, got no such file; remove it to start anew") from error
        if known != self._run():
            raise ValueError(
                f"{path}: expected a checkpoint of this cell and these tasks, got another run's; remove it"
            )
        self.cell.load_state_dict(state["cell"])
        self.optimizer.load_state_dict(state["optimizer"])
        vars(self).update(progress)

    def _run(self) -> list[Any]:
        """What a checkpoint must fit: the cell's shape, what is trained, on what and how fast."""
        schedule = self.schedule
        return [
            *(str(self.cell), str(type(self.optimizer))),
            [name for name, p in self.cell.named_parameters() if p.requires_grad],
            *(list(self.train.ids), None if self.validation is None else list(self.validation.ids)),
            *(schedule.loss, schedule.pull, schedule.firmness[0], schedule.every_round, schedule.patience),
            *([schedule.batch] if schedule.batch else []),
            *([f"draws {self.closings.draws}"] if self.closings and self.closings.draws else []),
            *(["options"] if self.closings and self.closings.others else []),
        ]


def gradient_norms(cell: ConsensusCell) -> dict[str, float]:
    """L2 norms of the gradient by part of the cell ("gate", "trust", ...); 0 where none arrives."""
    parts: dict[str, list[Tensor]] = {}
    for name, parameter in cell.named_parameters():
        if parameter.requires_grad:
            reached = [] if parameter.grad is None else [parameter.grad]
            parts.setdefault(name.split(".")[0], []).extend(reached)
    return {part: nn.utils.get_total_norm(gradients).item() for part, gradients in parts.items()}


class Refit(NamedTuple):
    """How a cell came to be; without what was chosen where no parameter reads, so that nothing was to choose."""

    firmness: float | None  # that validation tasks chose
    chosen: Fit | None  # the fit on the training tasks that it was chosen by
    last: Fit  # the fit that made the cell

    def __str__(self) -> str:
        """One line for the terminal."""
        if self.chosen is None:
            return str(self.last)
        return f"firmness {self.firmness:g} chosen (validation {self.chosen}); in the end {self.last}"


def fit_cell(
    cell: ConsensusCell,
    train: Episodes,
    validation: Episodes,
    *,
    optimizer: MakeOptimizer,
    schedule: Schedule | None = None,
    folder: Path | None = None,
    resume: bool = False,
    refit: bool = True,
    tracker: str = FILE,
    closings: "Closings | None" = None,
) -> Refit:
    """Choose how firmly what reads is held to its start on validation tasks, then train on those, too.

    A `CellTrainer` fits a copy with each of the schedule's values; the one of least validation loss is taken, the
    firmest of equals. Where there is one value, and the fit ends worse on validation tasks than it began, as with few
    tasks and many features, firmer ones are tried, up to a million times. The cell is then fitted to training and
    validation tasks together in the same way: to convergence, or with patience for as many epochs as were best. Where
    no parameter reads and there is no patience, validation tasks have nothing to choose; without a refit the cell stays
    what they chose.

    The folder is for logs and checkpoints, with one inside for every choice; the tracker gets what logs get.
    """
    schedule = schedule or Schedule()

    def fitted(
        cell: ConsensusCell, data: Episodes, chooser: Episodes | None, firmness: float, where: Path | None, epochs: int
    ) -> tuple[Fit, float]:
        limits = replace(schedule, firmness=(firmness,), epochs=epochs)
        how: dict[str, Any] = {"optimizer": optimizer, "schedule": limits, "folder": where, "tracker": tracker}
        how["closings"] = closings
        trainer = CellTrainer(cell, data, chooser, **how)
        return trainer.fit(resume=resume), trainer.began

    reading = any(reads(name) for name, _ in cell.named_parameters() if schedule.trains(name))
    data = joined([train, validation]) if refit else train
    if not reading and schedule.patience is None:
        return Refit(None, None, fitted(cell, data, None, schedule.firmness[0], folder, schedule.epochs)[0])
    fits: dict[float, Fit] = {}
    cells, worse = {}, True
    asked = sorted(schedule.firmness if reading else schedule.firmness[:1], reverse=True)
    firmer = [(asked[0] or 1.0) * factor for factor in (10, 100, 1e4, 1e6)] if reading and len(asked) == 1 else []
    for firmness in (*asked, *firmer):
        if firmness in firmer and not worse:
            break
        where = folder / f"firmness_{firmness:g}" if folder else None
        cells[firmness] = copy.deepcopy(cell)
        fits[firmness], began = fitted(cells[firmness], train, validation, firmness, where, schedule.epochs)
        worse = worse and fits[firmness].loss > began
    best = min(fits, key=lambda one: fits[one].loss)
    chosen = fits[best]
    if not refit:
        cell.load_state_dict(cells[best].state_dict())
        return Refit(best, chosen, chosen)
    epochs = schedule.epochs if schedule.patience is None else chosen.best_epoch
    last, _ = fitted(cell, data, None, best, folder, epochs)
    # Ending where validation tasks said so is what was wanted, not a cap.
    return Refit(best, chosen, last if schedule.patience is None else last._replace(stopped="validation"))
