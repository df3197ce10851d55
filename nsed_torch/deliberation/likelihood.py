"""Judges that do not judge: a rating is how likely its giver would have written the text itself."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nsed_torch.agents import Engine, Ensemble, LikelihoodRequest, Message, Progress, Prompts
from nsed_torch.deliberation.rating import JudgeQuestion, JudgeReply, count, named


@dataclass(frozen=True)
class LikelihoodRating:
    """How likely the judge would have written the very text itself, as its answer in the first round (`likelihood`).

    `r = 2 exp(l / temperature) - 1`, l the mean log-probability of the text's tokens and of its end, behind the chat
    that asks the judge for a proposal of its own, without memory and critiques. Comparing texts by length-normalised
    likelihood is published (Brown et al. 2020, arXiv 2005.14165); that a judge's rating is made of it, and the map to
    [-1, 1], are our reading of the published cross-rating. An author's name is never shown. Neither round nor
    order shape a request, so a text that comes again beside the same others is not read again.

    Args:
        temperature: above 1 lifts all ratings, below 1 lowers them; at 1 a rating is positive where the mean
            probability of a token is above 1/2. A `Calibration` of the consensus cell fits each judge.

    Raises:
        ValueError: if the temperature is no number above 0.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"rating.temperature: expected a number above 0, got {self.temperature}: 1 is the default")

    @property
    def written_tokens(self) -> int:
        """Nothing: logits are read, not sampled."""
        return 0

    def rate(
        self,
        ensemble: Ensemble,
        prompts: Prompts,
        questions: Sequence[JudgeQuestion],
        progress: Progress | None = None,
    ) -> list[JudgeReply]:
        """Answer all questions: one request each, in which equal candidates are one text."""
        requests = self.requests(prompts, questions)
        replies = []
        for question, request, found in zip(questions, requests, ensemble.measure(requests, progress), strict=True):
            ratings = {text: self._rating(value) for text, value in zip(request.texts, found.values, strict=True)}
            replies.append(
                JudgeReply(
                    tuple(ratings[text] for text in question.candidates),
                    ("",) * len(question.candidates),
                    question.judge.usage(found.prompt_tokens, 0, found.seconds),
                    named(question, found.notes),
                )
            )
        return replies

    def requests(self, prompts: Prompts, questions: Sequence[JudgeQuestion]) -> list[LikelihoodRequest]:
        """What the judges' engines are asked, one request a question; its texts are sorted, for order tells nothing."""
        template = prompts.fingerprint("propose")
        return [
            LikelihoodRequest(
                agent=question.judge.name,
                messages=_chat(prompts, question),
                texts=tuple(sorted(set(question.candidates))),
                adapter=question.judge.rating_adapter,
                template=template,
            )
            for question in questions
        ]

    def most_tokens(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> tuple[int, int]:
        """The chat once, every candidate, nothing written."""
        return count(engine, _chat(prompts, question)) + sum(map(engine.count_tokens, question.candidates)), 0

    def _rating(self, likelihood: float | None) -> float | None:
        return None if likelihood is None else 2 * likelihood ** (1 / self.temperature) - 1


def _chat(prompts: Prompts, question: JudgeQuestion) -> tuple[Message, ...]:
    """The chat that asks the judge for its own first answer."""
    return prompts.propose(question.text, memory=(), critiques=(), persona=question.judge.persona, seed=question.seed)
