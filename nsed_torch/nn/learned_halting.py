"""When to stop, learned: a rule that reads hidden states as well, and what it is trained on."""

from pathlib import Path

import torch
from jaxtyping import Bool, Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from nsed_torch.functional import Coefficient
from nsed_torch.nn.pretrained import HALTING, located
from nsed_torch.records import write_files


class LearnedHalting(nn.Module):
    """Stop once a head on hidden state, conviction and round says so, or at the cap. The head is ours.

    After round r the chance to stop is `s_r = sigmoid(b + w . [h_r; conviction_r; r / rounds])`; a task stops in the
    first round where it exceeds one half. At the start w = 0 and b = -4, so that no task stops before the cap, as
    with `FixedHalting`. Training maximises `expected_value` over recorded rounds, all of them in one call.

    Args:
        dim: width of the hidden state.
        rounds: the cap.

    Raises:
        ValueError: if a size is below 1.
    """

    reads_hidden = True

    def __init__(self, dim: int, rounds: int = 8) -> None:
        super().__init__()
        if min(dim, rounds) < 1:
            raise ValueError(f"halting: expected dim and rounds of at least 1, got dim={dim} and rounds={rounds}")
        self.dim, self.rounds = dim, rounds
        self.weight = nn.Parameter(torch.zeros(dim + 2))
        # Far enough from 0 to go on, near enough for a gradient.
        self.bias = nn.Parameter(torch.tensor(-4.0))

    def logits(
        self,
        convictions: Float[Tensor, "batch round"],
        hidden: Float[Tensor, "batch round dim"],
        round_mask: Bool[Tensor, "batch round"] | None = None,
    ) -> Float[Tensor, "batch round"]:
        """`logit(s_r)`, in the dtype of the hidden states; b where masked.

        Args:
            convictions: one a round.
            hidden: the hidden state after each round.
            round_mask: which rounds were held; all if None.

        Raises:
            ValueError: if the hidden states have another width, or there are more rounds than the cap.
        """
        held = convictions.shape[1]
        if hidden.shape[-1] != self.dim or held > self.rounds:
            got = f"{held} of width {hidden.shape[-1]}: build LearnedHalting for them"
            raise ValueError(
                f"halting: expected at most {self.rounds} rounds of hidden states {self.dim} wide, got {got}"
            )
        clock = torch.arange(1, held + 1, dtype=hidden.dtype, device=hidden.device) / self.rounds
        shown = [hidden, convictions.to(hidden.dtype)[..., None], clock.expand(len(hidden), -1)[..., None]]
        features = torch.cat(shown, -1)
        if round_mask is not None:
            features = torch.where(round_mask[..., None], features, 0)
        return features @ self.weight.to(hidden.dtype) + self.bias.to(hidden.dtype)

    def loss(
        self,
        convictions: Float[Tensor, "batch round"],
        hidden: Float[Tensor, "batch round dim"],
        correct: Float[Tensor, "batch round"],
        cost: Float[Tensor, "batch round"],
        *,
        price: Coefficient,
        round_mask: Bool[Tensor, "batch round"] | None = None,
    ) -> Float[Tensor, ""]:
        """What to minimise: the mean over tasks of minus `expected_value`; arguments as there and in `logits`."""
        chances = stop_probability(self.logits(convictions, hidden, round_mask), round_mask)
        return -expected_value(chances, correct, cost, price, round_mask).mean()

    def forward(
        self, convictions: Float[Tensor, "batch round"], hidden: Float[Tensor, "batch round dim"]
    ) -> Bool[Tensor, "batch"]:
        """Whether each task stops after the rounds given; never taken back. Arguments as in `logits`."""
        return self._says_so(convictions, hidden) | (convictions.shape[1] >= self.rounds)

    def reasons(self, convictions: Float[Tensor, "batch round"], hidden: Float[Tensor, "batch round dim"]) -> list[str]:
        """Why each task stops: "learned", else "rounds" at the cap, or "" where it goes on."""
        capped = "rounds" if convictions.shape[1] >= self.rounds else ""
        return ["learned" if stop else capped for stop in self._says_so(convictions, hidden).tolist()]

    def _says_so(self, convictions: Tensor, hidden: Tensor) -> Tensor:
        return (self.logits(convictions, hidden) > 0).any(-1)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `halting.safetensors`, whole or not at all; best beside the cell whose hidden states it reads.

        Raises:
            OSError: if it cannot be written.
        """
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        content = save(tensors, metadata={"format": "pt", "halting": "learned", "rounds": str(self.rounds)})
        write_files({Path(folder).expanduser() / HALTING: content})

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, revision: str | None = None) -> "LearnedHalting":
        """The rule that `save_pretrained` wrote, on the CPU; arguments as of `ConsensusCell.from_pretrained`.

        Raises:
            ValueError: in one line with the file, if it is missing, corrupt or something else.
        """
        path = located(folder, revision) / HALTING
        try:
            with safe_open(path, framework="pt") as file:
                rounds = int(file.metadata()["rounds"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            rule = cls(len(tensors["weight"]) - 2, rounds).to(tensors["weight"].dtype)
            rule.load_state_dict(tensors, strict=True)
        except OSError as error:
            raise ValueError(f"{path}: expected a trained halting rule, got none there: check the path") from error
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: not a trained halting rule ({reason}): save it again") from error
        return rule

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"dim={self.dim}, rounds={self.rounds}"


def stop_probability(
    logits: Float[Tensor, "batch round"], round_mask: Bool[Tensor, "batch round"] | None = None
) -> Float[Tensor, "batch round"]:
    """Probability of stopping after each round, `q_r = s_r prod_{u < r} (1 - s_u)` with `s = sigmoid(logits)`. Ours.

    Whoever reaches the last round held stops there, whatever its logit.

    Args:
        logits: of stopping after a round that has been reached.
        round_mask: which rounds were held; all if None.

    Returns:
        Probabilities that sum to 1 over the rounds held; 0 in others, and for a task without any.
    """
    if round_mask is None:
        round_mask = torch.ones_like(logits, dtype=torch.bool)
    logits = torch.where(round_mask, logits, 0)
    to_come = round_mask.flip(-1).cumsum(-1).flip(-1)
    stop = torch.where(to_come == 1, 0, nn.functional.logsigmoid(logits))
    go = torch.where(round_mask, nn.functional.logsigmoid(-logits), 0)
    reached = nn.functional.pad(go[:, :-1].cumsum(-1), (1, 0))
    return torch.where(round_mask, (stop + reached).exp(), 0)


def expected_value(
    chances: Float[Tensor, "batch round"],
    correct: Float[Tensor, "batch round"],
    cost: Float[Tensor, "batch round"],
    price: Coefficient,
    round_mask: Bool[Tensor, "batch round"] | None = None,
) -> Float[Tensor, "batch"]:
    """Expected accuracy minus what it costs, `sum_r q_r (correct_r - price cost_r)`. Ours.

    Args:
        chances: q, of stopping after each round, from `stop_probability`.
        correct: 1 where the answer after a round is right, else 0; or anything between.
        cost: of all rounds up to and with this one, in any unit.
        price: accuracy that one unit of cost is worth; a number, or one for each task as [batch 1].
        round_mask: which rounds were held; all if None. Anything may stand in others.
    """
    if round_mask is not None:
        correct, cost = (torch.where(round_mask, x, 0) for x in (correct, cost))
    return (chances * (correct - price * cost)).sum(-1)
