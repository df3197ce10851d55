"""Reading tokens of many sequences and adapters in one row: shared prefixes once, no padding, no loop over adapters."""

from nsed_torch.agents.packing.forest import Root, common_prefix, grouped, passes, plant, shared_with_last
from nsed_torch.agents.packing.model import OpenedModel, PackedModel
from nsed_torch.agents.packing.slots import Slots

__all__ = [
    "OpenedModel",
    "PackedModel",
    "Root",
    "Slots",
    "common_prefix",
    "grouped",
    "passes",
    "plant",
    "shared_with_last",
]
