"""The sample that another agent rates highest."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from nsed_torch.agents import Agent, call_seed
from nsed_torch.deliberation import JudgeQuestion, JudgeReply
from nsed_torch.deliberation.costs import MARKUP
from nsed_torch.evaluation.methods.growth import Course, answers, check_size, sampled
from nsed_torch.evaluation.methods.panel import Answer, Panel
from nsed_torch.records import Task


@dataclass(frozen=True)
class BestOf:
    """Best of N by a judge: the lead's samples, of which another agent's highest rating wins.

    Best-of-N is published with trained verifiers (Cobbe et al. 2021, arXiv 2110.14168); an agent of the ensemble in
    their place, rating as judges of a deliberation do, is our reading. The judge sees the different texts once each, in
    an order shuffled by its seed. Texts without a rating lose against those with one, ties go to the first sample.
    Smallest form: one sample, unjudged.

    Args:
        samples: without a budget.
        judge: name of the agent that rates; None, or the lead itself, is the next agent of the ensemble after the lead
            that may judge.

    Raises:
        ValueError: for less than one sample.
    """

    samples: int = 5
    judge: str | None = None

    def __post_init__(self) -> None:
        check_size("samples of best-of-N", self.samples)

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`.

        Raises:
            ValueError: if the ensemble has no judge of that name, or none beside the lead.
        """
        judges = {task.id: self._judge(panel, task) for task in tasks}

        def closing(course: Course) -> float:
            longest = max((draft.text for draft in course.drafts), key=len)
            judge = judges[course.task.id]
            question = JudgeQuestion(judge, course.task.question, (*_different(course), longest), 0)
            tokens = panel.rating.most_tokens(panel.prompts, panel.ensemble.engine(judge), question)
            return sum(tokens) + 2 * MARKUP * len(question.candidates)

        courses = sampled(
            panel,
            tasks,
            budgets,
            lambda task: [panel.lead(task)],
            samples=self.samples,
            name="best_of",
            closing=closing,
        )
        open_ = [course for course in courses if len(_different(course)) > 1]
        questions = [_question(panel, course, judges[course.task.id]) for course in open_]
        replies = panel.rating.rate(panel.ensemble, panel.prompts, questions, partial(panel.report, "best_of, rating"))
        judged = {c.task.id: pair for c, pair in zip(open_, zip(questions, replies, strict=True), strict=True)}
        return [_chosen(course, *judged.get(course.task.id, (None, None))) for course in courses]

    def _judge(self, panel: Panel, task: Task) -> Agent:
        lead, agents = panel.lead(task), panel.ensemble.agents
        named = lead if self.judge is None else panel.judge(self.judge)
        if named != lead:
            return named
        after = agents.index(lead) + 1
        judges = [agent for agent in (*agents[after:], *agents[:after]) if agent in panel.ensemble.judges]
        if judges[:1] in ([], [lead]):
            raise ValueError(f"expected a judge beside the lead {lead.name!r}, got none: give an agent the role judge")
        return judges[0]


def _different(course: Course) -> list[str]:
    """The texts that say anything, each once, in the order of the samples."""
    return list(dict.fromkeys(answers(course.drafts)))


def _question(panel: Panel, course: Course, judge: Agent) -> JudgeQuestion:
    seed = call_seed(panel.seed, course.task.id, 1, judge.name, "best_of")
    texts = _different(course)
    random.Random(seed).shuffle(texts)  # noqa: S311 - fairness, not secrecy
    return JudgeQuestion(judge, course.task.question, tuple(texts), seed)


def _chosen(course: Course, question: JudgeQuestion | None, reply: JudgeReply | None) -> Answer:
    texts, samples = _different(course), f"samples: {len(course.drafts)}"
    if question is None or reply is None:
        return course.answer(texts[0] if texts else "", samples, "unjudged")
    ratings = dict(zip(question.candidates, reply.ratings, strict=True))
    best = _best(texts, ratings)
    rated = "no rating" if ratings[best] is None else f"rated {ratings[best]:.2f}"
    return course.answer(best, samples, f"{rated} by {question.judge.name}", *reply.notes, closing=reply.usage)


def _best(texts: Sequence[str], ratings: Mapping[str, float | None]) -> str:
    """The text of the highest rating; max takes the first of equals."""

    def rating(text: str) -> float:
        given = ratings[text]
        return -math.inf if given is None else given

    return max(texts, key=rating)
