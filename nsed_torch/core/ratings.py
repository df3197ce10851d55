"""How judges come to their ratings."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from nsed_torch.core.agent import Agent, Ensemble, Progress
from nsed_torch.core.engine import Engine, Likelihood, Note, RateRequest, Ratings, RatingScale
from nsed_torch.core.prompts import Prompts
from nsed_torch.records.ledger import TokenLedger
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
    heard: tuple[Note, ...] = ()  # parts of the text that are heard in part
    beside: bool = False  # whether side by side


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
        return [unwritten(question, rating, rating.values) for question, rating in zip(questions, given, strict=True)]

    def requests(self, prompts: Prompts, questions: Sequence[JudgeQuestion]) -> list[RateRequest]:
        """What the judges' engines are asked, one request a question."""
        return requests_for("rate", prompts, questions, self.listed, self.scale)

    def most_usage(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> Usage:
        """Every candidate's whole prompt, nothing written."""
        (request,) = self.requests(prompts, [question])
        return most(question, engine, request)


def judging_order(
    seed: int, voter: str, authors: Sequence[str], answered: Sequence[bool], *, shuffled: bool = True, own: bool = False
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


def requests_for(
    kind: str, prompts: Prompts, questions: Sequence[JudgeQuestion], listed: bool, scale: RatingScale | None = None
) -> list[RateRequest]:
    """The judges' chats about their candidates; without a scale they are criticised rather than rated."""
    kinds = ["weigh" if kind == "rate" and question.notes else kind for question in questions]
    templates = {name: prompts.fingerprint(name) for name in kinds}
    requests = []
    for name, question in zip(kinds, questions, strict=True):
        judge, text, candidates, seed, names, ledger, *_ = question
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
        requests.append(RateRequest(*asked, ledger, question.heard, question.beside))
    return requests


def most(question: JudgeQuestion, engine: Engine, request: RateRequest, written: int = 0) -> Usage:
    """The most that is billed for chats about candidates, and computed: where the engine shares, their prefix once."""
    billed = sum(engine.count_prompt(request.messages, [candidate]) for candidate in request.candidates)
    read = engine.count_prompt(request.messages, request.candidates) if engine.shares_prefixes else billed
    return question.judge.usage(billed, written, computed_tokens=read + written)


def unwritten(question: JudgeQuestion, read: Ratings | Likelihood, ratings: Sequence[float | None]) -> JudgeReply:
    """A reply of a judge whose logits were read."""
    usage = question.judge.charged(read)
    return JudgeReply(tuple(ratings), (), usage, named(question, read.notes), read.failure)


def named(question: JudgeQuestion, notes: Sequence[str]) -> tuple[str, ...]:
    """Notes that say whose they are."""
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
