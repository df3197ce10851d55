"""When to stop: rules that read the convictions so far."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nsed_torch import functional

REPORTED_K = 0.27675120246197865
REPORTED_BETA = 0.0020161228028375026
"""The efficiency-fatigue law through the paper's reported 54% alone and 84% at a peak at round 6 (ours)."""


class FixedHalting(nn.Module):
    """Stop after a fixed number of rounds.

    Args:
        rounds: that number, at least 1.

    Raises:
        ValueError: if it is below 1.
    """

    def __init__(self, rounds: int = 3) -> None:
        super().__init__()
        if rounds < 1:
            raise ValueError(f"halting rounds: expected at least 1, got {rounds}")
        self.rounds = rounds

    def forward(self, convictions: Float[Tensor, "batch round"]) -> Bool[Tensor, "batch"]:
        """Whether each task stops after the rounds given, one conviction a round."""
        done = convictions.shape[1] >= self.rounds
        return torch.full((len(convictions),), done, device=convictions.device)

    def reasons(self, convictions: Float[Tensor, "batch round"]) -> list[str]:
        """Why each task stops: "rounds", or "" where it goes on."""
        return ["rounds" if stop else "" for stop in self(convictions).tolist()]

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"rounds={self.rounds}"


class EvidenceHalting(nn.Module):
    """Stop once enough evidence has come in: `E(r) >= effort B` at some `r >= min_rounds`, or at the cap.

    E is `functional.evidence`; `B = sum_{r=1}^{rounds} max(U'(r), 0)` is what full conviction in every useful
    round would bring. Rule, effort and min_rounds are published in the authors' SDK; B, and reading the law's
    k and beta off the paper's reported curve, are ours. The law's numbers are buffers.

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

    p_g: Tensor
    k: Tensor
    beta: Tensor

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
        super().__init__()
        for name, valid, expected, value in (
            ("min_rounds", 1 <= min_rounds <= rounds, f"a value from 1 to rounds={rounds}", min_rounds),
            ("effort", 0 < effort <= 1, "a value in (0, 1]", effort),
            ("p_g", 0 <= p_g < 1, "a value in [0, 1)", p_g),
            ("k", k > 0, "a value above 0 (else deliberation gains nothing: use FixedHalting)", k),
            ("beta", beta >= 0, "at least 0", beta),
        ):
            if not valid:
                raise ValueError(f"halting {name}: expected {expected}, got {value}")
        self.rounds, self.min_rounds, self.effort = rounds, min_rounds, effort
        self.register_buffer("p_g", torch.tensor(p_g))
        self.register_buffer("k", torch.tensor(k))
        self.register_buffer("beta", torch.tensor(beta))
        if self._bound(torch.ones(1)).item() <= 0:
            raise ValueError(f"halting law: expected a gain in round 1, got none with k={k}, beta={beta}: lower beta")

    def forward(self, convictions: Float[Tensor, "batch round"]) -> Bool[Tensor, "batch"]:
        """Whether each task stops after the rounds given, one conviction a round; never taken back."""
        return self._enough(convictions) | (convictions.shape[1] >= self.rounds)

    def reasons(self, convictions: Float[Tensor, "batch round"]) -> list[str]:
        """Why each task stops: "evidence", else "rounds" at the cap, or "" where it goes on."""
        capped = "rounds" if convictions.shape[1] >= self.rounds else ""
        return ["evidence" if enough else capped for enough in self._enough(convictions).tolist()]

    def _enough(self, convictions: Tensor) -> Tensor:
        weighed = functional.evidence(convictions, self.p_g, self.k, self.beta)[:, self.min_rounds - 1 :]
        return (weighed >= self.effort * self._bound(convictions)).any(-1)

    def _bound(self, like: Tensor) -> Tensor:
        """B, summed round by round as the evidence is, so that full conviction reaches it exactly."""
        rounds = torch.arange(1, self.rounds + 1, dtype=like.dtype, device=like.device)
        return functional.marginal_utility(rounds, self.p_g, self.k, self.beta).clamp(min=0).cumsum(-1)[-1]

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"rounds={self.rounds}, min_rounds={self.min_rounds}, effort={self.effort}"
