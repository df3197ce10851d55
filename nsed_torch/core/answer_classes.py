"""Which proposals of a round say the same: what makes answers of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nsed_torch.core.encoder import Encoder
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
class SimilarTexts(AnswerClasses):
    """Texts of open-ended tasks are one answer where their embeddings are close.

    Each text joins the first class whose first text it is similar enough to. Close to the semantic clusters of Kuhn,
    Gal and Farquhar (2023, semantic entropy), with a cosine in place of their entailment in both directions, which
    tells contradictions from agreement where a cosine may not. Ours.

    Raises:
        ValueError: if the threshold is out of range.
    """

    encoder: Encoder
    threshold: float  # cosine from which on texts are one answer, in (-1, 1]

    def __post_init__(self) -> None:
        if not -1 < self.threshold <= 1:
            raise ValueError(f"similarity: expected a cosine in (-1, 1], or null for none, got {self.threshold}")

    def classes(self, task: Task, texts: Sequence[str]) -> list[int]:
        """Classes in the order of the texts; -1 for an empty one."""
        vectors = self.encoder.embed(texts).double()
        cosines = (vectors @ vectors.T).tolist()
        heads: list[int] = []
        numbers = []
        for i, text in enumerate(texts):
            # Rounding must not tell a text from itself.
            near = (n for n, head in enumerate(heads) if cosines[i][head] >= self.threshold - 1e-6)
            number = next(near, len(heads)) if text else -1
            if number == len(heads):
                heads.append(i)
            numbers.append(number)
        return numbers

    def identity(self) -> dict[str, Any]:
        """Rule, threshold and encoder."""
        return {"rule": "similar texts", "threshold": self.threshold, "encoder": dict(self.encoder.identity())}


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
