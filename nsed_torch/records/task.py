"""What is asked."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A question with an id and, in a benchmark, a target.

    Raises:
        ValueError: if the question or the id is blank.
    """

    question: str  # the text put to every agent
    id: str = "task"  # names the task in seeds, logs and files; unique within a run
    target: str | None = None  # the reference answer, which agents never see
    category: str | None = None

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise ValueError("expected a question, got an empty text: pass question='...'")
        if not self.id.strip():
            raise ValueError("expected a task id, got an empty text")
