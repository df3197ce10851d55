"""Judges of a round: what each is asked, and whether what came back can be counted."""

from collections.abc import Sequence
from typing import Any

from nsed_torch.core.agent import Agent, Ensemble, Progress
from nsed_torch.core.open_round import OpenRound
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.ratings import JudgeQuestion, JudgeReply, Rating, judging_order

SLACK = 1e-6
"""By which the rounding of an expected rating may leave [-1, 1]."""


def checked_rating(rating: Rating, ensemble: Ensemble) -> Rating:
    """The rating, if it has the one method and, where it has a `check`, takes these agents; else a ValueError."""
    if isinstance(rating, type) or not callable(getattr(rating, "rate", None)):
        wanted = "expected an object with rate(ensemble, prompts, questions, progress)"
        raise ValueError(f"rating: {wanted}, got {rating!r}: pass one such as VerdictRating()")
    if (check := getattr(rating, "check", None)) is not None:
        check(ensemble)
    return rating


def judged(turn: OpenRound, voter: Agent, protocol: Protocol, seed: int) -> tuple[list[int], JudgeQuestion | None]:
    """The proposals that a judge is to rate, in its order, and what it is asked; None where there is nothing new."""
    names, known = turn.author_names, turn.standing.ratings
    new = [bool(p.text) and (voter.name, p.agent) not in known for p in turn.proposals]
    order = judging_order(seed, voter.name, names, new, shuffled=protocol.shuffled, own=not protocol.diagonal_mask)
    # A judge of a growing team, or of notes, may have nothing new to rate.
    if not order and (turn.team.standing or turn.kind.notes):
        return order, None
    texts = tuple(turn.kind.candidate(voter, turn.texts[j]) for j in order)
    shown = None if protocol.anonymous else tuple(names[j] for j in order)
    said = turn.kind.candidate(voter, turn.said(voter.name))
    asked = turn.asked.questions[voter.name]
    return order, JudgeQuestion(voter, asked, texts, seed, shown, turn.ledger, said, turn.kind.notes)


def rated(
    rating: Rating, ensemble: Ensemble, prompts: Prompts, questions: Sequence[JudgeQuestion], progress: Progress
) -> list[JudgeReply]:
    """What the judges answer.

    Raises:
        ValueError: for anything but a reply a question, with a rating in [-1, 1] or None for each of its candidates.
    """
    replies: Any = rating.rate(ensemble, prompts, questions, progress)
    name = type(rating).__name__
    if not isinstance(replies, list | tuple) or len(replies) != len(questions):
        got = f"{len(replies)} of them" if isinstance(replies, list | tuple) else repr(replies)
        wanted = f"expected a list of {len(questions)} JudgeReply, one a question"
        raise ValueError(f"rating {name}: {wanted}, got {got}: return one for each question")
    for question, reply in zip(questions, replies, strict=True):
        ratings = getattr(reply, "ratings", None)
        count = len(question.candidates)
        if not isinstance(ratings, tuple | list) or len(ratings) != count or not all(map(_counts, ratings)):
            wanted = f"expected a JudgeReply of {count} ratings in [-1, 1], None where there is none"
            got = str(reply if ratings is None else ratings)[:80]
            raise ValueError(f"rating {name}: {wanted}, got {got}: rate each candidate in the order given")
    return list(replies)


def _counts(rating: object) -> bool:
    return rating is None or (isinstance(rating, int | float) and abs(rating) <= 1 + SLACK)
