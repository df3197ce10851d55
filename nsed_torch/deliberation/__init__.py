"""The recurrence over text: `MacroRNN` over `MacroRNNCell`."""

from nsed_torch.deliberation.answer_classes import AnswerClasses, SimilarTexts
from nsed_torch.deliberation.budget_broker import BudgetBroker
from nsed_torch.deliberation.costs import Budget
from nsed_torch.deliberation.macro_rnn import Broker, Deliberation, MacroRNN
from nsed_torch.deliberation.macro_rnn_cell import MacroRNNCell, Observer
from nsed_torch.deliberation.rating import (
    CritiqueRating,
    JudgeQuestion,
    JudgeReply,
    LikelihoodRating,
    RatingMode,
    VerdictRating,
    judging_order,
)
from nsed_torch.deliberation.state import DeliberationState, SlotText, longest_end, shown_texts
from nsed_torch.deliberation.team import Team, full_team

__all__ = [
    "AnswerClasses",
    "Broker",
    "Budget",
    "BudgetBroker",
    "CritiqueRating",
    "Deliberation",
    "DeliberationState",
    "JudgeQuestion",
    "JudgeReply",
    "LikelihoodRating",
    "MacroRNN",
    "MacroRNNCell",
    "Observer",
    "RatingMode",
    "SimilarTexts",
    "SlotText",
    "Team",
    "VerdictRating",
    "full_team",
    "judging_order",
    "longest_end",
    "shown_texts",
]
