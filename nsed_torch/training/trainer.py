"""Fit a consensus cell to recorded rounds."""

import copy
import io
import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nsed_torch.benchmarks import Episodes
from nsed_torch.nn import ConsensusCell, ConsensusOutput, gradient_probe
from nsed_torch.records.files import write_bytes
from nsed_torch.training.logs import Log
from nsed_torch.training.losses import consensus_loss, distance_from_start

MakeOptimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
MakeScheduler = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]


@dataclass(frozen=True)
class Schedule:
    """How long and how a cell is trained.

    Args:
        epochs: at most.
        patience: epochs without a better validation loss before training stops.
        batch_size: tasks of one step; None takes all at once.
        pull: weight of the squared distance from the published protocol.
        every_round: whether every round's consensus counts, or each task's last.
        frozen: names of parameters, or their beginnings, that stay as they are.
        probe: epochs between two looks at how gradients spread over rounds and parts.
        checkpoint: epochs between two checkpoints.

    Raises:
        ValueError: if a number is out of range.
    """

    epochs: int = 400
    patience: int = 60
    batch_size: int | None = None
    pull: float = 1e-3
    every_round: bool = False
    frozen: Sequence[str] = ()
    probe: int = 50
    checkpoint: int = 50

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "probe", "checkpoint"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"training {name}: expected a whole number of at least 1, got {value}")
        if not 0 <= self.pull < math.inf:
            raise ValueError(f"training pull: expected a value of at least 0, got {self.pull}")


class Fit(NamedTuple):
    """How training went.

    Args:
        epochs: that were run.
        best_epoch: whose parameters were kept; 0 are those before training.
        validation_loss: then.
    """

    epochs: int
    best_epoch: int
    validation_loss: float


def unroll(cell: ConsensusCell, episodes: Episodes, ratings: Tensor | None = None) -> ConsensusOutput:
    """The cell's decisions in every recorded round.

    Args:
        cell: built for the episodes' width and agents.
        episodes: recorded rounds.
        ratings: in place of the recorded ones.
    """
    output, _ = cell.unroll(
        episodes.embeddings,
        episodes.ratings if ratings is None else ratings,
        episodes.vote_mask,
        episodes.task,
        voters=episodes.voters.clamp(min=0),
        authors=episodes.authors,
        proposal_mask=episodes.proposal_mask,
        voter_mask=episodes.voter_mask,
        round_mask=episodes.round_mask,
    )
    return output


@torch.no_grad()
def winners_correct(cell: ConsensusCell, episodes: Episodes) -> Bool[Tensor, "batch"]:
    """Whether the winner of each task's last round is right; False where nobody answered."""
    rows = torch.arange(len(episodes), device=episodes.task.device)
    winner = unroll(cell, episodes).winner[rows, episodes.last]
    return episodes.correct[rows, episodes.last, winner.clamp(min=0)] & (winner >= 0)


