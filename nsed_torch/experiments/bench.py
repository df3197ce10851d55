"""`nsed bench`: measure the engine or the tensor core, each line as a ratio of medians taken in one run."""

import importlib.util
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from nsed_torch.agents import Decoding, Prompts, TransformersEngine
from nsed_torch.agents.weights import DownloadError, resolve
from nsed_torch.config import instantiate, verb
from nsed_torch.data import Episodes, agreement, split
from nsed_torch.evaluation.measurement import Measurement, compare, hardware
from nsed_torch.evaluation.speed import phases
from nsed_torch.evaluation.speed.conduct import conduct_lines
from nsed_torch.evaluation.speed.llama_cpp import find_gguf, llama_lines
from nsed_torch.evaluation.speed.memory import memory_lines
from nsed_torch.evaluation.speed.phases import propose_lines, rate_lines
from nsed_torch.evaluation.speed.requests import propose_requests
from nsed_torch.evaluation.speed.whole import whole_lines
from nsed_torch.nn import ConsensusCell
from nsed_torch.records import write_json
from nsed_torch.training.losses import consensus_loss
from nsed_torch.training.rules import RULES
from nsed_torch.training.trainer import Schedule, fit_cell

TASKS, VOTERS, ROUNDS, MATRIX = 512, 10, 4, 2048
WIDTHS = (64, 384)
"""Of the embeddings: the hashed encoder's, and MiniLM's."""

ANSWERED = (8027, 15)
"""Tasks and agents of what is tuned on."""


LINES = ("propose", "rate", "whole", "conduct", "memory", "llama_cpp", "import")
"""What of the engine can be measured."""


@verb("bench")
def main(cfg: DictConfig) -> None:
    """Take the measurements of a target, print a table, write `bench.json`."""
    if cfg.target not in {"engine", "core", "tune"}:
        raise ValueError(f"expected target=engine, target=core or target=tune, got target={cfg.target}")
    unknown = sorted(set(cfg.lines) - set(LINES))
    if unknown or not cfg.lines:
        raise ValueError(f"expected lines out of {', '.join(LINES)}, got {', '.join(unknown) or 'none'}")
    if cfg.sample < 1:
        raise ValueError(f"expected sample of at least 1, got {cfg.sample}")
    identity: dict[str, Any] | None = None
    if cfg.target == "core":
        title = f"tensor core, float32, {torch.get_num_threads()} threads"
        lines = [training_line(cfg.repeats, dim) for dim in WIDTHS]
    elif cfg.target == "tune":
        title = f"tuning, float32, {torch.get_num_threads()} threads"
        lines = [tuning_line(cfg.repeats)]
    else:
        engine: TransformersEngine = instantiate(cfg.backbone)
        identity = dict(engine.identity(None))
        title = f"{identity['name']}, {identity['quantization']}, {identity['dtype']}"
        lines = list(engine_lines(cfg, engine))
    folder = Path(HydraConfig.get().runtime.output_dir)
    write_json(
        folder / "bench.json",
        {
            "hardware": hardware(),
            "backbone": identity,
            "repeats": cfg.repeats,
            "sample": cfg.sample,
            "lines": [line.as_json() for line in lines],
        },
    )
    show(lines, title)
    print(folder / "bench.json")  # noqa: T201 - the result


def engine_lines(cfg: DictConfig, engine: TransformersEngine) -> Iterator[Measurement]:
    """The lines that were asked for, in the order of `LINES`."""
    ways: dict[str, Callable[[], list[Measurement]]] = {
        "propose": lambda: propose_lines(engine, cfg.repeats, cfg.sample),
        "rate": lambda: rate_lines(engine, cfg.repeats, cfg.sample),
        "whole": lambda: whole_lines(engine, cfg.repeats, cfg.sample),
        "conduct": lambda: conduct_lines(engine, cfg.repeats, cfg.sample),
        "memory": lambda: memory_lines(_backbone(cfg), report=print),
        "llama_cpp": lambda: _llama_lines(cfg, engine),
        "import": lambda: [import_line(cfg.repeats)],
    }
    for name in LINES:
        if name in cfg.lines:
            print(f"measuring {name}", flush=True)  # noqa: T201 - some take minutes
            yield from ways[name]()


def _backbone(cfg: DictConfig) -> dict[str, Any]:
    """The backbone's settings as another process can read them, its weights as the folder they were found in."""
    settings: Any = OmegaConf.to_container(cfg.backbone)
    settings.pop("_target_")
    weights = instantiate(cfg.backbone.weights)
    return {**settings, "weights": {"name": weights.name, "path": str(resolve(weights).folder)}}


def _llama_lines(cfg: DictConfig, engine: TransformersEngine) -> list[Measurement]:
    """Against llama.cpp with the GGUF that the backbone's weights came from, where both are here."""
    if importlib.util.find_spec("llama_cpp") is None:
        print("llama.cpp: left out: llama-cpp-python is not installed")  # noqa: T201 - what the table lacks
        return []
    with TemporaryDirectory() as folder:
        try:
            gguf = find_gguf(instantiate(cfg.backbone.weights), Path(folder))
        except (OSError, DownloadError) as error:
            print(f"llama.cpp: left out: {error}")  # noqa: T201
            return []
        if gguf is None:
            print("llama.cpp: left out: the backbone's weights come without a GGUF")  # noqa: T201
            return []
        requests = propose_requests(Prompts(), phases.TASKS, [None] * phases.AGENTS, Decoding(phases.NEW_TOKENS))
        return llama_lines(engine, requests, gguf, repeats=cfg.repeats, sample=cfg.sample)


def import_line(repeats: int) -> Measurement:
    """`import nsed_torch` against `import torch`, each in a new interpreter."""

    def run(module: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)  # noqa: S603 - our own words

    (line,) = compare(
        "import in a new process",
        ours=("torch and nsed_torch", lambda: run("torch, nsed_torch, nsed_torch.nn, nsed_torch.functional")),
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
    """Cells tuned in five folds, against a logistic vote of one weight an agent."""
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


def show(lines: Sequence[Measurement], title: str) -> None:
    """The table on standard output, and what else is worth telling below it."""
    table = Table(title=title, title_justify="left")
    for column in ("what", "ours", "against", "ratio", "spread"):
        table.add_column(column)
    for line in lines:
        table.add_row(
            line.name,
            f"{line.ours}: {median(line.ours_values):.4g} {line.unit}",
            f"{line.other}: {median(line.other_values):.4g} {line.unit}",
            f"{line.ratio:.2f}",
            f"{min(line.ratios):.2f} to {max(line.ratios):.2f}",
        )
    console = Console(width=140)
    console.print(table)
    console.print("ratio: how many times as much the other took, median of the repeats; spread: least to most")
    for line in lines:
        if line.facts:
            told = ", ".join(
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in line.facts.items()
            )
            console.print(f"{line.name}, against {line.other}: {told}")
