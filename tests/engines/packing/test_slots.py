"""Rows of keys and values against plain lists of columns."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from nsed_torch.engines.packing.slots import STEP, Slots

HEADS, DIM = 2, 3


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@given(st.lists(st.integers(1, 2 * STEP), min_size=1, max_size=4), st.integers(0, STEP), st.data())
def test_rows_hold_what_was_put_into_them(lengths, steps, data):
    slots = Slots(len(lengths) + 1)
    rows = [(draw(HEADS, n, DIM), draw(HEADS, n, DIM + 1)) for n in lengths]
    for i, row in enumerate(rows):
        slots.fill(0, i, *row)
        slots.fill(1, i, *(-part for part in row))
    for step in range(steps):
        positions = torch.tensor([row[0].shape[1] for row in rows])
        new = draw(len(rows), HEADS, DIM) + step, draw(len(rows), HEADS, DIM + 1) - step
        rows = [
            tuple(torch.cat([a, b[i, :, None]], dim=1) for a, b in zip(row, new, strict=True))
            for i, row in enumerate(rows)
        ]
        width = int(positions.max()) + 1
        for layer, sign in ((0, 1), (1, -1)):
            found = slots.append(layer, torch.arange(len(rows)), positions, width, len(rows), *(sign * p for p in new))
            assert [part.shape[:3] for part in found] == [(len(rows), HEADS, width)] * 2
        if len(rows) > 1 and data.draw(st.booleans()):
            count = data.draw(st.integers(1, len(rows) // 2))
            gaps = data.draw(st.permutations(range(len(rows) - count)))[:count]
            for gap in gaps:
                rows[gap] = rows.pop()
            slots.move([len(rows) + i for i in reversed(range(count))], gaps, max(rows[g][0].shape[1] for g in gaps))
    positions = torch.tensor([row[0].shape[1] for row in rows])
    last = draw(len(rows), HEADS, DIM), draw(len(rows), HEADS, DIM + 1)
    for layer, sign in ((0, 1), (1, -1)):
        places = torch.arange(len(rows)), positions, int(positions.max()) + 1, len(rows)
        found = slots.append(layer, *places, *last)
        for i, row in enumerate(rows):
            for part, got, new in zip(row, found, last, strict=True):
                assert_close(got[i, :, : part.shape[1]], sign * part, rtol=0, atol=0)
                assert_close(got[i, :, part.shape[1]], new[i], rtol=0, atol=0)


def test_buffers_begin_with_what_is_asked_and_grow_with_some_to_spare():
    for begin in (STEP, 5):
        slots = Slots(2, begin)
        for width, columns in (
            (1, begin),
            (begin, begin),
            (begin + 1, begin + 1 + STEP),
            (begin + 2, begin + 1 + STEP),
        ):
            slots.fill(0, 1, draw(HEADS, width, DIM), draw(HEADS, width, DIM))
            assert {b.shape for b in slots._buffers.values()} == {(2, HEADS, columns, DIM)}
