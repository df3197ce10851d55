"""LoRA adapters of many rows in one batch, two products a layer whatever their number."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.agents.packing.products import computing


class MixedLora:
    """Adds to every token what its own adapter says.

    `y = W x + sum_a [token reads with a] s_a B_a A_a x`: the A of all adapters present stand below each other and
    the B beside each other, so both products are done once, and a mask with the scales stands between them. Where
    gradients are on, they reach the adapters of the tokens present. An adapter that is anything but plain LoRA of
    linear layers, or activated LoRA, which is plain LoRA of some tokens, is a ValueError.
    """

    def __init__(self, model: Any) -> None:
        for found in departures(model):
            raise ValueError(f"expected plain LoRA adapters of linear layers, got {found}: train the adapter without")
        self._layers = [module for module in model.modules() if hasattr(module, "lora_A")]
        self._head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        self._stacks: dict[tuple[int, tuple[str, ...]], tuple[Tensor, Tensor]] = {}
        self._gates: dict[tuple[bool, tuple[tuple[str, int, float], ...]], Tensor] = {}
        self.select(())

    @contextmanager
    def applied(self) -> Iterator["MixedLora"]:
        """While open, the model's LoRA layers compute this way; `select` says for which tokens."""
        with computing(self._layers, self._forward):
            yield self

    def select(self, adapters: Sequence[str | None], ends: Sequence[int] | None = None) -> None:
        """Say which adapter reads each token of the next pass; `ends` are the tokens that the layer of logits sees."""
        present = sorted({name for name in adapters if name is not None})
        index = {name: i for i, name in enumerate(present)}
        self._present = present
        owner = torch.tensor([-1 if name is None else index[name] for name in adapters], dtype=torch.long)
        self._owners = owner, owner if ends is None else owner[list(ends)]
        self._gates = {}

    def _forward(self, layer: Any, x: Float[Tensor, "1 token dim"]) -> Float[Tensor, "1 token dim_out"]:
        result: Tensor = layer.base_layer(x)
        names = tuple(name for name in self._present if name in layer.lora_A)
        if not names:
            return result
        down, up = self._stack(layer, names)
        blocks = tuple((name, layer.r[name], layer.scaling[name]) for name in names)
        gate = self._gate(layer is self._head, blocks, down)
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

    def _gate(self, head: bool, blocks: tuple[tuple[str, int, float], ...], like: Tensor) -> Tensor:
        """The scale of a token's own adapter in the columns of that adapter, zero elsewhere."""
        gate = self._gates.get((head, blocks))
        if gate is None:
            columns = [
                ((self._owners[head] == self._present.index(name)) * scale)[:, None].expand(-1, rank)
                for name, rank, scale in blocks
            ]
            gate = self._gates[head, blocks] = torch.cat(columns, dim=1).to(like)
        return gate


def departures(model: nn.Module) -> Iterator[str]:
    """What peft would compute beside plain LoRA of linear layers, and this would leave out in silence."""
    for name, config in getattr(model, "peft_config", {}).items():
        if config.peft_type != "LORA":
            yield f"adapter {name!r} of type {config.peft_type.value}"
    for path, module in model.named_modules():
        if not hasattr(module, "adapter_layer_names"):  # by which peft's layers say what they hold
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
