"""Reading tokens of many sequences and adapters in one row: shared prefixes once, no padding, no loop over adapters."""

from nsed_torch.engines.packing.model import PackedModel
from nsed_torch.engines.packing.slots import Slots

__all__ = ["PackedModel", "Slots"]
