"""LoRA adapters of many rows in one batch, two products a layer whatever their number."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.engines.packing.products import HALF, computing, is_thin


class MixedLora:
    """Adds to every token what its own adapter says.

    `y = W x + sum_a [token reads with a] s_a B_a A_a x`: the A of all adapters stand below each other, and so do the B,
    transposed, so both products are done once, over the rows from the first adapter present to the last, and a mask
    with the scales stands between them. Where gradients are on, they reach the adapters of the tokens present. An
    adapter that is anything but plain LoRA of linear layers, or activated LoRA, which is plain LoRA of some tokens, is
    a ValueError. `stacks` keeps what is put together for the next one.
    """

    def __init__(self, model: Any, stacks: "Stacks | None" = None) -> None:
        for found in departures(model):
            raise ValueError(f"expected plain LoRA adapters of linear layers, got {found}: train the adapter without")
        self._layers: list[Any] = [module for module in model.modules() if adapts(module) and hasattr(module, "lora_A")]
        self._head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        self._stacks: Stacks = {} if stacks is None else stacks
        for layer in self._layers:
            if layer in self._stacks and not is_current(layer, self._stacks[layer]):
                del self._stacks[layer]
            if layer not in self._stacks and not learns(layer):
                self._stacks[layer] = stacked(layer, layer.lora_A)
                share(layer, self._stacks[layer])
        self._learning: Stacks = {}  # of adapters that learn: copies, and so of one opening alone
        self._parts: dict[tuple[Any, tuple[str, ...], bool], Part] = {}
        self._gates: dict[tuple[bool, Blocks], Tensor] = {}

    @contextmanager
    def applied(self) -> Iterator["MixedLora"]:
        """While open, the model's LoRA layers compute this way; `select` says for which tokens."""
        self._parts, self._learning = {}, {}  # of an opening that failed; a scale may be another now, and a weight
        self.select(())
        with computing(self._layers, self._forward):
            yield self
        self._parts, self._learning = {}, {}

    def select(self, adapters: Sequence[str | None], ends: Sequence[int] | None = None) -> None:
        """Say which adapter reads each token of the next pass; `ends` are the tokens that the layer of logits sees."""
        present = tuple(sorted({name for name in adapters if name is not None}))
        index = {name: i for i, name in enumerate(present)}
        self._present = present
        owner = torch.tensor([-1 if name is None else index[name] for name in adapters], dtype=torch.long)
        self._owners = owner, owner if ends is None else owner[list(ends)]
        self._gates = {}

    def _forward(self, layer: Any, x: Float[Tensor, "1 token dim"]) -> Float[Tensor, "1 token dim_out"]:
        result: Tensor = layer.base_layer(x)
        blocks, down, up = self._part(layer, is_thin(x))
        if not blocks:
            return result
        gate = self._gate(layer is self._head, blocks, down)
        return result + (((x.to(down.dtype) @ down) * gate) @ up).to(result.dtype)

    def _part(self, layer: Any, thin: bool) -> "Part":
        """A layer's adapters from the first that is present to the last, and what is theirs of its stack."""
        known = layer, self._present, thin
        if torch.is_grad_enabled():
            return self._cut(layer, thin)
        if known not in self._parts:
            self._parts[known] = self._cut(layer, thin)
        return self._parts[known]

    def _cut(self, layer: Any, thin: bool) -> "Part":
        rows, held = places(layer), list(layer.lora_A)
        present = [held.index(name) for name in self._present if name in layer.lora_A]
        among = held[min(present) : max(present) + 1] if present else []
        blocks = tuple((name, layer.r[name], layer.scaling[name]) for name in among)
        if not blocks:
            return blocks, torch.empty(0), torch.empty(0)
        if torch.is_grad_enabled():
            down, up = stacked(layer, among)
        else:
            down, up = (part[rows[among[0]].start : rows[among[-1]].stop] for part in self._stack(layer))
            if thin and down.dtype in HALF:
                down, up = down.float(), up.float()
        return blocks, down.t(), up

    def _stack(self, layer: Any) -> tuple[Tensor, Tensor]:
        if layer in self._stacks:
            return self._stacks[layer]
        if layer not in self._learning:
            self._learning[layer] = stacked(layer, layer.lora_A)
        return self._learning[layer]

    def _gate(self, head: bool, blocks: "Blocks", like: Tensor) -> Tensor:
        """The scale of a token's own adapter in the columns of that adapter, zero elsewhere."""
        gate = self._gates.get((head, blocks))
        if gate is None:
            index = {name: place for place, name in enumerate(self._present)}
            absent = len(self._present)  # between two that are present, and nobody's
            columns = [
                ((self._owners[head] == index.get(name, absent)) * scale)[:, None].expand(-1, rank)
                for name, rank, scale in blocks
            ]
            gate = self._gates[head, blocks] = torch.cat(columns, dim=1).to(like)
        return gate


