"""Texts as unit vectors, for the gate."""

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
        """One unit vector a text, on the CPU in float32."""
        ...


class SentenceEncoder(nn.Module):
    """A sentence-transformers model.

    Texts go through one by one, without padding: a vector never depends on what else is embedded, to the last bit,
    and the encoder is far smaller than the language models beside it. Texts that come twice go through once.

    Args:
        model: a `SentenceTransformer`.
        identity: its name and revision.
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
        """One unit vector a text, on the CPU in float32."""
        if not texts:
            return torch.zeros(0, self.dim)
        options = {"convert_to_tensor": True, "normalize_embeddings": True, "show_progress_bar": False}
        vectors = {text: self.model.encode(text, **options).float().cpu() for text in dict.fromkeys(texts)}
        return torch.stack([vectors[text] for text in texts])
