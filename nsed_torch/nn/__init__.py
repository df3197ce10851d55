"""Differentiable modules of the protocol: tensors in, tensors out, no text."""

from nsed_torch.nn.bounded_memory import MemoryState
from nsed_torch.nn.broker import InfeasibleBudgetError, KnapsackBroker
from nsed_torch.nn.cell import ConsensusCell
from nsed_torch.nn.conformal import ConformalSets
from nsed_torch.nn.election import ConsensusOutput, RoundInput
from nsed_torch.nn.gate import ForgetGate, NoteGate, VectorGate
from nsed_torch.nn.halting import EvidenceHalting, FatigueHalting, FixedHalting
from nsed_torch.nn.learned_broker import LearnedBroker
from nsed_torch.nn.reading import Reading
from nsed_torch.nn.telemetry import Telemetry
from nsed_torch.nn.trust import Calibration, Trust
from nsed_torch.nn.votes import VOTES, ApprovalVote, EntmaxVote, PluralityVote, QuadraticVote

__all__ = [
    "VOTES",
    "ApprovalVote",
    "Calibration",
    "ConformalSets",
    "ConsensusCell",
    "ConsensusOutput",
    "EntmaxVote",
    "EvidenceHalting",
    "FatigueHalting",
    "FixedHalting",
    "ForgetGate",
    "InfeasibleBudgetError",
    "KnapsackBroker",
    "LearnedBroker",
    "MemoryState",
    "NoteGate",
    "PluralityVote",
    "QuadraticVote",
    "Reading",
    "RoundInput",
    "Telemetry",
    "Trust",
    "VectorGate",
]
