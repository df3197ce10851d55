"""nsed_torch: multi-agent deliberation as a differentiable recurrent network.

Names are imported when they are first used, so that the tensor core costs nothing but torch.
"""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsed_torch.core.agent import Agent, Ensemble
    from nsed_torch.core.cell import ConsensusCell
    from nsed_torch.core.engine import Decoding
    from nsed_torch.core.gate import ForgetGate
    from nsed_torch.core.memory import MemoryState
    from nsed_torch.core.rnn import Deliberation, MacroRNN
    from nsed_torch.core.round import MacroRNNCell
    from nsed_torch.core.vote import QuadraticVote
    from nsed_torch.engines.backbones import load_backbone, load_encoder
    from nsed_torch.evaluation.pages import framed_transcript
    from nsed_torch.parts.knapsack import KnapsackBroker
    from nsed_torch.records.transcript import Task, Transcript

__version__ = importlib.metadata.version("nsed_torch")

_HOMES = {
    "core.agent": ("Agent", "Ensemble"),
    "core.cell": ("ConsensusCell",),
    "core.engine": ("Decoding",),
    "core.gate": ("ForgetGate",),
    "core.memory": ("MemoryState",),
    "core.rnn": ("Deliberation", "MacroRNN"),
    "core.round": ("MacroRNNCell",),
    "core.vote": ("QuadraticVote",),
    "engines.backbones": ("load_backbone", "load_encoder"),
    "evaluation.pages": ("framed_transcript",),
    "parts.knapsack": ("KnapsackBroker",),
    "records.transcript": ("Task", "Transcript"),
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
