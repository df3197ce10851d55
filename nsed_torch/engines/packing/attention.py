"""Attention over packed tokens: every token of a pass stands in one row, and a plan says who sees whom."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.engines.packing.forest import Forest, Node, grouped_nodes
from nsed_torch.engines.packing.heard import HeardColumns, Tags
from nsed_torch.engines.packing.prefixes import PrefixCache
from nsed_torch.engines.packing.slots import Slots

NAME = "nsed_packed"
"""By which transformers knows `packed_attention`."""

FOREIGN = ("s_aux", "sinks", "position_bias", "indices", "block_indices")
"""What some families pass to their attention and a plan knows nothing of."""


class Shape(NamedTuple):
    """What a layer asks of its attention."""

    scale: float | None = None
    window: int | None = None
    softcap: float | None = None


def packed_attention(
    module: nn.Module,
    query: Float[Tensor, "1 head token dim"],
    key: Float[Tensor, "1 head_kv token dim"],
    value: Float[Tensor, "1 head_kv token dim_v"],
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    nsed_plan: "Plan | None" = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention that transformers calls while a `PackedModel` is open; outputs are `batch token head dim`."""
    asked = sorted(name for name in FOREIGN if kwargs.get(name) is not None)
    causal = kwargs.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        asked.append("what comes later")
    # Anything but the one entry that `PackedModel` passes is a mask of the layer's own.
    if attention_mask is None or attention_mask.numel() > 1:
        asked.append("another mask")
    if asked or nsed_plan is None:
        raise unreadable(type(module).__name__, ", ".join(asked) or "an attention of its own")
    layer: int = module.layer_idx  # type: ignore[assignment]
    heads = nsed_plan.attend(layer, query, key, value, Shape(scaling, sliding_window, softcap))
    return heads.transpose(1, 2).contiguous(), None


def unreadable(name: str, found: str) -> ValueError:
    """The one line for a model whose tokens cannot be packed."""
    return ValueError(f"expected a model of full or sliding attention layers, {name} has {found}: choose another model")