class CellTrainer:
    """Trains a cell on some recorded rounds and keeps the parameters that are best on others.

    Every epoch is one pass over the training tasks, in an order drawn from the seed. The parameters at the end are
    those of the epoch with the lowest validation loss, those before training included. With a checkpoint file, a run
    that is interrupted goes on where it was and ends as an uninterrupted one would, bit for bit on the same machine.

    Args:
        cell: trained in place.
        train: tasks to learn from.
        validation: tasks to choose by.
        optimizer: from parameters to a torch optimizer.
        scheduler: from the optimizer to a torch scheduler, stepped every epoch; None keeps the rate.
        schedule: how long and how.
        seed: of the order of tasks.
        logs: hear of every epoch.
        checkpoint: the file; None writes none.

    Raises:
        ValueError: if no parameter is left to train.
    """

    def __init__(
        self,
        cell: ConsensusCell,
        train: Episodes,
        validation: Episodes,
        *,
        optimizer: MakeOptimizer,
        scheduler: MakeScheduler | None = None,
        schedule: Schedule | None = None,
        seed: int = 0,
        logs: Sequence[Log] = (),
        checkpoint: Path | None = None,
    ) -> None:
        self.cell, self.train, self.validation = cell, train, validation
        self.schedule = schedule or Schedule()
        for name, parameter in cell.named_parameters():
            parameter.requires_grad_(not any(name.startswith(frozen) for frozen in self.schedule.frozen))
        trained = [p for p in cell.parameters() if p.requires_grad]
        if not trained:
            raise ValueError(f"expected parameters to train, got all of them frozen by {list(self.schedule.frozen)}")
        self.optimizer = optimizer(trained)
        self.scheduler = scheduler(self.optimizer) if scheduler else None
        self.logs, self.checkpoint = logs, checkpoint
        self._start = copy.deepcopy(cell.state_dict())
        self._generator = torch.Generator().manual_seed(seed)
        self._epoch, self._best_epoch = 0, 0
        self._best, self._best_loss = copy.deepcopy(cell.state_dict()), self._validate()

    def fit(self, *, resume: bool = False) -> Fit:
        """Train, to the end of the schedule or of patience.

        Args:
            resume: go on from the checkpoint file, if it is there.

        Raises:
            ValueError: if the file is none of this run's.
        """
        if resume and self.checkpoint is not None and self.checkpoint.is_file():
            self._load(self.checkpoint)
        for log in self.logs:
            log.resume(self._epoch)
        while self._epoch < self.schedule.epochs and self._epoch - self._best_epoch < self.schedule.patience:
            self._epoch += 1
            record = self._train_epoch()
            loss = self._validate()
            if loss < self._best_loss:
                self._best_epoch, self._best_loss = self._epoch, loss
                self._best = copy.deepcopy(self.cell.state_dict())
            for log in self.logs:
                log.write(self._epoch, record | {"validation_loss": loss})
            if self.checkpoint is not None and self._epoch % self.schedule.checkpoint == 0:
                self._save(self.checkpoint)
        self.cell.load_state_dict(self._best)
        for log in self.logs:
            log.close()
        return Fit(self._epoch, self._best_epoch, self._best_loss)

    def _train_epoch(self) -> dict[str, Any]:
        order = torch.randperm(len(self.train), generator=self._generator)
        record: dict[str, Any] = {"rate": self.optimizer.param_groups[0]["lr"]}
        probed = self._epoch % self.schedule.probe == 1 or self.schedule.probe == 1
        total = 0.0
        for i, rows in enumerate(order.split(self.schedule.batch_size or len(order))):
            # All at once needs no copy, and no order.
            batch = self.train if len(rows) == len(self.train) else self.train.select(rows)
            ratings = batch.ratings.clone().requires_grad_() if probed and i == 0 else None
            loss = self._loss(batch, ratings)
            if ratings is not None:
                report = gradient_probe(self.cell, loss, ratings=ratings)
                record["gradient"] = {"rounds": report.rounds["ratings"], "parts": report.parameters}
            self.optimizer.zero_grad()
            (loss + self.schedule.pull * distance_from_start(self.cell, self._start)).backward()
            self.optimizer.step()
            total += loss.item() * len(rows)
        if self.scheduler is not None:
            self.scheduler.step()
        return record | {"loss": total / len(order)}

    def _loss(self, episodes: Episodes, ratings: Tensor | None = None) -> Float[Tensor, ""]:
        output = unroll(self.cell, episodes, ratings)
        weight = episodes.round_mask.clone()
        if not self.schedule.every_round:
            weight &= torch.arange(weight.shape[1], device=weight.device) == episodes.last[:, None]
        return consensus_loss(
            output.support, episodes.correct, episodes.proposal_mask, self.cell.beta, weight=weight.to(output.support)
        )

    @torch.no_grad()
    def _validate(self) -> float:
        return self._loss(self.validation).item()

    def _save(self, path: Path) -> None:
        state = {
            "cell": self.cell.state_dict(),
            "best": self._best,
            "start": self._start,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler else None,
            "generator": self._generator.get_state(),
            "epoch": self._epoch,
            "best_epoch": self._best_epoch,
            "best_loss": self._best_loss,
            "run": self._run(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_bytes(path, buffer.getvalue())

    def _load(self, path: Path) -> None:
        try:
            state = torch.load(path, weights_only=True)
            known = state["run"]
        except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: expected a checkpoint, got no such file; remove it to start anew") from error
        if known != self._run():
            raise ValueError(
                f"{path}: expected a checkpoint of this cell and these tasks, got another run's; remove it"
            )
        self.cell.load_state_dict(state["cell"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self._generator.set_state(state["generator"])
        self._best, self._start = state["best"], state["start"]
        self._epoch, self._best_epoch, self._best_loss = state["epoch"], state["best_epoch"], state["best_loss"]

    def _run(self) -> dict[str, Any]:
        """What a checkpoint must fit: the cell's shape, the tasks, what is trained and how fast."""
        schedule = self.schedule
        return {
            "cell": str(self.cell),
            "trained": [name for name, p in self.cell.named_parameters() if p.requires_grad],
            "tasks": [list(self.train.ids), list(self.validation.ids)],
            "optimizer": str(type(self.optimizer)),
            "schedule": [schedule.batch_size, schedule.pull, schedule.every_round, schedule.patience],
        }
