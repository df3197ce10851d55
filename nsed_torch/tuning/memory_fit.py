"""Recorded readings, to fit a gate to and to measure it by: which notes a memory should hold, and which it held."""

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core import functional
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.gate import ForgetGate, LeakyGate, NoteGate, OpenGate
from nsed_torch.core.memory import MemoryState
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.rounds import replay
from nsed_torch.tuning.losses import memory_loss

LEAKS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
"""Constant leaks to choose from."""


@dataclass(frozen=True, eq=False)
class Notes:
    """All notes of recorded readings in one memory that displaces none, which is what makes a loss on it smooth. Ours.

    A gate that learns from bounded memories alone hears nothing of notes that it lost, and its loss jumps wherever two
    slots change places.
    """

    gate: ForgetGate
    features: Float[Tensor, "batch round note feature"]  # what the gate reads of each note in each round
    entering: Float[Tensor, "batch note"]  # retention that it enters with, as its round decided
    entry_features: Float[Tensor, "batch note feature"] | None  # what the gate reads of it then, if it does
    old_mask: Bool[Tensor, "batch round note"]  # whether it was noted before the round
    matters: Bool[Tensor, "batch round note"]  # whether a memory should hold it after the round
    there_mask: Bool[Tensor, "batch round note"]  # whether it has been noted by then, in a round that was held

    @classmethod
    @torch.no_grad()
    def of(cls, cell: ConsensusCell, episodes: Episodes) -> "Notes":
        """What the rounds bring to a cell whose vote does not read the memory.

        Raises:
            ValueError: if the cell has no gate that learns, or nobody knows which notes matter.
        """
        gate, needed = cell.gate, _needed(episodes)
        if not isinstance(gate, ForgetGate):
            wanted = "expected a gate of the kinds notes or learned"
            raise ValueError(f"loss memory: {wanted}, got {type(gate).__name__}: set gate=notes")
        output, _ = replay(cell, episodes)
        rounds, proposals = episodes.proposal_mask.shape[1:]
        enters = output.answer_mask.flatten(1)
        # Most rounds bring nothing: without the places of notes that are not.
        count = max(int(enters.sum(1).max()), 1)
        place = (~enters).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]
        born, enters = place // proposals, enters.gather(1, place)
        embeddings = episodes.embeddings.flatten(1, 2)
        embeddings = embeddings.gather(1, place[..., None].expand(-1, -1, episodes.dim))
        embeddings = torch.where(enters[..., None], embeddings, 0)
        support = output.answer_support.flatten(1).gather(1, place)
        came = torch.where(output.answer_mask[..., None], episodes.embeddings, 0)
        consensus = (output.consensus[..., None] * came).sum(2)
        features, old = [], []
        for r in range(rounds):
            old.append(enters & (born < r))
            age = torch.where(old[-1], r - 1 - born, 0).to(support)
            state = MemoryState(embeddings, torch.zeros_like(support), support, age, old[-1])
            read = gate.features(state, consensus[:, r], episodes.task, came[:, r])
            features.append(torch.where(old[-1][..., None], read, 0))
        number = torch.arange(rounds)[:, None]
        there = (enters[:, None] & (born[:, None] <= number)) & episodes.round_mask[..., None]
        return cls(
            gate,
            torch.stack(features, 1),
            output.consensus.flatten(1).gather(1, place),
            gate.entry_features(embeddings, support, episodes.task) if isinstance(gate, NoteGate) else None,
            torch.stack(old, 1),
            there & (needed.flatten(1).gather(1, place)[:, None] > number),
            there,
        )

    def retention(self) -> Float[Tensor, "batch round note"]:
        """What each note's is after each round, as the gate is now."""
        factor = self.gate.of_features(self.features)
        # Logarithms, for a product over hundreds of rounds would lose its gradient where one of them is 0.
        faded = torch.where(self.old_mask, factor.clamp(min=torch.finfo(factor.dtype).tiny).log(), 0).cumsum(1)
        entering = self.entering
        if isinstance(self.gate, NoteGate) and self.entry_features is not None:
            entering = entering * self.gate.admits(self.entry_features)
        return torch.where(self.there_mask, entering[:, None] * faded.exp(), 0)

    def loss(self) -> Float[Tensor, ""]:
        """The mean of `memory_loss` over the memories after every round."""
        parts = self.retention(), self.matters, self.there_mask
        return memory_loss(*(part.flatten(0, 1) for part in parts))


