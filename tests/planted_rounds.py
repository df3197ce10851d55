"""Recorded rounds with a known structure, for tests of whatever learns whom to ask."""

import torch

from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.equality import agreement
from nsed_torch.traces.rounds import Rounds


def planted(tasks=120, agents=3, *, seed=0, knows=1.0, guesses=0.0, judge=1.0, noise=0.05):
    """Questions of as many kinds as there are agents: agent a is right on kind a, with the given chances.

    Judges rate right answers 0.5 and wrong ones -0.5 with chance `judge`, else the other way round. A proposal takes
    100 tokens, a judge 200.
    """
    g = torch.Generator().manual_seed(seed)
    dim = agents + 1
    kind = torch.randint(agents, (tasks,), generator=g)
    task = torch.eye(dim)[kind] + noise * torch.randn(tasks, dim, generator=g)
    chance = torch.full((tasks, agents), guesses)
    chance[torch.arange(tasks), kind] = knows
    right = torch.rand(tasks, agents, generator=g) < chance
    honest = torch.rand(tasks, 1, agents, 1, generator=g) < judge
    everybody = torch.arange(agents).expand(tasks, 1, agents)
    there = torch.ones(tasks, 1, agents, dtype=torch.bool)
    return Episodes(
        ids=tuple(f"t{i}" for i in range(tasks)),
        agents=tuple("abcdefgh"[:agents]),
        task=torch.nn.functional.normalize(task.double(), dim=1),
        embeddings=torch.nn.functional.normalize(
            torch.randn(tasks, 1, agents, dim, generator=g, dtype=torch.float64), dim=-1
        ),
        ratings=torch.where(right[:, None, None] == honest, 0.5, -0.5).double(),
        vote_mask=~torch.eye(agents, dtype=torch.bool).expand(tasks, 1, agents, agents),
        voters=everybody,
        authors=everybody,
        proposal_mask=there,
        voter_mask=there,
        round_mask=torch.ones(tasks, 1, dtype=torch.bool),
        correct=right[:, None],
        classes=torch.where(right, 0, torch.arange(agents) + 1)[:, None],
        cost=torch.full((tasks, 1), 300.0 * agents, dtype=torch.float64),
        proposal_cost=torch.full((tasks, 1, agents), 100.0, dtype=torch.float64),
    )


def answered(classes, correct, cost, length):
    """Recorded answers that agree or not: everybody proposes, whoever answered judges."""
    tasks, agents = classes.shape
    ratings, mask = agreement(classes)
    return Rounds(
        ids=tuple(f"t{i}" for i in range(tasks)),
        agents=tuple("abcdefghijk"[:agents]),
        task=torch.zeros(tasks, 1, dtype=torch.float64),
        ratings=ratings.double(),
        vote_mask=mask,
        there=torch.stack([torch.ones_like(mask[:, 0]), classes >= 0], -1),
        answered=classes >= 0,
        correct=correct,
        classes=classes,
        seat_cost=torch.stack([cost, torch.zeros_like(cost)], -1),
        length=length,
    )
