"""Tasks with targets, and how answers to them are graded."""

from nsed_torch.benchmarks.candidates import Candidate, read_candidates
from nsed_torch.benchmarks.choice_tasks import ChoiceGrader, gpqa, hellaswag, mmlu
from nsed_torch.benchmarks.code_tasks import humaneval, livecodebench, mbpp
from nsed_torch.benchmarks.generated import generated_tasks, mixed_tasks
from nsed_torch.benchmarks.graded import GradedTasks, file_tasks, recorded_tasks
from nsed_torch.benchmarks.graders import (
    AnswerGrader,
    AskingGrader,
    Grader,
    GradersAnswers,
    final_answer,
    grade,
)
from nsed_torch.benchmarks.math_tasks import aime, gsm8k, math500
from nsed_torch.benchmarks.patterns import PatternGrader, darkbench
from nsed_torch.benchmarks.programs import Case, ProgramGrader
from nsed_torch.benchmarks.sandbox import Sandbox

__all__ = [
    "AnswerGrader",
    "AskingGrader",
    "Candidate",
    "Case",
    "ChoiceGrader",
    "GradedTasks",
    "Grader",
    "GradersAnswers",
    "PatternGrader",
    "ProgramGrader",
    "Sandbox",
    "aime",
    "darkbench",
    "file_tasks",
    "final_answer",
    "generated_tasks",
    "gpqa",
    "grade",
    "gsm8k",
    "hellaswag",
    "humaneval",
    "livecodebench",
    "math500",
    "mbpp",
    "mixed_tasks",
    "mmlu",
    "read_candidates",
    "recorded_tasks",
]
