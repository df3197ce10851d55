"""One recorded round, an agent a row and a column, and the rules that any team of them may vote by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.data import Episodes
from nsed_torch.nn import VOTES, ConsensusCell

COMMONEST = "commonest answer"
"""The rule that asks no judge: plurality of equal answers."""

TUNED = "tuned"
"""The vote of a cell that was loaded."""


@dataclass(frozen=True, eq=False)
class Poll:
    """One round of every task. Masked entries may hold anything.

    Args:
        ids: of the tasks.
        agents: who rates row i and proposes column i.
        task: embeddings of the questions.
        embeddings: of the proposals.
        ratings: in [-1, 1].
        vote_mask: which ratings count.
        proposal_mask: which proposals are answers.
        voter_mask: which voters are there.
        correct: which proposals are right; False where masked.
        classes: equal answers of a task, equal numbers; -1 where there is none.
    """

    ids: tuple[str, ...]
    agents: tuple[str, ...]
    task: Float[Tensor, "batch dim"]
    embeddings: Float[Tensor, "batch proposal dim"]
    ratings: Float[Tensor, "batch voter proposal"]
    vote_mask: Bool[Tensor, "batch voter proposal"]
    proposal_mask: Bool[Tensor, "batch proposal"]
    voter_mask: Bool[Tensor, "batch voter"]
    correct: Bool[Tensor, "batch proposal"]
    classes: Int[Tensor, "batch proposal"]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, episodes: Episodes, number: int = 1) -> "Poll":
        """A round of the tasks that held it; whoever took no part in it is masked.

        Args:
            episodes: recorded.
            number: of the round, from 1.

        Raises:
            ValueError: for fewer than two agents, or fewer than two tasks in which somebody gave an answer that round.
        """
        rounds = episodes.round_mask.shape[1]
        if len(episodes.agents) < 2 or not 1 <= number <= rounds:
            got = f"{len(episodes.agents)} agents and round {number} of {rounds}"
            raise ValueError(f"expected at least 2 agents and a round that was held, got {got}: choose another round")
        r, index = number - 1, episodes.round_mask[:, number - 1].nonzero()[:, 0]
        held = episodes.select(index)
        rows, columns = (_places(agents[:, r], len(held.agents)) for agents in (held.voters, held.authors))
        at = columns.clamp(min=0)

        def proposals(value: Tensor) -> Tensor:
            return value[:, r].gather(1, at)

        def ballots(value: Tensor) -> Tensor:
            by_row = value[:, r].gather(1, rows.clamp(min=0)[..., None].expand(-1, -1, value.shape[-1]))
            return by_row.gather(2, at[:, None].expand(-1, at.shape[1], -1))

        there = (columns >= 0) & proposals(held.proposal_mask)
        voting = (rows >= 0) & held.voter_mask[:, r].gather(1, rows.clamp(min=0))
        classes = torch.where(there, proposals(held.classes), -1)
        if (answers := int((classes >= 0).any(1).sum())) < 2:
            raise ValueError(f"expected answers to at least 2 tasks in round {number}, got {answers}: collect more")
        return cls(
            ids=held.ids,
            agents=held.agents,
            task=held.task,
            embeddings=held.embeddings[:, r].gather(1, at[..., None].expand(-1, -1, held.dim)),
            ratings=ballots(held.ratings),
            vote_mask=ballots(held.vote_mask) & voting[:, :, None] & there[:, None],
            proposal_mask=there,
            voter_mask=voting,
            correct=proposals(held.correct) & there,
            classes=classes,
        )


Rule = Callable[[Poll, Sequence[int]], Float[Tensor, "batch"]]
"""From a poll and the indices of a team to the chance that the team's answer is right, task by task."""


def elected(cell: ConsensusCell, poll: Poll, team: Sequence[int]) -> Float[Tensor, "batch"]:
    """Whether the consensus of a team is right, when it holds this round alone, without memory.

    Without memory kappa has nothing to pull towards, so that embeddings of proposals change no outcome.
    Answers of equal largest support share the task: the right ones among them over all of them. So no agent gains
    by its place in the list, as it does in a deliberation, where the first of them wins. Ours.

    Args:
        cell: knows as many agents as the poll has, in the poll's order.
        poll: the round.
        team: indices of agents.

    Returns:
        In [0, 1]; 0 where nobody of the team gave an answer.
    """
    index = torch.as_tensor(team)
    seats, counts = index.expand(len(poll), -1), poll.proposal_mask[:, index]
    with torch.no_grad():
        election = cell.elect(
            poll.ratings[:, index][:, :, index],
            poll.vote_mask[:, index][:, :, index],
            poll.task,
            voters=seats,
            authors=seats,
            classes=poll.classes[:, index],
            proposal_mask=counts,
            voter_mask=poll.voter_mask[:, index],
        )
    answers = election.answer_mask
    support = torch.where(answers, election.answer_support, -torch.inf)
    largest = support.amax(1, keepdim=True)
    # Float noise, as where a cell looks for its winner.
    tied = answers & (support >= largest - 1e-9 * largest.abs().clamp(min=1))
    return _share(tied & poll.correct[:, index], tied)


def commonest(poll: Poll, team: Sequence[int]) -> Float[Tensor, "batch"]:
    """Whether the answer that most of a team gave is right; classes of equal size share the task. Nobody rates.

    Args:
        poll: the round.
        team: indices of agents.

    Returns:
        In [0, 1]; 0 where nobody of the team gave an answer.
    """
    index = torch.as_tensor(team)
    classes = poll.classes[:, index]
    answered = poll.proposal_mask[:, index] & (classes >= 0)
    same = (classes[:, :, None] == classes[:, None]) & answered[:, :, None] & answered[:, None]
    size = same.sum(-1)
    top = answered & (size == size.amax(1, keepdim=True))
    return _share(top & poll.correct[:, index], top)


def rules(poll: Poll, seats: int, votes: Sequence[str], tuned: ConsensusCell | None = None) -> Mapping[str, Rule]:
    """What is compared, by name: fresh cells with these votes, the commonest answer, and a tuned cell if there is one.

    Args:
        poll: for the width of its embeddings.
        seats: agents that a fresh cell has room for.
        votes: names out of `nn.VOTES`.
        tuned: with as many seats.

    Raises:
        ValueError: for no votes, or one that is unknown.
    """
    if not votes or (unknown := [name for name in votes if name not in VOTES]):
        got = ", ".join(unknown) if votes else "none"
        raise ValueError(f"votes: expected names out of {', '.join(VOTES)}, got {got}")
    kind = poll.task.dtype
    fresh = {name: ConsensusCell(poll.task.shape[1], seats, vote=VOTES[name]()).to(kind) for name in votes}
    found: dict[str, Rule] = {name: partial(elected, cell) for name, cell in fresh.items()}
    found[COMMONEST] = commonest
    return found if tuned is None else {**found, TUNED: partial(elected, tuned.to(kind))}


def _places(agents: Int[Tensor, "batch seat"], count: int) -> Int[Tensor, "batch agent"]:
    """The seat at which each agent sits; -1 for none."""
    sits = agents[:, None, :] == torch.arange(count)[:, None]
    return torch.where(sits.any(-1), sits.int().argmax(-1), -1)


def _share(hits: Tensor, of: Tensor) -> Float[Tensor, "batch"]:
    return hits.sum(1).double() / of.sum(1).clamp(min=1)
