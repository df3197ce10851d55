"""What needs no language model: a training step, tuning in folds, and the import."""

import resource
import subprocess
import sys
from functools import partial

import torch

from bench.timing import Measurement, compare
from nsed_lab.rules import RULES
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.equality import agreement
from nsed_torch.traces.splits import split
from nsed_torch.tuning.losses import consensus_loss
from nsed_torch.tuning.trainer import Schedule, fit_cell

TASKS, VOTERS, ROUNDS, MATRIX = 512, 10, 4, 2048
WIDTHS = (64, 384)
"""Of the embeddings: the hashed encoder's, and MiniLM's."""

ANSWERED = (8027, 15)
"""Tasks and agents of what is tuned on."""


def import_line(repeats: int) -> Measurement:
    """`import nsed_torch` against `import torch`, each in a new interpreter."""

    def run(modules: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)  # noqa: S603 - our own words

    (line,) = compare(
        "import in a new process",
        ours=("torch and nsed_torch", lambda: run("torch, nsed_torch, nsed_torch.core, nsed_torch.core.functional")),
        others=[("torch alone", lambda: run("torch"))],
        repeats=repeats,
    )
    return line


def training_line(repeats: int, dim: int) -> Measurement:
    """One training step of a consensus cell over recorded rounds, against one product of two square matrices."""
    cell = ConsensusCell(dim, VOTERS)
    optimizer = torch.optim.Adam(cell.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(0)
    shape = TASKS, ROUNDS, VOTERS, VOTERS
    embeddings = torch.nn.functional.normalize(torch.randn(*shape[:3], dim, generator=g), dim=-1)
    ratings, task = torch.rand(shape, generator=g) * 2 - 1, embeddings[:, 0, 0]
    mask = ~torch.eye(VOTERS, dtype=torch.bool).expand(shape)
    correct, there = torch.rand(shape[:3], generator=g) < 0.5, torch.ones(shape[:3], dtype=torch.bool)
    authors = torch.arange(VOTERS).expand(shape[:3])
    matrix = torch.randn(MATRIX, MATRIX, generator=g)

    def step() -> None:
        output, _ = cell.unroll(embeddings, ratings, mask, task, authors=authors)
        optimizer.zero_grad()
        consensus_loss(output.support, correct, there, cell.beta).backward()
        optimizer.step()

    step()
    (line,) = compare(
        f"train, {TASKS} tasks x {VOTERS} voters x {VOTERS} proposals x {ROUNDS} rounds, dim {dim}",
        ours=("a step", step),
        others=[(f"a product of two {MATRIX} x {MATRIX} matrices", lambda: matrix @ matrix)],
        repeats=repeats,
    )
    return line


def tuning_line(repeats: int) -> Measurement:
    """Cells tuned in five folds, against a logistic vote of one weight per agent."""
    episodes = answered_alike(*ANSWERED)
    folds = [split(episodes.ids, (0.6, 0.2, 0.2), turn=fold / 5) for fold in range(5)]
    optimizer = partial(torch.optim.LBFGS, max_iter=5, history_size=20, line_search_fn="strong_wolfe")
    schedule = Schedule(frozen=("trust.weight",))

    def tuned() -> None:
        for fold in folds:
            cell = ConsensusCell(episodes.dim, len(episodes.agents))
            train, validation = episodes.select(fold.train), episodes.select(fold.validation)
            fit_cell(cell, train, validation, optimizer=optimizer, schedule=schedule)

    def plainly() -> None:
        for fold in folds:
            both = episodes.select(torch.cat([fold.train, fold.validation]))
            RULES["logistic_vote"](both, episodes.select(fold.test))

    tuned()
    plainly()
    tasks, agents = ANSWERED
    (line,) = compare(
        f"tune, {tasks} tasks x {agents} agents x 5 folds",
        ours=("cells", tuned),
        others=[("a logistic vote", plainly)],
        repeats=repeats,
        facts={"peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024},
    )
    return line


def answered_alike(tasks: int, agents: int) -> Episodes:
    """Answers out of ten that agents draw, each right with a chance of its own, rated by agreement."""
    draw = torch.Generator().manual_seed(0)
    skill = torch.linspace(0.15, 0.45, agents)
    right = torch.rand(tasks, agents, generator=draw) < skill
    labels = torch.where(right, 0, torch.randint(1, 10, (tasks, agents), generator=draw))
    ratings, mask = agreement(labels)
    everybody, there = torch.arange(agents).expand(tasks, 1, -1), torch.ones(tasks, 1, agents, dtype=torch.bool)
    return Episodes(
        ids=tuple(f"t{i}" for i in range(tasks)),
        agents=tuple(f"a{i:02}" for i in range(agents)),
        task=torch.zeros(tasks, WIDTHS[0]),
        embeddings=torch.zeros(tasks, 1, agents, 1).expand(-1, -1, -1, WIDTHS[0]),
        ratings=ratings[:, None],
        vote_mask=mask[:, None],
        voters=everybody,
        authors=everybody,
        proposal_mask=there,
        voter_mask=there,
        round_mask=torch.ones(tasks, 1, dtype=torch.bool),
        correct=right[:, None],
        classes=labels[:, None],
        cost=torch.ones(tasks, 1),
        labels=labels[:, None],
    )
