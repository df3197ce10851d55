"""To answer tasks, and to do hops of composite questions as a worker of a workflow reads them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nsed_torch.core.engine import Message, call_seed
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.questions.answers.kinds import read
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.known import Hop
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality
from nsed_torch.tuning.fine_tuning import Example
from nsed_torch.tuning.lessons import AnswerLesson, Scores, others, said


class _Part(NamedTuple):
    """A hop in its question."""

    task: Task
    hop: Hop
    history: tuple[tuple[str, str], ...]  # the earlier subtasks that it reads, each with the right reply
    place: int


@dataclass(frozen=True)
class HopLesson:
    """To answer tasks, and to do hops of some kinds in composite questions, as a worker of a workflow reads them."""

    answers: AnswerLesson
    train: GradedTasks
    held_out: GradedTasks  # none of their questions is learned from
    kinds: Sequence[str]  # of the hops
    step_share: float  # of examples that show a hop

    def __post_init__(self) -> None:
        learned, tested = self._learned(), self._parts(self.held_out)
        if not 0 < self.step_share <= 1 or not learned or not tested:
            raise ValueError(
                f"expected step_share in (0, 1] and hops to learn from and to test on, got {self.step_share}, "
                f"{len(learned)} and {len(tested)} of {', '.join(self.kinds) or 'no kind'}: name families of "
                "composite questions, or raise lesson.train"
            )

    def examples(self) -> list[Example]:
        """As many as the tasks alone would give; the last of them are hops, which come again where there are few.

        What a hop reads is right: a worker learns to go on from it, not to doubt it. Our choice.
        """
        alone = self.answers.examples()
        count = round(self.step_share * len(alone))
        alone = alone[: len(alone) - count]
        # Where nothing else is learned, no hop is left out.
        count = count if alone else max(count, len(self._learned()))
        shown = itertools.islice(itertools.cycle(self._learned()), count)
        hops = [Example(self._messages(part, "example"), part.hop.reply) for part in shown]
        return [*alone, *hops]

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """As the tasks alone, and right replies to hops by their kind."""
        alone, parts = self.answers, self._parts(self.held_out)
        scores = {name: list(right) for name, right in alone.scores(engine, adapter).items()}
        chats = [self._messages(part, "test") for part in parts]
        texts = said(engine, adapter, alone.prompts.fingerprint("step"), chats, alone.max_new_tokens)
        for (_, hop, *_), text in zip(parts, texts, strict=True):
            answer = read(text, "number" if hop.reply.isdigit() else "text").answer
            right = answer is not None and Equality(math_verify=False).equal(answer, hop.reply)
            scores.setdefault(f"hop: {hop.kind}", []).append(right)
        return scores

    def identity(self) -> dict[str, Any]:
        """Which tasks and hops these are; JSON values only."""
        return {
            **self.answers.identity(),
            "learns": "to answer, and to do a step of a workflow",
            "step_share": self.step_share,
            "hops": {
                "kinds": list(self.kinds),
                "tasks": dict(self.train.identity),
                "held_out": dict(self.held_out.identity),
            },
        }

    def _learned(self) -> list[_Part]:
        return self._parts(replace(self.train, tasks=others(self.train.tasks, self.held_out.tasks)))

    def _parts(self, tasks: GradedTasks) -> list[_Part]:
        """The hops of these kinds in questions of several."""
        parts = []
        for task in tasks.tasks:
            hops = tasks.hops.get(task.id, ())
            for place, hop in enumerate(hops):
                if hop.kind in self.kinds and len(hops) > 1:
                    history = tuple((h.subtask.strip(), h.reply) for h in hops[:place]) if hop.reads else ()
                    parts.append(_Part(task, hop, history, place))
        return parts

    def _messages(self, part: _Part, phase: str) -> tuple[Message, ...]:
        seed = call_seed(self.answers.seed, part.task.id, part.place, phase)
        asked = part.task.question, part.hop.subtask.strip()
        return self.answers.prompts.step(*asked, history=part.history, persona=self.answers.persona, seed=seed)
