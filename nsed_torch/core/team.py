"""Who takes part in a round, and what stands of the round before."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nsed_torch.core.agent import Ensemble
from nsed_torch.records.transcript import ROLES, Proposal, Round, Usage


@dataclass(frozen=True)
class Team:
    """Who takes part in a round: indices into the ensemble, ascending.

    Whoever stands was heard in the round before and is not asked for a proposal again: the old one is voted on anew,
    and so are the ratings that judges of that round gave it.

    Raises:
        ValueError: for a team without proposers, or one in which somebody stands who does not propose.
    """

    proposers: tuple[int, ...]  # whose proposals are voted on
    voters: tuple[int, ...]  # who rates them
    standing: tuple[int, ...] = ()  # whose proposal of the round before stands

    def __post_init__(self) -> None:
        if not set(self.standing) <= set(self.proposers):
            raise ValueError(f"expected those who stand among the proposers {self.proposers}, got {self.standing}")
        if not self.proposers:
            raise ValueError(f"expected a team with at least one proposer, got none and the voters {self.voters}")


def full_team(ensemble: Ensemble, without: Collection[str] = ()) -> Team:
    """Everybody but those left out, in every role that it may take; in the published runs that is every role."""
    seated = [(i, agent) for i, agent in enumerate(ensemble.agents) if agent.name not in without]
    proposers, judges = (tuple(i for i, agent in seated if role in agent.roles) for role in ROLES)
    return Team(proposers, judges)


def check_team(team: Any, ensemble: Ensemble) -> None:
    """Refuse, with a ValueError, what is no team, or one of agents that are not there or may not take their role."""
    if not isinstance(team, Team):
        wanted = "expected a Team of the next round, or None to end the task"
        raise ValueError(f"broker: {wanted}, got {team!r:.60}: return Team(proposers, voters)")
    for role, seats in zip(ROLES, (team.proposers, team.voters), strict=True):
        may = [i for i, agent in enumerate(ensemble.agents) if role in agent.roles]
        if len(set(seats)) < len(seats) or not set(seats) <= set(may):
            wanted = f"expected different {role}s out of {may}, places of agents that may be one"
            raise ValueError(f"broker: {wanted}, got {list(seats)}: correct the team")


@dataclass(frozen=True)
class Standing:
    """What stands of a task's round before: nobody is asked for it again, and it costs nothing."""

    proposals: Mapping[str, Proposal]  # by author
    ratings: Mapping[tuple[str, str], float | None]  # by judge and author; None where a judge gave no valid one

    @classmethod
    def of(cls, last: Round | None, authors: Sequence[str]) -> "Standing":
        """The proposals of some authors, who must have proposed in that round, and all ratings that they were given."""
        there = {} if last is None else {proposal.agent: proposal for proposal in last.proposals}
        if strangers := [author for author in authors if author not in there]:
            got = ", ".join(strangers)
            raise ValueError(f"standing: expected proposers of the round before, got {got}: ask them anew")
        rows = [] if last is None else zip(last.voters, last.ratings, strict=True)
        ratings = {(v, a): r for v, row in rows for a, r in zip(there, row, strict=True) if a in authors}
        return cls({author: replace(there[author], usage=Usage()) for author in authors}, ratings)

    def filled(
        self, ratings: Sequence[Sequence[float | None]], voters: Sequence[str], authors: Sequence[str]
    ) -> list[list[float | None]]:
        """New ratings, [voter proposal], with those that stand in their places."""
        return [
            [self.ratings.get((voter, author), rating) for author, rating in zip(authors, row, strict=True)]
            for voter, row in zip(voters, ratings, strict=True)
        ]
