"""Who rates what where not everybody rates everything. Ours; as published, everybody rates all but its own.

Missing ratings are masks, which the vote has.
"""

import random
from collections.abc import Sequence

from nsed_torch.core.open_round import OpenRound
from nsed_torch.core.protocol import Protocol

Pairs = list[set[int]]
"""For every judge what it rates."""


def drawn(
    may: Sequence[Sequence[bool]],
    known: Sequence[Sequence[bool]],
    seed: int,
    judges: int | None = None,
    candidates: int | None = None,
) -> Pairs:
    """What every judge is to rate, beside what is known: drawn so that judges, and proposals, share evenly.

    With `judges`, every proposal is rated by as many judges as that, or by all that may. With `candidates`, every judge
    rates as many proposals. With both, neither number is exceeded. The other side's numbers differ by at most 1, where
    nobody is kept from more than one and nothing is known.

    Args:
        may: [voter, proposal], whether a judge may rate a proposal.
        known: [voter, proposal], whether it has done so already, which counts towards the numbers.
        seed: of the draw.
        judges: of each proposal; all if None.
        candidates: of each judge; all if None.
    """
    voters, proposals = len(may), max(map(len, may), default=0)
    judges, candidates = judges or voters, candidates or proposals
    if judges * proposals <= candidates * voters:
        return _dealt(may, known, judges, random.Random(seed))  # noqa: S311 - fairness, not secrecy
    rated = _dealt(_turned(may), _turned(known), candidates, random.Random(seed))  # noqa: S311
    return [{j for j in range(proposals) if i in rated[j]} for i in range(voters)]


def _turned(rows: Sequence[Sequence[bool]]) -> list[tuple[bool, ...]]:
    return list(zip(*rows, strict=True))


def _dealt(may: Sequence[Sequence[bool]], known: Sequence[Sequence[bool]], each: int, rng: random.Random) -> Pairs:
    """Deals every column to `each` rows, those that have least so far; then rows with more give to rows with less."""
    rows, columns = range(len(may)), range(max(map(len, may), default=0))
    given: Pairs = [set() for _ in rows]
    load = [sum(row) for row in known]
    for j in rng.sample(columns, len(columns)):
        wanted = each - sum(known[i][j] for i in rows)
        free = [i for i in rng.sample(rows, len(rows)) if may[i][j] and not known[i][j]]
        for i in sorted(free, key=load.__getitem__)[: max(wanted, 0)]:
            given[i].add(j)
            load[i] += 1
    # Of two rows that differ by 2, one has two columns that the other lacks, and it is kept from at most one of them.
    while move := _move(may, known, given, load):
        high, low, j = move
        given[high].remove(j)
        given[low].add(j)
        load[high], load[low] = load[high] - 1, load[low] + 1
    return given


def _move(
    may: Sequence[Sequence[bool]], known: Sequence[Sequence[bool]], given: Pairs, load: Sequence[int]
) -> tuple[int, int, int] | None:
    order = sorted(range(len(load)), key=load.__getitem__)
    for low in order:
        for high in reversed(order):
            if load[high] - load[low] < 2:
                break
            for j in sorted(given[high] - given[low]):
                if may[low][j] and not known[low][j]:
                    return high, low, j
    return None


def alike(turn: OpenRound, protocol: Protocol) -> list[int]:
    """Of each proposal the first one that says the same, where equal answers are rated once; else itself."""
    if not protocol.equal_once:
        return list(range(len(turn.proposals)))
    return [turn.classes.index(same) if same >= 0 else j for j, same in enumerate(turn.classes)]


def pairs(turn: OpenRound, protocol: Protocol, seed: int) -> Pairs:
    """Of each judge the proposals, or first ones of those that say the same, that it rates."""
    groups = alike(turn, protocol)
    heads = sorted({group for group, p in zip(groups, turn.proposals, strict=True) if p.text})
    members = [[turn.proposals[j].agent for j, g in enumerate(groups) if g == head and turn.texts[j]] for head in heads]
    own = not protocol.diagonal_mask
    may = [[own or any(name != voter for name in names) for names in members] for voter in turn.voter_names]
    standing = turn.standing.ratings
    known = [[any((voter, name) in standing for name in names) for names in members] for voter in turn.voter_names]
    rows = drawn(may, known, seed, protocol.judges, protocol.candidates)
    return [{heads[j] for j in row} for row in rows]


def shared(turn: OpenRound, protocol: Protocol, ratings: list[list[float | None]]) -> list[list[float | None]]:
    """Ratings, [voter, proposal], with what a judge said of one proposal for all others that say the same."""
    groups = alike(turn, protocol)
    rows = []
    for voter, row in zip(turn.voter_names, ratings, strict=True):
        said = {groups[j]: rating for j, rating in reversed(list(enumerate(row))) if rating is not None}
        mine = [(p.agent == voter and protocol.diagonal_mask) or not p.text for p in turn.proposals]
        rows.append([row[j] if mine[j] else said.get(groups[j]) for j in range(len(row))])
    return rows
