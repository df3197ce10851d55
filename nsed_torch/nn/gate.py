"""The semantic forget gate: what fades from memory, and how fast."""

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch import functional
from nsed_torch.nn.memory import MemoryState

GateMode = Literal["learned", "leaky", "vector", "none"]


class ForgetGate(nn.Module):
    """Factor in [0, 1] on every slot's retention, once a round.

    The paper names the gate but not its formula; all modes are ours:

    - "learned": `sigmoid(b + w . [cos(m, c), cos(m, x), support, age])`, c the consensus embedding, x the
      task's; starts as a constant leak (w = 0, b = logit(leak)).
    - "leaky": the constant leak, not trained.
    - "vector": a factor for every dimension of every slot, see `functional.vector_gate`; starts as the same
      constant leak.
    - "none": 1; nothing fades, the weakest slots are still displaced.

    Args:
        mode: one of the above.
        leak: the factor at the start, in (0, 1).
        dtype: of the parameters; torch's default if None.
        dim: width of the embeddings; mode "vector" needs it, the others ignore it.

    Raises:
        ValueError: if the mode is unknown, the leak out of range, or mode "vector" lacks a dim of at least 1.
    """

    leak: Tensor

    def __init__(
        self,
        mode: GateMode = "learned",
        leak: float = 0.8,
        dtype: torch.dtype | None = None,
        *,
        dim: int | None = None,
    ) -> None:
        super().__init__()
        if mode not in get_args(GateMode):
            raise ValueError(f"gate mode: expected one of {', '.join(get_args(GateMode))}, got {mode!r}")
        if not 0 < leak < 1:
            raise ValueError(f"gate leak: expected a value in (0, 1), got {leak}; mode 'none' keeps everything")
        self.mode = mode
        start = math.log(leak / (1 - leak))
        if mode == "learned":
            self.weight = nn.Parameter(torch.zeros(4, dtype=dtype))
            self.bias = nn.Parameter(torch.tensor(start, dtype=dtype))
        elif mode == "vector":
            if dim is None or dim < 1:
                raise ValueError(f"gate mode 'vector': expected the embeddings' width as dim, got dim={dim}")
            self.weight = nn.Parameter(torch.zeros(dim, 3, dtype=dtype))
            self.mixing = nn.Parameter(torch.zeros(dim, 4, dtype=dtype))
            self.bias = nn.Parameter(torch.full((dim,), start, dtype=dtype))
        elif mode == "leaky":
            self.register_buffer("leak", torch.tensor(leak, dtype=dtype))

    def forward(
        self, state: MemoryState, consensus: Float[Tensor, "batch dim"], task: Float[Tensor, "batch dim"]
    ) -> Float[Tensor, "batch slot"] | Float[Tensor, "batch slot dim"]:
        """The factor for each slot, in mode "vector" for each dimension of each slot; 0 for an empty one.

        Args:
            state: the incoming slots, with the ages they had when the last round ended.
            consensus: c.
            task: x.
        """
        if self.mode == "vector":
            features = self._features(state, consensus, task)
            gate = functional.vector_gate(
                state.embeddings, consensus, task, features, weight=self.weight, mixing=self.mixing, bias=self.bias
            )
            return torch.where(state.mask[:, :, None], gate, 0)
        if self.mode == "learned":
            gate = functional.forget_gate(self._features(state, consensus, task), self.weight, self.bias)
        elif self.mode == "leaky":
            gate = self.leak.expand_as(state.retention)
        else:
            gate = torch.ones_like(state.retention)
        return torch.where(state.mask, gate, 0)

    def _features(self, state: MemoryState, consensus: Tensor, task: Tensor) -> Tensor:
        """[batch slot 4]: what the gate reads of every slot."""
        toward_consensus = functional.cosine(state.embeddings, consensus[:, None, :])
        toward_task = functional.cosine(state.embeddings, task[:, None, :])
        return torch.stack([toward_consensus, toward_task, state.support, state.age], dim=-1)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"mode={self.mode!r}"
