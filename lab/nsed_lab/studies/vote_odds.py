"""How likely a vote elects the right step, from how likely each of its members writes what."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

DIGITS, SLACK = 9, 1e-6
"""Of leads, which sums in another order do not meet exactly."""

RIGHT, NONE = 0, 1
"""Places of the right step and of what is none, which gets no votes, among all that is said."""

DRAWS = 4000
"""Of a vote, where what may be said is known."""


class Odds(NamedTuple):
    """What a vote comes to."""

    right: float  # how likely the right step is elected
    asked: float  # how many are asked, on average


def least_elected(
    right: Sequence[float], ahead: float = 2, weights: Sequence[float] | None = None, *, ties_lost: bool = False
) -> Odds:
    """How likely the right step is elected, at the least, by members who write it with these probabilities, in turn.

    As if all wrong steps were one. A right step likelier than 0.5 has only likeliest tokens, so that drawing at a
    temperature below 1 makes it likelier still.

    Args:
        right: how likely each writes the right step.
        ahead: by how many votes a step has to lead for nobody else to be asked.
        weights: votes of each; one each without.
        ties_lost: whether the wrong step wins where both have as many votes, rather than the one said first.
    """
    undecided, won, turns = {(0.0, False): 1.0}, 0.0, 0.0  # by the right step's lead, and whether it was said first
    for asked, (p, weight) in enumerate(zip(right, weights or [1.0] * len(right), strict=True), 1):
        turns += sum(undecided.values())
        after: dict[tuple[float, bool], float] = {}
        for (lead, first), likely in undecided.items():
            for said, part in ((weight, p), (-weight, 1 - p)):
                there = round(lead + said, DIGITS), first if asked > 1 else said > 0
                after[there] = after.get(there, 0.0) + likely * part
        decided = {there for there in after if abs(there[0]) >= ahead - SLACK or asked == len(right)}
        won += sum(after[there] for there in decided if there[0] > (-SLACK if there[1] and not ties_lost else SLACK))
        undecided = {there: likely for there, likely in after.items() if there not in decided}
    return Odds(won, turns)


def drawn_elected(
    said: Sequence[np.ndarray], ahead: float = 2, weights: Sequence[float] | None = None, draws: int = DRAWS
) -> Odds:
    """The same where it is known what else each may write: votes are drawn, and ties go to what was said first.

    Args:
        said: of each member, how likely it writes each of the same texts; the right one stands at `RIGHT`, what is no
            step at `NONE`.
        ahead: as in `least_elected`.
        weights: likewise.
        draws: of the vote, the same ones every time.
    """
    rng, texts = np.random.default_rng(0), len(said[0])
    votes, first = np.zeros((draws, texts)), np.full((draws, texts), len(said))
    going, asked = np.ones(draws, dtype=bool), 0
    for turn, (odds, weight) in enumerate(zip(said, weights or [1.0] * len(said), strict=True)):
        asked += int(going.sum())
        text = np.minimum(np.searchsorted(np.cumsum(odds), rng.random(draws) * odds.sum(), side="right"), texts - 1)
        rows = np.flatnonzero(going & (text != NONE))
        votes[rows, text[rows]] += weight
        first[rows, text[rows]] = np.minimum(first[rows, text[rows]], turn)
        best = np.sort(votes, axis=1)
        going &= best[:, -1] - best[:, -2] < ahead - SLACK
    leads = votes >= votes.max(1, keepdims=True) - SLACK
    elected = np.where(leads, first, len(said)).argmin(1)
    return Odds(float(((elected == RIGHT) & (votes.max(1) > 0)).mean()), asked / draws)


def said_by(wrong: Sequence[float], drawn: Sequence[Sequence[int]], texts: int = 0) -> list[np.ndarray]:
    """How likely each kind of member writes each text at a step.

    Args:
        wrong: how likely each does not write the right step, as read.
        drawn: how often each was drawn to write each text, places as in `drawn_elected`; nothing for who was not drawn,
            whose wrong steps count as the one that is likeliest of the others.
        texts: how many there are at the least.
    """
    texts = max([len(row) for row in drawn] + [texts, NONE + 2])
    counts = np.zeros((len(wrong), texts))
    for place, row in enumerate(drawn):
        counts[place, : len(row)] = row
    counts[:, RIGHT] = 0
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    heavy = np.asarray(wrong) @ shares
    heavy[[RIGHT, NONE]] = -1
    common = np.eye(texts)[heavy.argmax()]
    odds = [error * (share if share.any() else common) for error, share in zip(wrong, shares, strict=True)]
    return [row + (1 - error) * np.eye(texts)[RIGHT] for row, error in zip(odds, wrong, strict=True)]
