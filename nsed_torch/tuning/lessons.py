"""What an adapter is to learn, and how well it does elsewhere."""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from nsed_torch.core.engine import Decoding, GenerateRequest, Message, call_seed
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.tuning.fine_tuning import Example

Scores = Mapping[str, Sequence[bool]]
"""Stratum -> what was right, an entry per held-out task."""


class Lesson(Protocol):
    """What an adapter is to learn, and how well one does on what was held out."""

    def examples(self) -> list[Example]:
        """What is learned from."""
        ...

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """What was right, by stratum; of the bare backbone for None."""
        ...

    def identity(self) -> dict[str, Any]:
        """Which tasks these are; JSON values only."""
        ...


@dataclass(frozen=True)
class LessonPlan:
    """What the generator that the setting `lesson` names is given, as `plan`, beside its own settings."""

    prompts: Prompts
    families: Mapping[str, Mapping[str, Any]]  # generated tasks by the name of their family, with its settings
    count: int  # examples to learn from
    held_out: int  # generated tasks that are tested on
    seeds: Mapping[str, int]  # of the tasks, "train" and "held_out"
    avoid: Mapping[int, int]  # seed -> generated tasks whose questions are not learned from either
    answers: Callable[[], "AnswerLesson"]  # the lesson without a generator
    own: Callable[[], tuple[GradedTasks, GradedTasks]]  # tasks in place of families, to learn from and to test on
    persona: str = ""
    max_new_tokens: int = 24  # of the test

    def tasks(
        self, make: Callable[[Mapping[str, Mapping[str, Any]], int, int], GradedTasks]
    ) -> tuple[GradedTasks, GradedTasks]:
        """Tasks to learn from and to test on: of the families, or where there are none the user's own."""
        return self.made(lambda size, seed: make(self.families, size, seed)) if self.families else self.own()

    def made(self, make: Callable[[int, int], GradedTasks]) -> tuple[GradedTasks, GradedTasks]:
        """Tasks that are generated, so many at a seed, without those of the seeds to avoid; and others to test on."""
        train = make(self.count, self.seeds["train"])
        secret = [task for seed, size in self.avoid.items() if size for task in make(size, seed).tasks]
        return replace(train, tasks=others(train.tasks, secret)), make(self.held_out, self.seeds["held_out"])


def content(task: Task) -> str:
    """A digest of what a task asks and shows: equal for tasks that are one under different ids."""
    return hashlib.sha256(json.dumps([task.question, task.inputs]).encode()).hexdigest()


def others(tasks: Iterable[Task], secret: Iterable[Task], asks: Callable[[Task], str] = content) -> tuple[Task, ...]:
    """The tasks that ask something else than all secret ones, by what they ask and show unless told otherwise."""
    known = {asks(task) for task in secret}
    return tuple(task for task in tasks if asks(task) not in known)


def said(
    engine: TransformersEngine,
    adapter: str | None,
    template: str,
    chats: Iterable[tuple[Message, ...]],
    max_new_tokens: int,
) -> list[str]:
    """What is said in a test, greedily; the template is the fingerprint of the chats' own."""
    decoding = Decoding(max_new_tokens, temperature=0.0)
    requests = [GenerateRequest("test", chat, decoding, 0, adapter, template) for chat in chats]
    return [generation.text for generation in engine.generate(requests)]


@dataclass(frozen=True)
class AnswerLesson:
    """To answer the tasks of a family, alone, as in round 1 of a deliberation."""

    train: GradedTasks
    held_out: GradedTasks  # none of their questions is learned from
    prompts: Prompts
    persona: str = ""
    memory_share: float = 0.125  # of examples that show answers of earlier rounds
    max_new_tokens: int = 24  # of an answer in the test; decoding is greedy
    seed: int = 0  # of memories and fences

    def __post_init__(self) -> None:
        learned = self.learned()
        if not self.held_out.tasks or not learned:
            raise ValueError(
                f"expected tasks to learn from and others to test on, got {len(learned)} "
                f"and {len(self.held_out.tasks)}: raise their sizes or use seeds that differ"
            )
        if missing := [task.id for task in learned if not task.target]:
            raise ValueError(f"expected tasks with targets to learn from, got {missing[0]!r}: give it a target")
        if not 0 <= self.memory_share <= 1:
            raise ValueError(f"expected memory_share in [0, 1], got {self.memory_share}")

    def learned(self) -> tuple[Task, ...]:
        """The training tasks whose question is not held out."""
        # Of inputs a specialist reads nothing.
        return others(self.train.tasks, self.held_out.tasks, lambda task: task.question)

    def examples(self) -> list[Example]:
        """Tasks as proposers read them, their targets as replies.

        Most are asked as in round 1. A share of them shows a memory as in later rounds: one to three answers, targets
        of the tasks given, of which the task's own is one half of the time. So a specialist learns to answer whatever
        stands there, and that the right answer may stand there. Our choice; nothing is published on it.
        """
        targets = [task.target or "" for task in self.learned()]
        examples = []
        for task, target in zip(self.learned(), targets, strict=True):
            seed = call_seed(self.seed, task.id, "example")
            draw = random.Random(seed)  # noqa: S311 - variety, not secrecy
            memory: list[str] = []
            if draw.random() < self.memory_share:
                memory = draw.choices(targets, k=draw.randint(1, 3))
                if draw.random() < 0.5:
                    memory[draw.randrange(len(memory))] = target
            read, reply = self.shown(task, target)
            examples.append(Example(self._messages(read, seed, list(dict.fromkeys(memory))), reply))
        return examples

    def shown(self, task: Task, target: str) -> tuple[Task, str]:
        """What an example asks, and its reply."""
        return task, target

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """Right answers by stratum; all in one where the tasks have none."""
        _, right = self.tested(engine, adapter, self.held_out)
        return by_stratum([self.held_out.strata.get(task.id, "all") for task in self.held_out.tasks], right)

    def tested(
        self, engine: TransformersEngine, adapter: str | None, held_out: GradedTasks
    ) -> tuple[list[tuple[Task, str | None]], list[bool]]:
        """Final answers to the tasks of a test, and which are right."""
        chats = [self._messages(task, call_seed(self.seed, task.id, "test")) for task in held_out.tasks]
        texts = said(engine, adapter, self.prompts.fingerprint("propose"), chats, self.max_new_tokens)
        answers = [
            (task, held_out.grader.extract(task, text)) for task, text in zip(held_out.tasks, texts, strict=True)
        ]
        return answers, [verdict is Verdict.RIGHT for verdict in held_out.verdicts(answers)]

    def _messages(self, task: Task, seed: int, memory: Sequence[str] = ()) -> tuple[Message, ...]:
        return self.prompts.propose(task.question, memory=memory, critiques=(), persona=self.persona, seed=seed)

    def identity(self) -> dict[str, Any]:
        """Which tasks these are; JSON values only."""
        return {
            "learns": "to answer",
            "tasks": dict(self.train.identity),
            "held_out": dict(self.held_out.identity),
            "memory_share": self.memory_share,
        }


def by_stratum(strata: Sequence[str], right: Sequence[bool]) -> dict[str, list[bool]]:
    """What was right, kept apart by stratum."""
    scores: dict[str, list[bool]] = {}
    for stratum, value in zip(strata, right, strict=True):
        scores.setdefault(stratum, []).append(value)
    return scores
