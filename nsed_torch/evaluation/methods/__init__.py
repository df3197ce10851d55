"""Ways to an answer that deliberation is compared with, through the same engines and the same token accounting."""

from nsed_torch.evaluation.methods.conducted import Conducted, HandWritten, RandomRouting
from nsed_torch.evaluation.methods.independent import BestOf, Plurality, Router, SelfConsistency, Single
from nsed_torch.evaluation.methods.interactive import Debate, MixtureOfAgents, SelfCorrection, SelfMoA
from nsed_torch.evaluation.methods.readers import (
    CutToWindow,
    OverwrittenMemory,
    PerfectMemory,
    Retrieval,
    RetrievedMemory,
)

__all__ = [
    "BestOf",
    "Conducted",
    "CutToWindow",
    "Debate",
    "HandWritten",
    "MixtureOfAgents",
    "OverwrittenMemory",
    "PerfectMemory",
    "Plurality",
    "RandomRouting",
    "Retrieval",
    "RetrievedMemory",
    "Router",
    "SelfConsistency",
    "SelfCorrection",
    "SelfMoA",
    "Single",
]
