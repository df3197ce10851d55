"""Tasks with targets, and how answers to them are graded.

Published sets are read by `math_tasks`, `choice_tasks`, `code_tasks` and `patterns`.
"""

from nsed_torch.benchmarks.choice_tasks import ChoiceGrader
from nsed_torch.benchmarks.generated import generated_tasks, mixed_tasks
from nsed_torch.benchmarks.graded import GradedTasks, file_tasks, recorded_tasks
from nsed_torch.benchmarks.graders import AnswerGrader, Grader, final_answer
from nsed_torch.benchmarks.pressure import pressed
from nsed_torch.benchmarks.programs import Case, ProgramGrader
from nsed_torch.benchmarks.sandbox import Sandbox
from nsed_torch.benchmarks.sources import hub_tasks

__all__ = [
    "AnswerGrader",
    "Case",
    "ChoiceGrader",
    "GradedTasks",
    "Grader",
    "ProgramGrader",
    "Sandbox",
    "file_tasks",
    "final_answer",
    "generated_tasks",
    "hub_tasks",
    "mixed_tasks",
    "pressed",
    "recorded_tasks",
]
