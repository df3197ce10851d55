"""Whom it pays to ask, learned: what has been heard so far, utilities by round, and their file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nsed_torch.parts.saved_cells import BROKER, shipped
from nsed_torch.records.saved import read_module, write_module

_ABOUT = "nsed_broker"


class Heard(NamedTuple):
    """What has been heard about each task, as the vote of the last round has it."""

    asked: Bool[Tensor, "*batch agent"]
    answered: Bool[Tensor, "*batch agent"]
    agree: Bool[Tensor, "*batch agent"]  # who gave the leading answer
    length: Float[Tensor, "*batch agent"]  # log of the number of characters of each answer; anything where none is
    lead: Float[Tensor, "*batch"]  # probability that the consensus gives to the leading answer, 0 where there is none
    second: Float[Tensor, "*batch"]  # the largest probability of any other answer

    @classmethod
    def nothing(cls, batch: int, agents: int) -> "Heard":
        """Before the first round."""
        nobody = torch.zeros(batch, agents, dtype=torch.bool)
        none = torch.zeros(batch, dtype=torch.float64)
        return cls(nobody, nobody, nobody, nobody.double(), none, none)

    def evidence(self, habits: Float[Tensor, "2 agent"]) -> Float[Tensor, "*batch width"]:
        """In numbers: 2 for each agent, then lead, second, lengths, missing answers and share of support.

        Habits are mean and deviation of the logarithm of each agent's answer length.
        """
        asked = self.asked.broadcast_to(self.agree.shape)
        there, count = asked & self.answered, asked.sum(-1).clamp(min=1)
        unusual = torch.where(there, ((self.length - habits[0]) / habits[1]).clamp(-3, 3), 0).sum(-1) / count
        missing = (asked & ~self.answered).sum(-1)
        scalars = [self.lead, self.second, unusual, missing, self.agree.sum(-1) / count]
        numbers = torch.stack([x.double() for x in scalars], -1)
        return torch.cat([asked.double(), self.agree.double(), numbers], -1)


class LearnedBroker(nn.Module):
    """Whom it pays to ask: utilities `u_ar = b_ar + w_ar . [x; e]`, with a head for each round, 1 at the start. Ours.

    x is the task embedding (of width 0 where the question is not read) and e the evidence: who was asked and who of
    them gave the leading answer, the consensus's two largest probabilities, how long answers were against each agent's
    own habit, how many are missing, how large the support is, the calibrated chance q that the leading answer is
    right, and `q (1 - q)`. What asking costs is subtracted already, at the price that the broker was fitted for.

    With one role, agents join one at a time: each round asks the agent of largest utility that has not been asked, as
    long as that is above 0, and whoever was heard stays. With two, a round seats everybody whose utility as proposer
    or as judge is above 0. Somebody answers in the first round whatever the utilities; behind the last head, or
    where nobody is worth it, a task ends.

    Args:
        agents: names, in the order of the axis.
        rounds: heads.
        roles: 1 or 2, see above.
        dim: width of the task embedding that is read, or 0.
        encoder: identity of what embeds tasks; needed where dim is above 0.

    Raises:
        ValueError: for names that are not different texts, other sizes, or an encoder where none is read or needed.

    Examples:
        >>> broker = LearnedBroker(["ant", "bee"], rounds=2)
        >>> with torch.no_grad():
        ...     broker.bias[0, :, 0] = torch.tensor([0.2, 0.7])
        >>> broker.next_one(0, Heard.nothing(1, 2)).tolist()
        [[False, True]]
    """

    habits: Tensor

    def __init__(
        self,
        agents: Sequence[str],
        *,
        rounds: int,
        roles: int = 1,
        dim: int = 0,
        encoder: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        names = tuple(agents)
        if not names or len(set(names)) < len(names) or not all(type(name) is str and name for name in names):
            raise ValueError(f"broker agents: expected one or more different names, got {list(agents)}")
        if rounds < 1 or roles not in {1, 2} or dim < 0:
            raise ValueError(
                f"broker: expected rounds >= 1, roles of 1 or 2 and dim >= 0, got {rounds}, {roles}, {dim}"
            )
        if (dim > 0) != isinstance(encoder, Mapping):
            raise ValueError(f"broker: expected an encoder where dim is above 0 and else none, got {encoder} and {dim}")
        self.agents, self.encoder = names, encoder
        count = len(names)
        self.bias = nn.Parameter(torch.ones(rounds, count, roles).double())
        self.weight = nn.Parameter(torch.zeros(rounds, count, roles, dim + 2 * count + 7).double())
        self.confidence = nn.Parameter(torch.zeros(rounds, 1 + 2 * count + 5).double())
        self.register_buffer("habits", torch.tensor([[0.0], [1.0]]).double().repeat(1, count))

    @property
    def rounds(self) -> int:
        """How many rounds there are heads for."""
        return len(self.bias)

    @property
    def one_by_one(self) -> bool:
        """Whether agents join one at a time and stay."""
        return self.bias.shape[2] == 1

    @property
    def dim(self) -> int:
        """Width of the task embedding that is read."""
        return self.weight.shape[-1] - 2 * len(self.agents) - 7

    def forward(
        self, round_: int, heard: Heard, question: Float[Tensor, "batch dim"] | None = None
    ) -> Float[Tensor, "*batch agent role"]:
        """Utilities for the round after `round_` rounds; embeddings of the questions are not needed where dim is 0."""
        shown = heard.evidence(self.habits)
        rows = with_confidence(shown, shown @ self.confidence[round_, 1:] + self.confidence[round_, 0])
        if question is not None and self.dim:
            rows = torch.cat([question.to(rows), rows], -1)
        utilities: Tensor = torch.einsum("...w,arw->...ar", rows, self.weight[round_]) + self.bias[round_]
        return utilities

    def next_one(
        self, round_: int, heard: Heard, question: Float[Tensor, "batch dim"] | None = None
    ) -> Bool[Tensor, "batch agent"]:
        """Whom a broker with one role asks next: one agent a task, or nobody where the task ends."""
        worth = self(round_, heard, question)[..., 0].masked_fill(heard.asked, -torch.inf)
        best, agent = worth.max(-1)
        asks = best > (0 if round_ else -torch.inf)
        chosen: Tensor = nn.functional.one_hot(agent, len(self.agents)).bool() & asks[..., None]
        return chosen

    def check(self, agents: Sequence[str], encoder: Mapping[str, Any] | None = None) -> None:
        """Refuse, with a ValueError, agents or, where they are known yet, embeddings that it was not fitted to."""
        if strangers := [name for name in agents if name not in self.agents]:
            known, got = ", ".join(self.agents), ", ".join(strangers)
            raise ValueError(f"broker: expected agents out of {known}, got {got}: leave them out or fit it with them")
        if self.encoder is not None and encoder is not None and dict(self.encoder) != dict(encoder):
            expected, got = json.dumps(dict(self.encoder)), json.dumps(dict(encoder))
            raise ValueError(f"broker: expected the encoder {expected}, got {got}: choose that it was fitted with")

    def save_pretrained(self, path: str | Path) -> None:
        """Write one safetensors file, names of agents and encoder in its header, whole or not at all.

        Raises:
            ValueError: if a number in it is not finite.
        """
        _check_finite(self.state_dict())
        encoder = None if self.encoder is None else dict(self.encoder)
        # All in one entry, for the order of entries changes from run to run.
        about = json.dumps({"agents": list(self.agents), "encoder": encoder}, sort_keys=True)
        write_module(Path(path).expanduser(), self, {_ABOUT: about})

    @classmethod
    def from_pretrained(cls, path: str | Path) -> "LearnedBroker":
        """The broker in a file that `save_pretrained` wrote, on the CPU; a ValueError of one line for any other.

        The name of a team whose broker ships with the package, such as "experts", stands for that.
        """
        folder = shipped(path)
        file = folder / BROKER if folder else Path(path).expanduser()
        return read_module(file, "a learned broker", "fit it again", _of_size)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"agents={len(self.agents)}, rounds={self.rounds}, roles={self.bias.shape[2]}, dim={self.dim}"


def with_confidence(shown: Float[Tensor, "*batch width"], logit: Float[Tensor, "*batch"]) -> Tensor:
    """Evidence, the calibrated chance q that the leading answer is right, and q (1 - q)."""
    chance = logit.sigmoid()
    return torch.cat([shown, torch.stack([chance, chance * (1 - chance)], -1)], -1)


def _of_size(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> LearnedBroker:
    """A broker of the sizes of the tensors: no file can ask for more memory than it has."""
    about = json.loads(header[_ABOUT])
    (rounds, count, roles), (*sizes, width) = tensors["bias"].shape, tensors["weight"].shape
    names, dim = about["agents"], width - 2 * count - 7
    fits = isinstance(names, list) and len(names) == count and sizes == [rounds, count, roles]
    if not fits or {value.dtype for value in tensors.values()} != {torch.float64}:
        raise ValueError("agents and tensors do not fit")
    _check_finite(tensors)
    return LearnedBroker(names, rounds=rounds, roles=roles, dim=dim, encoder=about["encoder"])


def _check_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, value in tensors.items():
        if not value.isfinite().all() or (name == "habits" and not (value[1] > 0).all()):
            raise ValueError(f"broker {name}: expected finite numbers and deviations above 0, got others")
