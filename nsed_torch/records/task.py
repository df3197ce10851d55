"""What is asked."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A question with an id and, in a benchmark, a target.

    Args:
        question: the text put to every agent.
        id: names the task in seeds, logs and files; unique within a run.
        target: the reference answer, where one is known. Agents never see it.
        category: of the question, where one is known.

    Raises:
        ValueError: if the question or the id is blank.
    """

    question: str
    id: str = "task"
    target: str | None = None
    category: str | None = None

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise ValueError("expected a question, got an empty text: pass question='...'")
        if not self.id.strip():
            raise ValueError("expected a task id, got an empty text")
