"""Ways to an answer that deliberation is compared with, through the same engines and the same token accounting."""

from nsed_torch.evaluation.methods.conducted import Conducted, RandomRouting
from nsed_torch.evaluation.methods.independent import BestOf, Plurality, SelfConsistency, Single
from nsed_torch.evaluation.methods.interactive import Debate, MixtureOfAgents, SelfCorrection, SelfMoA
from nsed_torch.evaluation.methods.leads import best_single, cross_fitted_leads
from nsed_torch.evaluation.methods.panel import Answer, Method, Panel

__all__ = [
    "Answer",
    "BestOf",
    "Conducted",
    "Debate",
    "Method",
    "MixtureOfAgents",
    "Panel",
    "Plurality",
    "RandomRouting",
    "SelfConsistency",
    "SelfCorrection",
    "SelfMoA",
    "Single",
    "best_single",
    "cross_fitted_leads",
]