class ForestPlan:
    """Prefill: every node of a forest sees itself causally and what stands above it.

    What sequences begin with is read from `prefixes`, and `kept`, from `PrefixCache.keep`, is stored there; `slots` are
    filled with whole sequences for decoding, `rows` being the row of each. `dense` is one product over all tokens with
    a mask, as an accelerator likes it, or one a group of nodes (`grouped_nodes`) with less waste; None is dense
    everywhere but on a CPU.
    """

    def __init__(
        self,
        forest: Forest,
        prefixes: PrefixCache,
        device: torch.device,
        *,
        kept: tuple[Tensor, Tensor] | None = None,
        slots: Slots | None = None,
        rows: Sequence[int] = (),
        dense: bool | None = None,
        tags: Tags | None = None,
    ) -> None:
        self.forest = forest
        self.prefixes = prefixes
        self.device = device
        self.kept = None if kept is None else (kept[0].to(device), kept[1].to(device))
        self.slots = slots
        self.rows = rows
        self.dense = device.type != "cpu" if dense is None else dense
        # The columns of a pass are the kept tokens that its sequences begin with, then its own tokens.
        self._kept = sorted({place for node in forest.nodes for place in node.kept})
        self._old = torch.tensor(self._kept, dtype=torch.long, device=device)
        order = {place: i for i, place in enumerate(self._kept)}
        self._roots = [[order[place] for place in node.kept] for node in forest.nodes]
        self._sizes = [len(self._kept), *map(len, forest.nodes)]
        number = {node.start: i for i, node in enumerate(forest.nodes, 1)}
        self._lines = [[number[above.start] for above in (*node.ancestors, node)] for node in forest.nodes]
        self._heard: dict[int, HeardColumns] = {}  # by node
        for i, node in enumerate(forest.nodes):
            told = None if tags is None else tags.heard(node.sequence[: node.first + len(node)], device)
            if told is not None:
                self._heard[i] = told
        alone = [range(i, i + 1) for i in range(len(forest.nodes))]
        self._groups = [] if self.dense else alone if self._heard else grouped_nodes(forest.nodes)
        self._masks: dict[tuple[int, int, int | None, int], Tensor] = {}
        self._trees: dict[tuple[int, int | None], Tensor] = {}
        self._weighted: dict[tuple[int, int | None], Tensor] = {}
        self._spoken: dict[tuple[int, int | None], tuple[Tensor, Tensor, Tensor]] = {}
        if self.dense and slots is not None:
            # An accelerator fills all rows in one go: a call per row and layer takes longer than the model.
            filled = [
                (rows[sequence], position, column)
                for node, columns in self._columns()
                for sequence in node.ending
                for position, column in enumerate(columns)
            ]
            self._filled = torch.tensor(filled, device=device).unbind(1)
            self._longest = 1 + max(position for _, position, _ in filled)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, shape: Shape) -> Tensor:
        """Attention of one layer; keys and values go where they are wanted later."""
        keys, values = key, value
        if self._kept:
            old = self.prefixes.read(layer, self._old)
            keys, values = (torch.cat([a[None], b], dim=2) for a, b in zip(old, (key, value), strict=True))
        split = [] if self.dense else [part.split(self._sizes, dim=2) for part in (keys, values)]
        seen = {group: self._seen(split, group) for group in self._groups}
        if self.slots is not None and self.dense:
            rows, positions, columns = self._filled
            whole = [part[0].transpose(0, 1)[columns] for part in (keys, values)]
            self.slots.append(layer, rows, positions, self._longest, 0, *whole)
        elif self.slots is not None:
            for i, node in enumerate(self.forest.nodes):
                for sequence in node.ending:
                    alone = range(i, i + 1)
                    own, said = seen.get(alone) or self._seen(split, alone)
                    self.slots.fill(layer, self.rows[sequence], own[0], said[0])
        if self.kept is not None:
            self.prefixes.store(layer, self.kept, key[0], value[0])
        heads = query.shape[1] // key.shape[1]
        if self.dense:
            mask = self._whole(keys.shape[2], shape.window, heads, query.dtype)
            return attention(query, keys, values, mask, shape)
        asked = query.split([sum(self._sizes[1 + i] for i in group) for group in self._groups], dim=2)
        parts = [
            self._learning(group.start, own, *columns, shape)
            if shape.softcap is None and group.start in self._heard and self._heard[group.start].logs.requires_grad
            else attention(own, *columns, self._mask(group, shape.window, heads, query.dtype), shape)
            for own, (group, columns) in zip(asked, seen.items(), strict=True)
        ]
        return torch.cat(parts, dim=2)

    def _learning(self, index: int, query: Tensor, key: Tensor, value: Tensor, shape: Shape) -> Tensor:
        """Attention of a node to notes whose retention learns: a fused kernel passes no gradient to what it adds.

        So what is added is a product of further numbers of queries and keys, in two thirds of the time.
        """
        scale = shape.scale if shape.scale is not None else query.shape[-1] ** -0.5
        if (index, shape.window) not in self._spoken:
            own, columns, seen = self._before(index, shape.window)
            mask = self._heard[index].seen(own, columns, seen).repeat(query.shape[1] // key.shape[1], 1)
            told = self._heard[index].factors(own, columns, scale, query.dtype)
            self._spoken[index, shape.window] = *told, mask
        asks, tells, mask = self._spoken[index, shape.window]
        query = torch.cat([query, asks.expand(*query.shape[:2], -1, -1)], -1)
        key = torch.cat([key, tells.expand(*key.shape[:2], -1, -1)], -1)
        filled = nn.functional.pad(value, (0, key.shape[-1] - value.shape[-1]))
        return attention(query, key, filled, mask, shape._replace(scale=scale))[..., : value.shape[-1]]

    def _seen(self, split: Sequence[Sequence[Tensor]], group: range) -> tuple[Tensor, Tensor]:
        """The keys and the values that a node sees and, if it has a group, those of what stands below it.

        Nodes are joined, not indexed: backwards, to index is to fill a tensor of all columns for every node.
        """
        root, line = self._roots[group.start], [*self._lines[group.start], *(1 + i for i in group[1:])]
        kept = [self._index(root)] if root else []
        keys, values = (
            torch.cat([*(pieces[0][:, :, columns] for columns in kept), *(pieces[i] for i in line)], dim=2)
            for pieces in split
        )
        return keys, values

    def _mask(self, group: range, window: int | None, heads: int, dtype: torch.dtype) -> Tensor | None:
        """What a group's tokens see of the columns before them; None if that is all up to themselves."""
        node = self.forest.nodes[group.start]
        if group.start in self._heard:
            return self._hearing(group.start, window, dtype).repeat(heads, 1)
        total = node.first + len(node)
        if len(group) > 1:
            if (group.start, window) not in self._trees:
                self._trees[group.start, window] = self._tree(group, window).repeat(heads, 1)
            return self._trees[group.start, window]
        if len(node) == total and (window is None or total <= window):
            return None
        known = len(node), total, window, heads
        if known not in self._masks:
            seen = visible(torch.arange(node.first, total, device=self.device), total, window)
            self._masks[known] = seen.repeat(heads, 1)
        return self._masks[known]

    def _hearing(self, index: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """What is added to a node's attention, where notes are heard in part."""
        if (index, window) not in self._weighted:
            self._weighted[index, window] = self._heard[index].mask(*self._before(index, window), dtype)
        return self._weighted[index, window]

    def _before(self, index: int, window: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """A node's tokens as columns, all columns up to its end, and what of them a plain prompt would see."""
        node = self.forest.nodes[index]
        columns = torch.arange(node.first + len(node), device=self.device)
        if window is not None and bool(self._heard[index].beside.any()):
            wanted = "expected layers that see the whole prompt for memory=beside, got a sliding window"
            raise ValueError(f"protocol: {wanted}: set protocol.memory=weighted")
        own = columns[node.first :]
        return own, columns, visible(own, len(columns), window)

    def _tree(self, group: range, window: int | None) -> Tensor:
        """What each token of a node and of those below it sees of what stands before and among them."""
        top, *_, last = (self.forest.nodes[i] for i in group)
        before = list(range(top.first))
        mask = torch.zeros(last.stop - top.start, top.first + last.stop - top.start, dtype=torch.bool)
        for node in (self.forest.nodes[i] for i in group):
            columns = before + [top.first + place - top.start for place in node.places if place >= top.start]
            positions = torch.arange(node.first, node.first + len(node))
            mask[node.start - top.start : node.stop - top.start, columns] = visible(positions, len(columns), window)
        return mask.to(self.device)

    def _whole(self, width: int, window: int | None, groups: int, dtype: torch.dtype) -> Tensor:
        """What every token sees of all columns."""
        known = len(self.forest.readings), width, window, groups
        if known not in self._masks:
            mask = torch.zeros(len(self.forest.readings), width, dtype=torch.bool)
            for node, columns in self._columns():
                positions = torch.arange(node.first, node.first + len(node))
                mask[node.start : node.stop, columns] = visible(positions, len(columns), window)
            mask = mask.to(self.device)
            if self._heard:
                weights = mask.new_zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)
                for i, (node, columns) in enumerate(self._columns()):
                    if i in self._heard:
                        rows = torch.arange(node.start, node.stop, device=self.device)[:, None]
                        weights[rows, torch.tensor(columns, device=self.device)] = self._hearing(i, window, dtype)
                mask = weights
            self._masks[known] = mask.repeat(groups, 1)
        return self._masks[known]

    def _columns(self) -> Iterator[tuple[Node, list[int]]]:
        """Every node with the columns of a pass that it sees."""
        for node, root in zip(self.forest.nodes, self._roots, strict=True):
            yield node, root + [len(self._kept) + place for place in node.places]

    def _index(self, columns: list[int]) -> slice | Tensor:
        """Columns as what selects them fastest."""
        if columns[-1] - columns[0] + 1 == len(columns) and columns == sorted(columns):
            return slice(columns[0], columns[-1] + 1)
        return torch.tensor(columns, device=self.device)


class StepPlan:
    """Decoding: some tokens per row, one mostly, each of which sees its row's columns up to its own.

    Args:
        slots: the rows' keys and values.
        positions: of the first new token of each row.
        counts: new tokens of each row, which stand row by row in a pass.
        device: where the model computes.
        heard: how each row's prompt is heard.
    """

    def __init__(
        self,
        slots: Slots,
        positions: Sequence[int],
        counts: Sequence[int],
        device: torch.device,
        heard: Sequence[HeardColumns | None] = (),
    ) -> None:
        self.slots = slots
        self._heard = heard if any(one is not None for one in heard) else ()
        starts = [0, *accumulate(counts)]
        # A row of fewer tokens is filled up with its last: attention has as many queries in every row.
        places = [
            [start + min(i, count - 1) for i in range(max(counts))]
            for start, count in zip(starts, counts, strict=False)
        ]
        tokens = [(row, offset) for row, count in enumerate(counts) for offset in range(count)]
        own = [positions[row] + offset for row, offset in tokens]
        self._places = torch.tensor(places, device=device)
        self._positions = torch.tensor(own, device=device)
        self._index = torch.tensor(tokens, device=device).unbind(1)
        self._width = max(own) + 1
        self._masks: dict[tuple[int | None, int], Tensor] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, shape: Shape) -> Tensor:
        """All rows at once."""
        rows, offsets = self._index
        new = key[0].transpose(0, 1), value[0].transpose(0, 1)
        keys, values = self.slots.append(layer, rows, self._positions, self._width, len(self._places), *new)
        heads = query[0][:, self._places].transpose(0, 1)
        mask = self._mask(shape.window, query.shape[1] // keys.shape[1], query.dtype)
        result = attention(heads, keys, values, mask, shape)
        return result[rows, :, offsets].transpose(0, 1)[None]

    def _mask(self, window: int | None, groups: int, dtype: torch.dtype) -> Tensor:
        """What each row's queries see, once for every head that shares keys."""
        if (window, groups) not in self._masks:
            seen = visible(self._positions[self._places].flatten(), self._width, window)
            seen = seen.unflatten(0, self._places.shape)
            if self._heard:
                weights = seen.new_zeros(seen.shape, dtype=dtype).masked_fill(~seen, -torch.inf)
                for row, told in enumerate(self._heard):
                    if told is not None:  # what is written is no note
                        weights[row, :, : len(told.logs)] += told.logs.to(dtype)
                seen = weights
            self._masks[window, groups] = seen.repeat(1, groups, 1)[:, None]
        return self._masks[window, groups]


@dataclass
class Probe:
    """One token that sees itself, to learn which layers attend."""

    layers: list[int] = field(default_factory=list)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, shape: Shape) -> Tensor:
        """Attention of one layer."""
        self.layers.append(layer)
        return attention(query, key, value, None, shape)


Plan = ForestPlan | StepPlan | Probe
"""Who sees whom in one pass: `attend` is the attention of one layer over `1 head token dim` tensors."""


def visible(positions: Int[Tensor, " token"], width: int, window: int | None) -> Bool[Tensor, "token column"]:
    """Which columns tokens at some positions see: those up to their own, the window's last ones at most."""
    columns = torch.arange(width, device=positions.device)
    seen = columns <= positions[:, None]
    return seen if window is None else seen & (columns > positions[:, None] - window)


def attention(
    query: Float[Tensor, "row head token dim"],
    key: Float[Tensor, "row head_kv column dim"],
    value: Float[Tensor, "row head_kv column dim_v"],
    mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None,
    shape: Shape,
) -> Float[Tensor, "row head token dim_v"]:
    """Softmax attention; several query heads may share one head of keys; no mask means causal.

    Under a mask, queries that share keys stand below each other, so that the keys are read once: kernels that repeat
    them take 10 times as long for one token per row in bfloat16 on a CPU. The mask of more than one token has their
    rows already, once for every head that shares keys.
    """
    groups, tokens = query.shape[1] // key.shape[1], query.shape[2]
    if mask is None and shape.softcap is None:
        return nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=shape.scale, enable_gqa=groups > 1
        )
    if mask is None:
        mask = query.new_ones(tokens, tokens, dtype=torch.bool).tril().repeat(groups, 1)
    if groups > 1:
        query = query.unflatten(1, (-1, groups)).flatten(2, 3)
    heads: Tensor = _masked(query, key, value, mask, shape).unflatten(2, (groups, tokens)).flatten(1, 2)
    return heads


def _masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, shape: Shape) -> Tensor:
    """Softmax attention under a mask, with as many heads of keys as of queries."""
    if shape.softcap is None:
        return nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=shape.scale)
    scale = shape.scale if shape.scale is not None else query.shape[-1] ** -0.5
    scores = ((query @ key.mT) * scale / shape.softcap).tanh() * shape.softcap
    precise = torch.promote_types(scores.dtype, torch.float32)
    scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(dim=-1, dtype=precise).to(value.dtype) @ value
