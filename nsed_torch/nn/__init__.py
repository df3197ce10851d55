"""Differentiable modules of the protocol: tensors in, tensors out, no text."""

from nsed_torch.nn.bounded_memory import BoundedMemory, MemoryState
from nsed_torch.nn.broker import InfeasibleBudgetError, KnapsackBroker
from nsed_torch.nn.cell import ConsensusCell
from nsed_torch.nn.conformal import AnswerSets, ConformalSets
from nsed_torch.nn.election import ConsensusOutput, Election, RoundInput
from nsed_torch.nn.gate import GATES, ForgetGate, LeakyGate, OpenGate, VectorGate
from nsed_torch.nn.halting import EvidenceHalting, FatigueHalting, FixedHalting
from nsed_torch.nn.learned_broker import Heard, LearnedBroker
from nsed_torch.nn.probe import GradientReport, gradient_probe
from nsed_torch.nn.reading import Reading
from nsed_torch.nn.telemetry import Telemetry
from nsed_torch.nn.trust import Calibration, Trust
from nsed_torch.nn.votes import (
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
    "GATES",
    "VOTES",
    "AnswerSets",
    "ApprovalVote",
    "BordaVote",
    "BoundedMemory",
    "Calibration",
    "ConformalSets",
    "ConsensusCell",
    "ConsensusOutput",
    "Election",
    "EntmaxVote",
    "EvidenceHalting",
    "FatigueHalting",
    "FixedHalting",
    "ForgetGate",
    "GradientReport",
    "Heard",
    "InfeasibleBudgetError",
    "KnapsackBroker",
    "L2Vote",
    "LeakyGate",
    "LearnedBroker",
    "LinearVote",
    "MemoryState",
    "OpenGate",
    "PluralityVote",
    "QuadraticVote",
    "Reading",
    "RoundInput",
    "Telemetry",
    "TokenVote",
    "Trust",
    "VectorGate",
    "gradient_probe",
]
