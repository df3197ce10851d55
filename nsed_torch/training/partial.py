"""Partial teams on recorded answers: what those asked so far said, and what the tuned consensus makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.agents import unfence
from nsed_torch.data import Equality, RecordedAnswers, agreement
from nsed_torch.nn import ConsensusCell, Election
from nsed_torch.nn.learned_broker import Heard, LearnedBroker
from nsed_torch.training.losses import consensus_loss

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
        length: logarithm of each answer's number of characters, as a live round has it.
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
        characters = [[len(unfence(text)) for text in row] for row in recorded.outputs]
        return cls(
            recorded.agents,
            (equality or Equality()).classes(recorded.answers),
            recorded.correct,
            recorded.cost.double(),
            torch.tensor(characters, dtype=torch.float64).clamp(min=1).log(),
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
        second: the largest probability of any other answer.
        right: whether the leading answer is right. For training and grading; no policy reads it.
    """

    winner: Int[Tensor, "batch"]
    agree: Bool[Tensor, "batch agent"]
    lead: Float[Tensor, "batch"]
    second: Float[Tensor, "batch"]
    right: Bool[Tensor, "batch"]

    def heard(self, pool: Pool, asked: Bool[Tensor, "*batch agent"]) -> Heard:
        """What a broker may read of it.

        Args:
            pool: its tasks in rows that broadcast with the verdict's.
            asked: who was.
        """
        answered, length = pool.classes >= 0, pool.length
        if self.agree.ndim == 3:
            answered, length = answered[:, None], length[:, None]
        return Heard(asked, answered, self.agree, length, self.lead, self.second)


class Outcome(NamedTuple):
    """How rounds on recorded answers ended.

    Args:
        right: whether the leading answer is right.
        cost: of all answers asked for.
        asked: who was asked.
    """

    right: Bool[Tensor, "batch"]
    cost: Float[Tensor, "batch"]
    asked: Bool[Tensor, "batch agent"]


def election(cell: ConsensusCell, classes: Int[Tensor, "batch agent"], asked: Bool[Tensor, "batch agent"]) -> Election:
    """The vote of the agents asked: agreement ratings, everybody voter and author.

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
    return cell.elect(
        ratings.to(dtype),
        mask,
        torch.zeros(batch, cell.dim, dtype=dtype),
        voters=everybody,
        authors=everybody,
        classes=known,
        proposal_mask=known >= 0,
        voter_mask=known >= 0,
    )


@torch.no_grad()
def verdict(cell: ConsensusCell, pool: Pool, asked: Bool[Tensor, "batch agent"]) -> Verdict:
    """What the consensus makes of the answers of those asked, one team a task of the pool."""
    found = election(cell, pool.classes, asked)
    probability, winner = found.consensus, found.winner
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


@torch.no_grad()
def replay(broker: LearnedBroker, cell: ConsensusCell, pool: Pool) -> Outcome:
    """Rounds of a broker with one role on recorded answers: an answer is seen once its agent has been asked.

    Args:
        broker: of the pool's agents.
        cell: makes the consensus of those heard so far.
        pool: in the order of the broker's agents.
    """
    asked = torch.zeros_like(pool.correct)
    active = torch.arange(len(pool))
    for round_ in range(broker.rounds):
        rows, before = pool.select(active), asked[active]
        new = broker.next_one(round_, verdict(cell, rows, before).heard(rows, before))
        asked[active] = before | new
        active = active[new.any(1)]
        if not len(active):
            break
    right = verdict(cell, pool, asked).right
    return Outcome(right, torch.where(asked, pool.cost, 0).sum(1), asked)


def tune_cell(
    pool: Pool, train: Int[Tensor, "train"], validation: Int[Tensor, "validation"], *, steps: int = 250, seed: int = 0
) -> ConsensusCell:
    """Fit a cell's trust, beta and backing to partial teams of all sizes.

    Minimises `consensus_loss` plus 1e-3
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
    cell = ConsensusCell(1, len(pool.agents), slots=1).double()
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


@torch.no_grad()
def widened(cell: ConsensusCell, dim: int) -> ConsensusCell:
    """A tuned cell for embeddings of that width: it votes the same whatever they hold, and has a fresh memory.

    Args:
        cell: of `tune_cell`, of width 1.
        dim: of a live run's encoder.
    """
    wide = ConsensusCell(dim, cell.agents).to(cell.log_beta.dtype)
    for name in ("trust.bias", "log_beta", "backing"):
        wide.get_parameter(name).copy_(cell.get_parameter(name))
    return wide


def _loss(cell: ConsensusCell, pool: Pool, asked: Tensor) -> Tensor:
    found = election(cell, pool.classes, asked)
    return consensus_loss(found.answer_support, pool.correct, found.answer_mask, cell.beta)
