"""Polls made by hand or at random, for tests of what teams make of them. The right answer is "yes"."""

import torch
from hypothesis import strategies as st

from nsed_torch.parts.ties import Ties
from nsed_torch.traces.equality import commonest
from nsed_torch.traces.rounds import Rounds

ANSWERS = ("yes", "no", "maybe", None)


def plurality(classes):
    """The first agent whose answer is commonest, -1 where nobody answered."""
    top = commonest(classes)
    return torch.where(top.any(1), top.int().argmax(-1), -1)


def poll(answers, ratings, dim=4):
    """Rows of answers, a task each, None for none; ratings by task, judge and proposal, None where there is no rating.

    Nobody's rating of itself counts, and no rating of an answer that is none.
    """
    there = torch.tensor([[answer is not None for answer in row] for row in answers])
    rated = torch.tensor([[[r is not None for r in row] for row in task] for task in ratings])
    values = [[[0.0 if r is None else r for r in row] for row in task] for task in ratings]
    batch, n = there.shape
    generator = torch.Generator().manual_seed(0)
    return Rounds(
        ids=tuple(f"{'even' if b % 2 == 0 else 'odd'}-{b}" for b in range(batch)),
        agents=tuple("abcdefgh"[:n]),
        task=torch.randn(batch, dim, generator=generator, dtype=torch.float64),
        ratings=torch.tensor(values, dtype=torch.float64),
        vote_mask=rated & there[:, None] & ~torch.eye(n, dtype=torch.bool),
        there=torch.stack([there, torch.ones_like(there)], -1),
        answered=there,
        correct=torch.tensor([[answer == "yes" for answer in row] for row in answers]),
        classes=torch.tensor([[-1 if a is None else ANSWERS.index(a) for a in row] for row in answers]),
        seat_cost=torch.zeros(batch, n, 2, dtype=torch.float64),
        length=torch.zeros(batch, n, dtype=torch.float64),
        ties=Ties.LOT,
    )


def drawn(tasks=40, agents=4, seed=0, skill=0.5, tells=0.4):
    """A plausible round: agents differ in skill, judges tell right from wrong a little; no two ratings are equal."""
    g = torch.Generator().manual_seed(seed)
    chances = torch.linspace(skill - 0.3, skill + 0.3, agents)
    right = torch.rand(tasks, agents, generator=g) < chances
    answers = [["yes" if r else ANSWERS[1 + int(torch.rand((), generator=g) < 0.4)] for r in row] for row in right]
    noise = torch.rand(tasks, agents, agents, generator=g) * 1.2 - 0.6
    ratings = noise + tells * (2.0 * right[:, None] - 1)
    return poll(answers, ratings.tolist())


@st.composite
def polls(draw, least=2):
    """Two to five tasks and agents, anything answered and rated; at least two tasks have an answer."""
    batch, n = draw(st.integers(2, 5)), draw(st.integers(least, 4))
    row = st.lists(st.sampled_from(ANSWERS), min_size=n, max_size=n)
    answers = draw(st.lists(row, min_size=batch, max_size=batch))
    answers[0][0], answers[1][n - 1] = draw(st.sampled_from(ANSWERS[:3])), draw(st.sampled_from(ANSWERS[:3]))
    rating = st.none() | st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0])
    judge = st.lists(rating, min_size=n, max_size=n)
    team = st.lists(judge, min_size=n, max_size=n)
    return poll(answers, draw(st.lists(team, min_size=batch, max_size=batch)))
