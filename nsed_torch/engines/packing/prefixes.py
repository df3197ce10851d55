"""Keys and values of what prompts begin with, kept from call to call within a fixed number of tokens."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nsed_torch.engines.packing.forest import Forest, Kept, Link, reader_of

AGE = 64
"""Tokens of depth that one pass without use weighs as much as."""

NEVER = -(2**40)
"""When a free place was last used."""


class PrefixCache:
    """A tree of readings, tokens with who read them; each has one place in every layer's buffers.

    When room is short, the tokens deepest in their prompts and longest out of use go first. A token is used no later
    than what precedes it and lies deeper, so what precedes a kept token is kept as well. The capacity is in tokens, 0
    keeps nothing; the buffers take their whole room when first used.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"expected room for 0 or more prefix tokens, got {capacity}")
        self.capacity = capacity
        self.clear()

    def clear(self) -> None:
        """Forget every token, as when the weights have changed, and free the buffers."""
        self._buffers: dict[tuple[int, int], Tensor] = {}
        self._places: dict[tuple[int | None, int], int] = {}  # what comes before a token, and its reading
        self._links: list[tuple[int | None, int] | None] = [None] * self.capacity
        self._depth = torch.zeros(self.capacity, dtype=torch.long)
        self._used = torch.full((self.capacity,), NEVER)
        self._clock = 0

    def forget(self, reader: int) -> None:
        """Forget what one adapter read, as when its weights have changed; what stands before that stays."""
        for place, link in enumerate(self._links):
            if link is not None and reader_of(link[1]) == reader:
                self._forget(place)

    def match(
        self, sequences: Sequence[Sequence[int]], links: Sequence[Sequence[Link] | None] | None = None
    ) -> list[Kept]:
        """The longest kept beginning of every sequence of a pass, which leaves each at least one token."""
        self._clock += 1
        told = links or [None] * len(sequences)
        found = [self._match(sequence, own) for sequence, own in zip(sequences, told, strict=True)]
        self._used[[place for kept in found for place in kept]] = self._clock
        return found

    def keep(self, forest: Forest) -> tuple[Int[Tensor, " token"], Int[Tensor, " token"]]:
        """Choose places of a pass to keep, with the place here for each; `store` must follow for every layer."""
        depth = torch.tensor(forest.positions)
        for node in forest.nodes:
            if node.links is not None:  # what reads notes side by side is theirs alone
                depth[node.start + len(node.links) : node.stop] = 2**60  # behind even free places
        scores = torch.cat([self._depth + AGE * (self._clock - self._used), depth])
        best = scores.argsort(stable=True)[: self.capacity]
        stays = torch.zeros(self.capacity, dtype=torch.bool)
        stays[best[best < self.capacity]] = True
        chosen = (best[best >= self.capacity] - self.capacity).sort().values
        free = (~stays).nonzero()[:, 0][: len(chosen)]
        for place in free.tolist():
            self._forget(place)
        entered = self._enter(forest, dict(zip(chosen.tolist(), free.tolist(), strict=True)))
        source, target = torch.tensor(entered, dtype=torch.long).reshape(-1, 2).unbind(dim=1)
        self._depth[target] = torch.tensor(forest.positions)[source]
        self._used[target] = self._clock
        return source, target

    def store(
        self,
        layer: int,
        kept: tuple[Int[Tensor, " token"], Int[Tensor, " token"]],
        keys: Float[Tensor, "head place dim"],
        values: Float[Tensor, "head place dim_v"],
    ) -> None:
        """Keep one layer's keys and values of what `keep` chose."""
        source, target = kept
        for which, new in enumerate((keys, values)):
            buffer = self._buffers.get((layer, which))
            if buffer is None:
                buffer = new.new_zeros(new.shape[0], self.capacity, new.shape[2])
                self._buffers[layer, which] = buffer
            buffer[:, target] = new[:, source]

    def read(
        self, layer: int, places: Int[Tensor, " token"]
    ) -> tuple[Float[Tensor, "head token dim"], Float[Tensor, "head token dim_v"]]:
        """One layer's keys and values at some places."""
        return self._buffers[layer, 0][:, places], self._buffers[layer, 1][:, places]

    def _match(self, readings: Sequence[int], links: Sequence[Link] | None) -> Kept:
        kept: list[int] = []
        for before, reading in enumerate(readings[:-1], -1) if links is None else links[: len(readings) - 1]:
            place = self._places.get((kept[before] if before >= 0 else None, reading))
            if place is None:
                break
            kept.append(place)
        return tuple(kept)

    def _forget(self, place: int) -> None:
        link = self._links[place]
        if link is not None:
            del self._places[link]
        self._links[place] = None
        self._used[place] = NEVER

    def _enter(self, forest: Forest, rooms: dict[int, int]) -> list[tuple[int, int]]:
        """Enter chosen tokens into the tree, where what precedes each is by then, and return where each went."""
        entered: dict[int, int] = {}
        for node in forest.nodes:
            before = node.kept[-1] if node.kept else None
            if node.ancestors:
                before = entered.get(node.ancestors[-1].stop - 1)
            line = None if node.links is None else [*node.kept, *node.places]
            for offset, place in enumerate(range(node.start, node.stop)):
                if place not in rooms:
                    break
                reading = forest.readings[place]
                if line is not None and node.links is not None:
                    above, reading = node.links[offset]
                    before = (
                        line[above] if 0 <= above < len(node.kept) else entered.get(line[above]) if above >= 0 else None
                    )
                    if before is None and above >= 0:
                        break
                link = before, reading
                # A prompt's last token is read again though it may be kept: its old place stays.
                before = entered[place] = self._places.setdefault(link, rooms[place])
                self._links[before] = link
                self._used[before] = self._clock
        return [(place, entered[place]) for place in entered if entered[place] == rooms[place]]
