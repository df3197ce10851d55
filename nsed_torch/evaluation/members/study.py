"""All that a recorded round tells about its members, as one tree of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nsed_torch.evaluation.members.faulty import Faulty, faulty_members
from nsed_torch.evaluation.members.gain import Gain, RankCorrelation, gains
from nsed_torch.evaluation.members.poll import TUNED, Poll, Rule
from nsed_torch.evaluation.members.teams import MOST, Addition, TeamSize, additions, scores, sub_teams, team_sizes
from nsed_torch.evaluation.statistics import plain


@dataclass(frozen=True)
class Study:
    """What a recorded round tells about its members.

    Args:
        tasks: their number.
        agents: real ones.
        sizes: accuracy by size of the team.
        additions: weaker members added to the best ones.
        faulty: simulated members added to all.
        gains: p_g, p_v and the gain of every team in every stratum.
        correlations: of these.
    """

    tasks: int
    agents: tuple[str, ...]
    sizes: tuple[TeamSize, ...]
    additions: tuple[Addition, ...]
    faulty: tuple[Faulty, ...]
    gains: tuple[Gain, ...]
    correlations: tuple[RankCorrelation, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON data: floats with 9 decimals; null for what is not there or has no bound."""
        data: dict[str, Any] = plain(self)
        return data


def study(
    poll: Poll,
    rules: Mapping[str, Rule],
    *,
    strata: Mapping[str, str] | None = None,
    core: int = 2,
    most_teams: int = MOST,
    draws: int = 5,
    seed: int = 0,
) -> Study:
    """Vote again and again on one recorded round, and count.

    Args:
        poll: the round.
        rules: as `poll.rules` gives them, with seats for `faulty.most_faulty` more agents. Gains are told of the first
            and of the tuned one.
        strata: task id -> name; what stands before an id's first dash if None.
        core: how many of the best agents weaker ones are added to.
        most_teams: teams of one size that are tried.
        draws: of what simulated members do.
        seed: of everything drawn.

    Raises:
        ValueError: as `sub_teams`, `team_sizes`, `additions` and `faulty_members`.
    """
    teams = sub_teams(len(poll.agents), most=most_teams, seed=seed)
    added = additions(poll, rules, core=core)
    faulty = faulty_members(poll, rules, draws=draws, seed=seed)
    table = scores(poll, rules, teams)
    told = {name: table[name] for name in dict.fromkeys([next(iter(rules)), TUNED]) if name in rules}
    rows, correlations = gains(poll, teams, told, strata, seed=seed)
    sizes = team_sizes(poll, teams, table)
    return Study(len(poll), poll.agents, tuple(sizes), tuple(added), tuple(faulty), tuple(rows), tuple(correlations))
