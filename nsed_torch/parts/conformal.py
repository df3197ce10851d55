"""Act or escalate: sets of answers that hold the right one as often as promised."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.open_round import OpenRound
from nsed_torch.parts.saved_cells import CONFORMAL, located
from nsed_torch.records.files import to_json
from nsed_torch.records.saved import read_module, write_module
from nsed_torch.records.transcript import AnswerSet


class AnswerSets(NamedTuple):
    """What may be right, task by task."""

    answers: Bool[Tensor, "batch proposal"]  # which proposals show an answer of the set
    none: Bool[Tensor, "batch"]  # whether the set holds "none of these" as well
    decided: Bool[Tensor, "batch"]  # whether it is one answer alone


class ConformalSets(nn.Module):
    """Split conformal sets over the answers of a consensus and "none of these".

    The chance of answer a is `(1 - pi) p_a`, with p the consensus and pi the chance that none of the answers is right,
    `pi = sigmoid(w . [log p_1, log p_2, log answers, entropy] + b)` of the two largest p. A label's nonconformity is
    one minus its chance; the set holds all labels whose nonconformity is at most t, and the winner in any case. With t
    the `ceil((n + 1) coverage)`-th smallest nonconformity of the truth on n calibration tasks that nothing was fitted
    to, sets hold the truth with at least the promised chance (Vovk, Gammerman and Shafer, 2005; over votes of language
    models arXiv 2604.07667). With categories each has a t of its own (Mondrian), where it has tasks enough for one.
    "None of these" as a label, and its chance, are ours.

    Args:
        coverage: promised share of sets that hold the truth, in (0, 1).
        categories: names of those that get a threshold of their own.

    Raises:
        ValueError: for a coverage out of range.

    Examples:
        >>> import torch
        >>> sets = ConformalSets(0.9)
        >>> _ = sets.calibrate(torch.tensor([[0.9, 0.1]] * 20), torch.ones(20, 2, dtype=torch.bool),
        ...                    torch.tensor([[True, False]] * 20))
        >>> sets(torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.ones(2, 2, dtype=torch.bool)).decided.tolist()
        [True, False]
    """

    threshold: Tensor
    thresholds: Tensor

    def __init__(self, coverage: float, categories: Sequence[str] = ()) -> None:
        super().__init__()
        if not 0 < coverage < 1:
            raise ValueError(f"coverage: expected a share in (0, 1), got {coverage}")
        self.coverage, self.categories = coverage, tuple(categories)
        self.weight = nn.Parameter(torch.zeros(4))
        self.bias = nn.Parameter(torch.tensor(-4.0))
        # Before calibration every label is in every set.
        self.register_buffer("threshold", torch.tensor(1.0))
        self.register_buffer("thresholds", torch.ones(len(self.categories)))

    def chances(
        self, consensus: Float[Tensor, "batch proposal"], answer_mask: Bool[Tensor, "batch proposal"]
    ) -> tuple[Float[Tensor, "batch proposal"], Float[Tensor, "batch"]]:
        """Chance of every answer, at the proposal that shows it, and of none of them; they sum to 1.

        Where nobody answered, none is certain. `consensus` and `answer_mask` are those of a `ConsensusOutput`.
        """
        p = torch.where(answer_mask, consensus, 0)
        top = torch.cat([p, torch.zeros_like(p[:, :1])], 1).topk(2, dim=1).values.clamp(min=1e-6)
        count = answer_mask.sum(1)
        entropy = -torch.where(p > 0, p * p.clamp(min=1e-12).log(), 0).sum(1)
        shown = torch.stack([top[:, 0].log(), top[:, 1].log(), count.clamp(min=1).to(p).log(), entropy], 1)
        none = torch.sigmoid(shown @ self.weight.to(p) + self.bias.to(p))
        none = torch.where(count > 0, none, 1)
        return (1 - none)[:, None] * p, none

    def fit(
        self,
        consensus: Float[Tensor, "batch proposal"],
        answer_mask: Bool[Tensor, "batch proposal"],
        right: Bool[Tensor, "batch proposal"],
    ) -> "ConformalSets":
        """Learn the chance that none is right, on tasks that calibrate nothing: logistic regression by L-BFGS."""
        nobody = (~(right & answer_mask).any(1)).to(consensus)
        optimizer = torch.optim.LBFGS(self.parameters(), max_iter=200, line_search_fn="strong_wolfe")

        def closure() -> float:
            optimizer.zero_grad()
            _, none = self.chances(consensus, answer_mask)
            loss = nn.functional.binary_cross_entropy(none.clamp(1e-6, 1 - 1e-6), nobody)
            loss = loss + 1e-4 * self.weight.square().sum()
            loss.backward()
            return loss.item()

        optimizer.step(closure)
        return self

    @torch.no_grad()
    def calibrate(
        self,
        consensus: Float[Tensor, "batch proposal"],
        answer_mask: Bool[Tensor, "batch proposal"],
        right: Bool[Tensor, "batch proposal"],
        category: Int[Tensor, "batch"] | None = None,
    ) -> "ConformalSets":
        """Set the thresholds by tasks that nothing was fitted to; `right` says which of the shown answers are.

        Categories are indices into `categories`, -1 for others.
        """
        answers, none = self.chances(consensus, answer_mask)
        truth = torch.where(right & answer_mask, answers, -1).amax(1)
        truth = torch.where(truth >= 0, truth, none)
        self.threshold.fill_(self._quantile(1 - truth, 1.0))
        for i in range(len(self.categories)):
            mine = (1 - truth)[category == i] if category is not None else truth[:0]
            self.thresholds[i] = self._quantile(mine, float(self.threshold))
        return self

    def _quantile(self, scores: Tensor, otherwise: float) -> float:
        """The conformal quantile; `otherwise` where there are too few scores for one."""
        rank = math.ceil((len(scores) + 1) * self.coverage - 1e-9)
        return otherwise if rank > len(scores) else float(scores.sort().values[rank - 1])

    @torch.no_grad()
    def forward(
        self,
        consensus: Float[Tensor, "batch proposal"],
        answer_mask: Bool[Tensor, "batch proposal"],
        category: Int[Tensor, "batch"] | None = None,
    ) -> AnswerSets:
        """The sets; arguments as of `calibrate`. Where nobody answered, "none of these" alone, undecided."""
        answers, none = self.chances(consensus, answer_mask)
        limit = self.threshold.expand(len(none)).to(none)
        if category is not None and self.categories:
            limit = torch.where(category >= 0, self.thresholds.to(none)[category.clamp(min=0)], limit)
        # Rounding must not push the label out that set the threshold.
        limit = limit + 1e-6
        inside = answer_mask & (1 - answers <= limit[:, None])
        inside = inside | (answer_mask & (consensus == consensus.amax(1, keepdim=True)))
        escape = (1 - none <= limit) | ~answer_mask.any(1)
        return AnswerSets(inside, escape, (inside.sum(1) == 1) & ~escape)

    def of_rounds(self, turns: Sequence[OpenRound], output: ConsensusOutput) -> list[AnswerSet | None]:
        """The set of each round of a batch; None where proposals are notes."""
        index = {name: i for i, name in enumerate(self.categories)}
        category = [index.get(turn.task.category or "", -1) for turn in turns]
        sets = self(output.consensus, output.answer_mask, torch.tensor(category, device=output.winner.device))
        return [
            None if turn.kind.notes else AnswerSet(answers.nonzero()[:, 0].tolist(), bool(none), self.coverage)
            for turn, answers, none in zip(turns, sets.answers, sets.none, strict=True)
        ]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `conformal.safetensors`, whole or not at all, beside the cell whose consensus it reads."""
        about = {"format": "pt", "coverage": str(self.coverage), "categories": to_json(list(self.categories))}
        write_module(Path(folder).expanduser() / CONFORMAL, self, about)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, revision: str | None = None) -> "ConformalSets":
        """What `save_pretrained` wrote, on the CPU; arguments and errors as of `ConsensusCell.from_pretrained`."""

        def build(about: Mapping[str, str], _tensors: Mapping[str, Tensor]) -> ConformalSets:
            return cls(float(about["coverage"]), json.loads(about["categories"]))

        return read_module(located(folder, revision) / CONFORMAL, "conformal sets", "save them again", build)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"coverage={self.coverage}, categories={list(self.categories)}"
