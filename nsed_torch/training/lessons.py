"""What an adapter is to learn, and how well it does on what was held out: to answer, or to judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nsed_torch.agents import Agent, Decoding, GenerateRequest, Prompts, TransformersEngine, call_seed
from nsed_torch.benchmarks import Candidate, GradedTasks
from nsed_torch.deliberation import JudgeQuestion, VerdictRating
from nsed_torch.records import Task, Verdict
from nsed_torch.training.examples import Example, answer_examples, verdict_examples

Scores = Mapping[str, Sequence[bool]]
"""Stratum -> what was right, an entry a held-out task or candidate."""


class Lesson(Protocol):
    """Something to learn."""

    def examples(self) -> list[Example]:
        """What is learned from."""
        ...

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """What an adapter, or the bare backbone, gets right of what was held out."""
        ...

    def identity(self) -> dict[str, Any]:
        """Which data these are; JSON values only."""
        ...


@dataclass(frozen=True)
class AnswerLesson:
    """To answer the tasks of a family, alone, as in round 1 of a deliberation.

    Args:
        train: tasks with targets.
        held_out: others; none of their questions is learned from.
        prompts: the templates.
        persona: what the agent will be told about itself.
        memory_share: as in `answer_examples`.
        max_new_tokens: answer allowance of the test; decoding is greedy.
        seed: of memories and fences.

    Raises:
        ValueError: if nothing is held out, or nothing else is left.
    """

    train: GradedTasks
    held_out: GradedTasks
    prompts: Prompts
    persona: str = ""
    memory_share: float = 0.125
    max_new_tokens: int = 24
    seed: int = 0

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
        """As `answer_examples`."""
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
        pairs = [
            (task, self.held_out.grader.extract(task, text))
            for task, text in zip(self.held_out.tasks, texts, strict=True)
        ]
        verdicts = self.held_out.verdicts(pairs)
        strata = [self.held_out.strata.get(task.id, "all") for task in self.held_out.tasks]
        return _by_stratum(strata, [verdict is Verdict.RIGHT for verdict in verdicts])

    def identity(self) -> dict[str, Any]:
        """Of both sets of tasks."""
        return {
            "learns": "to answer",
            "tasks": dict(self.train.identity),
            "held_out": dict(self.held_out.identity),
            "memory_share": self.memory_share,
        }


@dataclass(frozen=True)
class VerdictLesson:
    """To say whether an answer is right.

    Args:
        train: graded answers.
        held_out: graded answers to other questions.
        prompts: the templates.
        rating: how the judge is asked.
        data: which candidates these are.
        persona: what the judge will be told about itself.
        seed: of what is learned from and in which order, and of fences.
    """

    train: Sequence[Candidate]
    held_out: Sequence[Candidate]
    prompts: Prompts
    rating: VerdictRating
    data: Mapping[str, Any]
    persona: str = ""
    seed: int = 0

    def examples(self) -> list[Example]:
        """As `verdict_examples`."""
        return verdict_examples(self.train, self.prompts, self.rating, persona=self.persona, seed=self.seed)

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """Ratings above 0 of right and below 0 of wrong answers, and right answers above wrong ones of their task."""
        judge = Agent("test", "", persona=self.persona, adapter=adapter)
        asked = [
            JudgeQuestion(judge, c.task.question, (c.text,), call_seed(self.seed, c.task.id, c.text, "test"))
            for c in self.held_out
        ]
        ratings = [rating.values[0] or 0.0 for rating in engine.rate(self.rating.requests(self.prompts, asked))]
        kinds = ["right answers" if c.right else "wrong answers" for c in self.held_out]
        found = _by_stratum(
            kinds, [(r > 0) if c.right else (r < 0) for c, r in zip(self.held_out, ratings, strict=True)]
        )
        rated = list(zip(self.held_out, ratings, strict=True))
        pairs = [
            one > other
            for right, one in rated
            for wrong, other in rated
            if right.right and not wrong.right and right.task.id == wrong.task.id
        ]
        return {**found, "pairs of a task": pairs}

    def identity(self) -> dict[str, Any]:
        """Of the candidates."""
        return {"learns": "to judge", **self.data}


def _by_stratum(strata: Sequence[str], right: Sequence[bool]) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = {}
    for stratum, value in zip(strata, right, strict=True):
        found.setdefault(stratum, []).append(value)
    return found
