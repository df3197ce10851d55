"""What becomes of a tie: one rule by its name."""

from enum import StrEnum

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.election import ConsensusOutput
from nsed_torch.core.functional.floats import largest


class Ties(StrEnum):
    """What becomes of a tie. All three are ours; the authors' SDK takes the first.

    Float noise is cut before anything is called a tie: `functional.floats.largest`.
    """

    FIRST = "first"
    LOT = "lot"
    ACCURACY = "accuracy"

    @classmethod
    def named(cls, name: str) -> "Ties":
        """The rule of that name; a `ValueError` for another."""
        if name not in set(cls):
            raise ValueError(f"expected ties={' or ties='.join(cls)}, got ties={name}")
        return cls(name)

    @property
    def note(self) -> str:
        """What a table says of it."""
        return {
            Ties.FIRST: "Ties go to what stands first: a team's first proposal, a plurality's first agent or sample.",
            Ties.LOT: "Ties by lot, in expectation: a tie counts as the share of right ones among the tied.",
            Ties.ACCURACY: "Ties go to the answer of the agent most accurate on other, labelled questions.",
        }[self]

    def chances(
        self,
        tied: Bool[Tensor, "*batch entry"],
        classes: Int[Tensor, "*batch entry"] | None = None,
        accuracy: Float[Tensor, "*#batch entry"] | None = None,
    ) -> Float[Tensor, "*batch entry"]:
        """The chance of each tied entry to win, in float64.

        Args:
            tied: entries of equal largest score.
            classes: equal numbers for entries that say the same, one entry in a lot; -1 or None is its own.
            accuracy: of each entry's agent, for ACCURACY alone; of equals the first wins.

        Returns:
            For FIRST and ACCURACY 1 at one entry, for LOT the same at the first entry of every tied class; 0 elsewhere,
            and everywhere where nothing is tied. Otherwise they sum to 1.

        Raises:
            ValueError: for ACCURACY where accuracies are not known.
        """
        if self is Ties.LOT:
            heads = tied if classes is None else tied & ~_repeated(tied, classes)
            return heads.double() / heads.sum(-1, keepdim=True).clamp(min=1)
        if self is Ties.ACCURACY and accuracy is None:
            raise ValueError("ties=accuracy: expected agents whose accuracy is known, got none: name labelled traces")
        liked = torch.zeros_like(tied, dtype=torch.float64) if self is Ties.FIRST or accuracy is None else accuracy
        # argmax returns the first of equal maxima.
        best = torch.where(tied, liked.double(), -torch.inf).argmax(-1, keepdim=True)
        return torch.zeros_like(tied, dtype=torch.float64).scatter_(-1, best, 1.0) * tied


def _repeated(tied: Tensor, classes: Tensor) -> Bool[Tensor, "*batch entry"]:
    """Which entries say what an earlier tied one says."""
    same = (classes[..., :, None] == classes[..., None, :]) & (tied & (classes >= 0))[..., None, :]
    return same.tril(-1).any(-1)


def chances(
    output: ConsensusOutput, ties: Ties = Ties.FIRST, accuracy: Float[Tensor, "*#batch proposal"] | None = None
) -> Float[Tensor, "*batch proposal"]:
    """The chance of each proposal to show the answer that wins, under a rule for ties; `winner` goes by FIRST.

    `accuracy` is that of the proposals' authors, for a rule that asks for it.
    """
    shown = output.shown_by.clamp(min=0)
    tied = largest(output.answer_support.detach().gather(-1, shown), output.shown_by >= 0)
    chance = ties.chances(tied, output.shown_by, accuracy)
    return torch.zeros_like(chance).scatter_add(-1, shown, chance)
