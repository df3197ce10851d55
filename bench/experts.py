"""Deliberations of the shipped experts: how many a second, and how many tokens their backbone computes for each."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bench.plain import PlainEngine
from bench.startup import TEAM
from bench.teams import Runs, proposals, same
from bench.timing import Measurement, compare
from nsed_torch.app.build import build_rnn, pool_answers
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.core.agent import Ensemble
from nsed_torch.core.engine import Engine
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.extras import install
from nsed_torch.records.transcript import Task, Transcript

QUESTIONS = 70
"""Ten of each kind."""


def experts_lines(
    repeats: int, sample: int, team: Sequence[str] = TEAM, report: Callable[[str], None] = print
) -> list[Measurement]:
    """The experts' preset on the first questions of its benchmark, one round, against one call after the other.

    The plain way answers and rates each `sample`-th question alone, call by call, every call over its whole prompt.
    The facts count what the input embeddings of the backbone were asked for, so that a commit can be compared with
    another by running this line on both.

    Args:
        repeats: timed rounds.
        sample: as above.
        team: overrides of `nsed deliberate`.
        report: hears in one line why there is no line, where reasoning-gym is missing.
    """
    if importlib.util.find_spec("reasoning_gym") is None:
        report(f"experts: left out: reasoning-gym is not installed: {install('gym')}")
        return []
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose("deliberate", overrides=list(team))
    tasks_of: Any = OmegaConf.load(conf_dir() / "tasks/experts.yaml")
    graded = instantiate({**tasks_of, "size": QUESTIONS})
    rnn = build_rnn(cfg, CallLog(None))
    pool_answers(rnn, graded, cfg)
    engines: Mapping[str, Any] = rnn.cell.ensemble.engines
    plainly = {name: PlainEngine(engine) for name, engine in engines.items()}
    tasks = list(graded.tasks)
    few = tasks[::sample]
    ours = Runs(lambda: deliberate_afresh(rnn, engines, tasks))
    plain = Runs(lambda: [deliberate_afresh(rnn, plainly, [task])[0] for task in few])
    deliberate_afresh(rnn, engines, tasks[:1])
    with counted(engines.values()) as tokens:
        (line,) = compare(
            f"deliberate, {len(rnn.cell.ensemble)} experts x 1 round x {len(tasks)} questions of their benchmark",
            ours=("all questions together", lambda: tokens.of("ours", ours)),
            others=[("one call after the other", lambda: tokens.of("plain", plain))],
            scales=[len(tasks) / len(few)],
            repeats=repeats,
        )
    facts = {
        "tokens_computed_a_question": tokens.found["ours"] / repeats / len(tasks),
        "tokens_computed_a_question_plainly": tokens.found["plain"] / repeats / len(few),
        "deliberations_a_second": len(tasks) / sorted(line.ours_values)[repeats // 2],
        "same_proposals": same(proposals(plain.last), proposals(ours.last[::sample])),
    }
    return [replace(line, facts=facts)]


def deliberate_afresh(rnn: MacroRNN, engines: Mapping[str, Engine], tasks: Sequence[Task]) -> list[Transcript]:
    """Deliberate with an ensemble that remembers no call."""
    rnn.cell.ensemble = Ensemble(engines, rnn.cell.ensemble.agents)
    with torch.no_grad():
        return list(rnn(tasks).transcripts)


class Counter:
    """How many tokens went into backbones, by who sent them."""

    def __init__(self) -> None:
        self.total = 0
        self.found: dict[str, int] = {}

    def of(self, name: str, work: Callable[[], object]) -> None:
        """Do some work and add its tokens to those of a name."""
        before = self.total
        work()
        self.found[name] = self.found.get(name, 0) + self.total - before

    def see(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        """A hook of input embeddings."""
        self.total += inputs[0].numel()


@contextmanager
def counted(engines: Sequence[TransformersEngine]) -> Iterator[Counter]:
    """While open, every token that backbones embed is counted: each is computed by all layers."""
    counter = Counter()
    hooks = [engine.model.get_input_embeddings().register_forward_pre_hook(counter.see) for engine in engines]
    try:
        yield counter
    finally:
        for hook in hooks:
            hook.remove()
