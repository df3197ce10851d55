"""p_g and p_v of every team in every stratum against what its consensus gains: the paper's condition, tested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.evaluation.insight.values import Real, ranks
from nsed_torch.evaluation.members.poll import Poll
from nsed_torch.evaluation.members.teams import Scores, Team
from nsed_torch.evaluation.statistics import Estimate

ALL = "all tasks"
DRAWS = 500
"""Resamples of tasks behind an interval."""


@dataclass(frozen=True)
class Gain:
    """A team in a stratum.

    Args:
        vote: name of the rule.
        stratum: of the tasks; `ALL` for all of them.
        agents: members.
        tasks: their number.
        p_g: share of right proposals, which is the mean accuracy of single members too; none is a wrong one.
        p_v: chance that a member rates another's right proposal above another's wrong one, equal ratings counting one
            half, as in `insight.judging`; None where there is no such pair.
        pairs: behind p_v.
        gain: accuracy of the consensus minus p_g.
    """

    vote: str
    stratum: str
    agents: tuple[str, ...]
    tasks: int
    p_g: float
    p_v: float | None
    pairs: int
    gain: float


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's, of p_v with the gain.

    Args:
        vote: name of the rule.
        over: "teams" for those of all tasks, "teams and strata" for those of every stratum.
        rho: with the interval of resampled tasks; n are rows. Teams share members, so rows are no independent ones.
    """

    vote: str
    over: str
    rho: Estimate


def prefixes(ids: Sequence[str]) -> dict[str, str]:
    """Strata by what stands before an id's first dash; none for ids without one."""
    return {name: name.partition("-")[0] for name in ids if "-" in name}


def gains(
    poll: Poll, teams: Sequence[Team], scores: Scores, strata: Mapping[str, str] | None = None, *, seed: int = 0
) -> tuple[list[Gain], list[RankCorrelation]]:
    """Measure every team of two or more in every stratum, and how p_v goes with the gain.

    Args:
        poll: the round.
        teams: as `teams.sub_teams` gives them.
        scores: theirs, by rule.
        strata: task id -> name; `prefixes` if None. One stratum alone is all tasks.
        seed: of the resamples.
    """
    strata = prefixes(poll.ids) if strata is None else strata
    own = [strata.get(name, "") for name in poll.ids]
    masks = {name: torch.tensor([other == name for other in own]) for name in sorted(set(own) - {""})}
    masks = {ALL: torch.ones(len(poll), dtype=torch.bool), **(masks if len(masks) > 1 else {})}
    several = [i for i, team in enumerate(teams) if len(team) > 1]
    wins, pairs = _pairs(poll, [teams[i] for i in several])
    single = torch.stack([poll.correct[:, list(teams[i])].double().mean(1) for i in several])
    drawn = np.random.default_rng(seed).multinomial(len(poll), np.full(len(poll), 1 / len(poll)), size=DRAWS)
    counts = torch.cat([torch.ones(1, len(poll)), torch.from_numpy(drawn)]).double()
    rows, correlations = [], []
    for vote, table in scores.items():
        columns = torch.stack([single, wins, pairs, table[several] - single], -1)
        measured = {name: _measures(columns, mask, counts) for name, mask in masks.items()}
        for name, mask in masks.items():
            for i, team in enumerate(several):
                p_g, p_v, gain = measured[name][0, i].tolist()
                names = tuple(poll.agents[a] for a in teams[team])
                n = int(pairs[i, mask].sum())
                rows.append(Gain(vote, name, names, int(mask.sum()), p_g, p_v if n else None, n, gain))
        parts = {"teams": [ALL], "teams and strata": [name for name in masks if name != ALL]}
        for over, chosen in parts.items():
            if chosen:
                together = torch.cat([measured[name] for name in chosen], 1).numpy()
                correlations.append(RankCorrelation(vote, over, _correlation(together)))
    return rows, correlations


def _pairs(poll: Poll, teams: Sequence[Team]) -> tuple[Float[Tensor, "team batch"], Float[Tensor, "team batch"]]:
    """Of each team and task: pairs of a right and a wrong proposal that a member rated in the right order, and all."""
    mask = poll.vote_mask & ~torch.eye(len(poll.agents), dtype=torch.bool)
    right, wrong = mask & poll.correct[:, None], mask & ~poll.correct[:, None]
    both = (right[..., None] & wrong[:, :, None]).double()
    ahead = both * (1 + (poll.ratings[..., None] - poll.ratings[:, :, None]).nan_to_num().sign()) / 2
    wins: list[Tensor] = []
    pairs: list[Tensor] = []
    for team in teams:
        seats = torch.tensor(team)
        for found, of in ((wins, ahead), (pairs, both)):
            found.append(of[:, seats][:, :, seats][..., seats].sum((1, 2, 3)))
    return torch.stack(wins), torch.stack(pairs)


def _measures(
    columns: Float[Tensor, "team batch column"], mask: Tensor, counts: Float[Tensor, "draw batch"]
) -> Float[Tensor, "draw team measure"]:
    """p_g, p_v and gain of every resample, the first of which is the tasks as they are; NaN for what is undefined."""
    counts = counts * mask
    single, wins, pairs, gain = torch.einsum("db,tbc->cdt", counts, columns)
    tasks = counts.sum(1, keepdim=True)
    return torch.stack([single / tasks, wins / pairs, gain / tasks], -1)


def _correlation(measured: Real) -> Estimate:
    """Of p_v and gain in the first draw, with the interval of the others."""
    rho, *drawn = (spearman(draw[:, 1], draw[:, 2]) for draw in measured)
    known = [value for value in drawn if value is not None]
    n = int(np.isfinite(measured[0, :, 1]).sum())
    # Where most resamples leave it undefined, there is no interval.
    if rho is None or len(known) < DRAWS / 2:
        return Estimate(n, rho)
    low, high = np.quantile(known, [0.025, 0.975]).tolist()
    return Estimate(n, rho, low, high, "resampling")


def spearman(x: Real, y: Real) -> float | None:
    """Spearman's rank correlation of the pairs that are defined; None for fewer than three or where either is constant.

    Args:
        x: NaN where undefined.
        y: likewise.
    """
    defined = np.isfinite(x) & np.isfinite(y)
    # Rounded, for equal shares may differ in their last digit.
    x, y = np.round(x[defined], 12), np.round(y[defined], 12)
    if len(x) < 3 or 0 in (np.ptp(x), np.ptp(y)):
        return None
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])
