"""The acts of `nsed demo`: what a team came to beside its members alone, and the page that shows it in pictures."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from nsed_torch.core.inputs import sentences
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.files import read_json
from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import Round, Task, Transcript

TITLES = {
    "vote": "1. The commonest answer is wrong",
    "profile": "2. Four know a fact each",
    "tower": "3. A tower, a hundred moves before its end, by hands that slip",
}

ALONE = "alone.json"
"""What the demo writes beside its transcripts: act -> what each member answered alone."""

PEGS = "123"


@dataclass(frozen=True)
class Act:
    """One act: a deliberation, its grades, and what members answered alone, by name."""

    name: str
    trace: Trace
    alone: Mapping[str, str]

    @property
    def transcript(self) -> Transcript:
        """The deliberation."""
        return self.trace.transcript

    @property
    def right(self) -> bool:
        """Whether the elected answer of the last round is right, and a tower was moved by legal moves alone."""
        last, grades = self.transcript.rounds[-1], self.trace.grades[-1]
        if self.name == "tower":
            return self.transcript.stop_reason == "finished" and all(
                map(legal, *zip(*pairwise(self.works), strict=True))
            )
        return last.winner is not None and grades[last.winner]

    @property
    def works(self) -> list[str]:
        """The work that was given, and as it stood after each step."""
        return [self.transcript.task.start, *map(elected, self.transcript.rounds)]

    @property
    def commonest(self) -> tuple[str, int, int]:
        """The answer of the most members in the last round, of how many, out of how many."""
        answers = [answer or "" for answer in self.trace.answers[-1]]
        text, count = Counter(answers).most_common(1)[0]
        return text, count, len(answers)

    @property
    def slips(self) -> dict[str, int | None]:
        """Of members who were asked at every step: the first at which they differ from what was elected."""
        rounds = self.transcript.rounds
        said = [{p.agent: p.text.split() for p in record.proposals} for record in rounds]
        always = [name for name in said[0] if all(name in texts for texts in said)]
        return {
            name: next(
                (r.index for r, texts in zip(rounds, said, strict=True) if texts[name] != elected(r).split()), None
            )
            for name in always
        }

    @property
    def lesson(self) -> str:
        """What the act came to, in a plain sentence."""
        task, answer = self.transcript.task, self.transcript.answer
        if not self.right:
            return f"This time the team lost: it came to {answer or 'nothing'!r}, and {task.target!r} is right."
        if self.name == "vote":
            text, count, whole = self.commonest
            return f"{count} of {whole} said {text!r}, which is wrong; the vote elected {answer!r}, which is right."
        if self.name == "profile":
            wrong = sum(said != answer for said in self.alone.values())
            guesses = f"Alone each can but guess, {wrong} of {len(self.alone)} wrong"
            return f"{guesses}; together they found {answer!r}, which is right."
        steps = len(self.transcript.rounds)
        held = [steps if slip is None else slip - 1 for slip in self.slips.values()]
        far = "did all of it" if max(held) == steps else f"slipped after {max(held)} moves"
        return f"The team made the last {steps} moves without an error; alone, its best member {far}."


def demo_tasks() -> dict[str, GradedTasks]:
    """The question of each act, by name; they ship with the package."""
    text = files("nsed_torch.questions").joinpath("demo.jsonl").read_text("utf-8")
    found = [Task(**row) for row in map(json.loads, text.splitlines())]
    graders = {task.id: AnswerGrader(kind="number" if (task.target or "").isdigit() else "text") for task in found}
    return {task.id: GradedTasks((task,), graders[task.id], graders[task.id].identity()) for task in found}


def load_acts(folder: Path) -> list[Act]:
    """The acts of a folder of `nsed demo`, graded anew."""
    alone, acts = read_json(folder / ALONE), []
    names = demo_tasks()
    if not isinstance(alone, dict) or not alone or not alone.keys() <= names.keys():
        raise ValueError(f"{folder / ALONE}: expected acts out of {', '.join(names)}; run nsed demo again")
    for name, said in alone.items():
        path = folder / f"{name}.transcript.json"
        transcript = Transcript.load(path)
        if transcript.task != names[name].tasks[0] or not transcript.rounds or not isinstance(said, dict):
            raise ValueError(f"{path}: expected rounds on the demo's question as it is now; run nsed demo again")
        acts.append(Act(name, names[name].traces([transcript])[0], {who: str(said[who]) for who in said}))
    return acts


class Disk(NamedTuple):
    """Where a disk is drawn: middle, top and width, in units of a disk's height."""

    number: int  # from 0, the smallest
    x: float
    y: float
    width: float


def elected(record: Round) -> str:
    """The text that a round elected."""
    return "" if record.winner is None else record.proposals[record.winner].text


def pegs(work: str) -> dict[str, str]:
    """Disk -> its peg in a work such as "a1 to a3: a3 b1 way 132 large"."""
    return dict(re.findall("([a-z])([1-3])", work.rpartition(":")[2].partition("way")[0]))


def legal(before: str, after: str) -> bool:
    """Whether one disk moved, from the top of a peg onto no smaller one."""
    old, new = pegs(before), pegs(after)
    moved = [disk for disk in old if old[disk] != new.get(disk)]
    return (
        len(moved) == 1
        and old.keys() == new.keys()
        and not any(old[disk] in {old[moved[0]], new[moved[0]]} for disk in old if disk < moved[0])
    )


def disks(work: str) -> list[Disk]:
    """A tower as it is drawn, the disks of each peg from the bottom up."""
    places = pegs(work)
    count, drawn = len(places), []
    for column, peg in enumerate(PEGS):
        stack = sorted((disk for disk in places if places[disk] == peg), reverse=True)
        for height, disk in enumerate(stack, start=1):
            number = ord(disk) - ord("a")
            width = 1.5 + 6 * number / max(count - 1, 1)
            drawn.append(Disk(number, 4.5 + 9 * column, count - height, width))
    return drawn


def outvoted(transcript: Transcript, most: int | None = None) -> list[tuple[int, str, str, dict[str, str]]]:
    """Steps at which somebody was outvoted: its number, the work before, the elected one, and who wrote what else."""
    before, found = transcript.task.start, []
    for record in transcript.rounds:
        others = {p.agent: p.text for j, p in enumerate(record.proposals) if j not in record.elected}
        if others:
            found.append((record.index, before, elected(record), others))
        before = elected(record)
    return found[:most]


def frames(transcript: Transcript, every: int = 8) -> Iterator[tuple[int, str]]:
    """The work at the start, after every so many steps, and in the end."""
    works: Sequence[Any] = [transcript.task.start, *map(elected, transcript.rounds)]
    yield from ((i, work) for i, work in enumerate(works) if i % every == 0 or i == len(works) - 1)


def let_go(transcript: Transcript) -> list[str]:
    """Sentences that members read and that the memory of the last round does not hold."""
    held = " ".join(slot.text for slot in transcript.rounds[-1].memory)
    texts = [
        text for piece in transcript.task.inputs for text in ([piece] if isinstance(piece, str) else piece.values())
    ]
    return [one for text in texts for one in sentences(text) if one not in held]
