"""The bounded memory that passes from round to round: the hidden state of the recurrence."""

from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils import _pytree

from nsed_torch.core import functional

T = TypeVar("T", bound=type)


def registered(kind: T) -> T:
    """Tell PyTorch of a named tuple of tensors; for use as a decorator."""
    torch.serialization.add_safe_globals([kind])
    _pytree._register_namedtuple(kind, serialized_type_name=f"nsed_torch.{kind.__name__}")
    return kind


@registered
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
        # Three tensors, for an exported program takes equal ones for the same.
        retention, support, age = (torch.zeros(batch, slots, dtype=dtype, device=device) for _ in range(3))
        embeddings = torch.zeros(batch, slots, dim, dtype=dtype, device=device)
        mask = torch.zeros(batch, slots, dtype=torch.bool, device=device)
        return cls(embeddings, retention, support, age, mask)

    def like(self, other: Tensor) -> "MemoryState":
        """The same in the dtype and on the device of another tensor."""
        return MemoryState(*(x.to(other.device, x.dtype if x.dtype == torch.bool else other.dtype) for x in self))

    def hidden(self) -> Float[Tensor, "batch dim"]:
        """The hidden state h, see `functional.hidden_state`."""
        return functional.hidden_state(self.embeddings, self.retention, self.mask)


def remember(
    state: MemoryState,
    keep: Float[Tensor, "batch slot"],
    embeddings: Float[Tensor, "batch proposal dim"],
    retention: Float[Tensor, "batch proposal"],
    support: Float[Tensor, "batch proposal"],
    proposal_mask: Bool[Tensor, "batch proposal"],
) -> tuple[MemoryState, Int[Tensor, "batch slot"]]:
    """Forget, let the proposals in, keep as many slots as before: `functional.update_memory`.

    Args:
        state: the memory so far.
        keep: factor on the retention of its slots.
        embeddings: of the proposals, zeros where masked.
        retention: that each enters with.
        support: net support of each.
        proposal_mask: which enter.

    Returns:
        The next state, and for each of its slots the index among old slots followed by proposals, -1 if empty.
    """
    kept, source = functional.update_memory(state.retention, state.mask, keep, retention, proposal_mask)
    mask, index = source >= 0, source.clamp(min=0)
    support, age = (
        torch.where(mask, torch.cat([old, new], 1).gather(1, index), 0)
        for old, new in ((state.support, support), (state.age + 1, torch.zeros_like(support)))
    )
    pool = torch.cat([state.embeddings, embeddings], 1)
    # Filled in place, for few are empty and a copy costs as much as all else here.
    chosen = pool.gather(1, index[:, :, None].expand(-1, -1, pool.shape[-1])).masked_fill_(~mask[:, :, None], 0)
    return MemoryState(chosen, kept, support, age, mask), source
