"""What proposers are asked, and who is asked next where they are asked until an answer is far enough ahead.

First to be ahead by k is published by Meyerson et al. (2025, arXiv 2511.09030), for samples of one model; here what
counts is trust in who gives an answer, the consensus cell's, before it reads what proposals say. Where that is the
log-odds of being right, this is a sequential test (Wald 1945). Who is not asked does not vote.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from nsed_torch.core.agent import Agent
from nsed_torch.core.batch import padded
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import Encoder
from nsed_torch.core.engine import GenerateRequest
from nsed_torch.core.memory import MemoryState
from nsed_torch.core.open_round import OpenRound
from nsed_torch.core.prompts import Prompts

SLACK = 1e-9
"""Of leads, which sums in another order do not meet exactly."""


def weigh(turns: Sequence[OpenRound], consensus: ConsensusCell, encoder: Encoder, memory: MemoryState) -> None:
    """Take down how far every proposer of every task is trusted, before anything is said."""
    hidden, task = memory.hidden(), encoder.embed([turn.task.question for turn in turns])
    authors = padded([turn.team.proposers for turn in turns]).to(hidden.device)
    trust = consensus.trust(authors, task.to(hidden), hidden, authors >= 0)
    for turn, row in zip(turns, trust.tolist(), strict=True):
        turn.trust = row[: len(turn.authors)]


def request_of(turn: OpenRound, agent: Agent, prompts: Prompts, template: str, seed: int) -> GenerateRequest:
    """What an agent is asked for its proposal; `template` is the fingerprint of what makes the messages."""
    messages = prompts.propose(
        turn.asked.questions[agent.name],
        memory=turn.asked.memory,
        critiques=turn.critiques.get(agent.name, ()),
        persona=agent.persona,
        seed=turn.mark,
    )
    return GenerateRequest(agent.name, messages, agent.decoding, seed, agent.adapter, template, turn.ledger)


def next_asked(turn: OpenRound, ahead: float | None) -> list[Agent]:
    """All at once, or as few as can bring one answer far enough ahead; nobody where one is."""
    waiting = turn.authors[len(turn.proposals) :]
    if ahead is None or not turn.kind.in_turn:
        return waiting
    support: defaultdict[int | tuple[str, int], float] = defaultdict(float)
    for i, (same, text) in enumerate(zip(turn.classes, turn.texts, strict=True)):
        support[same if same >= 0 else ("own", i)] += turn.trust[i] if text else 0
    first, second = sorted([*support.values(), 0, 0], reverse=True)[:2]
    missing = ahead - (first - second) - SLACK
    reach = list(accumulate(abs(trust) for trust in turn.trust[len(turn.proposals) :]))
    return waiting[: bisect_left(reach, missing) + 1] if missing > 0 else []
