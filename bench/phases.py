"""The two phases of a round, each against the loops that other projects use."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from bench.plain import PlainEngine, decode_bare, write_mixed, write_together
from bench.requests import give_adapters, propose_requests, rate_requests, unstoppable
from bench.timing import Measurement, compare
from nsed_torch.core.engine import Decoding, RatingScale
from nsed_torch.engines.transformers_engine import TransformersEngine

AGENTS, TASKS, CANDIDATES, NEW_TOKENS = 4, 8, 4, 48

SCALE = RatingScale(("No", "Yes"), (-1.0, 1.0))


def propose_lines(
    engine: TransformersEngine, repeats: int, sample: int, agents: int | None = None
) -> list[Measurement]:
    """4 adapters, or so many `agents`, x 8 tasks x 48 new tokens, all at full length; the engine gets the adapters.

    Against one `generate` call per answer, one per agent, one for all with an adapter a row (peft's mixed batch), and
    the bare loop of the base model at the same batch: no adapters, no sampling, likeliest tokens. Of the calls that are
    made one by one only each `sample`-th is timed and counted so many times.
    """
    agents = agents or AGENTS
    decoding = Decoding(max_new_tokens=NEW_TOKENS, temperature=0.7)
    mixed = propose_requests(TASKS, give_adapters(engine, agents), decoding)
    bare = propose_requests(TASKS, [None] * agents, decoding)
    by_agent = [mixed[i : i + TASKS] for i in range(0, len(mixed), TASKS)]
    alone = PlainEngine(engine)
    work = f"propose, {agents} adapters x {TASKS} tasks x {NEW_TOKENS} tokens"
    facts = {"answers": len(mixed), "new_tokens": len(mixed) * NEW_TOKENS}
    with unstoppable(engine):
        for warm_up in (engine.generate, alone.generate, partial(write_mixed, engine), partial(decode_bare, engine)):
            warm_up(mixed[:1])
        lines = compare(
            work,
            ours=("all in one batch", lambda: afresh(engine, engine.generate, mixed)),
            others=[
                ("a call an answer", lambda: alone.generate(mixed[::sample])),
                ("a call an agent", lambda: [write_together(engine, group) for group in by_agent]),
                ("peft's mixed batch", lambda: write_mixed(engine, mixed)),
                ("bare loop, no adapters", lambda: decode_bare(engine, mixed)),
            ],
            scales=[len(mixed) / len(mixed[::sample]), 1.0, 1.0, 1.0],
            repeats=repeats,
            facts=facts,
        )
        return lines + compare(
            work.replace(f"{agents} adapters", f"{agents} agents without adapters"),
            ours=("all in one batch", lambda: afresh(engine, engine.generate, bare)),
            others=[("bare loop, no adapters", lambda: decode_bare(engine, bare))],
            repeats=repeats,
            facts=facts,
        )


def rate_lines(
    engine: TransformersEngine, repeats: int, sample: int, scale: RatingScale | None = None
) -> list[Measurement]:
    """4 judges x 8 tasks x 4 candidates behind 600 tokens, against one forward pass per pair.

    Once with judges that are personas of the bare backbone, who share each task's text; once, on 2 tasks, with judges
    that are adapters, who share nothing. `sample` as in `propose_lines`.
    """
    alone, lines = PlainEngine(engine), []
    personas: list[str | None] = [None] * AGENTS
    for kind, tasks, judges in (("personas", TASKS, personas), ("adapters", 2, give_adapters(engine, AGENTS))):
        requests = rate_requests(engine, tasks, CANDIDATES, judges, scale or SCALE)
        few = requests[::sample]
        apart = torch.tensor([rating.values for rating in alone.rate(few)])
        together = torch.tensor([rating.values for rating in engine.rate(few)])
        lines += compare(
            f"rate, {AGENTS} judges ({kind}) x {tasks} tasks x {CANDIDATES} candidates",
            ours=("packed passes", partial(afresh, engine, engine.rate, requests)),
            others=[("a forward pass a pair", partial(alone.rate, few))],
            scales=[len(requests) / len(few)],
            repeats=repeats,
            facts={"most_apart": float((apart - together).abs().max())},
        )
    return lines


def afresh(engine: TransformersEngine, ask: Callable[[Sequence[Any]], object], requests: Sequence[Any]) -> None:
    """Ask without what earlier calls left behind."""
    engine.forget()
    ask(requests)
