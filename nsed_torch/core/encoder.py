"""Texts as unit vectors, for the gate."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into vectors of unit length."""

    dim: int

    def identity(self) -> Mapping[str, Any]:
        """Whatever tells this encoder's vectors from another's; JSON values only."""
        ...

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "text dim"]:
        """One unit vector per text, on the CPU in float32."""
        ...


class HashedEncoder:
    """A bag of hashed words on the unit sphere: no weights, exact everywhere."""

    def __init__(self, dim: int = 64) -> None:
        self.dim = dim

    def identity(self) -> dict[str, Any]:
        """Its kind and length."""
        return {"name": "hashed", "dim": self.dim}

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "text dim"]:
        """One unit vector per text; a text without words is the zero vector."""
        return torch.stack([self._embed(text) for text in texts]) if texts else torch.zeros(0, self.dim)

    def _embed(self, text: str) -> Tensor:
        vector = torch.zeros(self.dim)
        for word in re.findall(r"\w+", text.lower()):
            digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
            vector[int.from_bytes(digest[:4], "big") % self.dim] += 1.0 if digest[4] % 2 else -1.0
        return torch.nn.functional.normalize(vector, dim=0)
