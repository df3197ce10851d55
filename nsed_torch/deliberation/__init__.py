"""The recurrence over text: `MacroRNN` over `MacroRNNCell`."""

from nsed_torch.deliberation.answers import AnswerClasses, SimilarTexts
from nsed_torch.deliberation.broker import Broker, full_team
from nsed_torch.deliberation.cell import MacroRNNCell
from nsed_torch.deliberation.costs import Budget
from nsed_torch.deliberation.likelihood import LikelihoodRating
from nsed_torch.deliberation.macro_rnn import Deliberation, MacroRNN
from nsed_torch.deliberation.observer import Observer
from nsed_torch.deliberation.order import judging_order
from nsed_torch.deliberation.rating import (
    CritiqueRating,
    JudgeQuestion,
    JudgeReply,
    RatingMode,
    VerdictRating,
)
from nsed_torch.deliberation.state import DeliberationState, SlotText, longest_end, shown_texts
from nsed_torch.deliberation.team import Team

__all__ = [
    "AnswerClasses",
    "Broker",
    "Budget",
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
