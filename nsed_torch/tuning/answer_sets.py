"""Sets of answers with a promised coverage, from a tuned cell and recorded rounds."""

from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.parts.conformal import ConformalSets
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.rounds import unroll


def fit_sets(
    cell: ConsensusCell, train: Episodes, validation: Episodes, *, coverage: float, by_category: bool = False
) -> ConformalSets:
    """Conformal sets over the last consensus of a cell that was tuned on the training tasks alone.

    From these the chance of "none of these" is learned; validation tasks, from which the cell has learned nothing,
    calibrate. Coverage is the promised share of sets that hold the truth, by category of tasks if wanted.
    """
    if by_category and not train.categories:
        raise ValueError("by_category: expected tasks with categories, got none: set by_category=false")
    sets = ConformalSets(coverage, sorted(set(train.categories)) if by_category else ()).to(cell.log_beta.dtype)
    sets.fit(*_ended(cell, train))
    return sets.calibrate(*_ended(cell, validation), _categories(sets, validation))


def set_rows(sets: ConformalSets, cell: ConsensusCell, test: Episodes) -> dict[str, dict[str, Any]]:
    """What became of each test task: whether its set holds the truth, its size, whether it decides, how sure it is.

    Returns:
        Task id -> {covered, size, decided, right, chance, category}; "none of these" counts as a label of the set.
    """
    consensus, answers, right = _ended(cell, test)
    found = sets(consensus, answers, _categories(sets, test))
    truth = right & answers
    covered = torch.where(truth.any(1), (truth & found.answers).any(1), found.none)
    chances, _ = sets.chances(consensus, answers)
    best = consensus.argmax(1, keepdim=True)
    columns = {
        "covered": covered.tolist(),
        "size": (found.answers.sum(1) + found.none).tolist(),
        "decided": found.decided.tolist(),
        "right": truth.gather(1, best)[:, 0].tolist(),
        "chance": chances.amax(1).tolist(),
        "category": list(test.categories) or [""] * len(test),
    }
    return {
        name: dict(zip(columns, row, strict=True))
        for name, row in zip(test.ids, zip(*columns.values(), strict=True), strict=True)
    }


@torch.no_grad()
def _ended(cell: ConsensusCell, episodes: Episodes) -> tuple[Tensor, Bool[Tensor, "batch proposal"], Tensor]:
    """Consensus, shown answers and which are right, of each task's last round."""
    rows, last = torch.arange(len(episodes), device=episodes.task.device), episodes.last
    output = unroll(cell, episodes)
    return output.consensus[rows, last], output.answer_mask[rows, last], episodes.correct[rows, last]


def _categories(sets: ConformalSets, episodes: Episodes) -> Int[Tensor, "batch"] | None:
    if not sets.categories or not episodes.categories:
        return None
    index = {name: i for i, name in enumerate(sets.categories)}
    return torch.tensor([index.get(name, -1) for name in episodes.categories])
