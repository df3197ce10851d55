"""What an adapter is to learn, and how well it does on what was held out: to answer, or to judge."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nsed_torch.agents import Agent, Decoding, GenerateRequest, Prompts, TransformersEngine, call_seed
from nsed_torch.benchmarks import Candidate, GradedTasks
from nsed_torch.deliberation import JudgeQuestion, VerdictRating
from nsed_torch.records import Task, Verdict
from nsed_torch.training.fine_tuning import Example

Scores = Mapping[str, Sequence[bool]]
"""Stratum -> what was right, an entry a held-out task or candidate."""


@dataclass(frozen=True)
class AnswerLesson:
    """To answer the tasks of a family, alone, as in round 1 of a deliberation.

    Raises:
        ValueError: if nothing is held out, or nothing else is left.
    """

    train: GradedTasks  # with targets
    held_out: GradedTasks  # none of their questions is learned from
    prompts: Prompts
    persona: str = ""
    memory_share: float = 0.125  # as in `answer_examples`
    max_new_tokens: int = 24  # of an answer in the test; decoding is greedy
    seed: int = 0  # of memories and fences

    def __post_init__(self) -> None:
        if not self.held_out.tasks or not self.learned():
            raise ValueError(
                f"expected tasks to learn from and others to test on, got {len(self.learned())} "
                f"and {len(self.held_out.tasks)}: raise their sizes or use seeds that differ"
            )

    def learned(self) -> tuple[Task, ...]:
        """The training tasks whose question is not held out."""
        secret = {task.question for task in self.held_out.tasks}
        return tuple(task for task in self.train.tasks if task.question not in secret)

    def examples(self) -> list[Example]:
        """What is learned from."""
        return answer_examples(
            self.learned(), self.prompts, persona=self.persona, memory_share=self.memory_share, seed=self.seed
        )

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """Right answers by stratum; all in one where the tasks have none."""
        template, decoding = self.prompts.fingerprint("propose"), Decoding(self.max_new_tokens, temperature=0.0)
        requests = []
        for task in self.held_out.tasks:
            seed = call_seed(self.seed, task.id, "test")
            messages = self.prompts.propose(task.question, memory=(), critiques=(), persona=self.persona, seed=seed)
            requests.append(GenerateRequest("test", messages, decoding, seed, adapter, template))
        texts = [generation.text for generation in engine.generate(requests)]
        held_out = self.held_out
        pairs = [(task, held_out.grader.extract(task, text)) for task, text in zip(held_out.tasks, texts, strict=True)]
        verdicts = held_out.verdicts(pairs)
        strata = [held_out.strata.get(task.id, "all") for task in held_out.tasks]
        return _by_stratum(strata, [verdict is Verdict.RIGHT for verdict in verdicts])

    def identity(self) -> dict[str, Any]:
        """Which tasks these are; JSON values only."""
        return {
            "learns": "to answer",
            "tasks": dict(self.train.identity),
            "held_out": dict(self.held_out.identity),
            "memory_share": self.memory_share,
        }


@dataclass(frozen=True)
class VerdictLesson:
    """To say whether an answer is right."""

    train: Sequence[Candidate]
    held_out: Sequence[Candidate]  # answers to other questions
    prompts: Prompts
    rating: VerdictRating
    data: Mapping[str, Any]  # says which candidates these are
    persona: str = ""
    seed: int = 0  # of what is learned from and in which order, and of fences

    def examples(self) -> list[Example]:
        """What is learned from."""
        return verdict_examples(self.train, self.prompts, self.rating, persona=self.persona, seed=self.seed)

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """Ratings above 0 of right and below 0 of wrong answers, and right answers above wrong ones of their task."""
        judge = Agent("test", "", persona=self.persona, adapter=adapter)
        asked = [
            JudgeQuestion(judge, c.task.question, (c.text,), call_seed(self.seed, c.task.id, c.text, "test"))
            for c in self.held_out
        ]
        ratings = [rating.values[0] or 0.0 for rating in engine.rate(self.rating.requests(self.prompts, asked))]
        rated = list(zip(self.held_out, ratings, strict=True))
        kinds = ["right answers" if c.right else "wrong answers" for c in self.held_out]
        signs = _by_stratum(kinds, [(r > 0) if c.right else (r < 0) for c, r in rated])
        pairs = [
            one > other
            for right, one in rated
            for wrong, other in rated
            if right.right and not wrong.right and right.task.id == wrong.task.id
        ]
        return {**signs, "pairs of a task": pairs}

    def identity(self) -> dict[str, Any]:
        """Which candidates these are; JSON values only."""
        return {"learns": "to judge", **self.data}


Lesson = AnswerLesson | VerdictLesson


def _by_stratum(strata: Sequence[str], right: Sequence[bool]) -> dict[str, list[bool]]:
    scores: dict[str, list[bool]] = {}
    for stratum, value in zip(strata, right, strict=True):
        scores.setdefault(stratum, []).append(value)
    return scores


def answer_examples(
    tasks: Sequence[Task], prompts: Prompts, *, persona: str = "", memory_share: float = 0.125, seed: int = 0
) -> list[Example]:
    """Tasks as proposers read them, their targets as replies.

    Most are asked as in round 1. A share of them shows a memory as in later rounds: one to three answers, targets of
    the tasks given, of which the task's own is one half of the time. So a specialist learns to answer whatever stands
    there, and that the right answer may stand there. Our choice; nothing is published on it.

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
