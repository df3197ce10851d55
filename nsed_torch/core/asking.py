"""What proposers and judges are asked, who is asked next, and whether what came back can be counted.

First to be ahead by k is published by Meyerson et al. (2025, arXiv 2511.09030), for samples of one model; here what
counts is trust in who gives an answer, the consensus cell's, before it reads what proposals say. Where that is the
log-odds of being right, this is a sequential test (Wald 1945). Who is not asked does not vote.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any

from nsed_torch.core.agent import Agent, Ensemble, Progress
from nsed_torch.core.batch import padded
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import Encoder
from nsed_torch.core.engine import GenerateRequest
from nsed_torch.core.memory import MemoryState
from nsed_torch.core.open_round import DeliberationState, OpenRound, SlotText
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.ratings import Hearing, JudgeQuestion, JudgeReply, Rating, judging_order
from nsed_torch.core.trust import trusted

SLACK = 1e-9
"""Of leads, which sums in another order do not meet exactly."""


def weigh(turns: Sequence[OpenRound], consensus: ConsensusCell, encoder: Encoder, memory: MemoryState) -> None:
    """Take down how far every proposer of every task is trusted, before anything is said."""
    hidden, task = memory.hidden(), encoder.embed([turn.task.question for turn in turns])
    authors = padded([turn.team.proposers for turn in turns]).to(hidden.device)
    trust = trusted(consensus.trust, authors.clamp(min=0), task.to(hidden), hidden, authors >= 0)
    for turn, row in zip(turns, trust.tolist(), strict=True):
        turn.trust = row[: len(turn.authors)]


def request_of(turn: OpenRound, agent: Agent, prompts: Prompts, template: str, seed: int) -> GenerateRequest:
    """What an agent is asked for its proposal; `template` is the fingerprint of what makes the messages."""
    messages = prompts.propose(
        turn.asked.questions[agent.name],
        memory=turn.asked.memory,
        critiques=turn.critiques.get(agent.name, ()),
        persona=agent.persona,
        seed=turn.mark,
    )
    asked = agent.name, messages, agent.decoding, seed, agent.adapter, template, turn.ledger
    return GenerateRequest(*asked, turn.heard(agent), turn.beside)


def next_asked(turn: OpenRound, ahead: float | None) -> list[Agent]:
    """All at once, or as few as can bring one answer far enough ahead; nobody where one is."""
    waiting = turn.authors[len(turn.proposals) :]
    if ahead is None or not turn.kind.in_turn:
        return waiting
    support: defaultdict[int | tuple[str, int], float] = defaultdict(float)
    for i, (same, text) in enumerate(zip(turn.classes, turn.texts, strict=True)):
        support[same if same >= 0 else ("own", i)] += turn.trust[i] if text else 0
    first, second = sorted([*support.values(), 0, 0], reverse=True)[:2]
    missing = ahead - (first - second) - SLACK
    reach = list(accumulate(abs(trust) for trust in turn.trust[len(turn.proposals) :]))
    return waiting[: bisect_left(reach, missing) + 1] if missing > 0 else []


ROUNDING = 1e-6
"""By which the rounding of an expected rating may leave [-1, 1]."""


def checked_rating(rating: Rating, ensemble: Ensemble) -> Rating:
    """The rating, if it has the one method and, where it has a `check`, takes these agents; else a ValueError."""
    if isinstance(rating, type) or not callable(getattr(rating, "rate", None)):
        wanted = "expected an object with rate(ensemble, prompts, questions, progress)"
        raise ValueError(f"rating: {wanted}, got {rating!r}: pass one such as VerdictRating()")
    if (check := getattr(rating, "check", None)) is not None:
        check(ensemble)
    return rating


def check_weighs(protocol: Protocol, ensemble: Ensemble) -> None:
    """Refuse agents that cannot hear notes in part, with a ValueError, where the memory is weighted."""
    if protocol.memory == "shown":
        return
    if deaf := [agent.name for agent in ensemble.agents if not getattr(ensemble.engine(agent), "weighs", False)]:
        wanted = f"expected models in this process for memory={protocol.memory}, whose attention can be weighted"
        raise ValueError(f"protocol: {wanted}, got others of {', '.join(deaf)}: set protocol.memory=shown")


def judged(
    turn: OpenRound, voter: Agent, protocol: Protocol, seed: int, rates: Collection[int] | None = None
) -> tuple[list[int], JudgeQuestion | None]:
    """The proposals that a judge is to rate, in its order, and what it is asked; None where there is nothing new.

    `rates` is what it drew out of `sparse.pairs`, None where it rates all that it may.
    """
    names, known = turn.author_names, turn.standing.ratings
    new = [bool(p.text) and (voter.name, p.agent) not in known for p in turn.proposals]
    order = judging_order(seed, voter.name, names, new, shuffled=protocol.shuffled, own=not protocol.diagonal_mask)
    if rates is not None:
        from nsed_torch.core.sparse import alike  # noqa: PLC0415 - loaded where judging is sparse

        same = alike(turn, protocol)
        first = {same[j]: j for j in reversed(order) if same[j] in rates}
        order = [j for j in order if first.get(same[j]) == j]
    # A judge of a growing team, of notes, or one that drew nothing, may have nothing new to rate.
    if not order and (turn.team.standing or turn.kind.notes or rates is not None):
        return order, None
    texts = tuple(turn.kind.candidate(voter, turn.texts[j]) for j in order)
    shown = None if protocol.anonymous else tuple(names[j] for j in order)
    said = turn.kind.candidate(voter, turn.said(voter.name))
    asked = turn.asked.questions[voter.name]
    heard = () if turn.asked.memory else turn.heard(voter)  # judges read no memory that stands beside the question
    return order, JudgeQuestion(
        voter, asked, texts, seed, shown, turn.ledger, said, turn.kind.notes, heard, turn.beside
    )


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
    return rating is None or (isinstance(rating, int | float) and abs(rating) <= 1 + ROUNDING)


def shown_slots(control: str | None, state: DeliberationState, row: int) -> tuple[Sequence[SlotText], Sequence[float]]:
    """The slots that a task's agents may be shown, in words, and the retention of each."""
    tasks = len(state.slots)
    if control == "memory" and tasks == 1:
        return (), ()
    row = (row + 1) % tasks if control == "memory" else row
    return state.slots[row], state.memory.retention[row].tolist()


def counted_ratings(control: str | None, hearing: Hearing, seeds: Sequence[int]) -> Hearing:
    """What judges said, as far as it counts; a seed a judge."""
    return hearing.dealt_anew(seeds) if control == "ratings" else hearing
