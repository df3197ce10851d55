"""The bounded memory that passes from round to round."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core import functional
from nsed_torch.core.functional.memory import split_gate


class MemoryState(NamedTuple):
    """The slots of every task, strongest first; empty slots hold zeros."""

    embeddings: Float[Tensor, "batch slot dim"]
    retention: Float[Tensor, "batch slot"]  # weight of each slot, in [0, 1]
    support: Float[Tensor, "batch slot"]  # net support of the proposal in the round that wrote the slot
    age: Float[Tensor, "batch slot"]  # rounds since then, 0 for a slot just written
    mask: Bool[Tensor, "batch slot"]  # which slots hold something

    @classmethod
    def empty(
        cls,
        batch: int,
        slots: int,
        dim: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> "MemoryState":
        """What every deliberation starts from."""
        zeros = torch.zeros(batch, slots, dtype=dtype, device=device)
        embeddings = torch.zeros(batch, slots, dim, dtype=dtype, device=device)
        return cls(embeddings, zeros, zeros, zeros, torch.zeros(batch, slots, dtype=torch.bool, device=device))

    def faded(
        self, gate: Float[Tensor, "batch slot"] | Float[Tensor, "batch slot dim"]
    ) -> tuple["MemoryState", Float[Tensor, "batch slot"]]:
        """The slots as a gate, on whole slots or on every dimension, leaves them, and the factor on their retention."""
        if gate.ndim == 2:
            return self, gate
        factor, embeddings = split_gate(gate, self.embeddings)
        return self._replace(embeddings=embeddings), factor

    def hidden(self) -> Float[Tensor, "batch dim"]:
        """The hidden state h, see `functional.hidden_state`."""
        return functional.hidden_state(self.embeddings, self.retention, self.mask)


class BoundedMemory(nn.Module):
    """Forget, let the proposals in, keep as many slots as before: `functional.update_memory`."""

    def forward(
        self,
        state: MemoryState,
        gate: Float[Tensor, "batch slot"],
        embeddings: Float[Tensor, "batch proposal dim"],
        retention: Float[Tensor, "batch proposal"],
        support: Float[Tensor, "batch proposal"],
        *,
        proposal_mask: Bool[Tensor, "batch proposal"],
    ) -> tuple[MemoryState, Int[Tensor, "batch slot"]]:
        """The next state, and for each of its slots the index among old slots followed by proposals, -1 if empty.

        Proposals enter with a retention and a support each; `gate` is the factor on the retention of the old slots.
        """
        kept, source = functional.update_memory(state.retention, state.mask, gate, retention, proposal_mask)
        mask, index = source >= 0, source.clamp(min=0)
        support, age = (
            torch.where(mask, torch.cat([old, new], 1).gather(1, index), 0)
            for old, new in ((state.support, support), (state.age + 1, torch.zeros_like(support)))
        )
        pool = torch.cat([state.embeddings, embeddings], 1)
        chosen = pool.gather(1, index[:, :, None].expand(-1, -1, pool.shape[-1]))
        return MemoryState(torch.where(mask[:, :, None], chosen, 0), kept, support, age, mask), source
