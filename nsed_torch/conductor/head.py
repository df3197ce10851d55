"""A linear head on a backbone's hidden state: about ten thousand numbers that say who goes next, and as what."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from nsed_torch.records.files import read_json, to_json, write_files

PARTS: Mapping[str, str] = {
    "thinker": "Do not answer yet. Say what is asked for, and how to get there.",
    "worker": "Answer the question.",
    "verifier": "Check the answer so far. Begin with ACCEPT if it is right. If not, say what is wrong.",
}
"""The roles of a turn, and what each is told. A worker's is the bare question where nobody spoke before."""

CONFIG, WEIGHTS, CARD = "head.json", "head.safetensors", "README.md"
SCHEMA = 1


@dataclass(frozen=True)
class Head:
    """Scores workers in roles by the state of the work: `head.scores(states, descriptions)`.

    With x the state of the work and y a worker's description, both hidden states of one backbone, less their means in
    training and scaled to unit length, the score of a worker as r is

        <U x + a_r, V y> + <c_r, U x> + b_r,

    of rank k in 2 k dim + 6 k + 3 numbers: 9,267 for k = 8 and 576 dimensions. Who is picked depends on words alone, so
    that a worker whom training never showed has a score, and one who says nothing of itself (y = 0) is as good as any
    other who does not. Published: a head of about ten thousand numbers on a small model's hidden state that picks model
    and role (TRINITY, arXiv 2512.04695), there a row for each model of a fixed pool; the bilinear form is ours.
    """

    state: Float[Tensor, "rank dim"]  # U
    description: Float[Tensor, "rank dim"]  # V
    inclined: Float[Tensor, "role rank"]  # a, whom a role wants
    apt: Float[Tensor, "role rank"]  # c, when a role is wanted
    bias: Float[Tensor, " role"]  # b
    state_mean: Float[Tensor, " dim"]  # not learned, as the next
    description_mean: Float[Tensor, " dim"]

    @classmethod
    def fresh(cls, states: Float[Tensor, "state dim"], descriptions: Float[Tensor, "worker dim"], rank: int) -> "Head":
        """A head to begin with: the nearest description in the first `rank` principal directions of both, in any role.

        A row of NaN is a worker who says nothing of itself.

        Raises:
            ValueError: for a rank below 1, or above the dimension.
        """
        dim = states.shape[-1]
        if not 1 <= rank <= dim:
            raise ValueError(f"expected a rank from 1 to {dim}, got {rank}: correct it")
        said = descriptions[~descriptions.isnan().any(dim=-1)]
        zeros = torch.zeros(len(PARTS), rank)
        head = cls(
            *(torch.zeros(rank, dim), torch.zeros(rank, dim), zeros, zeros, torch.zeros(len(PARTS))),
            *(states.mean(0), said.mean(0) if len(said) else torch.zeros(dim)),
        )
        seen = torch.cat([_unit(states - head.state_mean), _unit(said - head.description_mean)])
        # Rows of zeros below, so that there are as many directions as dimensions.
        _, _, directions = torch.linalg.svd(torch.cat([seen, torch.zeros(dim, dim)]).double(), full_matrices=False)
        first = directions[:rank].float()
        return replace(head, state=first, description=first)

    def scores(
        self, states: Float[Tensor, "state dim"], descriptions: Float[Tensor, "worker dim"]
    ) -> Float[Tensor, "state worker role"]:
        """The score of every worker in every role, in every state; a row of NaN is a worker without a description.

        Raises:
            ValueError: for states of another length.
        """
        dim = self.state.shape[-1]
        if states.shape[-1] not in {1, dim}:  # 1: a stand-in, which knows no states
            raise ValueError(
                f"expected hidden states of {dim} numbers, got {states.shape[-1]}: "
                "choose the backbone that the head was trained on"
            )
        x = _unit(states - self.state_mean) @ self.state.T
        y = _unit(descriptions - self.description_mean).nan_to_num() @ self.description.T
        wants = (x[:, None] + self.inclined) @ y.T
        return wants.transpose(1, 2) + (x @ self.apt.T + self.bias)[:, None]

    def vector(self) -> Float[Tensor, " number"]:
        """All that is learned, in one row of float64."""
        return torch.cat([value.flatten() for value in self._learned().values()]).double()

    def with_vector(self, vector: Any) -> "Head":
        """The head of other numbers, in the order of `vector`."""
        flat, learned, start = torch.as_tensor(vector, dtype=torch.float32), {}, 0
        for name, value in self._learned().items():
            learned[name] = flat[start : start + value.numel()].reshape(value.shape)
            start += value.numel()
        return replace(self, **learned)

    def save(self, folder: Path, *, backbone: Mapping[str, Any], card: str) -> None:
        """Write weights, card and `head.json`, each whole; `backbone` is the identity of what it reads."""
        tensors = {field.name: getattr(self, field.name).clone().contiguous() for field in fields(self)}
        rank, dim = self.state.shape
        about = {"schema_version": SCHEMA, "rank": rank, "dim": dim, "roles": dict(PARTS), "backbone": dict(backbone)}
        contents = {WEIGHTS: save(tensors), CARD: card.encode(), CONFIG: f"{to_json(about)}\n".encode()}
        write_files({folder / name: content for name, content in contents.items()})

    def _learned(self) -> dict[str, Tensor]:
        return {f.name: getattr(self, f.name) for f in fields(self) if not f.name.endswith("_mean")}


def load_head(folder: Path, backbone: Mapping[str, Any]) -> Head:
    """The head that `Head.save` wrote, for a backbone of this identity; nothing is executed.

    Raises:
        ValueError: in one line with the file, for what is missing, corrupt or no head, or one of another backbone.
    """
    about = read_json(folder / CONFIG)
    known = about.get("backbone") if isinstance(about, dict) else None
    if not isinstance(known, dict) or about.get("schema_version") != SCHEMA or about.get("roles") != dict(PARTS):
        raise ValueError(f"{folder / CONFIG}: expected a head of this version, got something else: train it anew")
    for name in ("name", "adapter"):
        if name in known and name in backbone and known[name] != backbone[name]:
            raise ValueError(
                f"{folder}: expected a backbone with {name} {known[name]!r}, which the head reads, "
                f"got {backbone[name]!r}: choose that one"
            )
    try:
        tensors = load((folder / WEIGHTS).read_bytes())
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{folder / WEIGHTS}: cannot be read ({error}); restore it or train it anew") from error
    rank, dim, roles = about.get("rank"), about.get("dim"), len(PARTS)
    shapes = [(rank, dim)] * 2 + [(roles, rank)] * 2 + [(roles,), (dim,), (dim,)]
    for field, shape in zip(fields(Head), shapes, strict=True):
        tensor = tensors.get(field.name)
        if tensor is None or tensor.shape != shape or tensor.dtype != torch.float32 or not tensor.isfinite().all():
            got = "none" if tensor is None else f"{tensor.dtype} of shape {list(tensor.shape)}, or none finite"
            raise ValueError(
                f"{folder / WEIGHTS}: expected {field.name} of {list(shape)} finite float32 numbers, got {got}: "
                "restore it or train it anew"
            )
    return Head(**{field.name: tensors[field.name] for field in fields(Head)})


def _unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows, dim=-1)
