"""How judges come to their ratings."""

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol

from nsed_torch.core.agent import Agent, Ensemble, Progress
from nsed_torch.core.engine import (
    Decoding,
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    Message,
    RateRequest,
    Ratings,
    RatingScale,
)
from nsed_torch.core.ledger import TokenLedger
from nsed_torch.core.prompts import Prompts, parse_score
from nsed_torch.records.transcript import Critique, Usage

DIGITS = 9
"""Decimal digits kept, of ratings before they are voted on: far coarser than float64's noise across batch sizes, far
finer than anything that matters."""

MARKUP = 16
"""Tokens a chat template may add to a message."""


class JudgeQuestion(NamedTuple):
    """What one judge is asked: a question and the candidates in the order it sees them."""

    judge: Agent
    text: str
    candidates: tuple[str, ...]
    seed: int
    names: tuple[str, ...] | None = None  # of the candidates' authors; None leaves them unnamed
    ledger: TokenLedger | None = None  # of its task
    said: str = ""  # what the judge itself proposed; "" for nothing, or where it could not have said the same
    notes: bool = False  # whether the candidates are notes, to be rated by their use for the question


class JudgeReply(NamedTuple):
    """What one judge answered, in the order of its question's candidates."""

    ratings: tuple[float | None, ...]  # in [-1, 1]
    critiques: tuple[str, ...] = ()  # "" where nothing was written; none if nobody writes
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()
    failure: str = ""  # why a call failed, so that what it was about has no rating


class Rating(Protocol):
    """A way to rate, in one method; any object with it will do.

    One that also has `check(ensemble)` is asked, before any run, to refuse agents that it cannot have rate, with a
    ValueError; one with `most_usage(prompts, engine, question)` can be had under a budget.

    Examples:
        >>> class ByLength:  # the longest is the best
        ...     def rate(self, ensemble, prompts, questions, progress=None):
        ...         longest = [max(map(len, question.candidates), default=1) for question in questions]
        ...         return [JudgeReply(tuple(len(text) / most for text in question.candidates))
        ...                 for question, most in zip(questions, longest)]
        >>> ant, told = Agent("ant", "tiny"), ("17 is", "71 is the larger one of them")
        >>> ByLength().rate(None, None, [JudgeQuestion(ant, "17 or 71?", told, seed=0)])[0].ratings
        (0.17857142857142858, 1.0)
    """

    def rate(
        self, ensemble: Ensemble, prompts: Prompts, questions: Sequence[JudgeQuestion], progress: Progress | None = None
    ) -> list[JudgeReply]:
        """Answer all questions, in order: a rating in [-1, 1], or None, for each candidate."""
        ...


