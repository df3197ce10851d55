"""`nsed bench`: measure the engine or the tensor core, each line as a ratio of medians taken in one run."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from nsed_torch.agents import (
    Decoding,
    Engine,
    GenerateRequest,
    Message,
    Prompts,
    RateRequest,
    RatingScale,
    call_seed,
)
from nsed_torch.config import conf_dir, instantiate, register
from nsed_torch.evaluation.benchmark import Comparison, compare, hardware
from nsed_torch.nn import ConsensusCell
from nsed_torch.records import write_json
from nsed_torch.training.losses import consensus_loss

register()

QUESTIONS = tuple(f"What is {17 + 3 * i} plus {29 + 7 * i}, and how did you get it?" for i in range(2))
PERSONAS = (
    "You work out the answer step by step.",
    "You doubt the first idea.",
    "You explain in plain words.",
)
CANDIDATE = "First add the tens, then the ones, then carry what is left over. " * 4 + "Answer: 46"
NEW_TOKENS = 16

TASKS, VOTERS, ROUNDS, MATRIX = 512, 10, 4, 2048
WIDTHS = (64, 384)
"""Of the embeddings: the hashed encoder's, and MiniLM's."""


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="bench")
def main(cfg: DictConfig) -> None:
    """Run the comparisons of a target, print a table, write `bench.json`."""
    if cfg.target not in {"engine", "core"}:
        raise ValueError(f"expected target=engine or target=core, got target={cfg.target}")
    identity: dict[str, Any] | None = None
    if cfg.target == "core":
        title = f"tensor core, float32, {torch.get_num_threads()} threads"
        lines = [training_line(cfg.repeats, dim) for dim in WIDTHS]
    else:
        engine: Engine = instantiate(cfg.backbone)
        identity = dict(engine.identity(None))
        title = f"{identity['name']}, {identity['quantization']}, {identity['dtype']}"
        lines = [propose_line(engine, cfg.repeats), rate_line(engine, cfg.repeats), import_line(cfg.repeats)]
    folder = Path(HydraConfig.get().runtime.output_dir)
    write_json(
        folder / "bench.json",
        {"hardware": hardware(), "backbone": identity, "lines": [line.as_json() for line in lines]},
    )
    show(lines, title)
    print(folder / "bench.json")  # noqa: T201 - the result


def propose_line(engine: Engine, repeats: int) -> Comparison:
    """3 agents x 2 tasks: one batch, against one call an agent and task."""
    prompts, decoding = Prompts(), Decoding(max_new_tokens=NEW_TOKENS)
    requests = []
    for question in QUESTIONS:
        for persona in PERSONAS:
            seed = call_seed(0, question, persona)
            messages = prompts.propose(question, memory=[CANDIDATE], critiques=(), persona=persona, seed=seed)
            requests.append(GenerateRequest(persona, messages, decoding, seed))
    return compare(
        f"propose, {len(requests)} calls x {NEW_TOKENS} tokens",
        ours=("one batch", lambda: engine.generate(requests)),
        other=("a call each", lambda: [engine.generate([request]) for request in requests]),
        repeats=repeats,
    )


def rate_line(engine: Engine, repeats: int) -> Comparison:
    """3 judges x 2 tasks x 3 candidates: shared prefixes, against one forward pass a pair."""
    prompts, scale = Prompts(), RatingScale()
    requests, pairs = [], []
    for question in QUESTIONS:
        for persona in PERSONAS:
            messages, candidates = prompts.judge(
                "rate",
                question,
                candidates=[CANDIDATE] * 3,
                listed=True,
                persona=persona,
                seed=0,
                labels=scale.labels,
            )
            requests.append(RateRequest(persona, messages, candidates, scale))
            pairs += [RateRequest(persona, _whole(messages, candidate), ("",), scale) for candidate in candidates]
    return compare(
        f"rate, {len(pairs)} pairs",
        ours=("one batch, shared prefixes", lambda: engine.rate(requests)),
        other=("a forward pass each", lambda: [engine.rate([pair]) for pair in pairs]),
        repeats=repeats,
    )


def import_line(repeats: int) -> Comparison:
    """`import nsed_torch` against `import torch`, each in a new interpreter."""

    def run(module: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)  # noqa: S603 - our own words

    return compare(
        "import in a new process",
        ours=("torch and nsed_torch", lambda: run("torch, nsed_torch, nsed_torch.nn, nsed_torch.functional")),
        other=("torch alone", lambda: run("torch")),
        repeats=repeats,
    )


def training_line(repeats: int, dim: int) -> Comparison:
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

    return compare(
        f"train, {TASKS} tasks x {VOTERS} voters x {VOTERS} proposals x {ROUNDS} rounds, dim {dim}",
        ours=("a step", step),
        other=(f"a product of two {MATRIX} x {MATRIX} matrices", lambda: matrix @ matrix),
        repeats=repeats,
    )


def show(lines: Sequence[Comparison], title: str) -> None:
    """The table on standard output."""
    table = Table(title=title, title_justify="left")
    for column in ("what", "ours", "against", "times faster", "spread", "times the cost"):
        table.add_column(column)
    for line in lines:
        spread = f"{min(line.ratios):.2f} to {max(line.ratios):.2f}"
        table.add_row(line.name, line.ours, line.other, f"{line.ratio:.2f}", spread, f"{1 / line.ratio:.2f}")
    Console(width=110).print(table)


def _whole(messages: tuple[Message, ...], candidate: str) -> tuple[Message, ...]:
    *before, last = messages
    return (*before, last._replace(content=last.content + candidate))
