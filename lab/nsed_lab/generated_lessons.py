"""To take steps of generated work, or all at once, and to read in pieces that mislead: lessons of the laboratory."""

import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nsed_lab.reading_tasks import COLOURS, people_in, reading_tasks
from nsed_lab.stepwise import stepwise_tasks
from nsed_torch.core.engine import Message, call_seed
from nsed_torch.core.inputs import sentences
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.traces.splits import place
from nsed_torch.tuning import known_lessons
from nsed_torch.tuning.fine_tuning import Example
from nsed_torch.tuning.known_lessons import Drawn, Moment, drawn, moments_by_kind, reading_moment, remembered
from nsed_torch.tuning.lessons import LessonPlan, Scores, by_stratum


@dataclass(frozen=True)
class WholeLesson(Drawn):
    """To write all steps of some work in one text, a line each, asked as who answers alone is asked (`Single`).

    What a team of steps has to beat: the same work by one model that never stops to be outvoted.
    """

    learns = "to write all steps in one text"

    def _example(self, task: Task, draw: random.Random, seed: int) -> Example:
        return Example(self._messages(task, seed), "\n".join(self.train.chains[task.id]))

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """Right final answers by family, then texts in which every step is right.

        Where a tower of Hanoi ends is said in its question: of towers the second alone says anything.
        """
        tasks, strata = self.held_out.tasks, [self.held_out.strata[task.id] for task in self.held_out.tasks]
        chats = [self._messages(task, call_seed(self.seed, task.id, "test")) for task in tasks]
        said = self._said(engine, adapter, chats)
        finals = [(task, self.held_out.grader.extract(task, text)) for task, text in zip(tasks, said, strict=True)]
        right = [verdict is Verdict.RIGHT for verdict in self.held_out.verdicts(finals)]
        whole = [
            tuple(text.splitlines()) == self.held_out.chains[task.id] for task, text in zip(tasks, said, strict=True)
        ]
        return {**by_stratum(strata, right), **by_stratum([f"every step, {name}" for name in strata], whole)}

    def _messages(self, task: Task, seed: int) -> tuple[Message, ...]:
        return self.prompts.propose(task.question, memory=(), critiques=(), persona=self.persona, seed=seed)


@dataclass(frozen=True)
class StepLesson(known_lessons.StepLesson):
    """To write the next step, of a part of all works, or of long ones more often.

    Members that err alike correct nobody. Two ways to make them err elsewhere: to learn from disjoint parts of the
    works, and to read and write them in another form. Both are ours.
    """

    of: int = 1  # parts that works are dealt to by their hash, wherever they come up
    take: int = 0  # the part that is learned from; first steps are in all of them
    by_length: float = 0.0  # of examples: first a length, each alike, then a step of that length, or the one behind it

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.take < self.of:
            raise ValueError(f"expected a part from 0 to below their number, got part {self.take} of {self.of}")
        if not 0 <= self.by_length <= 1:
            raise ValueError(f"expected by_length in [0, 1], got {self.by_length}: the share of examples")

    def _drawn_step(self, chain: Sequence[str], draw: random.Random) -> int:
        """A step; one in eight is the first, and all of a task of which the part has no work."""
        # The steps that read a work of the part.
        own = [i for i, work in enumerate(chain[:-1], start=1) if int(place(work) * self.of) == self.take]
        index = 0 if draw.random() < 1 / 8 or not own else draw.choice(own)
        if own and self.by_length and draw.random() < self.by_length:
            lengths = {i: len(self._written(chain[i]).split()) for i in own}
            length = draw.choice(sorted(set(lengths.values())))
            index = draw.choice([i for i in own if lengths[i] == length])
            # What a long step is followed by comes as seldom.
            if index + 1 in lengths and draw.random() < 1 / 2:
                index += 1
        return index

    def identity(self) -> dict[str, Any]:
        """Which tasks these are, and what of them; JSON values only."""
        part = {"part": [self.take, self.of]} if self.of > 1 else {}
        return {**super().identity(), **part, **({"by_length": self.by_length} if self.by_length else {})}


