"""Hand-made answers of an ensemble as episodes."""

import contextlib
import functools

import pytest
import torch

from nsed_torch.traces.episodes import Episodes


@pytest.fixture(scope="module", autouse=True)
def _few_iterations():
    """What tests ask of crowd-kit's rules shows after ten iterations; by default some take a hundred, slowly."""
    with pytest.MonkeyPatch.context() as patch:
        with contextlib.suppress(ImportError):
            from crowdkit import aggregation

            for name in ("DawidSkene", "OneCoinDawidSkene", "ZeroBasedSkill", "MACE"):
                patch.setattr(aggregation, name, functools.partial(getattr(aggregation, name), n_iter=10))
        yield


@pytest.fixture(scope="session")
def table():
    """`table(rows, ...)`: episodes of one round, a row a task, a letter an agent's answer, "." for none."""

    def make(rows, golds=None, *, agents=None, labels=False, categories=(), task=None):
        """The right letter is "a" unless golds say; `labels`: all tasks share the letters."""
        golds, pool = golds or "a" * len(rows), len(rows[0])
        said = torch.tensor([[ord(letter) - ord("a") if letter != "." else -1 for letter in row] for row in rows])
        gold = torch.tensor([ord(letter) - ord("a") for letter in golds])
        firsts = [list(dict.fromkeys(row.replace(".", ""))) for row in rows]
        classes = [[-1 if x == "." else own.index(x) for x in row] for row, own in zip(rows, firsts, strict=True)]
        there = (said >= 0)[:, None]
        everybody = torch.arange(pool).expand(len(rows), 1, pool)
        task = torch.eye(len(rows), dtype=torch.float64) if task is None else task
        return Episodes(
            ids=tuple(f"t{i}" for i in range(len(rows))),
            agents=agents or tuple("abcdefghijklmnop"[:pool]),
            task=task,
            embeddings=torch.zeros(len(rows), 1, pool, task.shape[1], dtype=torch.float64),
            ratings=torch.zeros(len(rows), 1, pool, pool, dtype=torch.float64),
            vote_mask=torch.zeros(len(rows), 1, pool, pool, dtype=torch.bool),
            voters=everybody,
            authors=everybody,
            proposal_mask=there,
            voter_mask=there,
            round_mask=torch.ones(len(rows), 1, dtype=torch.bool),
            correct=((said == gold[:, None]) & (said >= 0))[:, None],
            classes=torch.tensor(classes)[:, None],
            cost=torch.zeros(len(rows), 1, dtype=torch.float64),
            labels=said[:, None] if labels else None,
            categories=tuple(categories),
        )

    return make


@pytest.fixture(scope="session")
def drawn():
    """`drawn(tasks, ...)`: rows and right letters of independent agents, right with their skill, else at random."""

    def make(tasks=160, *, seed=0, skills=(0.9, 0.7, 0.55, 0.45, 0.3), silent=0.1, options="abcd"):
        g = torch.Generator().manual_seed(seed)
        rows, golds = [], []
        for _ in range(tasks):
            gold = options[int(torch.randint(len(options), (1,), generator=g))]
            others = options.replace(gold, "")
            draws = torch.rand(len(skills), 3, generator=g).tolist()
            rows.append(
                "".join(
                    "." if quiet < silent else gold if luck < skill else others[int(which * len(others))]
                    for skill, (quiet, luck, which) in zip(skills, draws, strict=True)
                )
            )
            golds.append(gold)
        return rows, "".join(golds)

    return make
