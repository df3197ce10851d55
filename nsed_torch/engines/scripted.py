"""Agents without a model: functions in place of weights, for tests, dry runs and teaching."""

from collections.abc import Callable, Sequence
from typing import Any

from nsed_torch.core.engine import (
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    RateRequest,
    Ratings,
)


class ScriptedEngine(Engine):
    """Answers by calling functions; exact for any batch by construction. Words count as tokens.

    `write` gives the text for a request, `judge` the rating, in [-1, 1] or None, of one candidate, or of one text whose
    likelihood is wanted; the name is part of the identity.
    """

    weighs = True  # the functions see what is heard in part

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

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Call `write` on each request; words beyond the answer allowance are cut."""
        results = []
        for request in requests:
            words = self.write(request).split(" ")
            limit = request.decoding.max_new_tokens
            text = " ".join(words[:limit])
            reason = "length" if len(words) > limit else "stop"
            results.append(Generation(text, self.count_prompt(request.messages), self.count_tokens(text), reason))
        return results

    def rate(self, requests: Sequence[RateRequest]) -> list[Ratings]:
        """Call `judge` on each candidate of each request."""
        results = []
        for request in requests:
            values = tuple(self.judge(request, candidate) for candidate in request.candidates)
            chats = [self.count_prompt(request.about(candidate)) for candidate in request.candidates]
            results.append(Ratings(values, prompt_tokens=sum(chats)))
        return results

    def measure(self, requests: Sequence[LikelihoodRequest]) -> list[Likelihood]:
        """Call `judge` on each text of each request: a rating r is the likelihood (1 + r) / 2."""
        results = []
        for request in requests:
            ratings = [self.judge(request, text) for text in request.texts]
            values = tuple(None if rating is None else (1 + rating) / 2 for rating in ratings)
            chats = [self.count_prompt(request.messages, [text]) for text in request.texts]
            lengths = tuple(self.count_tokens(text) + 1 for text in request.texts)
            results.append(Likelihood(values, sum(chats), lengths=lengths))
        return results