@dataclass(frozen=True)
class Misleading:
    """Statements of no use about whom a question or a note names, or in the words of what matters."""

    share: float

    def near(self, tasks: GradedTasks, task: Task, index: int, reader: str | None) -> bool:
        """Whether what somebody reads in a round, from 1, names a person of the question or of what was told before."""
        told = " ".join([task.question, *(fact.text for fact in tasks.facts[task.id] if fact.piece < index)])
        return bool(people_in(told) & people_in(tasks.inputs_of(task)[index - 1][reader]))

    def notes(self, tasks: GradedTasks, task: Task, index: int, shown: str, draw: random.Random) -> list[str]:
        """Some about people in the piece."""
        return _misleading(tasks, task, index, shown, draw)

    def at_the_end(self, tasks: GradedTasks, task: Task, draw: random.Random) -> list[str]:
        """Some about people who are asked about, and what is said of others in the words of what matters."""
        worded = {_wording(fact.text) for fact in tasks.facts[task.id]}
        beside = _misleading(tasks, task, len(task.inputs) + 1, task.question, draw, worded=worded)
        return list(dict.fromkeys([*beside, *_crossed(tasks, task, draw, worded)]))


@dataclass(frozen=True)
class ReadLesson(known_lessons.ReadLesson):
    """To note what matters of a piece, among pieces and notes that mislead.

    What is noted for nothing is mostly about somebody who is asked about or noted: the same person's hat
    (lab/pages/readers.md). Of pieces that tell nothing a share can be drawn from those that name such a person. In
    the same share of all examples notes of no use about people in the piece are remembered, and in the end all that
    was true and notes of no use about people who are asked about; also what is said of others, or of them, in the
    words of what matters, as where they live: else a learner answers with the one town among its notes where
    somebody lives. Of `answers_share` of all examples the end is asked for, whatever else there is.

    Raises:
        ValueError: also if a share is out of range.
    """

    _shares: ClassVar[tuple[str, ...]] = ("near_share", "answers_share")

    near_share: float = 0.0  # of examples of nothing
    answers_share: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._shares:
            if not 0 <= (share := getattr(self, name)) <= 1:
                raise ValueError(f"expected {name} in [0, 1], got {share}")

    def identity(self) -> dict[str, Any]:
        """Which tasks these are, and what of them; JSON values only."""
        return {**super().identity(), **{name: share for name in self._shares if (share := getattr(self, name))}}

    def _moments(self, tasks: GradedTasks, task: Task, draw: random.Random) -> list[Moment]:
        return moments(tasks, task, draw, self.near_share)

    def _example(self, task: Task, draw: random.Random, seed: int) -> Example:
        """A moment, as many of each of its kinds but for the share that answers."""
        found = self._moments(self.train, task, draw)
        answers = bool(self.answers_share) and draw.random() < self.answers_share
        moment = found[-1] if answers else draw.choice(found)
        return Example(self._messages(task, moment, seed), moment.reply)


@dataclass(frozen=True)
class AllAtOnceLesson(known_lessons.ReadLesson):
    """To answer with all pieces in the prompt, as if each had been noted whole: what a memory has to beat."""

    learns = "to answer with the whole text in the prompt"

    def _moments(self, tasks: GradedTasks, task: Task, draw: random.Random) -> list[Moment]:
        return [Moment("answers", all_pieces(task), "", task.target or "")]


def all_pieces(task: Task) -> tuple[str, ...]:
    """Every piece of a text that all agents read."""
    return tuple(piece for piece in task.inputs if isinstance(piece, str))


def step_lesson(
    plan: LessonPlan, *, of: int = 1, take: int = 0, form: str = "plain", by_length: float = 0.0
) -> StepLesson:
    """A `StepLesson` on the families of `nsed specialize`."""
    own: dict[str, Any] = {"of": of, "take": take, "form": form, "by_length": by_length}
    train, held_out = plan.tasks(stepwise_tasks)
    return StepLesson(train, held_out, **drawn(plan), **own)


def whole_lesson(plan: LessonPlan) -> WholeLesson:
    """A `WholeLesson` on the families of `nsed specialize`."""
    train, held_out = plan.tasks(stepwise_tasks)
    return WholeLesson(train, held_out, **drawn(plan))


