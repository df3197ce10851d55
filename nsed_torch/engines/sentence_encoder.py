"""Sentence encoders: models that turn texts into unit vectors, kept in the call log."""

import base64
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.core.encoder import Encoder
from nsed_torch.records.call_log import CallLog, CallLogError, call_key

_TOGETHER = 512  # texts of one commit: some seconds of a CPU, and the most that a kill loses
_FEWEST = 32  # tokens of a pass: below 16 rows products of matrices round otherwise than above
_MOST = 8192  # likewise, for the memory that they take
_UNIT = 1e-4  # how far a kept vector's length may be from 1, far above float32's rounding


class SentenceEncoder(nn.Module):
    """A `SentenceTransformer` with its name and revision.

    Texts of as many tokens go through together, so that nothing is padded, and a few short ones beside copies of
    themselves, so that no pass is small. Then a vector is the same whatever else is embedded: to the last bit where
    products of matrices sum each row alike, as on the CPUs that were tried, else within 1e-6. Texts that come twice
    go through once.

    Args:
        model: a `SentenceTransformer`, or what loads one, which is called when a text is first embedded.
        identity: its name and revision.
        dim: how many numbers a vector of the model will have that is yet to be loaded; None if it is here.
    """

    def __init__(self, model: Any, *, identity: Mapping[str, Any], dim: int | None = None) -> None:
        super().__init__()
        self._load = model if dim else lambda: model
        self._model: Any = None
        self.dim = dim or int(self.model.get_embedding_dimension())
        self._identity = dict(identity)

    @property
    def model(self) -> Any:
        """The `SentenceTransformer`, frozen; it is loaded if that was not necessary before."""
        if self._model is None:
            self._model = self._load().eval().requires_grad_(False)
        return self._model

    def identity(self) -> dict[str, Any]:
        """Name and revision of the model."""
        return self._identity

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "text dim"]:
        """One unit vector per text, on the CPU in float32."""
        if not texts:
            return torch.zeros(0, self.dim)
        vectors: dict[str, Tensor] = {}
        options = {"convert_to_tensor": True, "normalize_embeddings": True, "show_progress_bar": False}
        for length, alike in self._alike(list(dict.fromkeys(texts))).items():
            most, copies = max(_MOST // length, 1), math.ceil(_FEWEST / length)
            for some in (alike[start : start + most] for start in range(0, len(alike), most)):
                passed = [*some, *some[:1] * max(copies - len(some), 0)]
                found = self.model.encode(passed, batch_size=len(passed), **options).float().cpu()
                vectors |= zip(some, found, strict=False)
        return torch.stack([vectors[text] for text in texts])

    def _alike(self, texts: list[str]) -> dict[int, list[str]]:
        """The texts by how many tokens are read of them; together where the model reads none side by side."""
        tokenizer, groups = self.model.tokenizer, defaultdict(list)
        limit = {"truncation": True, "max_length": self.model.max_seq_length}
        read = tokenizer(texts, **limit)["input_ids"] if callable(tokenizer) else [[0]] * len(texts)
        for text, tokens in zip(texts, read, strict=True):
            groups[max(len(tokens), 1)].append(text)
        return groups


class LoggedEncoder(nn.Module):
    """A sentence encoder whose vectors are kept in the call log: a text is embedded once for all runs with one log.

    A kept vector counts where it is a unit vector of the encoder's length; any other is made anew. Versions
    and device are in the key, as in those of calls.

    Args:
        encoder: makes what is not kept yet.
        log: says where finished calls are kept now, for a server has a log for every batch.
    """

    def __init__(self, encoder: SentenceEncoder, log: Callable[[], CallLog]) -> None:
        super().__init__()
        self.encoder, self.log, self.dim = encoder, log, encoder.dim
        packages = "nsed_torch", "torch", "transformers", "tokenizers", "sentence-transformers"
        self._versions = {package: version(package) for package in packages}

    def identity(self) -> dict[str, Any]:
        """The encoder's."""
        return self.encoder.identity()

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "text dim"]:
        """One unit vector per text, on the CPU in float32: to the last bit what was computed, now or before."""
        if not texts:
            return torch.zeros(0, self.dim)
        unique = list(dict.fromkeys(texts))
        vectors: dict[str, Tensor] = {}
        for start in range(0, len(unique), _TOGETHER):
            vectors |= self._embedded(unique[start : start + _TOGETHER])
        return torch.stack([vectors[text] for text in texts])

    def _embedded(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """The vectors of different texts; those that are new are committed together."""
        about = {"kind": "embed", "identity": self.identity(), "versions": self._versions}
        device = torch.device(self.encoder.model.device).type
        keys = {text: call_key(**about, device=device, text=text) for text in texts}
        log = self.log()
        found = log.get(keys.values(), lambda key, value: _unpacked(value, self.dim))
        vectors = {text: found[key] for text, key in keys.items() if key in found}
        if missing := [text for text in texts if text not in vectors]:
            new = dict(zip(missing, self.encoder.embed(missing), strict=True))
            with suppress(CallLogError):  # a log from before, which nobody may write any more, still answers
                log.put({keys[text]: _packed(vector) for text, vector in new.items()})
            vectors |= new
        return vectors


def logged(encoder: Encoder, log: Callable[[], CallLog]) -> Encoder:
    """An encoder that keeps its vectors in the call log, if it has weights: hashing is faster than reading."""
    return LoggedEncoder(encoder, log) if isinstance(encoder, SentenceEncoder) else encoder


def _packed(vector: Float[Tensor, "dim"]) -> str:
    """A vector as the call log keeps it: little-endian float32 in base64."""
    return base64.b64encode(vector.numpy().astype("<f4").tobytes()).decode()


def _unpacked(value: Any, dim: int) -> Float[Tensor, "dim"]:
    """The unit vector of that length that `_packed` wrote; a ValueError or TypeError for whatever else stands there."""
    vector = torch.from_numpy(np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32))
    # Nothing that is no number has this length.
    if len(vector) != dim or not abs(float(vector.norm()) - 1) <= _UNIT:
        raise ValueError(f"expected a unit vector of {dim} numbers")
    return vector
