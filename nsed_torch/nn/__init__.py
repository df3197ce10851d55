"""Differentiable modules of the protocol: tensors in, tensors out, no text."""

from nsed_torch.nn.broker import (
    Broker,
    DynamicBroker,
    InfeasibleBudgetError,
    KnapsackBroker,
    SmoothedBroker,
    SmoothedTeam,
)
from nsed_torch.nn.cell import ConsensusCell, ConsensusOutput
from nsed_torch.nn.gate import ForgetGate
from nsed_torch.nn.halting import EvidenceHalting, FatigueHalting, FixedHalting
from nsed_torch.nn.law import FatigueLaw, Interval, fit_fatigue_law
from nsed_torch.nn.learned_halting import LearnedHalting
from nsed_torch.nn.memory import BoundedMemory, MemoryState
from nsed_torch.nn.probe import GradientReport, gradient_probe
from nsed_torch.nn.reliability import Calibration, Reliability
from nsed_torch.nn.telemetry import Telemetry
from nsed_torch.nn.utility import Utility
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
    "Broker",
    "Calibration",
    "ConsensusCell",
    "ConsensusOutput",
    "DynamicBroker",
    "EntmaxVote",
    "EvidenceHalting",
    "FatigueHalting",
    "FatigueLaw",
    "FixedHalting",
    "ForgetGate",
    "GradientReport",
    "InfeasibleBudgetError",
    "Interval",
    "KnapsackBroker",
    "L2Vote",
    "LearnedHalting",
    "LinearVote",
    "MemoryState",
    "PluralityVote",
    "QuadraticVote",
    "Reliability",
    "SmoothedBroker",
    "SmoothedTeam",
    "Telemetry",
    "TokenVote",
    "Utility",
    "fit_fatigue_law",
    "gradient_probe",
]
