"""Ways to rate beside verdicts: by agreement, by written criticism, by likelihood."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from nsed_torch.core.agent import Ensemble, Progress
from nsed_torch.core.engine import (
    Decoding,
    Engine,
    GenerateRequest,
    Generation,
    LikelihoodRequest,
    Message,
    RateRequest,
)
from nsed_torch.core.prompts import Prompts, parse_score
from nsed_torch.core.ratings import JudgeQuestion, JudgeReply, most, named, requests_for, unwritten
from nsed_torch.records.transcript import Usage


@dataclass(frozen=True)
class AgreementRating:
    """Whether a text is the judge's own, 1 or -1, told from blanks apart; without a proposal no ratings (`agreement`).

    No model is asked. It makes every vote count heads, with whatever weights the consensus cell has; ours.
    """

    by_own: ClassVar[bool] = True  # a judge rates by what it proposed itself

    def rate(
        self, ensemble: Ensemble, prompts: Prompts, questions: Sequence[JudgeQuestion], progress: Progress | None = None
    ) -> list[JudgeReply]:
        """Answer all questions."""
        return [
            JudgeReply(
                tuple((1.0 if text.split() == q.said.split() else -1.0) if q.said else None for text in q.candidates)
            )
            for q in questions
        ]

    def most_usage(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> Usage:
        """Nothing."""
        return Usage()


@dataclass(frozen=True)
class CritiqueRating:
    """Written criticism that ends in a score from -100 to 100, parsed strictly (`critique`).

    A critique without a valid score line leaves no rating; its text still reaches the proposal's author. The scale
    is the one of the published judge's rubric.
    """

    listed: bool = True  # as of `VerdictRating`
    decoding: Decoding = Decoding(max_new_tokens=96, temperature=0.3)

    def rate(
        self, ensemble: Ensemble, prompts: Prompts, questions: Sequence[JudgeQuestion], progress: Progress | None = None
    ) -> list[JudgeReply]:
        """Answer all questions: one written critique a candidate, all in one phase."""
        requests = [
            GenerateRequest(
                request.agent,
                request.about(candidate),
                self.decoding,
                request.seed + i,
                request.adapter,
                request.template,
                request.ledger,
                request.notes,
                request.beside,
            )
            for request in requests_for("critique", prompts, questions, self.listed)
            for i, candidate in enumerate(request.candidates)
        ]
        written = iter(ensemble.generate(requests, progress, silent=True))
        return [self._reply(question, [next(written) for _ in question.candidates]) for question in questions]

    def most_usage(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> Usage:
        """Every candidate's whole prompt, and its allowance."""
        (request,) = requests_for("critique", prompts, [question], self.listed)
        return most(question, engine, request, self.decoding.max_new_tokens * len(request.candidates))

    def _reply(self, question: JudgeQuestion, written: Sequence[Generation]) -> JudgeReply:
        ratings = tuple(parse_score(generation.text) for generation in written)
        failed = sum(rating is None for rating in ratings)
        fault = f"{failed} of {len(ratings)} critiques by {question.judge.name} ended in no valid score"
        usages = map(question.judge.charged, written)
        shrunk = named(question, [note for generation in written for note in generation.notes])
        lost = next((generation.failure for generation in written if generation.failure), "")
        notes = (fault,) * bool(failed) + shrunk
        return JudgeReply(ratings, tuple(g.text for g in written), Usage.sum(usages), notes, lost)


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

    def check(self, ensemble: Ensemble) -> None:
        """Refuse a judge whose engine cannot measure, with a ValueError, before anything is asked."""
        for judge in ensemble.judges:
            if not ensemble.engine(judge).measures:
                raise ValueError(
                    f"agent {judge.name!r}: expected a judge in this process for rating=likelihood, got one behind an "
                    "endpoint: use rating=verdict or rating=critique, roles=[proposer] for it, or measures=true of vLLM"
                )

    def rate(
        self, ensemble: Ensemble, prompts: Prompts, questions: Sequence[JudgeQuestion], progress: Progress | None = None
    ) -> list[JudgeReply]:
        """Answer all questions: one request each, in which equal candidates are one text."""
        requests = self.requests(prompts, questions)
        replies = []
        likelihoods = ensemble.measure(requests, progress, silent=True)
        for question, request, measured in zip(questions, requests, likelihoods, strict=True):
            ratings = {
                text: None if value is None else 2 * value ** (1 / self.temperature) - 1
                for text, value in zip(request.texts, measured.values, strict=True)
            }
            replies.append(unwritten(question, measured, [ratings[text] for text in question.candidates]))
        return replies

    def requests(self, prompts: Prompts, questions: Sequence[JudgeQuestion]) -> list[LikelihoodRequest]:
        """What the judges' engines are asked, one request a question; its texts are sorted, for order tells nothing."""
        template = prompts.fingerprint("propose")
        return [
            LikelihoodRequest(
                question.judge.name,
                _first_answer(prompts, question),
                tuple(sorted(set(question.candidates))),
                question.judge.rating_adapter,
                template,
                question.ledger,
                question.heard,
                question.beside,
            )
            for question in questions
        ]

    def most_usage(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> Usage:
        """The chat with every candidate, nothing written."""
        chat = _first_answer(prompts, question)
        return most(question, engine, RateRequest(question.judge.name, chat, question.candidates))


def _first_answer(prompts: Prompts, question: JudgeQuestion) -> tuple[Message, ...]:
    """The chat that asks the judge for its own first answer."""
    return prompts.propose(question.text, memory=(), critiques=(), persona=question.judge.persona, seed=question.seed)
