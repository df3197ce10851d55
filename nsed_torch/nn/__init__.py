"""Differentiable modules of the protocol: tensors in, tensors out, no text."""

from nsed_torch.nn.broker import InfeasibleBudgetError, KnapsackBroker
from nsed_torch.nn.cell import ConsensusCell, ConsensusOutput
from nsed_torch.nn.gate import ForgetGate
from nsed_torch.nn.halting import EvidenceHalting, FixedHalting
from nsed_torch.nn.memory import BoundedMemory, MemoryState
from nsed_torch.nn.probe import GradientReport, gradient_probe
from nsed_torch.nn.reliability import Calibration, Reliability
from nsed_torch.nn.vote import (
    VOTES,
    ApprovalVote,
    BordaVote,
    EntmaxVote,
    L2Vote,
    LinearVote,
    PluralityVote,
    QuadraticVote,
    TokenVote,
)

__all__ = [
    "VOTES",
    "ApprovalVote",
    "BordaVote",
    "BoundedMemory",
    "Calibration",
    "ConsensusCell",
    "ConsensusOutput",
    "EntmaxVote",
    "EvidenceHalting",
    "FixedHalting",
    "ForgetGate",
    "GradientReport",
    "InfeasibleBudgetError",
    "KnapsackBroker",
    "L2Vote",
    "LinearVote",
    "MemoryState",
    "PluralityVote",
    "QuadraticVote",
    "Reliability",
    "TokenVote",
    "gradient_probe",
]