Blocks = tuple[tuple[str, int, float], ...]
"""Adapters that stand below each other: name, rank and scale."""

Part = tuple[Blocks, Tensor, Tensor]
"""Adapters, their A transposed beside each other, and their transposed B below each other."""

Stacks = dict[Any, tuple[Tensor, Tensor]]
"""By layer, the A of all its adapters below each other, and the transposed B."""


def places(layer: Any) -> dict[str, slice]:
    """The rows of each of a layer's adapters in its stack."""
    ends = list(accumulate(layer.r[name] for name in layer.lora_A))
    return {name: slice(end - layer.r[name], end) for name, end in zip(layer.lora_A, ends, strict=True)}


def stacked(layer: Any, names: Iterable[str]) -> tuple[Tensor, Tensor]:
    """The A of some of a layer's adapters below each other, and the transposed B; gradients go through."""
    down = torch.cat([layer.lora_A[name].weight for name in names])
    return down, torch.cat([layer.lora_B[name].weight.t() for name in names])


def adapts(module: nn.Module) -> bool:
    """Whether a module is one of peft's layers; asked of its class, for a module takes long to say what it has not."""
    return hasattr(type(module), "adapter_layer_names")


def learns(layer: Any) -> bool:
    """Whether any of a layer's adapters does."""
    return any(part.requires_grad for parts in (layer.lora_A, layer.lora_B) for part in parts.parameters())


def share(layer: Any, stack: tuple[Tensor, Tensor]) -> None:
    """Make a layer's frozen adapters parts of their stack, so that they are held once, whoever takes part in a pass."""
    down, up = stack
    for name, rows in places(layer).items():
        parts = layer.lora_A[name].weight, layer.lora_B[name].weight
        if all(part.dtype == down.dtype == up.dtype for part in parts):
            parts[0].data, parts[1].data = down[rows], up[rows].t()


def is_current(layer: Any, stack: tuple[Tensor, Tensor]) -> bool:
    """Whether a stack still consists of a layer's adapters: none came, went, moved or learned apart from it."""
    down, up = stack
    rows = places(layer)
    return sum(layer.r[name] for name in layer.lora_A) == len(down) and all(
        layer.lora_A[name].weight.data_ptr() == down[own].data_ptr()
        and layer.lora_B[name].weight.data_ptr() == up[own].data_ptr()
        for name, own in rows.items()
    )


def departures(model: nn.Module) -> Iterator[str]:
    """What peft would compute beside plain LoRA of linear layers, and this would leave out in silence."""
    for name, config in getattr(model, "peft_config", {}).items():
        if config.peft_type != "LORA":
            yield f"adapter {name!r} of type {config.peft_type.value}"
    for path, module in model.named_modules():
        if not adapts(module):
            continue
        place = f"{path.removeprefix('base_model.model.')} ({type(module).__name__})"
        if not hasattr(module, "lora_A"):
            yield f"weights of its own at {place}"
        elif module.merged:
            yield f"a merged adapter at {place}"
        elif {type(v).__name__ for v in module.lora_variant.values()} - {"ALoraLinearVariant"}:
            yield f"{', '.join(sorted(type(v).__name__ for v in module.lora_variant.values()))} at {place}"
        elif any(module.lora_bias.values()):
            yield f"a bias of the adapter at {place}"
        elif not {"in_features", "nf"} & vars(module.get_base_layer()).keys():
            yield f"an adapter of another kind of layer at {place}"
