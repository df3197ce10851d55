"""Every method that grows, at its own size."""

from nsed_torch.evaluation.methods.independent import BestOf, Plurality, SelfConsistency
from nsed_torch.evaluation.methods.interactive import Debate, MixtureOfAgents, SelfCorrection, SelfMoA

METHODS = (Plurality, SelfConsistency, SelfCorrection, BestOf, SelfMoA, MixtureOfAgents, Debate)
