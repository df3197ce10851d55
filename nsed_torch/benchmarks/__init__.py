"""Tasks with targets: recorded answers, when answers are equal, and how tasks are divided."""

from nsed_torch.benchmarks.canonical import canonical
from nsed_torch.benchmarks.episodes import Episodes, recorded_episodes
from nsed_torch.benchmarks.equality import Equality, agreement, plurality
from nsed_torch.benchmarks.recorded import RecordedAnswers, load_recorded
from nsed_torch.benchmarks.splits import Split, split

__all__ = [
    "Episodes",
    "Equality",
    "RecordedAnswers",
    "Split",
    "agreement",
    "canonical",
    "load_recorded",
    "plurality",
    "recorded_episodes",
    "split",
]
