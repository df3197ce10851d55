"""What a worker of workflows is to learn: to answer, and to do its own part of a question that takes several."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nsed_torch.agents import Decoding, GenerateRequest, Message, TransformersEngine
from nsed_torch.agents.requests import call_seed
from nsed_torch.benchmarks.composite import CompositeTasks, Hop
from nsed_torch.benchmarks.graders import answer_in, grade
from nsed_torch.data import Equality
from nsed_torch.records import Task
from nsed_torch.training.fine_tuning import Example
from nsed_torch.training.lessons import AnswerLesson, Scores


class _Part(NamedTuple):
    """A hop in its question."""

    task: Task
    hop: Hop
    history: tuple[tuple[str, str], ...]  # the earlier subtasks that it reads, each with the right reply
    place: int


@dataclass(frozen=True)
class HopLesson:
    """To answer tasks, and to do hops of some kinds in composite questions, as a worker of a workflow reads them.

    Raises:
        ValueError: if the share is out of range, or no hop of these kinds is learned, or none is tested.
    """

    answers: AnswerLesson
    train: CompositeTasks
    held_out: CompositeTasks  # none of their questions is learned from
    kinds: Sequence[str]  # of the hops
    step_share: float  # of examples that show a hop

    def __post_init__(self) -> None:
        learned, tested = self._learned(), self._parts(self.held_out)
        if not 0 < self.step_share <= 1 or not learned or not tested:
            raise ValueError(
                f"expected step_share in (0, 1] and hops to learn from and to test on, got {self.step_share}, "
                f"{len(learned)} and {len(tested)} of {', '.join(self.kinds) or 'no kind'}: name families of "
                "benchmark=composite, or raise composites"
            )

    def examples(self) -> list[Example]:
        """As many as the tasks alone would give; the last of them are hops, which come again where there are few.

        What a hop reads is right: a worker learns to go on from it, not to doubt it. Our choice.
        """
        alone = self.answers.examples()
        count = round(self.step_share * len(alone))
        shown = itertools.islice(itertools.cycle(self._learned()), count)
        hops = [Example(self._messages(part, "example"), part.hop.reply) for part in shown]
        return [*alone[: len(alone) - count], *hops]

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """As the tasks alone, and right replies to hops by their kind."""
        prompts, parts = self.answers.prompts, self._parts(self.held_out)
        template, decoding = prompts.fingerprint("step"), Decoding(self.answers.max_new_tokens, temperature=0.0)
        requests = [
            GenerateRequest("test", self._messages(part, "test"), decoding, 0, adapter, template) for part in parts
        ]
        scores = {name: list(right) for name, right in self.answers.scores(engine, adapter).items()}
        for (_, hop, *_), said in zip(parts, engine.generate(requests), strict=True):
            answer = answer_in(said.text, numeric=hop.reply.isdigit())
            right = grade(answer, hop.reply, Equality(math_verify=False))
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
        secret = {task.question for task in self.held_out.tasks}
        return [part for part in self._parts(self.train) if part.task.question not in secret]

    def _parts(self, tasks: CompositeTasks) -> list[_Part]:
        """The hops of these kinds in questions of several."""
        parts = []
        for task in tasks.tasks:
            hops = tasks.hops[task.id]
            for place, hop in enumerate(hops):
                if hop.kind in self.kinds and len(hops) > 1:
                    history = tuple((h.subtask.strip(), h.reply) for h in hops[:place]) if hop.reads else ()
                    parts.append(_Part(task, hop, history, place))
        return parts

    def _messages(self, part: _Part, phase: str) -> tuple[Message, ...]:
        seed = call_seed(self.answers.seed, part.task.id, part.place, phase)
        asked = part.task.question, part.hop.subtask.strip()
        return self.answers.prompts.step(*asked, history=part.history, persona=self.answers.persona, seed=seed)