def most_usage(rating: Rating, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> Usage:
    """What a question costs at most, chat markup aside; a ValueError for a rating that cannot tell."""
    if (most := getattr(rating, "most_usage", None)) is None:
        wanted = "expected one that has most_usage(prompts, engine, question) where costs are weighed beforehand"
        raise ValueError(f"rating {type(rating).__name__}: {wanted}, got none: define it, or seat no team by a budget")
    usage: Usage = most(prompts, engine, question)
    return usage


@dataclass(frozen=True)
class VerdictRating:
    """The judge's expected rating under its own logits over a fixed set of rating tokens (`verdict`).

    One forward pass a judge: candidates share the prefix. Our reading of the published cross-rating, which leaves
    open how a rating is read off a model.
    """

    listed: bool = True  # whether a judge sees all candidates beside the one it rates, or that one alone
    scale: RatingScale = RatingScale()

    def rate(
        self, ensemble: Ensemble, prompts: Prompts, questions: Sequence[JudgeQuestion], progress: Progress | None = None
    ) -> list[JudgeReply]:
        """Answer all questions: one rating request each."""
        given = ensemble.rate(self.requests(prompts, questions), progress, silent=True)
        return [_unwritten(question, rating, rating.values) for question, rating in zip(questions, given, strict=True)]

    def requests(self, prompts: Prompts, questions: Sequence[JudgeQuestion]) -> list[RateRequest]:
        """What the judges' engines are asked, one request a question."""
        return _requests("rate", prompts, questions, self.listed, self.scale)

    def most_usage(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> Usage:
        """Every candidate's whole prompt, nothing written."""
        (request,) = self.requests(prompts, [question])
        return _most(question, engine, request)


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
                tuple((1.0 if text.split() == q.said.split() else -1.0) if q.said else None for text in q.candidates),
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
            )
            for request in _requests("critique", prompts, questions, self.listed)
            for i, candidate in enumerate(request.candidates)
        ]
        written = iter(ensemble.generate(requests, progress, silent=True))
        return [self._reply(question, [next(written) for _ in question.candidates]) for question in questions]

    def most_usage(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> Usage:
        """Every candidate's whole prompt, and its allowance."""
        (request,) = _requests("critique", prompts, [question], self.listed)
        return _most(question, engine, request, self.decoding.max_new_tokens * len(request.candidates))

    def _reply(self, question: JudgeQuestion, written: Sequence[Generation]) -> JudgeReply:
        ratings = tuple(parse_score(generation.text) for generation in written)
        failed = sum(rating is None for rating in ratings)
        fault = f"{failed} of {len(ratings)} critiques by {question.judge.name} ended in no valid score"
        usages = map(question.judge.charged, written)
        shrunk = _named(question, [note for generation in written for note in generation.notes])
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
                    "endpoint: use rating=verdict or rating=critique, or roles=[proposer] for it"
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
            replies.append(_unwritten(question, measured, [ratings[text] for text in question.candidates]))
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
            )
            for question in questions
        ]

    def most_usage(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> Usage:
        """The chat with every candidate, nothing written."""
        chat = _first_answer(prompts, question)
        return _most(question, engine, RateRequest(question.judge.name, chat, question.candidates))


def rating_named(name: str) -> "Rating":
    """A way to rate by its name, at its default settings; a ValueError for an unknown one."""
    kinds = {
        "verdict": VerdictRating,
        "likelihood": LikelihoodRating,
        "critique": CritiqueRating,
        "agreement": AgreementRating,
    }
    if name not in kinds:
        raise ValueError(f"rating: expected one of {', '.join(kinds)} or one of your own, got {name!r}: correct it")
    rating: Rating = kinds[name]()
    return rating


def judging_order(
    seed: int,
    voter: str,
    authors: Sequence[str],
    answered: Sequence[bool],
    *,
    shuffled: bool = True,
    own: bool = False,
) -> list[int]:
    """Indices of the proposals that a judge is shown, in its order; the call's seed finds it again.

    Proposals are those of `authors`, where `answered`, in the order of the ensemble; the seed is that of the judge's
    call, `call_seed(run seed, task id, round, voter, "rate")`. That every judge has an order of its own is our reading;
    the paper hides names only. Two ablations are ours: without `shuffled` the order is the ensemble's, with `own` a
    judge is shown its own proposal too.
    """
    order = [j for j, author in enumerate(authors) if answered[j] and (own or author != voter)]
    if shuffled:
        random.Random(seed).shuffle(order)  # noqa: S311 - fairness, not secrecy
    return order


def _requests(
    kind: str, prompts: Prompts, questions: Sequence[JudgeQuestion], listed: bool, scale: RatingScale | None = None
) -> list[RateRequest]:
    """The judges' chats about their candidates; without a scale they are criticised rather than rated."""
    kinds = ["weigh" if kind == "rate" and question.notes else kind for question in questions]
    templates = {name: prompts.fingerprint(name) for name in kinds}
    requests = []
    for name, (judge, text, candidates, seed, names, ledger, *_) in zip(kinds, questions, strict=True):
        messages, suffixes = prompts.judge(
            name,
            text,
            candidates=candidates,
            listed=listed,
            persona=judge.persona,
            seed=seed,
            labels=scale.labels if scale else (),
            names=names,
        )
        asked = judge.name, messages, suffixes, scale or RatingScale(), seed, judge.rating_adapter, templates[name]
        requests.append(RateRequest(*asked, ledger))
    return requests


def _first_answer(prompts: Prompts, question: JudgeQuestion) -> tuple[Message, ...]:
    """The chat that asks the judge for its own first answer."""
    return prompts.propose(question.text, memory=(), critiques=(), persona=question.judge.persona, seed=question.seed)


def _most(question: JudgeQuestion, engine: Engine, request: RateRequest, written: int = 0) -> Usage:
    """The most that is billed for chats about candidates, and computed: where the engine shares, their prefix once."""
    billed = sum(engine.count_prompt(request.messages, [candidate]) for candidate in request.candidates)
    read = engine.count_prompt(request.messages, request.candidates) if engine.shares_prefixes else billed
    return question.judge.usage(billed, written, computed_tokens=read + written)


def _unwritten(question: JudgeQuestion, read: Ratings | Likelihood, ratings: Sequence[float | None]) -> JudgeReply:
    """A reply of a judge whose logits were read."""
    usage = question.judge.charged(read)
    return JudgeReply(tuple(ratings), (), usage, _named(question, read.notes), read.failure)


def _named(question: JudgeQuestion, notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{question.judge.name}: {note}" for note in notes)


@dataclass(frozen=True)
class Hearing:
    """What a team's judges said about its proposals; rows are voters, columns proposals, None where nothing counts."""

    ratings: list[list[float | None]]
    critiques: list[Critique]
    usage: Usage
    notes: list[str]

    @classmethod
    def of(cls, replies: Sequence[tuple[list[int], JudgeReply]], proposals: int) -> "Hearing":
        """From a reply per voter, each with the indices of the proposals in the order that the voter saw."""
        ratings: list[list[float | None]] = [[None] * proposals for _ in replies]
        critiques = []
        for i, (order, reply) in enumerate(replies):
            for j, rating in zip(order, reply.ratings, strict=True):
                # What is recorded is what is voted on, so that a trace votes again as the team did.
                ratings[i][j] = None if rating is None else round(rating, DIGITS)
            written = zip(order, reply.critiques, strict=bool(reply.critiques))
            critiques += [Critique(i, j, text) for j, text in written if text]
        notes = [note for _, reply in replies for note in reply.notes]
        return cls(ratings, critiques, Usage.sum(reply.usage for _, reply in replies), notes)

    def dealt_anew(self, seeds: Sequence[int]) -> "Hearing":
        """Each judge's ratings dealt out by chance among the proposals that it rated; a seed a judge."""
        rows = []
        for row, seed in zip(self.ratings, seeds, strict=True):
            rated = [j for j, rating in enumerate(row) if rating is not None]
            drawn = random.Random(seed).sample(rated, len(rated))  # noqa: S311 - a control, not secrecy
            dealt = {j: row[k] for j, k in zip(rated, drawn, strict=True)}
            rows.append([dealt.get(j) for j in range(len(row))])
        return replace(self, ratings=rows)

    def received(
        self, voters: Sequence[str], authors: Sequence[str], before: Mapping[str, tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        """Author -> what others wrote about its proposal, behind what they wrote `before` about one that stands."""
        received: dict[str, tuple[str, ...]] = defaultdict(tuple, before)
        for critique in self.critiques:
            if (author := authors[critique.proposal]) != voters[critique.voter]:
                received[author] += (critique.text,)
        return dict(received)
