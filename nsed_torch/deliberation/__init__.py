"""The recurrence over text: `MacroRNN` over `MacroRNNCell`."""

from nsed_torch.deliberation.answer_classes import SimilarTexts
from nsed_torch.deliberation.budget_broker import Budget, BudgetBroker
from nsed_torch.deliberation.macro_rnn import Deliberation, MacroRNN
from nsed_torch.deliberation.macro_rnn_cell import MacroRNNCell, Observer
from nsed_torch.deliberation.rating import AgreementRating, CritiqueRating, LikelihoodRating, VerdictRating
from nsed_torch.deliberation.team import Team, full_team

__all__ = [
    "AgreementRating",
    "Budget",
    "BudgetBroker",
    "CritiqueRating",
    "Deliberation",
    "LikelihoodRating",
    "MacroRNN",
    "MacroRNNCell",
    "Observer",
    "SimilarTexts",
    "Team",
    "VerdictRating",
    "full_team",
]
