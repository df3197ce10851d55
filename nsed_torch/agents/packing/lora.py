"""LoRA adapters of many rows in one batch, two products a layer whatever their number."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class MixedLora:
    """Adds to every token what its own adapter says.

    `y = W x + sum_a [token reads with a] s_a B_a A_a x`: the A of all adapters present stand below each other and
    the B beside each other, so both products are done once, and a mask with the scales stands between them. Where
    gradients are on, they reach the adapters of the tokens present.

    Args:
        model: a `PeftModel`, or a model without adapters.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = [module for module in model.modules() if hasattr(module, "lora_A")]
        self._stacks: dict[tuple[int, tuple[str, ...]], tuple[Tensor, Tensor]] = {}
        self._gates: dict[tuple[tuple[str, int, float], ...], Tensor] = {}
        self.select(())

    @contextmanager
    def applied(self) -> Iterator["MixedLora"]:
        """While open, the model's LoRA layers compute this way; `select` says for which tokens."""
        for layer in self._layers:
            layer.forward = partial(self._forward, layer)
        try:
            yield self
        finally:
            for layer in self._layers:
                del layer.forward

    def select(self, adapters: Sequence[str | None]) -> None:
        """Say which adapter reads each token of the next pass; None is the bare backbone."""
        present = sorted({name for name in adapters if name is not None})
        index = {name: i for i, name in enumerate(present)}
        self._present = present
        self._owner = torch.tensor([index.get(name, -1) if name else -1 for name in adapters])
        self._gates = {}

    def _forward(self, layer: Any, x: Float[Tensor, "1 token dim"]) -> Float[Tensor, "1 token dim_out"]:
        result: Tensor = layer.base_layer(x)
        names = tuple(name for name in self._present if name in layer.lora_A)
        if not names:
            return result
        down, up = self._stack(layer, names)
        gate = self._gate(tuple((name, layer.r[name], layer.scaling[name]) for name in names), down)
        return result + (((x.to(down.dtype) @ down.t()) * gate) @ up.t()).to(result.dtype)

    def _stack(self, layer: Any, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        """All A below each other and all B beside each other."""
        learning = torch.is_grad_enabled()
        if not learning and (id(layer), names) in self._stacks:
            return self._stacks[id(layer), names]
        down = torch.cat([layer.lora_A[name].weight for name in names])
        up = torch.cat([layer.lora_B[name].weight for name in names], dim=1)
        if not learning:
            self._stacks[id(layer), names] = down, up
        return down, up

    def _gate(self, blocks: tuple[tuple[str, int, float], ...], like: Tensor) -> Tensor:
        """The scale of a token's own adapter in the columns of that adapter, zero elsewhere."""
        gate = self._gates.get(blocks)
        if gate is None:
            columns = [
                ((self._owner == self._present.index(name)) * scale)[:, None].expand(-1, rank)
                for name, rank, scale in blocks
            ]
            gate = self._gates[blocks] = torch.cat(columns, dim=1).to(like)
        return gate
