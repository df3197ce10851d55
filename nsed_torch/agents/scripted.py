"""Agents without a model: functions in place of weights, for tests, dry runs and teaching."""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.agents.requests import (
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    RateRequest,
    Rating,
)


class ScriptedEngine:
    """Answers by calling functions; exact for any batch by construction. Words count as tokens.

    Args:
        write: the text for a request.
        judge: the rating, in [-1, 1] or None, of one candidate of a request, or of one text whose likelihood is asked.
        name: part of its identity.
        max_batch: rows of one batch; callers split longer lists.
    """

    def __init__(
        self,
        write: Callable[[GenerateRequest], str],
        judge: Callable[[RateRequest | LikelihoodRequest, str], float | None],
        *,
        name: str = "scripted",
        max_batch: int = 32,
    ) -> None:
        self.write = write
        self.judge = judge
        self.name = name
        self.max_batch = max_batch

    def identity(self, adapter: str | None) -> dict[str, Any]:
        """Its name and the adapter's."""
        return {"name": self.name, "adapter": adapter}

    def count_tokens(self, text: str) -> int:
        """Number of words."""
        return len(text.split())

    def memory_bytes(self) -> int:
        """Nothing: there are no weights."""
        return 0

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Call `write` on each request; words beyond the answer allowance are cut."""
        results = []
        for request in requests:
            words = self.write(request).split(" ")
            limit = request.decoding.max_new_tokens
            text = " ".join(words[:limit])
            read = sum(self.count_tokens(m.content) for m in request.messages)
            results.append(Generation(text, read, self.count_tokens(text), "length" if len(words) > limit else "stop"))
        return results

    def rate(self, requests: Sequence[RateRequest]) -> list[Rating]:
        """Call `judge` on each candidate of each request."""
        return [
            Rating(
                tuple(self.judge(request, candidate) for candidate in request.candidates),
                prompt_tokens=self._read(request, request.candidates),
            )
            for request in requests
        ]

    def measure(self, requests: Sequence[LikelihoodRequest]) -> list[Likelihood]:
        """Call `judge` on each text of each request: a rating r is the likelihood (1 + r) / 2."""
        results = []
        for request in requests:
            ratings = [self.judge(request, text) for text in request.texts]
            values = tuple(None if rating is None else (1 + rating) / 2 for rating in ratings)
            results.append(Likelihood(values, self._read(request, request.texts)))
        return results

    def _read(self, request: RateRequest | LikelihoodRequest, texts: Sequence[str]) -> int:
        return sum(self.count_tokens(text) for text in (*(m.content for m in request.messages), *texts))


class HashedEncoder:
    """A bag of hashed words on the unit sphere: no weights, exact everywhere.

    Args:
        dim: length of the vectors.
    """

    def __init__(self, dim: int = 64) -> None:
        self.dim = dim

    def identity(self) -> dict[str, Any]:
        """Its kind and length."""
        return {"name": "hashed", "dim": self.dim}

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "text dim"]:
        """One unit vector a text; a text without words is the zero vector."""
        return torch.stack([self._embed(text) for text in texts]) if texts else torch.zeros(0, self.dim)

    def _embed(self, text: str) -> Tensor:
        vector = torch.zeros(self.dim)
        for word in re.findall(r"\w+", text.lower()):
            digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
            vector[int.from_bytes(digest[:4], "big") % self.dim] += 1.0 if digest[4] % 2 else -1.0
        return torch.nn.functional.normalize(vector, dim=0)
