"""Token sequences with common prefixes, laid out so that one forward pass reads every shared token once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from nsed_torch.records.ledger import common_prefix

READER = 1 << 32
"""A reading is a token plus this times who reads it, 0 for the bare backbone: equal readings behind equal beginnings
are the same computation, whichever adapters their sequences end with."""

NOTE = 1 << 44
"""A reading of a note that is heard in part is that and this times what tells how, see `packing.heard`."""

Link = tuple[int, int]
"""The place in its sequence of what comes before a token, -1 for nothing, and the reading it is kept as."""

Kept = tuple[int, ...]
"""Places in the prefix cache of what a sequence begins with, one per token, in order."""


def reader_of(reading: int) -> int:
    """Who reads."""
    return reading % NOTE // READER


@dataclass
class Node:
    """A run of tokens that sees its ancestors whole and itself causally."""

    start: int  # place of its first token in the pass
    stop: int  # place behind its last token
    first: int  # position of its first token in its sequences
    kept: Kept  # what its sequences begin with, which is not read again
    ancestors: tuple["Node", ...]  # topmost first
    sequence: Sequence[int]  # one that runs through it, whole
    ending: list[int] = field(default_factory=list)  # which sequences end with it
    links: Sequence[Link] | None = None  # of its tokens that may be kept, where not all stand behind each other

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def places(self) -> list[int]:
        """Places in the pass of all tokens it sees, its own included, in the order of their positions."""
        return [place for node in (*self.ancestors, self) for place in range(node.start, node.stop)]


@dataclass(frozen=True)
class Forest:
    """The layout of a pass."""

    nodes: list[Node]  # in the order of their places
    readings: list[int]  # every token that is read, and by whom
    positions: list[int]  # of each token in its sequences
    ends: list[int]  # place of every sequence's last token

    def places(self, starts: Sequence[int]) -> list[list[int]]:
        """Places of every sequence's tokens, from a position of each on that lies behind what it begins with."""
        found: list[list[int]] = [[] for _ in self.ends]
        for node in self.nodes:
            for i in node.ending:
                found[i] = node.places[starts[i] - len(node.kept) :]
        return found


def plant(
    sequences: Sequence[Sequence[int]],
    kept: Sequence[Kept],
    positions: Sequence[Sequence[int]] | None = None,
    links: Sequence[Sequence[Link] | None] | None = None,
) -> Forest:
    """Lay sequences of readings out as a forest: those that begin with the same kept places share a common prefix.

    They are whole, what is kept included; each is longer than that. Of tokens that do not stand behind each other,
    `positions` and `links` tell where they stand.
    """
    forest = Forest([], [], [], [0] * len(sequences))
    # Notes side by side are kept without how they are heard.
    begun = [(own, tuple(s[: len(own)]) if links else ()) for own, s in zip(kept, sequences, strict=True)]
    ranks = {beginning: i for i, beginning in enumerate(dict.fromkeys(begun))}
    order = sorted(range(len(sequences)), key=lambda i: (ranks[begun[i]], sequences[i]))
    pending: list[tuple[list[int], int, tuple[Node, ...]]] = [
        (list(members), len(places), ()) for (places, _), members in groupby(order, key=begun.__getitem__)
    ]
    while pending:
        members, depth, ancestors = pending.pop()
        first = sequences[members[0]]
        # In sorted order the outermost two share exactly what all share.
        stop = common_prefix(first, sequences[members[-1]], depth)
        if stop > depth:
            start = len(forest.readings)
            node = Node(start, start + stop - depth, depth, kept[members[0]], ancestors, first)
            forest.nodes.append(node)
            forest.readings.extend(first[depth:stop])
            forest.positions.extend(positions[members[0]][depth:stop] if positions else range(depth, stop))
            if links and (known := links[members[0]]) is not None:
                node.links = known[depth:stop]
            ancestors = (*ancestors, node)
            node.ending = [i for i in members if len(sequences[i]) == stop]
            for i in node.ending:
                forest.ends[i] = node.stop - 1
        longer = [i for i in members if len(sequences[i]) > stop]
        pending += [(list(group), stop, ancestors) for _, group in groupby(longer, key=lambda i: sequences[i][stop])]
    return forest


def passes(lengths: Sequence[int], most: int, shared: Sequence[int] | None = None) -> list[range]:
    """Cut items of some lengths into runs of at most so many tokens together; an item that is longer stands alone.

    `shared` are the tokens that each item has in common with the one before it, which a run holds once.
    """
    starts, total = [0], 0
    for i, length in enumerate(lengths):
        own = length - (shared[i] if shared and i > starts[-1] else 0)
        if total and total + own > most:
            starts.append(i)
            own, total = length, 0
        total += own
    return [range(*pair) for pair in pairwise([*starts, len(lengths)]) if lengths]


def grouped(sequences: Sequence[list[int]], most: int, lengths: Sequence[int] | None = None) -> list[list[int]]:
    """Indices of sequences of readings, in passes of `most` tokens; those that have most in common stand together.

    `lengths` are the tokens that each stands for; None is its own.
    """
    order = sorted(range(len(sequences)), key=lambda i: sequences[i])
    stands = lengths or [len(sequence) for sequence in sequences]
    shared = shared_with_last([sequences[i] for i in order])
    return [[order[k] for k in few] for few in passes([stands[i] for i in order], most, shared)]


def shared_with_last(sequences: Sequence[Sequence[int]]) -> list[int]:
    """How many readings each sequence has in common with the one before it."""
    return [common_prefix(sequences[i - 1], sequences[i]) if i else 0 for i in range(len(sequences))]


CALL = 2000
"""Pairs of a token and a column that take as long as one more call of the attention, on a CPU."""


def grouped_nodes(nodes: Sequence[Node]) -> list[range]:
    """Runs of nodes, each of which is one product under a mask: a node with all below it where that costs less.

    Nodes stand in the order of `plant`, what stands below a node right behind it. A product over a whole tree computes
    pairs that nobody sees, and saves the calls of its branches.
    """
    ends, least, whole = [0] * len(nodes), [0] * len(nodes), [True] * len(nodes)
    for i in reversed(range(len(nodes))):
        below, end = 0, i + 1
        while end < len(nodes) and len(nodes[end].ancestors) > len(nodes[i].ancestors):
            below, end = below + least[end], ends[end]
        ends[i] = end
        tokens = nodes[end - 1].stop - nodes[i].start
        together = CALL + tokens * (nodes[i].first + tokens)
        apart = CALL + len(nodes[i]) * (nodes[i].first + len(nodes[i])) + below
        least[i], whole[i] = min(together, apart), together <= apart
    groups, i = [], 0
    while i < len(nodes):
        groups.append(range(i, ends[i] if whole[i] else i + 1))
        i = groups[-1].stop
    return groups
