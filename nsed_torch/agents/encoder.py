"""Texts as unit vectors, for the gate."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn


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


class SentenceEncoder(nn.Module):
    """A `SentenceTransformer` with its name and revision.

    Texts go through one by one, without padding: a vector never depends on what else is embedded, to the last bit,
    and the encoder is far smaller than the language models beside it. Texts that come twice go through once.
    """

    def __init__(self, model: Any, *, identity: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.dim = int(self.model.get_embedding_dimension())
        self._identity = dict(identity)

    def identity(self) -> dict[str, Any]:
        """Name and revision of the model."""
        return self._identity

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "text dim"]:
        """One unit vector per text, on the CPU in float32."""
        if not texts:
            return torch.zeros(0, self.dim)
        options = {"convert_to_tensor": True, "normalize_embeddings": True, "show_progress_bar": False}
        vectors = {text: self.model.encode(text, **options).float().cpu() for text in dict.fromkeys(texts)}
        return torch.stack([vectors[text] for text in texts])


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
