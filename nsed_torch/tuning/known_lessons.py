"""To take steps of some work, and to read in pieces: of tasks of which more is known than answers."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from nsed_torch.core.engine import Message, call_seed
from nsed_torch.core.inputs import sentences
from nsed_torch.core.prompts import NOTHING, Prompts, noted
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.parts.forms import form_named, next_step
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.tuning.fine_tuning import Example
from nsed_torch.tuning.hop_lesson import HopLesson
from nsed_torch.tuning.lessons import Lesson, LessonPlan, Scores, by_stratum, others, said


@dataclass(frozen=True)
class Drawn(ABC):
    """A lesson whose examples are drawn alike from all families, then from their tasks, then from a task."""

    learns: ClassVar[str]
    knows: ClassVar[str] = "chains"  # what is known of its tasks, by the field of `GradedTasks`

    train: GradedTasks
    held_out: GradedTasks  # none of its tasks is learned from
    prompts: Prompts
    count: int  # examples to learn from
    persona: str = ""
    max_new_tokens: int = 64  # of an answer in the test; decoding is greedy
    seed: int = 0  # of what is drawn, and of fences

    def __post_init__(self) -> None:
        for part in (self.train, self.held_out):
            if unknown := [t.id for t in part.tasks if part.group(t) not in getattr(part, self.knows)]:
                what = {"chains": "the steps", "facts": "what is needed"}[self.knows]
                raise ValueError(f"expected {what} of every task to learn, got none for {unknown[0]!r}: add it")
        learned = len(self._learned())
        if not learned or not self.held_out.tasks or self.count < 1:
            raise ValueError(
                f"expected examples out of tasks to learn from and others to test on, got {self.count} of {learned} "
                f"and {len(self.held_out.tasks)}: raise their sizes or use seeds that differ"
            )

    def identity(self) -> dict[str, Any]:
        """Which tasks these are; JSON values only."""
        return {"learns": self.learns, "tasks": dict(self.train.identity), "held_out": dict(self.held_out.identity)}

    def _learned(self) -> tuple[Task, ...]:
        return others(self.train.tasks, self.held_out.tasks)

    def examples(self) -> list[Example]:
        """As many as were asked for."""
        draw = random.Random(self.seed)  # noqa: S311 - variety, not secrecy
        families: dict[str, list[Task]] = {}
        for task in self._learned():
            families.setdefault(self.train.strata.get(task.id, "all"), []).append(task)
        names, examples = sorted(families), []
        for i in range(self.count):
            task = draw.choice(families[names[i % len(names)]])
            examples.append(self._example(task, draw, call_seed(self.seed, task.id, i, "example")))
        return examples

    def _strata(self) -> list[str]:
        """Of the tasks of the test."""
        return [self.held_out.strata.get(task.id, "all") for task in self.held_out.tasks]

    @abstractmethod
    def _example(self, task: Task, draw: random.Random, seed: int) -> Example:
        """Something to learn of a task; the seed is that of its fences."""

    def _said(self, engine: TransformersEngine, adapter: str | None, chats: Sequence[tuple[Message, ...]]) -> list[str]:
        """What is answered in the test."""
        return said(engine, adapter, self.prompts.fingerprint("propose"), chats, self.max_new_tokens)


@dataclass(frozen=True)
class StepLesson(Drawn):
    """To write the next step of some work, as in a round of a deliberation whose unit is the step.

    Members that err alike correct nobody. Those that read and write works in another form (`Agent.form`) err
    elsewhere. Ours.
    """

    learns = "to write the next step"

    form: str = "plain"

    def __post_init__(self) -> None:
        super().__post_init__()
        form_named(self.form)

    def _example(self, task: Task, draw: random.Random, seed: int) -> Example:
        chain = self.train.chains[task.id]
        index = self._drawn_step(chain, draw)
        return Example(self._messages(task, chain, index, seed), self._written(chain[index]))

    def _drawn_step(self, chain: Sequence[str], draw: random.Random) -> int:
        """Which step is learned; one in eight is the first."""
        return 0 if draw.random() < 1 / 8 or len(chain) < 2 else draw.randrange(1, len(chain))

    def _written(self, step: str) -> str:
        return form_named(self.form).written(step)

    def identity(self) -> dict[str, Any]:
        """Which tasks these are, and what of them; JSON values only."""
        return {**super().identity(), **({"form": self.form} if self.form != "plain" else {})}

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """Right steps by family, one drawn from every held-out task."""
        draw = random.Random(self.seed)  # noqa: S311 - variety, not secrecy
        chats, wanted = [], []
        for task in self.held_out.tasks:
            chain = self.held_out.chains[task.id]
            index = draw.randrange(len(chain))
            chats.append(self._messages(task, chain, index, call_seed(self.seed, task.id, "test")))
            wanted.append(self._written(chain[index]))
        right = [said == step for said, step in zip(self._said(engine, adapter, chats), wanted, strict=True)]
        return by_stratum(self._strata(), right)

    def _messages(self, task: Task, chain: Sequence[str], index: int, seed: int) -> tuple[Message, ...]:
        work = [text for text in (task.start, *chain)[: index + 1][-1:] if text]
        return next_step(self.prompts, task.question, work, seed=seed, form=self.form, persona=self.persona)


class Moment(NamedTuple):
    """A time in the reading of a task: what somebody is shown then, and what should be said."""

    kind: str  # what is said: "notes", "nothing" or "answers"
    memory: tuple[str, ...]  # notes that are shown
    piece: str  # to read; "" once all are read
    reply: str


@dataclass(frozen=True)
class ReadLesson(Drawn):
    """To note what matters of a piece, and in the end to answer from notes alone, as over inputs in a deliberation."""

    learns = "to note what matters and to answer from notes"
    knows = "facts"

    def _moments(self, tasks: GradedTasks, task: Task, draw: random.Random) -> list[Moment]:
        """What may be learned of a task, the end last."""
        return moments(tasks, task, draw)

    def _example(self, task: Task, draw: random.Random, seed: int) -> Example:
        """A moment, as many of each of its kinds."""
        moment = draw.choice(self._moments(self.train, task, draw))
        return Example(self._messages(task, moment, seed), moment.reply)

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """What was right by kind, then family: of every held-out task one moment of each kind that it has."""
        draw = random.Random(self.seed)  # noqa: S311 - variety, not secrecy
        asked = [(task, m) for task in self.held_out.tasks for m in self._moments(self.held_out, task, draw)]
        chats = [self._messages(task, moment, call_seed(self.seed, task.id, "test")) for task, moment in asked]
        said = self._said(engine, adapter, chats)
        right = [self._right(task, moment, text) for (task, moment), text in zip(asked, said, strict=True)]
        kinds = [f"{moment.kind}, {self.held_out.strata.get(task.id, 'all')}" for task, moment in asked]
        return dict(sorted(by_stratum(kinds, right).items()))

    def _messages(self, task: Task, moment: Moment, seed: int) -> tuple[Message, ...]:
        question, memory = task.question, moment.memory
        if moment.piece:
            question, memory = self.prompts.read(question, memory=memory, piece=moment.piece, seed=seed), ()
        return self.prompts.propose(question, memory=memory, critiques=(), persona=self.persona, seed=seed)

    def _right(self, task: Task, moment: Moment, said: str) -> bool:
        if not moment.piece:
            (verdict,) = self.held_out.verdicts([(task, self.held_out.grader.extract(task, said))])
            return verdict is Verdict.RIGHT
        return noted(said).split() == noted(moment.reply).split()


def moments(tasks: GradedTasks, task: Task, draw: random.Random) -> list[Moment]:
    """One moment of each kind that a task has: a piece that tells something, one that tells nothing, and the end.

    What is remembered is what should be, and in disorder: each fact that no longer matters one time in four, and as
    often something that never did. So a learner cannot go by where a note stands.
    """
    found = []
    for kind, places in moments_by_kind(tasks, task).items():
        if places:
            index, reader = draw.choice(places)
            notes = remembered(tasks, task, index - 1, draw)
            found.append(reading_moment(tasks, task, kind, index, reader, notes))
    end = remembered(tasks, task, len(task.inputs), draw)
    return [*found, Moment("answers", end, "", task.target or "")]


def moments_by_kind(tasks: GradedTasks, task: Task) -> dict[str, list[tuple[int, str | None]]]:
    """Rounds, from 1, with who reads then, by whether something is to be noted."""
    kinds: dict[str, list[tuple[int, str | None]]] = {"notes": [], "nothing": []}
    for index, piece in enumerate(tasks.inputs_of(task), start=1):
        for reader in piece:
            kinds["notes" if tasks.told(task, index, reader) else "nothing"].append((index, reader))
    return kinds


def reading_moment(
    tasks: GradedTasks, task: Task, kind: str, index: int, reader: str | None, notes: tuple[str, ...]
) -> Moment:
    """What somebody reads in a round, and what should be noted of it."""
    reply = " ".join(tasks.told(task, index, reader)) or NOTHING
    return Moment(kind, notes, tasks.inputs_of(task)[index - 1][reader], reply)


def remembered(tasks: GradedTasks, task: Task, index: int, draw: random.Random, stale: float = 0.25) -> tuple[str, ...]:
    """Notes as they may stand after round `index`, from 1; after round 0 none."""
    facts = [fact for fact in tasks.facts[task.id] if fact.piece <= index]
    notes = [fact.text for fact in facts if fact.matters(index) or draw.random() < stale]
    read = [text for piece in tasks.inputs_of(task)[:index] for text in piece.values()]
    if read and draw.random() < 0.25:
        said = sentences(draw.choice(read))
        notes += [text for text in draw.sample(said, 1) if all(text != fact.text for fact in tasks.facts[task.id])]
    return tuple(draw.sample(notes, len(notes)))


def drawn(plan: LessonPlan) -> dict[str, Any]:
    """What such a lesson takes of a plan, besides the tasks."""
    told = {"persona": plan.persona, "max_new_tokens": plan.max_new_tokens, "seed": plan.seeds["train"]}
    return {"prompts": plan.prompts, "count": plan.count, **told}


def lesson_of(plan: LessonPlan, *, form: str = "plain", kinds: Sequence[str] | None = None) -> Lesson:
    """The lesson that the user's own tasks are for, by what is known of them besides answers.

    Of works it is the next step, written in a `form`; of texts in pieces notes and answers; of questions of several
    hops the hops of some `kinds`, of all if None. Otherwise it is the answer.
    """
    train, held_out = plan.own()
    if form != "plain" and not train.chains:
        raise ValueError(f"expected form=plain where no steps are known, got {form}: give the tasks steps")
    if train.chains:
        return StepLesson(train, held_out, **drawn(plan), form=form)
    if any(task.inputs for task in train.tasks):
        return ReadLesson(train, held_out, **drawn(plan))
    if train.hops:
        known = sorted({hop.kind for hops in train.hops.values() for hop in hops})
        return HopLesson(plan.answers(), train, held_out, known if kinds is None else kinds, step_share=1.0)
    return plan.answers()
