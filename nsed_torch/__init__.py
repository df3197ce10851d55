"""nsed_torch: multi-agent deliberation as a differentiable recurrent network.

Names are imported when they are first used, so that the tensor core costs nothing but torch.
"""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsed_torch.agents import Agent, Decoding, Ensemble, load_backbone, load_encoder
    from nsed_torch.deliberation import Deliberation, MacroRNN, MacroRNNCell
    from nsed_torch.evaluation.pages import framed_transcript
    from nsed_torch.nn import ConsensusCell, ForgetGate, KnapsackBroker, MemoryState, QuadraticVote
    from nsed_torch.records import Task, Transcript

__version__ = importlib.metadata.version("nsed_torch")

_HOMES = {
    "agents": ("Agent", "Decoding", "Ensemble", "load_backbone", "load_encoder"),
    "deliberation": ("Deliberation", "MacroRNN", "MacroRNNCell"),
    "evaluation.pages": ("framed_transcript",),
    "nn": ("ConsensusCell", "ForgetGate", "KnapsackBroker", "MemoryState", "QuadraticVote"),
    "records": ("Task", "Transcript"),
}

__all__ = [
    "Agent",
    "ConsensusCell",
    "Decoding",
    "Deliberation",
    "Ensemble",
    "ForgetGate",
    "KnapsackBroker",
    "MacroRNN",
    "MacroRNNCell",
    "MemoryState",
    "QuadraticVote",
    "Task",
    "Transcript",
    "framed_transcript",
    "load_backbone",
    "load_encoder",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"nsed_torch.{home}"), name)
    raise AttributeError(f"module 'nsed_torch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
