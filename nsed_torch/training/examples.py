"""What a language model is fine-tuned on: chats with the reply that is wanted, asked as in a deliberation."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from nsed_torch.agents import Agent, Message, Prompts, call_seed
from nsed_torch.benchmarks import Candidate
from nsed_torch.deliberation import JudgeQuestion, VerdictRating
from nsed_torch.records import Task


class Example(NamedTuple):
    """A chat, and what the assistant is to say next."""

    messages: tuple[Message, ...]
    reply: str


def answer_examples(
    tasks: Sequence[Task], prompts: Prompts, *, persona: str = "", memory_share: float = 0.125, seed: int = 0
) -> list[Example]:
    """Tasks as proposers read them, their targets as replies.

    Most are asked as in round 1. A share of them shows a memory as in later rounds: one to three answers, targets of
    the tasks given, of which the task's own is one half of the time. So a specialist learns to answer whatever stands
    there, and that the right answer may stand there. Our choice; nothing is published on it.

    Args:
        tasks: with targets.
        prompts: the templates.
        persona: what the agent will be told about itself.
        memory_share: of examples with a memory, in [0, 1].
        seed: of memories and fences.

    Raises:
        ValueError: if there is no task, one has no target, or the share is out of range.
    """
    targets = [task.target for task in tasks if task.target]
    if not tasks or len(targets) < len(tasks):
        missing = next((task.id for task in tasks if not task.target), "no task at all")
        raise ValueError(f"expected tasks with targets to learn from, got {missing!r}: give it a target")
    if not 0 <= memory_share <= 1:
        raise ValueError(f"expected memory_share in [0, 1], got {memory_share}")
    examples = []
    for task, target in zip(tasks, targets, strict=True):
        own = call_seed(seed, task.id, "example")
        draw = random.Random(own)  # noqa: S311 - variety, not secrecy
        memory: list[str] = []
        if draw.random() < memory_share:
            memory = draw.choices(targets, k=draw.randint(1, 3))
            if draw.random() < 0.5:
                memory[draw.randrange(len(memory))] = target
        messages = prompts.propose(
            task.question, memory=list(dict.fromkeys(memory)), critiques=(), persona=persona, seed=own
        )
        examples.append(Example(messages, target))
    return examples


def verdict_examples(
    candidates: Sequence[Candidate], prompts: Prompts, rating: VerdictRating, *, persona: str = "", seed: int = 0
) -> list[Example]:
    """Candidates as a judge reads them, the scale's best label as reply to a right one, its worst to a wrong one.

    As many right as wrong ones, of whichever there are fewer: a judge that says the commoner label to all learns
    nothing by it. What both kinds have in excess is left out, drawn by the seed.

    Args:
        candidates: answers of several agents, graded.
        prompts: the templates.
        rating: how the judge will be asked; one candidate at a time.
        persona: what the judge will be told about itself.
        seed: of what is left out, of the order and of fences.

    Raises:
        ValueError: if the rating lists all candidates, or there is no right or no wrong one.
    """
    if rating.listed:
        raise ValueError("expected a verdict on each answer alone to learn from, got listed=true: set rating=verdict")
    draw = random.Random(seed)  # noqa: S311 - variety, not secrecy
    kinds = [[c for c in candidates if c.right is right] for right in (True, False)]
    fewer = min(map(len, kinds))
    if not fewer:
        raise ValueError(
            f"expected right and wrong candidates to learn from, got {len(kinds[0])} right and {len(kinds[1])} wrong"
        )
    chosen = [candidate for kind in kinds for candidate in draw.sample(kind, fewer)]
    draw.shuffle(chosen)
    best, worst = (
        rating.scale.labels[rating.scale.values.index(extreme(rating.scale.values))] for extreme in (max, min)
    )
    judge = Agent("judge", "", persona=persona)
    asked = [
        JudgeQuestion(judge, c.task.question, (c.text,), call_seed(seed, c.task.id, c.text, "example")) for c in chosen
    ]
    return [
        Example(request.about(request.candidates[0]), best if candidate.right else worst)
        for request, candidate in zip(rating.requests(prompts, asked), chosen, strict=True)
    ]