def read_lesson(plan: LessonPlan, *, near_share: float = 0.0, answers_share: float = 0.0) -> ReadLesson:
    """A `ReadLesson` on the families of `nsed specialize`."""
    own: dict[str, Any] = {"near_share": near_share, "answers_share": answers_share}
    train, held_out = plan.tasks(reading_tasks)
    return ReadLesson(train, held_out, **drawn(plan), **own)


def all_at_once_lesson(plan: LessonPlan) -> AllAtOnceLesson:
    """An `AllAtOnceLesson` on the families of `nsed specialize`."""
    train, held_out = plan.tasks(reading_tasks)
    return AllAtOnceLesson(train, held_out, **drawn(plan))


def moments(tasks: GradedTasks, task: Task, draw: random.Random, near_share: float = 0.0) -> list[Moment]:
    """Moments of a task as a `ReadLesson` draws them."""
    if not near_share:
        return known_lessons.moments(tasks, task, draw)
    misleading, found = Misleading(near_share), []
    for kind, places in moments_by_kind(tasks, task).items():
        if places:
            hard = draw.random() < near_share
            near = [one for one in places if misleading.near(tasks, task, *one)] if hard and kind == "nothing" else []
            index, reader = draw.choice(near or places)
            notes = remembered(tasks, task, index - 1, draw)
            if hard:  # whatever is to be said, lest a note that misleads give it away
                shown = tasks.inputs_of(task)[index - 1][reader]
                mixed = [*notes, *misleading.notes(tasks, task, index, shown, draw)]
                notes = tuple(draw.sample(mixed, len(mixed)))
            found.append(reading_moment(tasks, task, kind, index, reader, notes))
    hard = draw.random() < near_share
    end = remembered(tasks, task, len(task.inputs), draw, stale=1.0 if hard else 0.25)
    if hard:
        beside = misleading.at_the_end(tasks, task, draw)
        end = tuple(draw.sample([*end, *beside], len(end) + len(beside)))
    return [*found, Moment("answers", end, "", task.target or "")]


def _misleading(
    tasks: GradedTasks, task: Task, index: int, shown: str, draw: random.Random, *, worded: Collection[str] = ()
) -> list[str]:
    """Up to two statements of no use, read before round `index`: about somebody in what is shown then, or so worded."""
    facts = {fact.text for fact in tasks.facts[task.id]}
    read = [text for piece in tasks.inputs_of(task)[: index - 1] for text in piece.values()]
    said = [one for text in read for one in sentences(text)]
    of_no_use = [text for text in said if text not in facts]
    about = [text for text in of_no_use if people_in(text) & people_in(shown) or _wording(text) in worded]
    return draw.sample(about, min(len(about), draw.randint(0, 2)))


def _crossed(tasks: GradedTasks, task: Task, draw: random.Random, worded: Collection[str]) -> list[str]:
    """One time in two, of somebody who is asked about what a piece says of somebody else in the words of a fact.

    A long text says such things: where Igor was born, as his doctor's birthplace is asked for. A short one rarely does.
    """
    facts, asked = [fact.text for fact in tasks.facts[task.id]], sorted(people_in(task.question))
    said = [text for piece in task.inputs if isinstance(piece, str) for text in sentences(piece)]
    # Who gets what on which day is said of the thing, and would make another answer right.
    told = [text for text in said if _wording(text) in worded]
    alike = [text for text in told if people_in(text) == people_in(text.split()[0]) != set()]
    if not (asked and alike) or draw.random() < 0.5:
        return []
    text, name = draw.choice(alike), draw.choice(asked)
    (other,) = people_in(text)
    crossed = re.sub(rf"\b{other}\b", name, text)
    taken = any(_wording(crossed) == _wording(fact) and name in people_in(fact) for fact in facts)
    return [] if taken else [crossed]


def _wording(text: str) -> str:
    """A statement without who, where and which colour."""
    return " ".join(word for word in text.rstrip(".").split() if word[0].islower() and word not in COLOURS)
