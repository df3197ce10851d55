"""Partial teams on recorded answers: what those asked so far said, and what the tuned consensus makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.benchmarks import Equality, RecordedAnswers, agreement
from nsed_torch.nn import ConsensusCell

CHUNK = 1 << 14
"""Partial teams that vote at once."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Agents in the order of their worth, and all that they answered.

    Args:
        agents: their names.
        classes: equal answers of a task, equal numbers; -1 where there is none.
        correct: which answers are right.
        cost: what each answer cost, at least 0, in any unit.
        length: logarithm of each answer's length.
    """

    agents: tuple[str, ...]
    classes: Int[Tensor, "batch agent"]
    correct: Bool[Tensor, "batch agent"]
    cost: Float[Tensor, "batch agent"]
    length: Float[Tensor, "batch agent"]

    @classmethod
    def of(cls, recorded: RecordedAnswers, equality: Equality | None = None) -> "Pool":
        """All recorded agents, in their order.

        Raises:
            ValueError: if the cost of an agent is not known.
        """
        unknown = [name for name, b in zip(recorded.agents, recorded.parameters, strict=True) if not b.isfinite()]
        if unknown:
            named = ", ".join(unknown[:3]) + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else "")
            remedy = "choose others by agents or max_parameters_b"
            raise ValueError(f"broker: expected parameters_b of every agent, got none of {named}: {remedy}")
        return cls(
            recorded.agents,
            (equality or Equality()).classes(recorded.answers),
            recorded.correct,
            recorded.cost.double(),
            recorded.characters.clamp(min=1).double().log(),
        )

    def __len__(self) -> int:
        return len(self.classes)

    def select(
        self, tasks: Sequence[int] | Tensor | None = None, agents: Sequence[int] | Tensor | None = None
    ) -> "Pool":
        """Some of the tasks and some of the agents, by index, in the order given; None is all."""
        rows = slice(None) if tasks is None else torch.as_tensor(tasks)
        columns = torch.arange(len(self.agents)) if agents is None else torch.as_tensor(agents)
        names = tuple(self.agents[i] for i in columns.tolist())
        return Pool(names, *(t[rows][:, columns] for t in (self.classes, self.correct, self.cost, self.length)))

    def by_accuracy(self, tasks: Int[Tensor, "train"]) -> "Pool":
        """The most accurate first, so that ties of a vote go to the better agent."""
        accuracy = self.correct[tasks].double().mean(0)
        return self.select(agents=accuracy.argsort(descending=True, stable=True))


class Verdict(NamedTuple):
    """What the consensus makes of the answers revealed so far.

    Args:
        winner: whose answer leads; -1 where nobody asked gave one.
        agree: who gave the leading answer.
        lead: probability the consensus gives to it.
        second: the largest probability of any other proposal.
        right: whether the leading answer is right. For training and grading; no policy reads it.
    """

    winner: Int[Tensor, "batch"]
    agree: Bool[Tensor, "batch agent"]
    lead: Float[Tensor, "batch"]
    second: Float[Tensor, "batch"]
    right: Bool[Tensor, "batch"]


def consensus(
    cell: ConsensusCell, classes: Int[Tensor, "batch agent"], asked: Bool[Tensor, "batch agent"]
) -> tuple[Float[Tensor, "batch agent"], Int[Tensor, "batch"]]:
    """Consensus and winner of the agents asked: agreement ratings, the cell's vote, everybody voter and author.

    Args:
        cell: of width 1; questions and answers are not embedded.
        classes: of equal answers.
        asked: who has been asked; the others' answers have no influence.
    """
    known = torch.where(asked, classes, -1)
    batch, agents = known.shape
    ratings, mask = agreement(known)
    everybody = torch.arange(agents).expand(batch, -1)
    dtype = cell.log_beta.dtype
    output, _ = cell(
        torch.zeros(batch, agents, cell.dim, dtype=dtype),
        ratings.to(dtype),
        mask,
        torch.zeros(batch, cell.dim, dtype=dtype),
        voters=everybody,
        authors=everybody,
        proposal_mask=known >= 0,
        voter_mask=known >= 0,
    )
    return output.consensus, output.winner


@torch.no_grad()
def verdict(cell: ConsensusCell, pool: Pool, asked: Bool[Tensor, "batch agent"]) -> Verdict:
    """What the consensus makes of the answers of those asked, one team a task of the pool."""
    probability, winner = consensus(cell, pool.classes, asked)
    first = winner.clamp(min=0)[:, None]
    some = winner >= 0
    same = pool.classes == pool.classes.gather(1, first)
    agree = same & asked & (pool.classes >= 0) & some[:, None]
    return Verdict(
        winner,
        agree,
        torch.where(agree, probability, 0).sum(1),
        torch.where(agree, 0, probability).amax(1),
        pool.correct.gather(1, first)[:, 0] & some,
    )


def all_teams(agents: int) -> Bool[Tensor, "team agent"]:
    """Every subset; number t holds the agents whose bits are set in t."""
    return ((torch.arange(2**agents)[:, None] >> torch.arange(agents)) & 1).bool()


def all_verdicts(cell: ConsensusCell, pool: Pool, teams: Bool[Tensor, "team agent"]) -> Verdict:
    """The verdict of every team on every task: fields have the axes `batch, team`, then `agent`."""
    size, step = len(teams), max(1, CHUNK // len(teams))
    parts = []
    for rows in torch.arange(len(pool)).split(step):
        found = verdict(cell, pool.select(rows.repeat_interleave(size)), teams.repeat(len(rows), 1))
        parts.append([field.unflatten(0, (len(rows), size)) for field in found])
    return Verdict(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def tune_cell(
    pool: Pool, train: Int[Tensor, "train"], validation: Int[Tensor, "validation"], *, steps: int = 250, seed: int = 0
) -> ConsensusCell:
    """Fit a cell's reliability, beta and backing to partial teams of all sizes.

    Minimises `-log sum of the consensus over right proposals` over tasks where somebody asked was right, plus 1e-3
    times the squared distance of the parameters from the published protocol's, with Adam. Each step draws a new team a
    task, the whole pool for a fifth of them. The step of least loss on validation tasks, with the whole pool, is kept.
    Ours.

    Args:
        pool: the most accurate agent first.
        train: tasks to fit.
        validation: tasks to choose the step by.
        steps: of Adam, at a rate of 0.05.
        seed: of the teams drawn.
    """
    draw = torch.Generator().manual_seed(seed)
    cell = ConsensusCell(1, len(pool.agents), slots=1)
    start = [p.detach().clone() for p in cell.parameters()]
    optimizer = torch.optim.Adam(cell.parameters(), lr=0.05)
    least, best = float("inf"), cell.state_dict()
    for step in range(steps):
        size = torch.rand(len(train), 1, generator=draw)
        asked = torch.rand(len(train), len(pool.agents), generator=draw) < size
        asked |= torch.rand(len(train), 1, generator=draw) < 0.2
        distance = sum(((p - q) ** 2).sum() for p, q in zip(cell.parameters(), start, strict=True))
        loss = _loss(cell, pool.select(train), asked) + 1e-3 * distance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            with torch.no_grad():
                everybody = torch.ones(len(validation), len(pool.agents), dtype=torch.bool)
                value = float(_loss(cell, pool.select(validation), everybody))
            if value < least:
                least, best = value, {name: tensor.clone() for name, tensor in cell.state_dict().items()}
    cell.load_state_dict(best)
    return cell


def _loss(cell: ConsensusCell, pool: Pool, asked: Tensor) -> Tensor:
    probability, _ = consensus(cell, pool.classes, asked)
    possible = (pool.correct & asked).any(1)
    right = (probability * pool.correct).sum(1)[possible]
    return -right.clamp(min=1e-6).log().sum() / possible.sum().clamp(min=1)
