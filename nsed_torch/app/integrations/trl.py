"""A frozen team as a reward of TRL's trainers: what its vote makes of a prompt's completions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from nsed_torch.app.door import Door, question_of
from nsed_torch.core.election import RoundInput
from nsed_torch.core.engine import call_seed
from nsed_torch.core.ratings import JudgeQuestion, judging_order
from nsed_torch.core.round import MacroRNNCell

Chat = str | Sequence[Mapping[str, str]]
"""A prompt or completion as TRL passes it: a text, or turns with a role and a content."""


def consensus_reward(**settings: Any) -> Callable[..., list[float]]:
    """A reward function: the support that a team's judges give each completion among those of its prompt; ours.

    Judges see a prompt's completions without knowing who wrote them, each in an order of its own, and rate them all;
    the consensus cell makes ballots and supports of the ratings, as in a round whose proposals come from nobody of the
    team. Completions that say the same are rated once and get the same. Supports lie in [-V, V] for V judges with trust
    one; an empty completion gets what a judge's whole credit against it would come to, -V. Only the differences within
    a group count for GRPO. Nothing of the team learns from it.

    Args:
        settings: of the team, by dotted name, as for `Door`; in Python `**{"prompts.style": "direct"}`.

    Returns:
        `(prompts, completions, **columns) -> list[float]`, which reads nothing but the first two.

    Raises:
        ValueError: for settings as `Door`, and for `rating=agreement`, whose judges rate by what they proposed.
    """
    door = Door(settings)
    cell = door.rnn.cell
    if getattr(cell.rating, "by_own", False):
        raise ValueError("expected judges that rate others' texts, got rating=agreement: choose another rating")

    def support_of_the_team(prompts: Sequence[Chat], completions: Sequence[Chat], **columns: Any) -> list[float]:
        groups: dict[str, list[str]] = {}
        asked = [(question_of(_turns(prompt)), _said(said)) for prompt, said in zip(prompts, completions, strict=True)]
        for question, text in asked:
            known = groups.setdefault(question, [])
            if text and text not in known:
                known.append(text)
        with torch.no_grad(), cell.ensemble.one_run():
            found = supports(cell, groups)
        return [found.get(one, -float(len(cell.ensemble.judges))) for one in asked]

    return support_of_the_team


def supports(cell: MacroRNNCell, groups: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
    """The support of different texts by question and text: one round's vote of the judges on what others wrote."""
    groups = {question: texts for question, texts in groups.items() if texts}
    judges, names = cell.ensemble.judges, [agent.name for agent in cell.ensemble.agents]
    asked, orders = [], []
    for question, texts in groups.items():
        for judge in judges:
            seed = call_seed(cell.seed, question, 1, judge.name, "rate")
            places = [str(place) for place in range(len(texts))]
            order = judging_order(seed, judge.name, places, [True] * len(texts), shuffled=cell.protocol.shuffled)
            asked.append(JudgeQuestion(judge, question, tuple(texts[place] for place in order), seed))
            orders.append(order)
    replies = iter(zip(orders, cell.rating.rate(cell.ensemble, cell.prompts, asked), strict=True))
    like = next(cell.consensus.parameters())
    voters = torch.tensor([[names.index(judge.name) for judge in judges]], device=like.device)
    found: dict[tuple[str, str], float] = {}
    for question, texts in groups.items():
        ratings = torch.full((1, len(judges), len(texts)), torch.nan, dtype=like.dtype)
        for row, (order, reply) in enumerate(next(replies) for _ in judges):
            given = [torch.nan if rating is None else rating for rating in reply.ratings]
            ratings[0, row, order] = torch.tensor(given, dtype=like.dtype)
        ratings = ratings.to(like.device)
        task = cell.encoder.embed([question]).to(like)
        output = cell.consensus.elect(RoundInput(ratings, ~ratings.isnan(), voters), task)
        found |= {(question, text): value for text, value in zip(texts, output.support[0].tolist(), strict=True)}
    return found


def _turns(chat: Chat) -> list[tuple[str, str]]:
    return [("user", chat)] if isinstance(chat, str) else [(turn["role"], turn["content"]) for turn in chat]


def _said(chat: Chat) -> str:
    return "\n\n".join(text for _, text in _turns(chat)).strip()
