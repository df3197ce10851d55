"""A lesson for judges: right answers and wrong ones, as they were recorded. `nsed specialize specialist=judge`."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import RateRequest, call_seed
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.ratings import JudgeQuestion, VerdictRating
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.trace import read_traces
from nsed_torch.records.transcript import Task
from nsed_torch.traces.recorded import load_recorded
from nsed_torch.traces.splits import place
from nsed_torch.tuning.fine_tuning import Example
from nsed_torch.tuning.lessons import LessonPlan, Scores, by_stratum


class Candidate(NamedTuple):
    """One answer to a task, and whether it is right."""

    task: Task
    text: str
    right: bool


def read_candidates(folder: str | Path) -> list[Candidate]:
    """What agents answered, as recorded: every text once per task, whoever wrote it, in every round.

    The folder holds traces of `nsed collect` or `nsed evaluate`, or recorded answers.
    """
    root = Path(folder).expanduser()
    candidates: dict[tuple[str, str], Candidate] = {}
    for candidate in _traced(root) if (root / "traces.jsonl").is_file() else _recorded(root):
        if candidate.text:
            candidates.setdefault((candidate.task.id, candidate.text), candidate)
    return list(candidates.values())


def _traced(folder: Path) -> Iterator[Candidate]:
    for trace in read_traces(folder):
        for record, grades in zip(trace.transcript.rounds, trace.grades, strict=True):
            for proposal, right in zip(record.proposals, grades, strict=True):
                yield Candidate(trace.transcript.task, proposal.text, right)


def _recorded(folder: Path) -> Iterator[Candidate]:
    table = load_recorded(folder)
    for task, *columns in zip(table.tasks, table.outputs, table.answered.tolist(), table.correct.tolist(), strict=True):
        for text, answered, right in zip(*columns, strict=True):
            if answered:
                yield Candidate(task, text, right)


@dataclass(frozen=True)
class VerdictLesson:
    """To say whether an answer is right.

    Raises:
        ValueError: if the rating lists all candidates.
    """

    train: Sequence[Candidate]
    held_out: Sequence[Candidate]  # answers to other questions
    prompts: Prompts
    rating: VerdictRating
    data: Mapping[str, Any]  # says which candidates these are
    persona: str = ""
    seed: int = 0  # of what is learned from and in which order, and of fences

    def __post_init__(self) -> None:
        if self.rating.listed:
            raise ValueError(
                "expected a verdict on each answer alone to learn from, got listed=true: set rating=verdict"
            )

    def examples(self) -> list[Example]:
        """Candidates as a judge reads them, the scale's best label as reply to a right one, its worst to a wrong one.

        As many right as wrong ones, of whichever there are fewer: a judge that says the commoner label to all learns
        nothing by it. What both kinds have in excess is left out, drawn by the seed.

        Raises:
            ValueError: if there is no right or no wrong candidate.
        """
        draw = random.Random(self.seed)  # noqa: S311 - variety, not secrecy
        kinds = [[c for c in self.train if c.right is right] for right in (True, False)]
        fewer = min(map(len, kinds))
        if not fewer:
            raise ValueError(
                "expected right and wrong candidates to learn from, "
                f"got {len(kinds[0])} right and {len(kinds[1])} wrong"
            )
        chosen = [candidate for kind in kinds for candidate in draw.sample(kind, fewer)]
        draw.shuffle(chosen)
        labels, values = self.rating.scale.labels, self.rating.scale.values
        best, worst = (labels[values.index(extreme)] for extreme in (max(values), min(values)))
        requests = self._requests(Agent("judge", "", persona=self.persona), chosen, "example")
        return [
            Example(request.about(request.candidates[0]), best if candidate.right else worst)
            for request, candidate in zip(requests, chosen, strict=True)
        ]

    def scores(self, engine: TransformersEngine, adapter: str | None) -> Scores:
        """Ratings above 0 of right and below 0 of wrong answers, and right answers above wrong ones of their task."""
        judge = Agent("test", "", persona=self.persona, adapter=adapter)
        ratings = [rating.values[0] or 0.0 for rating in engine.rate(self._requests(judge, self.held_out, "test"))]
        rated = list(zip(self.held_out, ratings, strict=True))
        kinds = ["right answers" if c.right else "wrong answers" for c in self.held_out]
        signs = by_stratum(kinds, [(r > 0) if c.right else (r < 0) for c, r in rated])
        pairs = [
            one > other
            for right, one in rated
            for wrong, other in rated
            if right.right and not wrong.right and right.task.id == wrong.task.id
        ]
        return {**signs, "pairs of a task": pairs}

    def _requests(self, judge: Agent, candidates: Sequence[Candidate], phase: str) -> list[RateRequest]:
        seeds = [call_seed(self.seed, c.task.id, c.text, phase) for c in candidates]
        asked = [
            JudgeQuestion(judge, c.task.question, (c.text,), seed) for c, seed in zip(candidates, seeds, strict=True)
        ]
        return self.rating.requests(self.prompts, asked)

    def identity(self) -> dict[str, Any]:
        """Which candidates these are; JSON values only."""
        return {"learns": "to judge", **self.data}


def verdict_lesson(plan: LessonPlan, *, candidates: str, rating: Any, seed: int = 0) -> VerdictLesson:
    """To judge the answers of a folder, a fifth of the tasks held out; the rating says what is asked.

    Raises:
        ValueError: for tasks to answer beside it, or a rating that is no verdict.
    """
    if plan.families:
        raise ValueError("expected answers of a folder to judge, got families to answer: leave them out")
    if not hasattr(rating, "scale"):
        raise ValueError(f"expected a verdict that a judge can learn, got {type(rating).__name__}: set a verdict")
    found = read_candidates(candidates)
    # By task, so that no question is in both parts.
    train, held_out = ([c for c in found if (place(c.task.id) < 0.8) is kept] for kept in (True, False))
    data = {"candidates": len(found), "right": sum(c.right for c in found)}
    return VerdictLesson(train, held_out, plan.prompts, rating, data, persona=plan.persona, seed=seed)
