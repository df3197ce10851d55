"""Keys and values of the rows that are being written, in place: a token's column is its position."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

STEP = 64
"""Columns to spare whenever the buffers grow."""


class Slots:
    """One row of keys and values for every sequence in the decoding batch.

    Rows are dense: a batch of n sequences uses the first n rows. Whatever lies behind a row's last position is
    left over from earlier rows and must be masked. There are `width` columns to begin with, and more as needed.
    """

    def __init__(self, rows: int, width: int = STEP) -> None:
        self.rows = rows
        self.width = width
        self._buffers: dict[tuple[int, int], Tensor] = {}

    def fill(
        self, layer: int, row: int, keys: Float[Tensor, "head column dim"], values: Float[Tensor, "head column dim"]
    ) -> None:
        """Set a row from its first column on."""
        for which, new in enumerate((keys, values)):
            heads, width, dim = new.shape
            self._buffer(layer, which, heads, dim, width, new)[row, :, :width] = new

    def append(
        self,
        layer: int,
        rows: Int[Tensor, " place"],
        positions: Int[Tensor, " place"],
        width: int,
        count: int,
        keys: Float[Tensor, "place head dim"],
        values: Float[Tensor, "place head dim_v"],
    ) -> list[Float[Tensor, "row head column _"]]:
        """Set some columns, and give keys and values of the first `count` rows back.

        `rows` and `positions` are where each new token goes, `width` the columns to give back, above every position.
        """
        filled = []
        for which, new in enumerate((keys, values)):
            _, heads, dim = new.shape
            buffer = self._buffer(layer, which, heads, dim, width, new)
            buffer[rows, :, positions] = new
            filled.append(buffer[:count, :, :width])
        return filled

    def move(self, sources: Sequence[int], targets: Sequence[int], width: int) -> None:
        """Put some rows' first columns in the places of other rows, none of which is among them."""
        places: dict[torch.device, Sequence[Tensor]] = {}
        for buffer in self._buffers.values():
            if buffer.device not in places:
                places[buffer.device] = torch.tensor([sources, targets], device=buffer.device).unbind()
            old, new = places[buffer.device]
            buffer[new, :, :width] = buffer[old, :, :width]

    def _buffer(self, layer: int, which: int, heads: int, dim: int, width: int, like: Tensor) -> Tensor:
        """The layer's keys or values with at least so many columns; what they held stays."""
        old = self._buffers.get((layer, which))
        if old is not None and old.shape[2] >= width:
            return old
        self.width = max(self.width, width if old is None else width + STEP)
        new = like.new_zeros(self.rows, heads, self.width, dim)
        if old is not None:
            new[:, :, : old.shape[2]] = old
        self._buffers[layer, which] = new
        return new
