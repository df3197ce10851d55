"""Tasks with targets: recorded answers, when answers are equal and right, and how tasks are divided."""

from nsed_torch.benchmarks.candidates import Candidate, read_candidates, write_candidates
from nsed_torch.benchmarks.canonical import canonical
from nsed_torch.benchmarks.choice_tasks import gpqa, hellaswag, mmlu
from nsed_torch.benchmarks.choices import ChoiceGrader
from nsed_torch.benchmarks.code_tasks import humaneval, livecodebench, mbpp
from nsed_torch.benchmarks.episodes import Episodes, joined, recorded_episodes
from nsed_torch.benchmarks.equality import Equality, agreement, plurality
from nsed_torch.benchmarks.final_answer import final_answer, grade
from nsed_torch.benchmarks.generated import generated_tasks, mixed_tasks
from nsed_torch.benchmarks.graded import GradedTasks, file_tasks, recorded_tasks
from nsed_torch.benchmarks.graders import AnswerGrader, AskingGrader, Grader, GradersAnswers, LoggedGrader
from nsed_torch.benchmarks.math_tasks import aime, gsm8k, math500
from nsed_torch.benchmarks.patterns import PatternGrader, darkbench
from nsed_torch.benchmarks.programs import Case, ProgramGrader
from nsed_torch.benchmarks.recorded import RecordedAnswers, load_recorded, read_tasks, recorded_engine
from nsed_torch.benchmarks.sandbox import Sandbox
from nsed_torch.benchmarks.splits import Split, place, split
from nsed_torch.benchmarks.traces import load_traces

__all__ = [
    "AnswerGrader",
    "AskingGrader",
    "Candidate",
    "Case",
    "ChoiceGrader",
    "Episodes",
    "Equality",
    "GradedTasks",
    "Grader",
    "GradersAnswers",
    "LoggedGrader",
    "PatternGrader",
    "ProgramGrader",
    "RecordedAnswers",
    "Sandbox",
    "Split",
    "agreement",
    "aime",
    "canonical",
    "darkbench",
    "file_tasks",
    "final_answer",
    "generated_tasks",
    "gpqa",
    "grade",
    "gsm8k",
    "hellaswag",
    "humaneval",
    "joined",
    "livecodebench",
    "load_recorded",
    "load_traces",
    "math500",
    "mbpp",
    "mixed_tasks",
    "mmlu",
    "place",
    "plurality",
    "read_candidates",
    "read_tasks",
    "recorded_engine",
    "recorded_episodes",
    "recorded_tasks",
    "split",
    "write_candidates",
]
