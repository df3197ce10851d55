"""Ways to an answer that deliberation is compared with, through the same engines and the same token accounting."""

from nsed_torch.evaluation.methods.best_of import BestOf
from nsed_torch.evaluation.methods.conducted import Conducted, RandomRouting
from nsed_torch.evaluation.methods.debate import Debate
from nsed_torch.evaluation.methods.estimate import expected_deliberation, expected_usage
from nsed_torch.evaluation.methods.leads import best_single, cross_fitted_leads
from nsed_torch.evaluation.methods.mixture import MixtureOfAgents, SelfMoA
from nsed_torch.evaluation.methods.panel import Answer, Method, Panel
from nsed_torch.evaluation.methods.plurality import Plurality, SelfConsistency
from nsed_torch.evaluation.methods.single import SelfCorrection, Single

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
    "expected_deliberation",
    "expected_usage",
]
