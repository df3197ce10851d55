"""Differentiable modules of the protocol: tensors in, tensors out, no text."""

from nsed_torch.nn.broker import InfeasibleBudgetError, KnapsackBroker
from nsed_torch.nn.cell import ConsensusCell, ConsensusOutput
from nsed_torch.nn.gate import ForgetGate
from nsed_torch.nn.halting import EvidenceHalting, FixedHalting
from nsed_torch.nn.memory import BoundedMemory, MemoryState
from nsed_torch.nn.reliability import Reliability
from nsed_torch.nn.vote import QuadraticVote, TokenVote

__all__ = [
    "BoundedMemory",
    "ConsensusCell",
    "ConsensusOutput",
    "EvidenceHalting",
    "FixedHalting",
    "ForgetGate",
    "InfeasibleBudgetError",
    "KnapsackBroker",
    "MemoryState",
    "QuadraticVote",
    "Reliability",
    "TokenVote",
]
