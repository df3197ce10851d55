"""Steps that repeat most of the work before them, with and without looking up what may come next."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from hydra import compose

from bench.timing import Measurement, compare
from nsed_torch.app.build import build_ensemble
from nsed_torch.app.config.hydra_node import composing
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.core.engine import GenerateRequest
from nsed_torch.parts.forms import next_step
from nsed_torch.records.extras import install

WORKS = 8
"""Steps of a tower, two shipped steppers writing each."""

ONE_EACH = [f"~ensemble.agents.{adapter}{sample}" for adapter in "bc" for sample in range(2, 6)]
"""Leaves one sample of each adapter in the team."""


def steps_lines(repeats: int, team: Sequence[str] = (), report: Callable[[str], None] = print) -> list[Measurement]:
    """A sample of each shipped adapter at steps of the tower of `+experiment=towers`, one work after the other.

    Args:
        repeats: timed rounds.
        team: further overrides of that experiment.
        report: hears in one line why there is no line, where reasoning-gym is missing.
    """
    if importlib.util.find_spec("reasoning_gym") is None:
        report(f"steps: left out: reasoning-gym is not installed: {install('gym')}")
        return []
    with composing():
        cfg = compose("evaluate", overrides=["+experiment=towers", *ONE_EACH, *team])
    ensemble = build_ensemble(cfg.ensemble)
    engines: Any = ensemble.engines
    (engine,) = engines.values()
    graded: Any = instantiate(cfg.tasks)
    prompts = instantiate(cfg.prompts)
    (task,) = graded.tasks
    rounds = [
        [
            GenerateRequest(
                agent.name, next_step(prompts, task.question, [work], seed=seed), agent.decoding, seed, agent.adapter
            )
            for agent in ensemble.agents
        ]
        for seed, work in enumerate(graded.chains[task.id][:WORKS])
    ]
    ahead, said = engine.lookup_tokens, dict[int, list[str]]()

    def write(lookup_tokens: int) -> None:
        engine.lookup_tokens = lookup_tokens
        engine.forget()
        said[lookup_tokens] = [answer.text for requests in rounds for answer in engine.generate(requests)]

    write(ahead)
    write(0)
    facts = {"same_texts": sum(a == b for a, b in zip(said[ahead], said[0], strict=True)) / len(said[0])}
    return compare(
        f"{WORKS} steps of a tower, {len(ensemble)} members a step",
        ours=(f"up to {ahead} tokens looked up", lambda: write(ahead)),
        others=[("a token a pass", lambda: write(0))],
        repeats=repeats,
        facts=facts,
    )
