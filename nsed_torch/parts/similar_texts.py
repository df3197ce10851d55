"""Texts of open-ended tasks that say the same, told by their embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nsed_torch.core.answer_classes import AnswerClasses
from nsed_torch.core.encoder import Encoder
from nsed_torch.records.transcript import Task


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
