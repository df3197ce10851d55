"""Simulated members that fail, guess, oppose or collude, seated beside the recorded ones. All of it is ours.

A simulated member copies wrong answers that were recorded; what real judges would say of a copy is taken from what they
said of the original. So the real members' part is a record, the simulated ones' is not, and nobody answers anybody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.evaluation.members.poll import Poll, Rule
from nsed_torch.evaluation.members.teams import accuracy, difference
from nsed_torch.evaluation.statistics import Estimate

KINDS = {
    "silent": "gives no answer and rates nothing",
    "random": "gives a wrong answer at random, rates uniformly at random",
    "contrarian": "gives a wrong answer at random, rates the negative of what real judges rate on average",
    "colluding": "all give the same wrong answer, rate it 1 and everything else -1",
}
"""What simulated members do; nobody rates itself."""


@dataclass(frozen=True)
class Faulty:
    """A team with simulated members.

    Args:
        kind: out of `KINDS`.
        members: how many are simulated.
        share: of the whole team.
        vote: name of the rule.
        accuracy: over tasks, of a task's mean over the draws.
        difference: to the team without simulated members, task by task.
    """

    kind: str
    members: int
    share: float
    vote: str
    accuracy: Estimate
    difference: Estimate


class _Copies(NamedTuple):
    """What simulated members propose."""

    embeddings: Float[Tensor, "batch copy dim"]
    classes: Int[Tensor, "batch copy"]


def most_faulty(agents: int) -> int:
    """How many simulated members keep their share of the team at 60% or below."""
    return 3 * agents // 2


def faulty_members(
    poll: Poll, rules: Mapping[str, Rule], *, kinds: Sequence[str] = tuple(KINDS), draws: int = 5, seed: int = 0
) -> list[Faulty]:
    """Accuracy with 0, 1, 2, ... simulated members up to 60% of the team, by kind and rule.

    Draws are shared by all counts, kinds and rules: a larger count adds members to those of the smaller one.

    Args:
        poll: the round.
        rules: by name; their cells have room for `most_faulty` more agents, behind the real ones.
        kinds: out of `KINDS`.
        draws: of everything random, over which a task's score is averaged.
        seed: of the first draw.

    Raises:
        ValueError: for fewer than one draw; as `with_faulty`.
    """
    if draws < 1:
        raise ValueError(f"draws: expected at least 1, got {draws}")
    n, most = len(poll.agents), most_faulty(len(poll.agents))
    rows = []
    for kind in kinds:
        # Nothing about silence is random.
        crowds = [with_faulty(poll, kind, most, seed=seed + i) for i in range(1 if kind == "silent" else draws)]
        for vote, rule in rules.items():
            alone = rule(poll, range(n))
            for count in range(most + 1):
                team = range(n + count)
                right = torch.stack([rule(crowd, team) for crowd in crowds]).mean(0) if count else alone
                share = count / (n + count)
                rows.append(Faulty(kind, count, share, vote, accuracy(right), difference(right, alone)))
    return rows


def with_faulty(poll: Poll, kind: str, count: int, *, seed: int = 0) -> Poll:
    """The poll with simulated members behind the real ones.

    Each proposes a copy of a wrong answer to the same task, drawn from the real proposals; where no answer is wrong, a
    copy of another task's, which counts as wrong and as an answer of its own. An answer is wrong here if no equal one
    is right. A real judge rates a copy as it rated that answer, on average over equal ones; where it never did, as it
    rates wrong proposals on average over all tasks; not at all in a task in which it rates nothing. Both are choices
    of ours, and so are the kinds.

    Args:
        poll: the round.
        kind: out of `KINDS`.
        count: how many, at least 0.
        seed: of what is drawn.

    Raises:
        ValueError: for another kind or count.
    """
    if kind not in KINDS or count < 0:
        raise ValueError(f"expected a kind out of {', '.join(KINDS)} and a count of at least 0, got {kind} and {count}")
    generator = torch.Generator().manual_seed(seed)
    copies = _copies(poll, 1 if kind == "colluding" else count, generator)
    copies = _Copies(*(value.expand(-1, count, *value.shape[2:]) for value in copies))
    batch, n = poll.classes.shape
    answers = torch.full((batch, count), kind != "silent")
    there = torch.cat([poll.proposal_mask, answers], 1)
    classes = torch.cat([poll.classes, torch.where(answers, copies.classes, -1)], 1)
    ratings, mask = _heard(poll, copies.classes)
    ratings, mask = torch.cat([poll.ratings, ratings], 2), torch.cat([poll.vote_mask, mask], 2) & there[:, None]
    own, own_mask = _opinions(kind, ratings, mask, classes, there, generator)
    return replace(
        poll,
        agents=(*poll.agents, *(f"simulated {kind} {i + 1}" for i in range(count))),
        embeddings=torch.cat([poll.embeddings, copies.embeddings], 1),
        ratings=torch.cat([ratings, own], 1),
        vote_mask=torch.cat([mask, own_mask & ~torch.eye(n + count, dtype=torch.bool)[n:]], 1),
        proposal_mask=there,
        voter_mask=torch.cat([poll.voter_mask, torch.ones(batch, count, dtype=torch.bool)], 1),
        correct=torch.cat([poll.correct, torch.zeros(batch, count, dtype=torch.bool)], 1),
        classes=classes,
    )


def _copies(poll: Poll, count: int, generator: torch.Generator) -> _Copies:
    """Draw a recorded answer for each simulated member and task: a wrong one, or another task's."""
    batch, n = poll.classes.shape
    given = poll.proposal_mask & (poll.classes >= 0)
    same = poll.classes[:, :, None] == poll.classes[:, None]
    wrong = given & ~(same & poll.correct[:, None]).any(2)
    fails = wrong.any(1)
    chances = torch.where(fails[:, None], wrong, True).double()
    drawn = torch.multinomial(chances, max(count, 1), replacement=True, generator=generator)[:, :count]
    source = drawn + n * torch.arange(batch)[:, None]
    everything = given.flatten().nonzero()[:, 0]
    for b in (~fails).nonzero()[:, 0].tolist():
        others = everything[everything // n != b]
        source[b] = others[torch.randint(len(others), (count,), generator=generator)]
    foreign = int(poll.classes.max()) + 1 + source
    classes = torch.where(fails[:, None], poll.classes.flatten()[source], foreign)
    return _Copies(poll.embeddings.flatten(0, 1)[source], classes)


def _heard(
    poll: Poll, classes: Int[Tensor, "batch copy"]
) -> tuple[Float[Tensor, "batch voter copy"], Bool[Tensor, "batch voter copy"]]:
    """What real judges rate the copies, and which of these ratings there are."""
    equal = (classes[:, :, None] == poll.classes[:, None]) & poll.proposal_mask[:, None]
    heard = (equal[:, None] & poll.vote_mask[:, :, None]).double()
    count = heard.sum(-1)
    said = torch.where(poll.vote_mask, poll.ratings, 0).double()
    mean = (heard * said[:, :, None]).sum(-1) / count.clamp(min=1)
    wrong = (poll.vote_mask & ~poll.correct[:, None]).double()
    n = wrong.sum((0, 2))
    usual = (wrong * said).sum((0, 2)) / n.clamp(min=1)
    rates = poll.vote_mask.any(-1)[:, :, None]
    ratings = torch.where(count > 0, mean, usual[None, :, None])
    return ratings.to(poll.ratings), rates & ((count > 0) | (n > 0)[None, :, None])


def _opinions(
    kind: str, ratings: Tensor, mask: Tensor, classes: Tensor, there: Tensor, generator: torch.Generator
) -> tuple[Float[Tensor, "batch copy proposal"], Bool[Tensor, "batch copy proposal"]]:
    """What simulated members rate, given what real judges do; one's own is still among it."""
    batch, n, width = ratings.shape
    count = width - n
    if kind == "silent":
        return ratings.new_zeros(batch, count, width), torch.zeros(batch, count, width, dtype=torch.bool)
    if kind == "random":
        drawn = torch.rand(batch, count, width, generator=generator, dtype=ratings.dtype)
        return 2 * drawn - 1, there[:, None].expand(-1, count, -1)
    if kind == "contrarian":
        mean = torch.where(mask, ratings, 0).sum(1) / mask.sum(1).clamp(min=1)
        return -mean[:, None].expand(-1, count, -1), mask.any(1)[:, None].expand(-1, count, -1)
    ours = torch.where(classes[:, None] == classes[:, n:, None], 1.0, -1.0)
    return ours.to(ratings), there[:, None].expand(-1, count, -1)
