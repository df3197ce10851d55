"""The semantic forget gate: what fades from memory, and how fast.

A gate is any module `(state, consensus, task) -> factors`: of the incoming slots (with the ages that they had when the
last round ended), the consensus embedding c and the task's x it makes a factor in [0, 1] on every slot's retention, or
on every dimension of every slot, and 0 for an empty slot. The paper names the gate but not its formula; all are ours.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.core import functional
from nsed_torch.core.functional.floats import unit
from nsed_torch.core.functional.tally import cosine
from nsed_torch.core.memory import MemoryState

Embedding = Float[Tensor, "batch dim"]
News = Float[Tensor, "batch proposal dim"]


class ForgetGate(nn.Module):
    """Learned: `sigmoid(b + w . [cos(m, c), cos(m, x), support, age])`; starts as a constant leak (w = 0).

    Args:
        leak: the factor at the start, in (0, 1).
        dtype: of the parameters; torch's default if None.

    Raises:
        ValueError: if the leak is out of range.
    """

    reads: ClassVar[int] = 4  # numbers of every slot

    def __init__(self, leak: float = 0.8, *, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(self.reads, dtype=dtype))
        self.bias = nn.Parameter(torch.tensor(_logit(leak), dtype=dtype))

    def forward(
        self, state: MemoryState, consensus: Embedding, task: Embedding, came: News | None = None
    ) -> Float[Tensor, "batch slot"]:
        """A factor for each slot. `came` are the proposals that enter, zeros for those that do not."""
        return torch.where(state.mask, self.of_features(self.features(state, consensus, task, came)), 0)

    def features(
        self, state: MemoryState, consensus: Embedding, task: Embedding, came: News | None = None
    ) -> Float[Tensor, "batch slot feature"]:
        """What it reads of every slot."""
        return _features(state, consensus, task)

    def of_features(self, features: Float[Tensor, "*batch slot feature"]) -> Float[Tensor, "*batch slot"]:
        """The factor for slots of which it has read this."""
        return functional.forget_gate(features, self.weight, self.bias)


class NoteGate(ForgetGate):
    """A `ForgetGate` that reads what enters, and an entry: for rounds that read. It starts as `ForgetGate` does.

    A fifth number says how far a note that enters may supersede the slot: the largest `cos(m, e) cos(e, x)` of them,
    factors below 0 as 0. What enters does so with its consensus times `functional.entry_gate` of
    `[cos(e, x), support, 1]`, which is 1 at the start: once that has learned, a note that is alone in its round, and
    says nothing of use, displaces nobody.
    """

    reads = 5

    def __init__(self, leak: float = 0.8, *, dtype: torch.dtype | None = None) -> None:
        super().__init__(leak, dtype=dtype)
        self.entry = nn.Parameter(torch.zeros(3, dtype=dtype))

    @torch.no_grad()
    def begin_below_one(self) -> None:
        """Begin a fit where what enters is less than 1, unless the entry has learned already.

        At 1, where it starts, a step that lets everything in more readily changes nothing, and a fit may end there.
        """
        if not self.entry.any():
            self.entry[-1] = -2

    def features(
        self, state: MemoryState, consensus: Embedding, task: Embedding, came: News | None = None
    ) -> Float[Tensor, "batch slot feature"]:
        """What it reads of every slot."""
        own = super().features(state, consensus, task)
        if came is None:
            return nn.functional.pad(own, (0, 1))
        near = unit(state.embeddings) @ unit(came).transpose(1, 2)
        superseded = near.clamp(min=0) * cosine(came, task[:, None, :]).clamp(min=0)[:, None, :]
        return torch.cat([own, superseded.amax(-1, keepdim=True)], -1)

    def entry_features(
        self,
        embeddings: Float[Tensor, "batch proposal dim"],
        support: Float[Tensor, "batch proposal"],
        task: Float[Tensor, "batch dim"],
    ) -> Float[Tensor, "batch proposal feature"]:
        """What it reads of what enters."""
        return torch.stack([cosine(embeddings, task[:, None, :]), support, torch.ones_like(support)], -1)

    def admits(self, features: Float[Tensor, "batch proposal feature"]) -> Float[Tensor, "batch proposal"]:
        """The factor on the retention of what enters."""
        return functional.entry_gate(features, self.entry)


class VectorGate(nn.Module):
    """A factor for every dimension of every slot, see `functional.vector_gate`; starts as the same constant leak.

    `dim` is the width of the embeddings; leak, dtype and errors are as of `ForgetGate`.
    """

    def __init__(self, dim: int, leak: float = 0.8, *, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim, 3, dtype=dtype))
        self.mixing = nn.Parameter(torch.zeros(dim, 4, dtype=dtype))
        self.bias = nn.Parameter(torch.full((dim,), _logit(leak), dtype=dtype))

    def forward(self, state: MemoryState, consensus: Embedding, task: Embedding) -> Float[Tensor, "batch slot dim"]:
        """A factor for each dimension of each slot."""
        features, parameters = _features(state, consensus, task), dict(self.named_parameters())
        gate = functional.vector_gate(state.embeddings, consensus, task, features, **parameters)
        return torch.where(state.mask[:, :, None], gate, 0)


class LeakyGate(nn.Module):
    """The constant leak, a buffer: nothing is trained. Leak, dtype and errors as of `ForgetGate`."""

    leak: Tensor

    def __init__(self, leak: float = 0.8, *, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        _logit(leak)
        self.register_buffer("leak", torch.tensor(leak, dtype=dtype))

    def forward(self, state: MemoryState, consensus: Embedding, task: Embedding) -> Float[Tensor, "batch slot"]:
        """The leak for each slot."""
        return torch.where(state.mask, self.leak, 0)


class OpenGate(nn.Module):
    """1: nothing fades, the weakest slots are still displaced."""

    def forward(self, state: MemoryState, consensus: Embedding, task: Embedding) -> Float[Tensor, "batch slot"]:
        """1 for each slot."""
        return state.mask.to(state.retention.dtype)


GATES: dict[str, type[nn.Module]] = {
    "learned": ForgetGate,
    "notes": NoteGate,
    "leaky": LeakyGate,
    "vector": VectorGate,
    "none": OpenGate,
}
"""Gates by the names that configs and saved cells use."""


def gate_named(name: str, dim: int, leak: float = 0.8, dtype: torch.dtype | None = None) -> nn.Module:
    """A fresh gate by its name, for embeddings of width `dim`; a ValueError for an unknown one."""
    if name not in GATES:
        raise ValueError(f"consensus gate: expected one of {', '.join(GATES)}, got {name!r}")
    if GATES[name] is OpenGate:
        return OpenGate()
    return GATES[name](**({"dim": dim} if GATES[name] is VectorGate else {}), leak=leak, dtype=dtype)


def _features(state: MemoryState, consensus: Tensor, task: Tensor) -> Tensor:
    """[batch slot 4]: what a gate that learns reads of every slot."""
    toward = [cosine(state.embeddings, other[:, None, :]) for other in (consensus, task)]
    return torch.stack([*toward, state.support, state.age], dim=-1)


def _logit(leak: float) -> float:
    if not 0 < leak < 1:
        raise ValueError(f"gate leak: expected a value in (0, 1), got {leak}; OpenGate keeps everything")
    return math.log(leak / (1 - leak))
