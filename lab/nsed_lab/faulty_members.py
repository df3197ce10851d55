"""Simulated members that fail, guess, oppose or collude, seated beside the recorded ones. All of it is ours.

A simulated member copies wrong answers that were recorded; what real judges would say of a copy is taken from what they
said of the original. So the real members' part is a record, the simulated ones' is not, and nobody answers anybody.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.traces.rounds import Rounds

KINDS = {
    "silent": "gives no answer and rates nothing",
    "random": "gives a wrong answer at random, rates uniformly at random",
    "contrarian": "gives a wrong answer at random, rates the negative of what real judges rate on average",
    "colluding": "all give the same wrong answer, rate it 1 and everything else -1",
}
"""What simulated members do; nobody rates itself."""


def most_faulty(agents: int) -> int:
    """How many simulated members keep their share of the team at 60% or below."""
    return 3 * agents // 2


def with_faulty(rounds: Rounds, kind: str, count: int, *, seed: int = 0) -> Rounds:
    """The rounds with simulated members behind the real ones.

    Each proposes a copy of a wrong answer to the same task, drawn from the real proposals; where no answer is wrong, a
    copy of another task's, which counts as wrong and as an answer of its own. An answer is wrong here if no equal one
    is right. A real judge rates a copy as it rated that answer, on average over equal ones; where it never did, as it
    rates wrong proposals on average over all tasks; not at all in a task in which it rates nothing. Both are choices
    of ours, and so are the kinds. What simulated members cost is nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    copies = _copies(rounds, 1 if kind == "colluding" else count, generator).expand(-1, count)
    batch, n = rounds.classes.shape
    answers = torch.full((batch, count), kind != "silent")
    answered = torch.cat([rounds.answered, answers], 1)
    classes = torch.cat([rounds.classes, torch.where(answers, copies, -1)], 1)
    heard, mask = _heard(rounds, copies)
    ratings, mask = torch.cat([rounds.ratings, heard], 2), torch.cat([rounds.vote_mask, mask], 2) & answered[:, None]
    simulated, simulated_mask = _opinions(kind, ratings, mask, classes, answered, generator)
    others = ~torch.eye(n + count, dtype=torch.bool)[n:]
    judges = torch.ones_like(answers)
    return replace(
        rounds,
        agents=(*rounds.agents, *(f"simulated {kind} {i + 1}" for i in range(count))),
        ratings=torch.cat([ratings, simulated], 1),
        vote_mask=torch.cat([mask, simulated_mask & others], 1),
        there=torch.cat([rounds.there, torch.stack([answers, judges], -1)], 1),
        answered=answered,
        correct=torch.cat([rounds.correct, torch.zeros_like(answers)], 1),
        classes=classes,
        seat_cost=torch.cat([rounds.seat_cost, rounds.seat_cost.new_zeros(batch, count, 2)], 1),
        length=torch.cat([rounds.length, rounds.length.new_zeros(batch, count)], 1),
    )


def _copies(rounds: Rounds, count: int, generator: torch.Generator) -> Int[Tensor, "batch copy"]:
    """Draw the class of a recorded answer for each simulated member and task: a wrong one, or another task's."""
    batch, n = rounds.classes.shape
    given = rounds.answered & (rounds.classes >= 0)
    same = rounds.classes[:, :, None] == rounds.classes[:, None]
    wrong = given & ~(same & rounds.correct[:, None]).any(2)
    fails = wrong.any(1)
    chances = torch.where(fails[:, None], wrong, True).double()
    drawn = torch.multinomial(chances, max(count, 1), replacement=True, generator=generator)[:, :count]
    source = drawn + n * torch.arange(batch)[:, None]
    everything = given.flatten().nonzero()[:, 0]
    for b in (~fails).nonzero()[:, 0].tolist():
        others = everything[everything // n != b]
        source[b] = others[torch.randint(len(others), (count,), generator=generator)]
    foreign = int(rounds.classes.max()) + 1 + source
    return torch.where(fails[:, None], rounds.classes.flatten()[source], foreign)


def _heard(
    rounds: Rounds, classes: Int[Tensor, "batch copy"]
) -> tuple[Float[Tensor, "batch voter copy"], Bool[Tensor, "batch voter copy"]]:
    """What real judges rate the copies, and which of these ratings there are."""
    equal = (classes[:, :, None] == rounds.classes[:, None]) & rounds.answered[:, None]
    heard = (equal[:, None] & rounds.vote_mask[:, :, None]).double()
    count = heard.sum(-1)
    said = torch.where(rounds.vote_mask, rounds.ratings, 0)
    mean = (heard * said[:, :, None]).sum(-1) / count.clamp(min=1)
    wrong = (rounds.vote_mask & ~rounds.correct[:, None]).double()
    n = wrong.sum((0, 2))
    usual = (wrong * said).sum((0, 2)) / n.clamp(min=1)
    rates = rounds.vote_mask.any(-1)[:, :, None]
    return torch.where(count > 0, mean, usual[None, :, None]), rates & ((count > 0) | (n > 0)[None, :, None])


def _opinions(
    kind: str, ratings: Tensor, mask: Tensor, classes: Tensor, answered: Tensor, generator: torch.Generator
) -> tuple[Float[Tensor, "batch copy proposal"], Bool[Tensor, "batch copy proposal"]]:
    """What simulated members rate, given what real judges do; their ratings of themselves are still among it."""
    batch, n, width = ratings.shape
    shape = (batch, width - n, width)
    if kind == "silent":
        return ratings.new_zeros(shape), torch.zeros(shape, dtype=torch.bool)
    if kind == "random":
        drawn = torch.rand(shape, generator=generator, dtype=ratings.dtype)
        return 2 * drawn - 1, answered[:, None].expand(shape)
    if kind == "contrarian":
        mean = torch.where(mask, ratings, 0).sum(1) / mask.sum(1).clamp(min=1)
        return -mean[:, None].expand(shape), mask.any(1)[:, None].expand(shape)
    alike = torch.where(classes[:, None] == classes[:, n:, None], 1.0, -1.0)
    return alike.to(ratings), answered[:, None].expand(shape)
