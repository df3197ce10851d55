"""Recorded readings, to fit a gate to and to measure it by: which notes a memory should hold, and which it held."""

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core import functional
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.gate import News, gated
from nsed_torch.core.memory import MemoryState
from nsed_torch.parts.gates import LeakyGate, OpenGate
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

    cell: ConsensusCell  # whose gate is asked
    news: tuple[News, ...]  # of each round
    embeddings: Float[Tensor, "batch note dim"]
    entering: Float[Tensor, "batch note"]  # retention that it enters with where its round admits it in full
    support: Float[Tensor, "batch note"]
    place: Int[Tensor, "batch note"]  # round * proposals + proposal
    old_mask: Bool[Tensor, "batch round note"]  # whether it was noted before the round
    matters: Bool[Tensor, "batch round note"]  # whether a memory should hold it after the round
    there_mask: Bool[Tensor, "batch round note"]  # whether it has been noted by then, in a round that was held

    @classmethod
    @torch.no_grad()
    def of(cls, cell: ConsensusCell, episodes: Episodes, *, labelled: bool = True) -> "Notes":
        """What the rounds bring to a cell whose vote does not read the memory."""
        needed = _needed(episodes) if labelled else torch.zeros_like(episodes.classes)
        output, _ = replay(cell, episodes)
        rounds, proposals = episodes.proposal_mask.shape[1:]
        enters = output.answer_mask.flatten(1)
        # Most rounds bring nothing: without the places of notes that are not.
        count = max(int(enters.sum(1).max()), 1)
        place = (~enters).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]
        born, enters = place // proposals, enters.gather(1, place)
        embeddings = episodes.embeddings.flatten(1, 2)
        embeddings = embeddings.gather(1, place[..., None].expand(-1, -1, episodes.dim))
        number = torch.arange(rounds)[:, None]
        there = (enters[:, None] & (born[:, None] <= number)) & episodes.round_mask[..., None]
        return cls(
            cell,
            tuple(_news(output, episodes, r) for r in range(rounds)),
            torch.where(enters[..., None], embeddings, 0),
            output.consensus.flatten(1).gather(1, place),
            output.answer_support.flatten(1).gather(1, place),
            place,
            enters[:, None] & (born[:, None] < number),
            there & (needed.flatten(1).gather(1, place)[:, None] > number),
            there,
        )

    def select(self, rows: Tensor) -> "Notes":
        """Those of some tasks, by index."""
        chosen: dict[str, Any] = {
            f.name: v[rows] for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)
        }
        return replace(self, news=tuple(News(*(x[rows] for x in news)) for news in self.news), **chosen)

    def retention(self) -> Float[Tensor, "batch round note"]:
        """What each note's is after each round, as the gate is now."""
        proposals = self.news[0].mask.shape[1]
        born = self.place // proposals
        admitted, faded, after = torch.zeros_like(self.entering), torch.zeros_like(self.entering), []
        for r, news in enumerate(self.news):
            old = self.old_mask[:, r]
            age = torch.where(old, r - 1 - born, 0).to(self.support)
            kept = torch.where(old, self.entering * admitted * faded.exp(), 0)
            embeddings = torch.where(old[..., None], self.embeddings, 0)
            state = MemoryState(embeddings, kept, torch.where(old, self.support, 0), age, old)
            keep, admit = gated(self.cell.gate, state, news)
            # Logarithms, for a product over hundreds of rounds would lose its gradient where one of them is 0.
            faded = faded + torch.where(old, keep.clamp(min=torch.finfo(keep.dtype).tiny).log(), 0)
            of_place = admit.gather(1, (self.place - r * proposals).clamp(0, proposals - 1))
            admitted = torch.where(born == r, of_place, admitted)
            after.append(torch.where(self.there_mask[:, r], self.entering * admitted * faded.exp(), 0))
        return torch.stack(after, 1)

    def loss(self) -> Float[Tensor, ""]:
        """The mean of `memory_loss` over the memories after every round."""
        parts = self.retention(), self.matters, self.there_mask
        return memory_loss(*(part.flatten(0, 1) for part in parts))


def _news(output: ConsensusOutput, episodes: Episodes, number: int) -> News:
    """What a recorded round, counted from 0, brought to a gate."""
    shown, probability = output.answer_mask[:, number], output.consensus[:, number]
    told = torch.where(shown[..., None], episodes.embeddings[:, number], 0)
    consensus = (probability[..., None] * told).sum(1)
    return News(told, output.answer_support[:, number], probability, shown, consensus, episodes.task)


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
    measured = {leak: kept(cell.like(gate=LeakyGate(leak)), learned).share.mean() for leak in LEAKS}
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
        "no_gate": kept(cell.like(gate=OpenGate()), episodes),
        "constant_leak": kept(cell.like(gate=LeakyGate(leak)), episodes),
        **{name: by_order(order) for name, order in orders.items()},
    }


def informative(episodes: Episodes) -> Bool[Tensor, "batch"]:
    """In which readings somebody noted what matters in the end: elsewhere no memory could have held it."""
    return _useful(episodes, episodes.proposal_mask.flatten(1)).any(1)


def several_rounds(episodes: Episodes) -> Episodes:
    """Those of several rounds: in others nobody read a memory.

    Raises:
        ValueError: if there is none.
    """
    rows = (episodes.round_mask.sum(1) > 1).nonzero()[:, 0]
    if not len(rows):
        raise ValueError("loss answer: expected tasks with inputs, or two rounds or more, got none: collect anew")
    return episodes.select(rows)


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
