"""Which proposals of a round say the same: what makes answers of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nsed_torch.records.transcript import Task


class AnswerClasses(Protocol):
    """What tells which texts say the same. A benchmark's grader does, without telling which are right."""

    def classes(self, task: Task, texts: Sequence[str]) -> list[int]:
        """Equal numbers for texts that say the same; -1 for one that is its own."""
        ...

    def finals(self, task: Task, texts: Sequence[str]) -> list[str | None]:
        """The final answer that each text gives; None where there is none, or whole texts are compared."""
        return [None] * len(texts)

    def identity(self) -> Mapping[str, Any]:
        """What tells this rule from another; JSON values only."""
        ...


@dataclass(frozen=True)
class SameTexts(AnswerClasses):
    """Texts are one answer where they are equal but for blanks: steps of some work, which are written one way."""

    def classes(self, task: Task, texts: Sequence[str]) -> list[int]:
        """Classes in the order of the texts; -1 for an empty one."""
        numbers: dict[str, int] = {}
        return [numbers.setdefault(" ".join(text.split()), len(numbers)) if text else -1 for text in texts]

    def identity(self) -> dict[str, Any]:
        """The rule's name."""
        return {"rule": "same texts"}
