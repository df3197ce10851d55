"""Recorded rounds: which answers are equal, who said what, and how tasks are divided."""

from nsed_torch.data.episodes import Episodes, joined, recorded_episodes
from nsed_torch.data.equality import Equality
from nsed_torch.data.recorded import RecordedAnswers, load_recorded
from nsed_torch.data.splits import split
from nsed_torch.data.traces import load_traces

__all__ = [
    "Episodes",
    "Equality",
    "RecordedAnswers",
    "joined",
    "load_recorded",
    "load_traces",
    "recorded_episodes",
    "split",
]
