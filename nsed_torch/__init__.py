"""nsed_torch: multi-agent deliberation as a differentiable recurrent network.

Names are imported when they are first used, so that the tensor core costs nothing but torch.
"""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsed_torch.core.agent import Agent, Ensemble
    from nsed_torch.core.broker import Broker
    from nsed_torch.core.cell import ConsensusCell
    from nsed_torch.core.encoder import HashedEncoder
    from nsed_torch.core.engine import Decoding
    from nsed_torch.core.gate import ForgetGate, Gate
    from nsed_torch.core.halting import FixedHalting, Halting
    from nsed_torch.core.memory import MemoryState
    from nsed_torch.core.protocol import Protocol
    from nsed_torch.core.ratings import Rating
    from nsed_torch.core.rnn import Deliberation, MacroRNN
    from nsed_torch.core.round import MacroRNNCell
    from nsed_torch.core.trust import Trust
    from nsed_torch.core.vote import QuadraticVote, Vote
    from nsed_torch.engines.backbones import load_backbone, load_encoder
    from nsed_torch.evaluation.evaluating import evaluate
    from nsed_torch.evaluation.pages import framed_transcript
    from nsed_torch.parts.budget_broker import BudgetBroker
    from nsed_torch.parts.gates import NoteGate
    from nsed_torch.parts.knapsack import KnapsackBroker
    from nsed_torch.questions.own import tasks
    from nsed_torch.records.transcript import Task, Transcript
    from nsed_torch.traces.collecting import collect
    from nsed_torch.traces.load import load_traces
    from nsed_torch.tuning.fitting import fit

__version__ = importlib.metadata.version("nsed_torch")

_HOMES = {
    "core.agent": ("Agent", "Ensemble"),
    "core.broker": ("Broker",),
    "core.cell": ("ConsensusCell",),
    "core.encoder": ("HashedEncoder",),
    "core.engine": ("Decoding",),
    "core.gate": ("ForgetGate", "Gate", "NoteGate"),
    "core.halting": ("FixedHalting", "Halting"),
    "core.memory": ("MemoryState",),
    "core.protocol": ("Protocol",),
    "core.ratings": ("Rating",),
    "core.rnn": ("Deliberation", "MacroRNN"),
    "core.round": ("MacroRNNCell",),
    "core.trust": ("Trust",),
    "core.vote": ("QuadraticVote", "Vote"),
    "engines.backbones": ("load_backbone", "load_encoder"),
    "evaluation.evaluating": ("evaluate",),
    "evaluation.pages": ("framed_transcript",),
    "parts.budget_broker": ("BudgetBroker",),
    "parts.knapsack": ("KnapsackBroker",),
    "questions.own": ("tasks",),
    "records.transcript": ("Task", "Transcript"),
    "traces.collecting": ("collect",),
    "traces.load": ("load_traces",),
    "tuning.fitting": ("fit",),
}

__all__ = [
    "Agent",
    "Broker",
    "BudgetBroker",
    "ConsensusCell",
    "Decoding",
    "Deliberation",
    "Ensemble",
    "FixedHalting",
    "ForgetGate",
    "Gate",
    "Halting",
    "HashedEncoder",
    "KnapsackBroker",
    "MacroRNN",
    "MacroRNNCell",
    "MemoryState",
    "NoteGate",
    "Protocol",
    "QuadraticVote",
    "Rating",
    "Task",
    "Transcript",
    "Trust",
    "Vote",
    "collect",
    "evaluate",
    "fit",
    "framed_transcript",
    "load_backbone",
    "load_encoder",
    "load_traces",
    "tasks",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"nsed_torch.{home}"), name)
    raise AttributeError(f"module 'nsed_torch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
