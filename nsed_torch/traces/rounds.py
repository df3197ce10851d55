"""How recorded ratings become decisions: a cell over whole episodes, and any part of a team over one recorded round."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import ConsensusOutput, Prepared, RoundInput
from nsed_torch.core.memory import MemoryState
from nsed_torch.parts.ties import Ties, chances
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.equality import commonest

FEWEST = (1, 0)
"""Fewest agents of each role, as `broker=learned` has them: somebody must answer, nobody need judge."""


def unroll(cell: ConsensusCell, episodes: Episodes) -> ConsensusOutput:
    """The cell's decisions in every recorded round."""
    return replay(cell, episodes)[0]


def replay(cell: ConsensusCell, episodes: Episodes) -> tuple[ConsensusOutput, MemoryState]:
    """The cell's decisions in every recorded round, and the memory after the last one that each task held."""
    return cell.unroll(
        episodes.embeddings,
        episodes.ratings,
        episodes.vote_mask,
        episodes.task,
        None,
        category=_category(cell, episodes),
        round_mask=episodes.round_mask,
        **_read(episodes),
    )


def elect(cell: ConsensusCell, episodes: Episodes, prepared: Prepared | None = None) -> ConsensusOutput:
    """The cell's decisions in the first recorded round, which no memory precedes; `prepare` may have been called."""
    return cell.elect(_first_round(cell, episodes), episodes.task, prepared=prepared)


@torch.no_grad()
def prepare(cell: ConsensusCell, episodes: Episodes) -> Prepared:
    """What the vote of the first recorded round starts from."""
    return cell.prepare(_first_round(cell, episodes))


def _first_round(cell: ConsensusCell, episodes: Episodes) -> RoundInput:
    read = {name: None if value is None else value[:, 0] for name, value in _read(episodes).items()}
    return RoundInput(episodes.ratings[:, 0], episodes.vote_mask[:, 0], category=_category(cell, episodes), **read)


def _read(episodes: Episodes) -> dict[str, Tensor | None]:
    """What a cell reads of every round beside embeddings and ratings."""
    return {
        "voters": episodes.voters.clamp(min=0),
        **{name: getattr(episodes, name) for name in ("authors", "classes", "features", "proposal_mask", "voter_mask")},
    }


@torch.no_grad()
def winners_correct(cell: ConsensusCell, episodes: Episodes, ties: Ties = Ties.FIRST) -> Float[Tensor, "batch"]:
    """The chance that the winner of each task's last round is right; 0 where nobody answered.

    It is 0 or 1 unless a lot decides ties. For ACCURACY sort the episodes by it and take the FIRST.
    """
    rows = torch.arange(len(episodes), device=episodes.task.device)
    won = chances(unroll(cell, episodes), ties)[rows, episodes.last]
    return torch.where(episodes.correct[rows, episodes.last], won, 0).sum(-1)


