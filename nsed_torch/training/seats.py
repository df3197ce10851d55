"""Sub-teams on recorded rounds: who could have sat where, what that would have cost, and who would have won."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nsed_torch.data import Episodes
from nsed_torch.nn import ConsensusCell

LEAST = (1, 0)
"""Fewest agents of each role, as `broker=learned` has them: somebody must answer, nobody need judge."""


@dataclass(frozen=True, eq=False)
class RecordedSeats:
    """The first round of recorded tasks, agent by agent as proposer and as judge.

    That round is what a sub-team can be tried on: nobody has read a memory yet, so every proposal is what its author
    would have said in any team. Ratings are too, where judges rate answers one by one.

    Args:
        episodes: the tasks, cut to that round.
        there: who took which role.
        worth: of a proposer whether it was right; of a judge the share of pairs of a right and a wrong answer that it
            rated in that order, equal ratings counting one half.
        known: where that could be seen.
        tokens: what each agent took in each role; what the proposals leave of the round is split evenly among judges.
        reads: which author's answer each judge had to read.
        shared: share of a judge's tokens that does not fall with the number of answers it reads.
    """

    episodes: Episodes
    there: Bool[Tensor, "batch agent role"]
    worth: Float[Tensor, "batch agent role"]
    known: Bool[Tensor, "batch agent role"]
    tokens: Float[Tensor, "batch agent role"]
    reads: Bool[Tensor, "batch agent author"]
    shared: float = 1.0

    @classmethod
    def of(cls, episodes: Episodes, *, shared: float = 1.0) -> "RecordedSeats":
        """The first rounds of episodes.

        Args:
            episodes: with what each proposal cost, as traces have it.
            shared: as of the class; 1 charges a judge in full however few answers are left to read, which is the most
                it could take.

        Raises:
            ValueError: if nobody knows what a proposal cost, or the share is none.
        """
        if episodes.proposal_cost is None or not 0 <= shared <= 1:
            got = "none" if episodes.proposal_cost is None else f"a share of {shared}"
            raise ValueError(f"seats: expected costs of proposals and a share in [0, 1], got {got}: train on traces")
        first = _first_round(episodes)
        agents = len(first.agents)
        author, voter = (_one_hot(x[:, 0], agents) for x in (first.authors, first.voters))
        voter &= first.voter_mask[:, 0, :, None]
        counted, right = first.proposal_mask[:, 0], first.correct[:, 0] & first.proposal_mask[:, 0]
        mask = first.vote_mask[:, 0] & counted[:, None]
        pairs = (mask & right[:, None])[..., None] & (mask & ~right[:, None])[..., None, :]
        rating = torch.where(mask, first.ratings[:, 0], 0)
        ahead = ((rating[..., None] - rating[..., None, :]).sign() + 1) / 2
        seen = pairs.sum((-1, -2))
        won = torch.where(pairs, ahead, 0).sum((-1, -2)) / seen.clamp(min=1)
        paid = torch.zeros_like(first.task[:, :1]) if first.proposal_cost is None else first.proposal_cost[:, 0]
        judging = (first.cost[:, 0] - paid.sum(1)).clamp(min=0) / voter.sum((1, 2)).clamp(min=1)

        def by_agent(proposers: Tensor, judges: Tensor) -> Tensor:
            parts = (proposers[..., None] * author).sum(1), (judges[..., None] * voter).sum(1)
            return torch.stack(parts, -1)

        there = torch.stack([author.any(1), voter.any(1)], -1)
        answered = (counted[..., None] & author).any(1)
        return cls(
            first,
            there,
            by_agent(right.double(), won.double()),
            by_agent(torch.ones_like(paid), (seen > 0).double()) > 0,
            by_agent(paid, judging[:, None].expand(-1, voter.shape[1])),
            there[:, :, None, 1] & answered[:, None] & ~torch.eye(agents, dtype=torch.bool),
            shared,
        )

    def __len__(self) -> int:
        return len(self.there)

    def select(self, rows: Sequence[int] | Tensor) -> "RecordedSeats":
        """Some of the tasks, by index, in the order given."""
        index = torch.as_tensor(rows, dtype=torch.long)
        fields: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        chosen: dict[str, Any] = {name: value[index] for name, value in fields.items() if isinstance(value, Tensor)}
        return dataclasses.replace(self, episodes=self.episodes.select(index), **chosen)

    def seated(self, utilities: Float[Tensor, "*batch agent role"]) -> Bool[Tensor, "batch agent role"]:
        """Whom the knapsack seats where no budget binds: all above 0, and the best of the rest up to `LEAST`."""
        worth = utilities.expand(len(self), -1, -1).masked_fill(~self.there, -torch.inf)
        place = worth.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return self.there & ((worth > 0) | (place < torch.tensor(LEAST)))

    def cost(self, team: Bool[Tensor, "*batch agent role"]) -> Float[Tensor, "batch"]:
        """Tokens of a team's round, a judge's less what it needs not read."""
        team = self.there & team
        unread = 1 - (self.reads & team[:, None, :, 0]).sum(2) / self.reads.sum(2).clamp(min=1)
        saved = torch.stack([torch.zeros_like(unread), (1 - self.shared) * unread], -1)
        return torch.where(team, self.tokens * (1 - saved), 0).sum((1, 2))

    @torch.no_grad()
    def right(self, cell: ConsensusCell, team: Bool[Tensor, "*batch agent role"]) -> Bool[Tensor, "batch"]:
        """Whether the winner is right that the cell elects from a team's proposals by its judges' ratings.

        Ties go to the first proposal of the round, as they do live.
        """
        team, first = self.there & team, self.episodes
        authors, voters = first.authors[:, 0], first.voters[:, 0]
        election = cell.elect(
            first.ratings[:, 0],
            first.vote_mask[:, 0],
            first.task,
            voters=voters.clamp(min=0),
            authors=authors,
            classes=first.classes[:, 0],
            proposal_mask=first.proposal_mask[:, 0] & _holds(team[..., 0], authors),
            voter_mask=first.voter_mask[:, 0] & _holds(team[..., 1], voters),
        )
        right = first.correct[:, 0].gather(1, election.winner.clamp(min=0)[:, None])[:, 0]
        elected: Tensor = right & (election.winner >= 0)
        return elected


def _first_round(episodes: Episodes) -> Episodes:
    fields = {field.name: getattr(episodes, field.name) for field in dataclasses.fields(episodes)}
    cut: dict[str, Any] = {
        name: value[:, :1] for name, value in fields.items() if isinstance(value, Tensor) and name != "task"
    }
    return dataclasses.replace(episodes, **cut)


def _one_hot(index: Tensor, size: int) -> Bool[Tensor, "batch place agent"]:
    return index[..., None] == torch.arange(size)


def _holds(seat: Bool[Tensor, "batch agent"], index: Tensor) -> Bool[Tensor, "batch place"]:
    return seat.gather(1, index.clamp(min=0)) & (index >= 0)


def mean_costs(seats: RecordedSeats) -> Float[Tensor, "agent role"]:
    """Mean tokens of each agent in each role, over the tasks where it took it; 0 where it never did."""
    return torch.where(seats.there, seats.tokens, 0).sum(0) / seats.there.sum(0).clamp(min=1)
