"""Halting rules that follow the efficiency-fatigue law: `forward` says whether each task stops, `reasons` why."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.core.halting import FixedHalting
from nsed_torch.parts import fatigue_law
from nsed_torch.parts.fatigue_law import marginal_utility

REPORTED_K = 0.27675120246197865
REPORTED_BETA = 0.0020161228028375026
"""The efficiency-fatigue law through the paper's reported 54% alone and 84% at a peak at round 6 (ours)."""


def _check(**settings: tuple[bool, str, int | float]) -> None:
    for name, (valid, expected, value) in settings.items():
        if not valid:
            raise ValueError(f"halting {name}: expected {expected}, got {value}")


class _LawHalting(FixedHalting):
    """A cap on rounds and the law's numbers as buffers."""

    p_g: Tensor
    k: Tensor
    beta: Tensor

    def __init__(self, rounds: int, **law: float) -> None:
        super().__init__(rounds)
        for name, value in law.items():
            self.register_buffer(name, torch.tensor(float(value)))


class EvidenceHalting(_LawHalting):
    """Stop once enough evidence has come in: `E(r) >= effort B` at some `r >= min_rounds`, or at the cap.

    E is `fatigue_law.evidence`; `B = sum_{r=1}^{rounds} max(U'(r), 0)` is what full conviction in every useful
    round would bring. Rule, effort and min_rounds are published in the authors' SDK; B, and reading the law's
    k and beta off the paper's reported curve, are ours.

    Args:
        rounds: the cap.
        min_rounds: rounds that are always held.
        effort: share of B that is enough, in (0, 1].
        p_g: accuracy before deliberation, in [0, 1).
        k: gain per round, above 0.
        beta: fatigue per round squared, at least 0.

    Raises:
        ValueError: if a value lies outside its range, or the law never gains in the first round.
    """

    def __init__(
        self,
        rounds: int = 8,
        min_rounds: int = 3,
        effort: float = 0.6,
        *,
        p_g: float = 0.54,
        k: float = REPORTED_K,
        beta: float = REPORTED_BETA,
    ) -> None:
        _check(
            min_rounds=(1 <= min_rounds <= rounds, f"a value from 1 to rounds={rounds}", min_rounds),
            effort=(0 < effort <= 1, "a value in (0, 1]", effort),
            p_g=(0 <= p_g < 1, "a value in [0, 1)", p_g),
            k=(k > 0, "a value above 0 (else deliberation gains nothing: use FixedHalting)", k),
            beta=(beta >= 0, "at least 0", beta),
        )
        super().__init__(rounds, p_g=p_g, k=k, beta=beta)
        self.min_rounds, self.effort = min_rounds, effort
        if self._bound(torch.ones(1)).item() <= 0:
            raise ValueError(f"halting law: expected a gain in round 1, got none with k={k}, beta={beta}: lower beta")

    def reasons(self, convictions: Float[Tensor, "batch round"]) -> list[str]:
        """Why each task stops: "evidence", never taken back, or else "rounds" at the cap."""
        capped = "rounds" if convictions.shape[1] >= self.rounds else ""
        weighed = fatigue_law.evidence(convictions, self.p_g, self.k, self.beta)[:, self.min_rounds - 1 :]
        enough = (weighed >= self.effort * self._bound(convictions)).any(-1)
        return ["evidence" if stop else capped for stop in enough.tolist()]

    def _bound(self, like: Tensor) -> Tensor:
        """B, summed round by round as the evidence is, so that full conviction reaches it exactly."""
        rounds = torch.arange(1, self.rounds + 1, dtype=like.dtype, device=like.device)
        return marginal_utility(rounds, self.p_g, self.k, self.beta).clamp(min=0).cumsum(-1)[-1]

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"rounds={self.rounds}, min_rounds={self.min_rounds}, effort={self.effort}"


class FatigueHalting(_LawHalting):
    """Stop at the whole round where the efficiency-fatigue law peaks, the first of equal ones, or at the cap.

    Stopping at the peak is ours; the laboratory's `halting=fitted` reads the law off a run. Convictions are not read.
    Arguments as of `EvidenceHalting`, but p_g may be 1 and k any number: at or below 0 one round is held.

    Raises:
        ValueError: if a value lies outside its range.
    """

    def __init__(
        self, rounds: int = 8, *, p_g: float = 0.54, k: float = REPORTED_K, beta: float = REPORTED_BETA
    ) -> None:
        _check(
            p_g=(0 <= p_g <= 1, "a value in [0, 1]", p_g),
            k=(math.isfinite(k), "a finite value", k),
            beta=(0 <= beta < math.inf, "a finite value of at least 0", beta),
        )
        super().__init__(rounds, p_g=p_g, k=k, beta=beta)

    @property
    def peak(self) -> int:
        """The whole round where the law peaks; one beyond the cap where that lies later."""
        rounds = torch.arange(1, self.rounds + 2, dtype=torch.float64)
        values = fatigue_law.utility(rounds, self.p_g.item(), self.k.item(), self.beta.item()).tolist()
        return 1 + values.index(max(values))

    def reasons(self, convictions: Float[Tensor, "batch round"]) -> list[str]:
        """Why each task stops: "fatigue", or "rounds" where the cap comes before the peak."""
        reason = "fatigue" if self.peak <= self.rounds else "rounds"
        return [reason if convictions.shape[1] >= min(self.peak, self.rounds) else ""] * len(convictions)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"rounds={self.rounds}, peak={self.peak}"
