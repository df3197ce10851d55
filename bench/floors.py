"""What a device can do at most, measured, and what a pass of a model takes at least, reckoned."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bench.timing import seconds
from nsed_torch.engines.transformers_engine import TransformersEngine

COPY, MATRIX = 2**31, 8192
"""Bytes that are copied, and rows of the square matrices that are multiplied; a CPU gets a 64th and an eighth."""


@dataclass(frozen=True)
class Rates:
    """Of a device: bytes a second that a large copy reads and writes, operations a second of a large product."""

    bandwidth: float
    products: float

    @classmethod
    def measured(cls, device: torch.device, dtype: torch.dtype) -> "Rates":
        """Medians of five, after one that is not counted."""
        on_cpu = device.type == "cpu"
        source = torch.zeros(COPY // 64 if on_cpu else COPY, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        size = MATRIX // 8 if on_cpu else MATRIX
        matrix = torch.randn(size, size, device=device).to(dtype)
        copied, multiplied = (_median(work) for work in (lambda: target.copy_(source), lambda: matrix @ matrix))
        return cls(2 * source.numel() / copied, 2 * size**3 / multiplied)


def _median(work: Callable[[], object]) -> float:
    seconds(work)
    return statistics.median(seconds(work) for _ in range(5))


class Floor:
    """Least seconds of an engine's passes: bytes over bandwidth or operations over rate, whichever is more.

    Bytes are the weights, once a pass, and in decoding the keys and values of what was read. Operations are those of
    linear layers and of attention. Rotations, norms, sampling and the scales of 4-bit weights are not counted.
    Taken of an engine without adapters.
    """

    def __init__(self, engine: TransformersEngine, rates: Rates) -> None:
        self.rates = rates
        model, head = engine.model, engine.model.get_output_embeddings()
        config = model.config.get_text_config()
        layers = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not head]
        self.matrices = sum(m.in_features * m.out_features for m in layers)
        self.head = head.in_features * head.out_features
        embedded = model.get_input_embeddings().weight
        apart = 0 if embedded is head.weight else embedded.numel() * embedded.element_size()
        self.weights = sum(p.numel() * p.element_size() for p in model.parameters()) - apart
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.pair = 4 * config.num_hidden_layers * config.num_attention_heads * width
        self.kept = 2 * config.num_hidden_layers * config.num_key_value_heads * width * head.weight.element_size()

    def reading(self, lengths: Sequence[int], ends: int | None = None) -> float:
        """Of a pass over sequences that share nothing, with logits at their ends or at so many places."""
        logits = len(lengths) if ends is None else ends
        operations = 2 * self.matrices * sum(lengths) + 2 * self.head * logits
        return self._seconds(self.weights, operations + self.pair * sum(n * n / 2 for n in lengths))

    def step(self, rows: int, context: float) -> float:
        """Of a token more in each row, behind so many on average."""
        operations = 2 * (self.matrices + self.head) * rows + self.pair * rows * context
        return self._seconds(self.weights + self.kept * rows * context, operations)

    def _seconds(self, moved: float, operations: float) -> float:
        return max(moved / self.rates.bandwidth, operations / self.rates.products)
