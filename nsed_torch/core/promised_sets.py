"""Sets of answers that hold the right one as often as promised: what the cell asks of whoever knows them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.open_round import OpenRound
from nsed_torch.records.transcript import AnswerSet


class AnswerSets(NamedTuple):
    """What may be right, task by task."""

    answers: Bool[Tensor, "batch proposal"]  # which proposals show an answer of the set
    none: Bool[Tensor, "batch"]  # whether the set holds "none of these" as well
    decided: Bool[Tensor, "batch"]  # whether it is one answer alone


class SetRule(Protocol):
    """Says which answers may be right, from a consensus over them; `parts.conformal` has one that is calibrated."""

    @property
    def coverage(self) -> float:
        """Promised share of sets that hold the truth."""
        ...

    @property
    def categories(self) -> Sequence[str]:
        """Of tasks, which are told apart by their place among them."""
        ...

    def __call__(
        self,
        consensus: Float[Tensor, "batch proposal"],
        answer_mask: Bool[Tensor, "batch proposal"],
        category: Int[Tensor, "batch"] | None = None,
    ) -> AnswerSets:
        """The sets; a category that is not known is -1."""
        ...


def answer_sets(rule: SetRule | None, turns: Sequence[OpenRound], output: ConsensusOutput) -> list[AnswerSet | None]:
    """What may be right in each round, where there is a rule and proposals are answers."""
    if rule is None:
        return [None] * len(turns)
    index = {name: i for i, name in enumerate(rule.categories)}
    category = [index.get(turn.task.category or "", -1) for turn in turns]
    sets = rule(output.consensus, output.answer_mask, torch.tensor(category, device=output.winner.device))
    return [
        None if turn.kind.notes else AnswerSet(answers.nonzero()[:, 0].tolist(), bool(none), rule.coverage)
        for turn, answers, none in zip(turns, sets.answers, sets.none, strict=True)
    ]
