"""Fit a vote over all rounds to recorded deliberations."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.parts.round_vote import RoundVote, leader
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.splits import place
from nsed_torch.tuning.losses import consensus_loss

STRENGTHS = (3.0, 10.0, 30.0, 100.0)
"""How firmly weights of texts may be held, as a weight of half their squares beside the summed loss; votes at 1."""

CAUTIONS = tuple(0.1 * step for step in range(21))
INNER = 3


class Held(NamedTuple):
    """Several rounds of every task, by agent."""

    said: Int[Tensor, "batch round agent"]
    held: Bool[Tensor, "batch round"]
    features: Float[Tensor, "batch round agent feature"] | None
    right: Bool[Tensor, "batch answer"]  # by class

    def select(self, rows: Tensor) -> "Held":
        """Some of the tasks."""
        features = None if self.features is None else self.features[rows]
        return Held(self.said[rows], self.held[rows], features, self.right[rows])

    def correct(self, answer: Int[Tensor, "batch"]) -> Bool[Tensor, "batch"]:
        """Whether an answer of each task is right; -1 is not."""
        return self.right.gather(1, answer.clamp(min=0)[:, None])[:, 0] & (answer >= 0)

    def led(self, number: int | None = None) -> Bool[Tensor, "batch"]:
        """Whether the plurality of a round, counted from 0, is right; of the last each task held if None."""
        last = self.held.sum(1) - 1 if number is None else torch.full((len(self.said),), number)
        said = self.said[torch.arange(len(self.said)), last]
        return (leader(said, self.right.shape[1]) & self.right).any(1)


def by_rounds(episodes: Episodes) -> Held:
    """What agents said in all rounds; where an agent proposed twice in a round, its first proposal counts."""
    batch, rounds, _ = episodes.authors.shape
    agents, count = len(episodes.agents), max(int(episodes.classes.max()) + 1, 1)
    said = torch.full((batch, rounds, agents), -1)
    features = None
    if episodes.features is not None:
        features = torch.full((batch, rounds, agents, episodes.features.shape[-1]), math.nan, dtype=torch.float64)
    right = torch.zeros(batch, count, dtype=torch.bool)
    there = episodes.proposal_mask & episodes.round_mask[..., None] & (episodes.classes >= 0) & (episodes.authors >= 0)
    b, r, p = (index.flip(0) for index in there.nonzero(as_tuple=True))  # the first of several is written last
    who = episodes.authors[b, r, p]
    said[b, r, who] = episodes.classes[b, r, p]
    if features is not None and episodes.features is not None:
        features[b, r, who] = episodes.features[b, r, p].double()
    wins = episodes.correct & there
    b, r, p = wins.nonzero(as_tuple=True)
    right[b, episodes.classes[b, r, p]] = True
    return Held(said, episodes.round_mask, features, right)


@dataclass(frozen=True)
class RoundFit:
    """A vote over rounds and what it was chosen by."""

    vote: RoundVote
    strength: float  # of the hold on texts' weights
    inner: float  # surprise at the right answer on inner folds, a contested task


def fit_round_vote(
    episodes: Episodes | Sequence[Episodes], *, most_turned: float | None = None, stops: bool = False
) -> RoundFit:
    """Fit a `RoundVote` to recorded deliberations that went on after their first round.

    The loss is the surprise at the right answer, where rounds held right and wrong answers. How firmly weights of texts
    are held is chosen on inner folds by the hash of the task's id. On these, too, with `most_turned` the least caution
    is chosen by which at most that share of the decisions that were right after round 1 is wrong in the end; and with
    `stops` the least probability that is `enough` without a loss of accuracy.

    Args:
        episodes: of one team, or of several that share the weights.
        most_turned: a share in [0, 1].
        stops: whether later rounds may be left out.

    Raises:
        ValueError: in one line, where no deliberation of several rounds has right and wrong answers.
    """
    parts = [episodes] if isinstance(episodes, Episodes) else list(episodes)
    data = [by_rounds(part) for part in parts]
    names = parts[0].feature_names
    folds = [torch.tensor([int(place(name, 1) * INNER) for name in part.ids]) for part in parts]
    strengths = STRENGTHS if names else STRENGTHS[:1]
    tried = {}
    for strength in strengths:
        votes = [
            _fitted([d.select(fold != k) for d, fold in zip(data, folds, strict=True)], names, strength)
            for k in range(INNER)
        ]
        losses = [
            _loss(votes[k], [d.select(fold == k) for d, fold in zip(data, folds, strict=True)]) for k in range(INNER)
        ]
        tried[strength] = (sum(total for total, _ in losses) / max(sum(n for _, n in losses), 1), votes)
    strength = min(tried, key=lambda s: tried[s][0])
    inner, votes = tried[strength]
    vote = _fitted(data, names, strength)
    held_out = [(votes[k], d.select(fold == k)) for k in range(INNER) for d, fold in zip(data, folds, strict=True)]
    if most_turned is not None:
        vote.caution.fill_(next((c for c in CAUTIONS if _turned(held_out, c) <= most_turned), CAUTIONS[-1]))
    if stops:
        vote.enough.fill_(_enough(held_out, float(vote.caution)))
    return RoundFit(vote, strength, inner)


def all_rounds_right(vote: RoundVote, episodes: Episodes) -> Bool[Tensor, "batch"]:
    """Whether the answer that a vote over all rounds elects is right, of each task."""
    data = by_rounds(episodes)
    return data.correct(vote.decide(data.said, data.held, data.features).answer)


def _fitted(data: Sequence[Held], names: Sequence[str], strength: float) -> RoundVote:
    vote = RoundVote(names).double()
    if names:
        known = torch.cat([d.features[(d.said >= 0) & d.held[..., None]] for d in data if d.features is not None])
        vote.mean.copy_(known.nanmean(0).nan_to_num())
        vote.deviation.copy_((known - vote.mean).square().nanmean(0).nan_to_num(1.0).sqrt().clamp(min=1e-6))
    tables = [_contested(vote, d) for d in data]
    total = sum(len(table) for table, _, _ in tables)
    if not total:
        raise ValueError("rounds: expected deliberations of several rounds with right and wrong answers, got none")
    with torch.no_grad():
        vote.votes.zero_()
    weights = list(vote.parameters())
    optimizer = torch.optim.LBFGS(weights, max_iter=200, tolerance_grad=1e-8, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.stack([_surprise(vote, *table) * len(table[0]) for table in tables]).sum()
        whole = loss + 0.5 * vote.votes.square().sum() + 0.5 * strength * vote.texts.square().sum()
        whole.backward()
        return whole

    optimizer.step(closure)
    return vote.requires_grad_(False)


def _contested(vote: RoundVote, data: Held) -> tuple[Tensor, Tensor, Tensor]:
    """What is read of tasks that went on and were given right and wrong answers, which are there, and the right."""
    with torch.no_grad():
        table, there = vote.read(data.said, data.held, data.features)
    right = data.right[:, : there.shape[1]] & there
    rows = (data.held.sum(1) > 1) & right.any(1) & (there & ~right).any(1)
    return table[rows], there[rows], right[rows]


def _surprise(vote: RoundVote, table: Tensor, there: Tensor, right: Tensor) -> Tensor:
    if not len(table):
        return torch.zeros((), dtype=table.dtype)
    return consensus_loss(vote.weigh(table, there).masked_fill(~there, 0), right, there, torch.ones(()))


def _loss(vote: RoundVote, data: Sequence[Held]) -> tuple[float, int]:
    """The summed surprise, and of how many tasks."""
    tables = [_contested(vote, d) for d in data]
    with torch.no_grad():
        return sum(_surprise(vote, *t).item() * len(t[0]) for t in tables), sum(len(t[0]) for t in tables)


def _turned(held_out: Sequence[tuple[RoundVote, Held]], caution: float) -> float:
    """Of right decisions after round 1 that went on, the share that is wrong in the end."""
    lost = total = 0
    for vote, data in held_out:
        one = copy.deepcopy(vote)
        one.caution.fill_(caution)
        right = data.correct(one.decide(data.said, data.held, data.features).answer)
        began = data.led(0) & (data.held.sum(1) > 1)
        lost, total = lost + int((began & ~right).sum()), total + int(began.sum())
    return lost / max(total, 1)


def _enough(held_out: Sequence[tuple[RoundVote, Held]], caution: float) -> float:
    """The least probability, of a few, that is as accurate on tasks held out as all rounds are; 2 for none."""

    def accuracy(enough: float) -> float:
        hits = 0
        for vote, data in held_out:
            one = copy.deepcopy(vote)
            one.caution.fill_(caution)
            one.enough.fill_(enough)
            hits += int(data.correct(one.decide(data.said, data.held, data.features).answer).sum())
        return hits

    whole = accuracy(2.0)
    return next((p for p in (0.5, 0.6, 0.7, 0.8, 0.9) if accuracy(p) >= whole), 2.0)