class Kept(NamedTuple):
    """What the last memory of each reading comes to."""

    share: Float[Tensor, "batch"]  # of its retention that lies on notes that matter; 0 where it is empty
    found: Float[Tensor, "batch"]  # of the notes that matter, those that it holds, as far as there are slots


@torch.no_grad()
def kept(cell: ConsensusCell, episodes: Episodes) -> Kept:
    """What a cell keeps of recorded readings."""
    output, state = replay(cell, episodes)
    origin = functional.held(output.source, episodes.proposal_mask.shape[2])
    weight = torch.zeros_like(output.consensus.flatten(1))
    weight.scatter_add_(1, origin.clamp(min=0), torch.where(state.mask & (origin >= 0), state.retention, 0))
    chosen = torch.zeros_like(weight).scatter_add_(1, origin.clamp(min=0), (origin >= 0).to(weight)) > 0
    return _measured(weight, chosen, output, episodes, cell.slots)


@torch.no_grad()
def rivals(cell: ConsensusCell, learned: Episodes, episodes: Episodes, seed: int = 0) -> dict[str, Kept]:
    """What a memory of as many slots keeps without a gate that learns.

    By name: nothing fades; the constant leak that kept the largest share of the learned tasks; the most recent notes,
    all alike; as many drawn at random by seed.
    """
    measured = {leak: kept(_with(cell, LeakyGate(leak)), learned).share.mean() for leak in LEAKS}
    leak = max(measured, key=lambda one: measured[one].item())
    output, _ = replay(cell, episodes)
    enters = output.answer_mask.flatten(1)
    drawn = torch.rand(enters.shape, generator=torch.Generator().manual_seed(seed))
    orders = {"most_recent": torch.arange(enters.shape[1]).expand_as(drawn).to(drawn), "random": drawn}

    def by_order(order: Tensor) -> Kept:
        best = order.masked_fill(~enters, -1).argsort(dim=1, descending=True)[:, : cell.slots]
        chosen = torch.zeros_like(enters).scatter_(1, best, True) & enters
        return _measured(chosen.to(output.consensus), chosen, output, episodes, cell.slots)

    return {
        "no_gate": kept(_with(cell, OpenGate()), episodes),
        "constant_leak": kept(_with(cell, LeakyGate(leak)), episodes),
        **{name: by_order(order) for name, order in orders.items()},
    }


def informative(episodes: Episodes) -> Bool[Tensor, "batch"]:
    """In which readings somebody noted what matters in the end: elsewhere no memory could have held it."""
    return _useful(episodes, episodes.proposal_mask.flatten(1)).any(1)


def _measured(
    weight: Float[Tensor, "batch note"],
    chosen: Bool[Tensor, "batch note"],
    output: ConsensusOutput,
    episodes: Episodes,
    slots: int,
) -> Kept:
    useful = _useful(episodes, output.answer_mask.flatten(1))
    whole, most = weight.sum(1), useful.sum(1).clamp(1, slots)
    share = torch.where(useful, weight, 0).sum(1) / torch.where(whole > 0, whole, 1)
    return Kept(share, (chosen & useful).sum(1) / most)


def _useful(episodes: Episodes, enters: Bool[Tensor, "batch note"]) -> Bool[Tensor, "batch note"]:
    """Which notes matter after the last round."""
    return enters & (_needed(episodes).flatten(1) > episodes.last[:, None])


def _needed(episodes: Episodes) -> Int[Tensor, "batch round proposal"]:
    if episodes.needed is None:
        wanted = "expected traces of a benchmark that knows which notes matter"
        raise ValueError(f"loss memory: {wanted}, such as tasks=reading, got others: collect them anew")
    return episodes.needed


def _with(cell: ConsensusCell, gate: nn.Module) -> ConsensusCell:
    """The cell with another gate."""
    other = copy.deepcopy(cell)
    other.gate = gate.to(cell.log_beta)
    return other
