"""Types of tensors that PyTorch knows: exported programs take and give them, and `weights_only` files may hold them."""

from typing import TypeVar

import torch
from torch.utils import _pytree

T = TypeVar("T", bound=type)


def registered(kind: T) -> T:
    """Tell PyTorch of a named tuple of tensors; for use as a decorator."""
    torch.serialization.add_safe_globals([kind])
    _pytree._register_namedtuple(kind, serialized_type_name=f"nsed_torch.{kind.__name__}")
    return kind
