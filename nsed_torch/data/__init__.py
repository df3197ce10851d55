"""Recorded rounds: which answers are equal, who said what, and how tasks are divided."""

from nsed_torch.data.canonical import canonical
from nsed_torch.data.episodes import Episodes, joined, recorded_episodes
from nsed_torch.data.equality import Equality, agreement, plurality
from nsed_torch.data.recorded import RecordedAnswers, load_recorded, read_tasks, recorded_engine
from nsed_torch.data.splits import Split, divisions, place, split
from nsed_torch.data.traces import load_traces

__all__ = [
    "Episodes",
    "Equality",
    "RecordedAnswers",
    "Split",
    "agreement",
    "canonical",
    "divisions",
    "joined",
    "load_recorded",
    "load_traces",
    "place",
    "plurality",
    "read_tasks",
    "recorded_engine",
    "recorded_episodes",
    "split",
]