@dataclass(frozen=True, eq=False)
class Rounds:
    """One recorded round of every task, in float64, that any part of the team may vote on again.

    Agent i is voter i and author i. The first round is what a sub-team can be tried on without doubt: nobody has read
    a memory yet, so every proposal is what its author would have said in any team. Ratings are too, where judges rate
    answers one by one. Whether a winner is right is the chance of it: 0 or 1, unless a lot decides ties. Masked
    entries may hold anything.
    """

    ids: tuple[str, ...]
    agents: tuple[str, ...]
    task: Float[Tensor, "batch dim"]
    ratings: Float[Tensor, "batch voter proposal"]
    vote_mask: Bool[Tensor, "batch voter proposal"]
    there: Bool[Tensor, "batch agent role"]  # who proposed, be it nothing, and who judged
    answered: Bool[Tensor, "batch agent"]  # whose proposal is an answer
    correct: Bool[Tensor, "batch agent"]
    classes: Int[Tensor, "batch agent"]  # equal answers of a task, equal numbers; -1 where there is none
    # What the proposals leave of a round's cost is split evenly among its judges; NaN where a proposal's is not known.
    seat_cost: Float[Tensor, "batch agent role"]
    length: Float[Tensor, "batch agent"]  # logarithm of the number of characters of each proposal; NaN where not known
    shared: float = 1.0  # of a judge's cost, what does not fall with the number of answers it reads
    ties: Ties = Ties.FIRST
    accuracy: Float[Tensor, "batch agent"] | None = None  # of each agent on other tasks, for Ties.ACCURACY

    @classmethod
    def of(cls, episodes: Episodes, number: int = 1, *, shared: float = 1.0) -> "Rounds":
        """A round, by its number from 1, of the tasks that held it; whoever took no part in it is masked.

        Shared at 1 charges a judge in full however few answers are left to read, which is the most it could take.
        """
        held = episodes.round_mask.shape[1]
        if not 1 <= number <= held:
            raise ValueError(f"expected a round that was held, 1 to {held}, got {number}: choose another round")
        if not 0 <= shared <= 1:
            raise ValueError(f"expected judging in [0, 1], got {shared}")
        r, count = number - 1, len(episodes.agents)
        if not episodes.round_mask[:, r].all():
            episodes = episodes.select(episodes.round_mask[:, r].nonzero()[:, 0])
        rows, columns = (_places(agents[:, r], count) for agents in (episodes.voters, episodes.authors))
        row, column = rows.clamp(min=0), columns.clamp(min=0)

        def of_authors(value: Tensor) -> Tensor:
            return value[:, r].gather(1, column)

        def of_pairs(value: Tensor) -> Tensor:
            by_row = value[:, r].gather(1, row[..., None].expand(-1, -1, value.shape[-1]))
            return by_row.gather(2, column[:, None].expand(-1, count, -1))

        answered = (columns >= 0) & of_authors(episodes.proposal_mask)
        judges = (rows >= 0) & episodes.voter_mask[:, r].gather(1, row)
        unknown = torch.full(columns.shape, math.nan, dtype=torch.float64)
        paid = unknown if episodes.proposal_cost is None else of_authors(episodes.proposal_cost).double()
        paid = torch.where(columns >= 0, paid, 0)
        judging = (episodes.cost[:, r].double() - paid.sum(1)).clamp(min=0) / judges.sum(1).clamp(min=1)
        return cls(
            episodes.ids,
            episodes.agents,
            episodes.task.double(),
            of_pairs(episodes.ratings).double(),
            of_pairs(episodes.vote_mask) & judges[:, :, None] & answered[:, None],
            torch.stack([columns >= 0, judges], -1),
            answered,
            of_authors(episodes.correct) & answered,
            torch.where(answered, of_authors(episodes.classes), -1),
            torch.stack([paid, torch.where(judges, judging[:, None], 0)], -1),
            unknown if episodes.length is None else of_authors(episodes.length).double(),
            shared,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def answer_cost(self) -> Float[Tensor, "batch agent"]:
        """What each agent's proposal took."""
        return self.seat_cost[..., 0].contiguous()

    def select(
        self, tasks: Sequence[int] | Tensor | None = None, agents: Sequence[int] | Tensor | None = None
    ) -> "Rounds":
        """Some of the tasks and some of the agents, by index, in the order given; None is all."""
        chosen: dict[str, Any] = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        names: dict[str, Any] = {}
        if tasks is not None:
            rows = torch.as_tensor(tasks, dtype=torch.long)
            chosen = {name: value[rows] for name, value in chosen.items()}
            names["ids"] = tuple(self.ids[i] for i in rows.tolist())
        if agents is not None:
            columns = torch.as_tensor(agents, dtype=torch.long)
            chosen = {name: value if name == "task" else value[:, columns] for name, value in chosen.items()}
            chosen |= {name: chosen[name][:, :, columns] for name in ("ratings", "vote_mask")}
            names["agents"] = tuple(self.agents[i] for i in columns.tolist())
        return dataclasses.replace(self, **chosen, **names)

    def elect(self, cell: ConsensusCell, team: Bool[Tensor, "*batch agent role"] | None = None) -> ConsensusOutput:
        """The vote of a team, of everybody if None: its proposals by its judges' ratings, without memory."""
        seated = self.there if team is None else self.there & team
        everybody = torch.arange(len(self.agents)).expand(len(self), -1)
        inputs = RoundInput(
            self.ratings,
            self.vote_mask,
            voters=everybody,
            authors=everybody,
            classes=self.classes,
            proposal_mask=self.answered & seated[..., 0],
            voter_mask=seated[..., 1],
        )
        return cell.elect(inputs, self.task)

    @torch.no_grad()
    def right(
        self, cell: ConsensusCell, team: Bool[Tensor, "*batch agent role"] | None = None
    ) -> Float[Tensor, "batch"]:
        """Whether the winner is right that the cell elects from a team."""
        return self._right(chances(self.elect(cell, team), self.ties, self.accuracy))

    def plurality_right(self, asked: Bool[Tensor, "*batch agent"]) -> Float[Tensor, "batch"]:
        """Whether the commonest answer of those asked is right."""
        top = commonest(torch.where(asked, self.classes, -1))
        return self._right(self.ties.chances(top, self.classes, self.accuracy))

    def settling(self, ties: Ties, learned_on: Int[Tensor, "train"]) -> "Rounds":
        """The same under a rule for ties; agents are as accurate as they are on some of the tasks."""
        return dataclasses.replace(
            self, ties=ties, accuracy=self.correct[learned_on].double().mean(0).expand(len(self), -1)
        )

    def cost(self, team: Bool[Tensor, "*batch agent role"]) -> Float[Tensor, "batch"]:
        """What a team's round takes, a judge's part less what it needs not read."""
        team = self.there & team
        reads = self.there[:, :, None, 1] & self.answered[:, None] & ~torch.eye(len(self.agents), dtype=torch.bool)
        unread = 1 - (reads & team[:, None, :, 0]).sum(2) / reads.sum(2).clamp(min=1)
        saved = torch.stack([torch.zeros_like(unread), (1 - self.shared) * unread], -1)
        return torch.where(team, self.seat_cost * (1 - saved), 0).sum((1, 2))

    def mean_costs(self) -> Float[Tensor, "agent role"]:
        """What each agent takes in each role on average, over the tasks where it took it; 0 where it never did."""
        return torch.where(self.there, self.seat_cost, 0).sum(0) / self.there.sum(0).clamp(min=1)

    def seated(self, utilities: Float[Tensor, "*batch agent role"]) -> Bool[Tensor, "batch agent role"]:
        """Whom the knapsack seats where no budget binds: all above 0, and the best of the rest up to `FEWEST`."""
        worth = utilities.expand(len(self), -1, -1).masked_fill(~self.there, -torch.inf)
        place = worth.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return self.there & ((worth > 0) | (place < torch.tensor(FEWEST)))

    def worth(self) -> tuple[Float[Tensor, "batch agent role"], Bool[Tensor, "batch agent role"]]:
        """Of a proposer whether it was right; of a judge the share of others' pairs that it put in the right order.

        Returns:
            That, in [0, 1], and where it could be seen.
        """
        rated = self.vote_mask & ~torch.eye(len(self.agents), dtype=torch.bool)
        judged = in_order(self.ratings, rated & self.correct[:, None], rated & ~self.correct[:, None])
        seen = torch.stack([self.there[..., 0], judged.isfinite()], -1)
        return torch.stack([self.correct.double(), judged.nan_to_num()], -1), seen

    def _right(self, chance: Float[Tensor, "batch agent"]) -> Float[Tensor, "batch"]:
        return torch.where(self.correct, chance, 0).sum(1)


def in_order(
    ratings: Float[Tensor, "batch voter proposal"],
    right: Bool[Tensor, "batch #voter proposal"],
    wrong: Bool[Tensor, "batch #voter proposal"],
) -> Float[Tensor, "batch voter"]:
    """Share of (right, wrong) pairs of which a judge rates the right one higher; a tie is half, NaN for no pair."""
    ahead = ((ratings[..., :, None] - ratings[..., None, :]).sign() + 1) / 2
    pairs = (right[..., :, None] & wrong[..., None, :]).expand_as(ahead)
    return torch.where(pairs, ahead, 0).sum((-1, -2)) / pairs.sum((-1, -2))


def all_teams(agents: int) -> Bool[Tensor, "team agent"]:
    """Every subset; number t holds the agents whose bits are set in t."""
    return ((torch.arange(2**agents)[:, None] >> torch.arange(agents)) & 1).bool()


def _places(agents: Int[Tensor, "batch seat"], count: int) -> Int[Tensor, "batch agent"]:
    """The seat at which each agent sits; -1 for none."""
    sits = agents[:, None, :] == torch.arange(count)[:, None]
    return torch.where(sits.any(-1), sits.int().argmax(-1), -1)


def _category(cell: ConsensusCell, episodes: Episodes) -> Int[Tensor, "batch"] | None:
    if cell.reading is None or not episodes.categories:
        return None
    places: Tensor = cell.reading.categorized(episodes.categories)
    return places.to(episodes.task.device)
