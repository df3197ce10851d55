"""Two replicas of an engine on Ray against one, each of one thread."""

import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench import phases
from bench.requests import propose_requests
from bench.timing import Measurement, compare
from nsed_torch.core.engine import Decoding
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.replicas import EngineReplicas
from nsed_torch.records.extras import install

TASKS = 32
"""So many that half of the requests fill an engine's batches as well as all of them do."""


def replicas_lines(
    settings: Mapping[str, Any], repeats: int, report: Callable[[str], None] = print
) -> list[Measurement]:
    """The propose phase of agents without adapters by two replicas and by one, of one thread each, on this machine.

    The ratio is at most 2, where requests divide evenly, cores are idle and share no memory bandwidth. The fact
    `same_answers` is the share of answers that both give to the letter.
    """
    if importlib.util.find_spec("ray") is None:
        report(f"replicas: left out: ray is not installed: {install('ray')}")
        return []
    bare = propose_requests(TASKS, [None] * phases.AGENTS, Decoding(phases.NEW_TOKENS, temperature=0.7))
    build = partial(load_backbone, **{**settings, "device": "cpu"})
    # Half a core each by Ray's book, or three would not start on two cores; only two ever compute at a time.
    two, one = (EngineReplicas(build, replicas=count, cpus=0.5) for count in (2, 1))
    said = [[answer.text for answer in pool.generate(bare)] for pool in (two, one)]
    same = sum(a == b for a, b in zip(*said, strict=True)) / len(bare)

    def afresh(pool: EngineReplicas) -> None:
        pool.forget()
        pool.generate(bare)

    return compare(
        f"propose, {phases.AGENTS} agents x {TASKS} tasks x {phases.NEW_TOKENS} tokens",
        ours=("two replicas of one thread", partial(afresh, two)),
        others=[("one replica of one thread", partial(afresh, one))],
        repeats=repeats,
        facts={"same_answers": same},
    )
